"""Budget: how much state a watch may keep, and which rules share it.

A rule with `memory` has a watch of its own; the joins that share what the run may keep have one for each set of key
columns, `prefer` and `weight`.
"""

from __future__ import annotations

from dataclasses import dataclass

from tocsin.plan.identity import digest
from tocsin.rules.memory import BYTES, SAMPLE, Memory, size_text
from tocsin.rules.model import Rule

# The least that a bucket must have: what a page costs by itself, a model, and some rows.
LEAST = {"bytes": 32_768, "rows": 16}


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

    @property
    def terms(self) -> str:
        """Name what is divided, and between whom: shares of one budget are none of another."""
        return digest(self.memory.amount, self.memory.unit, self.buckets, self.pool)

    @property
    def share(self) -> int:
        """What one bucket may keep at first."""
        return self.memory.amount // self.buckets

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
        kept = "a random sample of results is found, each with its chance" if self.samples else kept
        return f"{text}; when it is short, {kept}{weight}"

    @property
    def samples(self) -> bool:
        """Tell whether a sample of results is preferred."""
        return self.prefer == SAMPLE


def memory_of(rule: Rule, run: Memory | None) -> tuple[object, ...]:
    """By what joins share a budget; empty: the rule has none."""
    if rule.memory is not None:
        return ("own", rule.alert, tuple(sorted(rule.labels.items())))
    return ("run", rule.prefer, float(rule.weight)) if run is not None else ()
