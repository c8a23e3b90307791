"""Plans: `make_plan` turns rules into a `Plan`, and `Session` (`runtime/session.py`) executes it.

Engines, commands and pages import only the names of this module. Operators and interim pipelines also import the
specifications in `plan/steps.py`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tocsin.interim.cpu.stream_query import Select
    from tocsin.interim.ranges.active_requests import Alive, alive_requests
    from tocsin.interim.ranges.range_pipeline import RANGES
    from tocsin.interim.ranges.request_columns import Asked, assign_shards, read_requests
    from tocsin.operators.reorder.wait_agreement import WaitAgreement
    from tocsin.operators.retention.utility.memory_rebalancing import Allotment
    from tocsin.plan.anytime import Anytime
    from tocsin.plan.budget import found_text
    from tocsin.plan.calibrate import selection_unit_nanoseconds, unit_nanoseconds
    from tocsin.plan.changes import describe_plan, plan_changes
    from tocsin.plan.file import check_plan, plan_file
    from tocsin.plan.plan import Plan
    from tocsin.plan.ranges import RangeWatch
    from tocsin.plan.resolve import make_plan, plan_rules
    from tocsin.plan.shown import range_object, rules_shown, watch_object
    from tocsin.plan.steps import Silence, Store, Threshold, Watch

__all__ = [
    "Alive",
    "Allotment",
    "Anytime",
    "Asked",
    "Plan",
    "RANGES",
    "RangeWatch",
    "Select",
    "Silence",
    "Store",
    "Threshold",
    "WaitAgreement",
    "Watch",
    "alive_requests",
    "assign_shards",
    "check_plan",
    "describe_plan",
    "found_text",
    "make_plan",
    "plan_changes",
    "plan_file",
    "plan_rules",
    "range_object",
    "read_requests",
    "rules_shown",
    "selection_unit_nanoseconds",
    "unit_nanoseconds",
    "watch_object",
]

# Module of each public name. It is imported at the first use of the name: `run_local` needs only a part of the plan,
# and operators import the specifications in `plan/steps.py` before the rest of the plan.
_HOMES = {
    "WaitAgreement": "tocsin.operators.reorder.wait_agreement",
    "Alive": "tocsin.interim.ranges.active_requests",
    "Allotment": "tocsin.operators.retention.utility.memory_rebalancing",
    "Anytime": "tocsin.plan.anytime",
    "Asked": "tocsin.interim.ranges.request_columns",
    "Plan": "tocsin.plan.plan",
    "RANGES": "tocsin.interim.ranges.range_pipeline",
    "RangeWatch": "tocsin.plan.ranges",
    "Select": "tocsin.interim.cpu.stream_query",
    "Silence": "tocsin.plan.steps",
    "Store": "tocsin.plan.steps",
    "Threshold": "tocsin.plan.steps",
    "Watch": "tocsin.plan.steps",
    "alive_requests": "tocsin.interim.ranges.active_requests",
    "describe_plan": "tocsin.plan.changes",
    "found_text": "tocsin.plan.budget",
    "make_plan": "tocsin.plan.resolve",
    "assign_shards": "tocsin.interim.ranges.request_columns",
    "plan_changes": "tocsin.plan.changes",
    "check_plan": "tocsin.plan.file",
    "plan_file": "tocsin.plan.file",
    "plan_rules": "tocsin.plan.resolve",
    "range_object": "tocsin.plan.shown",
    "read_requests": "tocsin.interim.ranges.request_columns",
    "rules_shown": "tocsin.plan.shown",
    "selection_unit_nanoseconds": "tocsin.plan.calibrate",
    "unit_nanoseconds": "tocsin.plan.calibrate",
    "watch_object": "tocsin.plan.shown",
}


def __getattr__(name: str) -> Any:
    """Import the module of a public name at its first use, and bind the name here."""
    home = _HOMES.get(name)
    if home is None:
        message = f"module 'tocsin.plan' has no attribute {name!r}"
        raise AttributeError(message)
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value
