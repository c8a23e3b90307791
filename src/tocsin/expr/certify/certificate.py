"""What certification says: per variable a verdict with its proof or counterexample, or why there is neither."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

VERDICTS = ("constant", "increasing", "decreasing", "quasiconvex", "refuted", "undecided")
PROVED = VERDICTS[:4]


@dataclass(frozen=True)
class Verdict:
    """What an expression does as one variable grows while the others stand.

    `proof` says in one line how that was shown; `counterexample` has three values of the variable with the middle one
    highest, and the values of the others; `rounding` is how far doubles may depart from the shape: 0.0 not at
    all. `help` says what a user could change where nothing was proved.
    """

    verdict: str
    proof: str = ""
    counterexample: Mapping[str, Any] | None = None
    rounding: float = 0.0
    help: str = ""

    @property
    def proved(self) -> bool:
        """Tell whether rows may be left out on the strength of it."""
        return self.verdict in PROVED

    def to_dict(self) -> dict[str, Any]:
        """The same in plain types; a rounding that nothing bounds is None, as it is where nothing is proved."""
        return {
            "verdict": self.verdict,
            "proof": self.proof,
            "counterexample": None if self.counterexample is None else dict(self.counterexample),
            "rounding": _finite(self.rounding) if self.proved else None,
            "help": self.help or None,
        }


@dataclass(frozen=True)
class Certificate(Mapping[str, Verdict]):
    """The verdicts of an expression by variable, on declared domains."""

    expr: str
    domains: Mapping[str, tuple[float, float]]
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Verdict:
        return self.verdicts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.verdicts)

    def __len__(self) -> int:
        return len(self.verdicts)

    def to_dict(self) -> dict[str, Any]:
        """The same in plain types; an end that is not bounded is None."""
        return {
            "expr": self.expr,
            "domains": {name: [_finite(low), _finite(high)] for name, (low, high) in self.domains.items()},
            "variables": {name: verdict.to_dict() for name, verdict in self.verdicts.items()},
        }

    def __str__(self) -> str:
        """One line per variable."""
        width = max((len(name) for name in self.verdicts), default=0)
        lines = [f"{name:<{width}}  {verdict.verdict}: {verdict.proof}" for name, verdict in self.verdicts.items()]
        return "\n".join(lines)


def _finite(end: float) -> float | None:
    return end if abs(end) != float("inf") else None
