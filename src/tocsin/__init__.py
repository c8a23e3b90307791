"""Alerts from conditions over several joined streams, with almost no state and no alarm missed."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tocsin.errors import ExprError, PlanError, RuleError, RunError, SqlError, TocsinError
    from tocsin.expr.certify import Certificate, certify
    from tocsin.local import explain, run_local
    from tocsin.rules.model import Rule
    from tocsin.rules.no_data import NoData
    from tocsin.rules.ranges import Ranges
    from tocsin.spark.alerts import alerts
    from tocsin.spark.query import sql
    from tocsin.stages.ranges.index import RangeIndex
    from tocsin.stages.reduce.sorter import ThresholdSorter, retained

__all__ = [
    "Certificate",
    "ExprError",
    "NoData",
    "PlanError",
    "RangeIndex",
    "Ranges",
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

# Where each name lives. It is imported when it is first asked for: a command that needs no engine starts without one.
_HOMES = {
    "Certificate": "tocsin.expr.certify",
    "ExprError": "tocsin.errors",
    "NoData": "tocsin.rules.no_data",
    "PlanError": "tocsin.errors",
    "RangeIndex": "tocsin.stages.ranges.index",
    "Ranges": "tocsin.rules.ranges",
    "Rule": "tocsin.rules.model",
    "RuleError": "tocsin.errors",
    "RunError": "tocsin.errors",
    "SqlError": "tocsin.errors",
    "ThresholdSorter": "tocsin.stages.reduce.sorter",
    "TocsinError": "tocsin.errors",
    "alerts": "tocsin.spark",
    "certify": "tocsin.expr.certify",
    "explain": "tocsin.local",
    "retained": "tocsin.stages.reduce.sorter",
    "run_local": "tocsin.local",
    "sql": "tocsin.spark.query",
}


def __getattr__(name: str) -> Any:
    """Import the home of a public name when it is first asked for, and bind the name here."""
    home = _HOMES.get(name)
    if home is None:
        message = f"module 'tocsin' has no attribute {name!r}"
        raise AttributeError(message)
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names, imported or not."""
    return sorted({*globals(), *__all__})
