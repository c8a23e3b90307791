"""Plan: the tree of steps that a run builds. Its text is what `explain` shows.

Plan
└── Watch (one per key set)             one operator, one shuffle
    ├── Store (one per stream read)     reduce: which rows are remembered
    └── Threshold (one per rule)        join, evaluate, alert
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from tocsin.logic import Pages
from tocsin.plan.steps import Watch
from tocsin.plan.watch import PlanLogic


@dataclass(frozen=True)
class Plan:
    """What runs: one watch per key set."""

    watches: tuple[Watch, ...]

    def __str__(self) -> str:
        """Draw the tree."""
        return "\n".join(str(watch) for watch in self.watches)

    def build(self, pages: Pages) -> PlanLogic:
        """Make the logic of the whole plan."""
        return PlanLogic(self, pages)

    @property
    def fingerprint(self) -> str:
        """Name this plan: state of another plan is not read."""
        return hashlib.sha256(repr(self).encode()).hexdigest()[:16]
