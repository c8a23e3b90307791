"""Alerts from conditions over several joined streams, with almost no state and no alarm missed."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tocsin.errors import ExprError, PlanError, RuleError, RunError, SqlError, TocsinError
    from tocsin.expr.certify import Certificate, certify
    from tocsin.local import explain, run_local
    from tocsin.operators.retention.threshold_sorter import ThresholdSorter, retained
    from tocsin.rules.model import Rule
    from tocsin.rules.no_data import NoData
    from tocsin.rules.ranges import RangeRule
    from tocsin.spark.alerts import alerts
    from tocsin.spark.query import sql
    from tocsin.stages.ranges.index import RangeIndex

__all__ = [
    "Certificate",
    "ExprError",
    "NoData",
    "PlanError",
    "RangeIndex",
    "RangeRule",
    "Rule",
    "RuleError",
    "RunError",
    "SqlError",
    "ThresholdSorter",
    "TocsinError",
    "alerts",
    "certify",
    "explain",
    "retained",
    "run_local",
    "sql",
]

# Module of each public name. It is imported at the first use of the name, so that light commands start fast.
_MODULES = {
    "Certificate": "tocsin.expr.certify",
    "ExprError": "tocsin.errors",
    "NoData": "tocsin.rules.no_data",
    "PlanError": "tocsin.errors",
    "RangeIndex": "tocsin.stages.ranges.index",
    "RangeRule": "tocsin.rules.ranges",
    "Rule": "tocsin.rules.model",
    "RuleError": "tocsin.errors",
    "RunError": "tocsin.errors",
    "SqlError": "tocsin.errors",
    "ThresholdSorter": "tocsin.operators.retention.threshold_sorter",
    "TocsinError": "tocsin.errors",
    "alerts": "tocsin.spark.alerts",
    "certify": "tocsin.expr.certify",
    "explain": "tocsin.local",
    "retained": "tocsin.operators.retention.threshold_sorter",
    "run_local": "tocsin.local",
    "sql": "tocsin.spark.query",
}


def __getattr__(name: str) -> Any:
    """Import the module of a public name at its first use, and bind the name here."""
    module = _MODULES.get(name)
    if module is None:
        message = f"module 'tocsin' has no attribute {name!r}"
        raise AttributeError(message)
    value = getattr(import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the public names, including names that are not imported yet."""
    return sorted({*globals(), *__all__})
