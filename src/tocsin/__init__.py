"""Alerts from conditions over several joined streams, with almost no state and no alarm missed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tocsin.errors import ExprError, PlanError, RuleError, RunError, TocsinError
from tocsin.local import explain, run_local
from tocsin.rules.model import Rule
from tocsin.stages.reduce.sorter import ThresholdSorter, retained

if TYPE_CHECKING:
    from tocsin.spark import alerts

__all__ = [
    "ExprError",
    "PlanError",
    "Rule",
    "RuleError",
    "RunError",
    "ThresholdSorter",
    "TocsinError",
    "alerts",
    "explain",
    "retained",
    "run_local",
]


def __getattr__(name: str) -> Any:
    """Import what needs pyspark only when it is asked for."""
    if name == "alerts":
        from tocsin.spark import alerts

        return alerts
    message = f"module 'tocsin' has no attribute {name!r}"
    raise AttributeError(message)
