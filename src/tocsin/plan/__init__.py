"""How rules run: resolve -> Plan -> logic."""

from tocsin.plan.changes import describe_plan, plan_changes
from tocsin.plan.plan import Plan
from tocsin.plan.ranges import RangeWatch
from tocsin.plan.resolve import make_plan
from tocsin.plan.steps import Silence, Store, Threshold, Watch

__all__ = ["Plan", "RangeWatch", "Silence", "Store", "Threshold", "Watch", "describe_plan", "make_plan", "plan_changes"]
