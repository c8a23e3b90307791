"""Certificates: the verdict and the proof of each variable, and hints for the user if nothing is proved."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tocsin.expr.certify.counterexample_search import SamplingResult, sample_expression
from tocsin.expr.certify.domain_boxes import Domains, clip_domain
from tocsin.expr.syntax_tree import Binary, Call, Key, Node, Variable, find_variables

VERDICTS = ("constant", "increasing", "decreasing", "quasiconvex", "refuted", "undecided")
PROVED = VERDICTS[:4]

HELP_OPEN = "declare narrower domains, or simplify the terms that contain the variable"
HELP_TOO_LARGE = "split the condition into several rules"

_REQUIRED_ARGUMENTS = {"ln": "is above 0", "log10": "is above 0", "sqrt": "is not negative"}


@dataclass(frozen=True)
class Verdict:
    """How an expression changes with one variable, for any fixed values of the other variables.

    Attributes
    ----------
    verdict
        One of `VERDICTS`. A quasiconvex expression decreases, then increases. Increasing and decreasing are not strict.
    proof
        The method of the proof, or the reason why nothing is proved.
    counterexample
        If refuted: three values `x` of the variable, and the values `at` of the other variables. The result is strictly
        highest at the middle value.
    rounding
        Bound of the difference between results in double precision and a function with the proved shape. 0.0 if the
        shape is exact in floating point, inf if no bound is known.
    help
        If nothing is proved: a change of the condition or its domains that can help.
    """

    verdict: str
    proof: str = ""
    counterexample: Mapping[str, Any] | None = None
    rounding: float = 0.0
    help: str = ""

    @property
    def proved(self) -> bool:
        """Whether a shape is proved, so that rows can be omitted."""
        return self.verdict in PROVED

    def to_dict(self) -> dict[str, Any]:
        """Return the verdict as JSON types. The rounding is None if it is not bounded or nothing is proved."""
        return {
            "verdict": self.verdict,
            "proof": self.proof,
            "counterexample": None if self.counterexample is None else dict(self.counterexample),
            "rounding": _finite_or_none(self.rounding) if self.proved else None,
            "help": self.help or None,
        }

    def __str__(self) -> str:
        """Return verdict and proof in one line."""
        return f"{self.verdict}, proved by {self.proof}" if self.proved else f"{self.verdict}: {self.proof}"


@dataclass(frozen=True)
class Certificate(Mapping[str, Verdict]):
    """Mapping of the variables of an expression to their verdicts, on declared domains."""

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
        """Return the certificate as JSON types. An infinite end of a domain is None."""
        return {
            "expr": self.expr,
            "domains": {
                name: [_finite_or_none(low), _finite_or_none(high)] for name, (low, high) in self.domains.items()
            },
            "variables": {name: verdict.to_dict() for name, verdict in self.verdicts.items()},
        }

    def __str__(self) -> str:
        """Return one line per variable."""
        width = max((len(name) for name in self.verdicts), default=0)
        return "\n".join(f"{name:<{width}}  {verdict}" for name, verdict in self.verdicts.items())


def _finite_or_none(number: float) -> float | None:
    return None if math.isinf(number) else number


def suggest_for_undefined(part: Node) -> str:
    """Return a hint for a part of an expression that may be undefined or infinite."""
    if isinstance(part, Binary) and part.op == "/" and find_variables(part.right):
        # Use the names of the condition if both sides are variables.
        is_simple = isinstance(part.left, Variable) and isinstance(part.right, Variable)
        top, bottom = (part.left, part.right) if is_simple else ("a", "b")
        form = (
            f"if `{bottom}` is never negative, write `{top} > limit * {bottom}` instead of `{top} / {bottom} > limit`"
        )
        if isinstance(part.right, Variable):
            return f"declare {_name_domains(part.right)} without 0, or, {form}"
        return f"declare {_name_domains(part.right)} in which `{part.right}` is not 0, or, {form}"
    if isinstance(part, Call) and part.name in _REQUIRED_ARGUMENTS and find_variables(part):
        return f"declare {_name_domains(part)} in which `{part.args[0]}` {_REQUIRED_ARGUMENTS[part.name]}"
    return f"declare {_name_domains(part)} in which the expression is defined and finite"


def _name_domains(node: Node) -> str:
    names = [f"`{name}`" for name in dict.fromkeys(map(str, find_variables(node)))]
    return f"a domain of {' and of '.join(names)}" if names else "domains"


def suggest_for_peak(tree: Node, along: Key, domains: Domains, samples: SamplingResult) -> str:
    """Return a hint for an expression with a peak. A narrower domain helps unless the peak moves."""
    low, high = clip_domain(domains[along])
    halves = [(low, low / 2 + high / 2), (low / 2 + high / 2, high)]
    fixed = {key: (value, value) for key, value in samples.at.items()}
    # The peak moves if both halves of the domain contain peaks, but not for the sampled values of the other variables.
    if (
        fixed
        and all(sample_expression(tree, along, {**domains, along: half}).xs for half in halves)
        and not all(sample_expression(tree, along, {**domains, **fixed, along: half}).xs for half in halves)
    ):
        return "a narrower domain does not help: the position of the peak depends on the other variables"
    return f"declare a narrower domain of `{Variable(*along)}` that ends before the expression decreases again"
