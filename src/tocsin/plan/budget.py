"""Budget: how much state a watch may keep, and which rules share it.

A rule with `memory` has a watch of its own; the joins that share what the run may keep have one for each set of key
columns, `prefer` and `weight`.
"""

from __future__ import annotations

from dataclasses import dataclass

from tocsin.logic import Found
from tocsin.plan.identity import digest
from tocsin.rules.memory import BYTES, NONE, SAMPLE, Memory, Model, read_model, size_text
from tocsin.rules.model import Rule

# The least that a bucket must have: what a page costs by itself, a model, and some rows.
LEAST = {"bytes": 32_768, "rows": 16}
# Pieces into which the ages of a window are cut where no rule says so, and the most that one may ask for.
GRANULES, MOST_GRANULES = 20, 200
# What fits is found out.
MEASURED = Model()


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
    model: Model = MEASURED

    @property
    def granules(self) -> int:
        """Into how many pieces the ages of a window are cut."""
        fine_us = self.model.granularity_us
        return -(-max(self.windows_us) // fine_us) if fine_us else GRANULES

    @property
    def terms(self) -> str:
        """Name what is divided, and between whom: shares of one budget are none of another."""
        return digest(self.memory.amount, self.memory.unit, self.buckets, self.pool)

    @property
    def share(self) -> int:
        """What one bucket may keep at first."""
        return self.memory.amount // self.buckets

    @property
    def traces(self) -> int:
        """Of how many rows of each lane that went a sample keeps traces: a sixteenth of the bytes is for them."""
        return max(64, self.share // (2 * 8 * 16 if self.memory.unit == BYTES else 1))

    def __str__(self) -> str:
        """Say how much, whose, and what happens when it is short."""
        whose = "a share of the run's at first" if self.pooled else "of its own"
        text = f"{self.memory}, {whose}"
        if self.buckets > 1:
            moves = ", then by demand" if self.told else ""
            each = size_text(self.share) if self.memory.unit == BYTES else f"{self.share:,} rows"
            text += f"; {each} for each of {self.buckets} buckets{moves}"
        weight = f"; weight {self.weight:g}" if self.weight != 1 else ""
        kept = "the rows that give most results stay: by the model that fits, else the newest"
        kept = "the newest rows stay" if self.model.by == NONE else kept
        kept = "a random sample of results is found, each with its chance" if self.samples else kept
        model = f"; {self.model}" if str(self.model) else ""
        foretold = "error" if self.samples else "recall"
        return f"{text}; when it is short, {kept}{model}{weight}; {foretold}: foretold in a run or a backtest"

    @property
    def samples(self) -> bool:
        """Tell whether a sample of results is preferred."""
        return self.prefer == SAMPLE


def found_text(found: Found) -> str:
    """Say what limited memory finds, as far as it is known.

    >>> found_text(Found(0.934, 0.91)), found_text(Found(error_reached=0.05))
    ('recall 0.934 predicted, 0.91 reached', 'error not predicted, 0.05 reached')
    """
    sampled = found.error_predicted is not None or found.error_reached is not None
    name, predicted, reached = ("error", *found[2:]) if sampled else ("recall", *found[:2])
    foretold = "not predicted" if predicted is None else f"{predicted:.3g} predicted"
    return f"{name} {foretold}, {'not known yet' if reached is None else f'{reached:.3g} reached'}"


def memory_of(rule: Rule, run: Memory | None) -> tuple[object, ...]:
    """By what joins share a budget; empty: the rule has none."""
    if rule.memory is not None:
        return ("own", rule.alert, tuple(sorted(rule.labels.items())))
    return ("run", rule.prefer, float(rule.weight), read_model(rule.model)) if run is not None else ()
