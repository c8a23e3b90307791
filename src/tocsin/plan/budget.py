"""Budget: how much state a watch may keep, and which rules share it.

A rule with `quality.memory` has a watch of its own; the joins that share what the run may keep have one for each set of
key columns, `quality.prefer` and `quality.weight`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tocsin.hashing import stable_hash
from tocsin.rules.model import Rule
from tocsin.rules.quality import BYTES, NONE, SAMPLE, Memory, UtilityModel, size_text

# The least that a bucket must have: what a page costs by itself, a model, and some rows.
LEAST = {"bytes": 32_768, "rows": 16}
# Pieces into which the ages of a window are cut where no rule says so, and the most that one may ask for.
GRANULES, MOST_GRANULES = 20, 200
# What fits is found out.
MEASURED = UtilityModel()


@dataclass(frozen=True)
class Budget:
    """What a watch may keep over all `buckets`; `pooled`: it is a part of what the run may keep.

    `told`: a bucket tells what its memory buys, and takes the share that it is given. `windows_us` has, per lane, how
    far a row of it may lie behind another stream and still be joined in order. `pool` names those that share it.
    """

    memory: Memory
    prefer: str
    weight: float
    windows_us: tuple[int, ...]
    pooled: bool = False
    buckets: int = 1
    told: bool = False
    pool: str = ""
    model: UtilityModel = MEASURED

    @property
    def granules(self) -> int:
        """Into how many pieces the ages of a window are cut."""
        fine_us = self.model.granularity_us
        return -(-max(self.windows_us) // fine_us) if fine_us else GRANULES

    @property
    def terms(self) -> str:
        """Name what is divided, and between whom: shares of one budget are none of another."""
        return stable_hash(self.memory.amount, self.memory.unit, self.buckets, self.pool)

    @property
    def share(self) -> int:
        """What one bucket may keep at first."""
        return self.memory.amount // self.buckets

    @property
    def traces(self) -> int:
        """Of how many rows of each lane that went a sample keeps traces: a sixteenth of the bytes is for them."""
        return max(64, self.share // (2 * 8 * 16 if self.memory.unit == BYTES else 1))

    def __str__(self) -> str:
        """Return the budget, its owner and the handling of an exceeded budget as text."""
        whose = "initial share of the budget of the run" if self.pooled else "own budget"
        text = f"{self.memory}, {whose}"
        if self.buckets > 1:
            moves = ", then rebalanced by demand" if self.told else ""
            each = size_text(self.share) if self.memory.unit == BYTES else f"{self.share:,} rows"
            text += f"; {each} for each of {self.buckets} buckets{moves}"
        weight = f"; weight {self.weight:g}" if self.weight != 1 else ""
        kept = "keep the rows with the most expected results (by the model that fits, or else the newest rows)"
        kept = "keep the newest rows" if self.model.by == NONE else kept
        kept = "emit a random sample of the results, each with its probability" if self.samples else kept
        model = f"; {self.model}" if str(self.model) else ""
        measure = "error" if self.samples else "recall"
        return (
            f"{text}; if the budget is exceeded, {kept}{model}{weight}; "
            f"a run or a backtest reports the expected {measure}"
        )

    @property
    def samples(self) -> bool:
        """Tell whether a sample of results is preferred."""
        return self.prefer == SAMPLE


def found_text(found: Mapping[str, float | None]) -> str:
    """Return the predicted and the measured recall under a memory budget, or the errors of a sample, as text.

    >>> found_text({"predicted": 0.934, "reached": 0.91}), found_text({"error_reached": 0.05})
    ('recall 0.934 predicted, 0.91 measured', 'error not predicted, 0.05 measured')
    """
    errors = found.get("error_predicted"), found.get("error_reached")
    recalls = found.get("predicted"), found.get("reached")
    name, (predicted, reached) = ("recall", recalls) if errors == (None, None) else ("error", errors)
    prediction = "not predicted" if predicted is None else f"{predicted:.3g} predicted"
    return f"{name} {prediction}, {'not measured yet' if reached is None else f'{reached:.3g} measured'}"


def memory_of(rule: Rule, run: Memory | None) -> tuple[object, ...]:
    """By what joins share a budget; empty: the rule has none."""
    quality = rule.quality_options
    if quality.memory is not None:
        return ("own", rule.alert, tuple(sorted(rule.labels.items())))
    return ("run", quality.prefer, quality.weight, quality.model or MEASURED) if run is not None else ()
