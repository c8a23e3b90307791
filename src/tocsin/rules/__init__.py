"""Rules, durations and limits, as declared by the user. `load.py` reads them from files."""

from tocsin.rules.durations import microseconds
from tocsin.rules.limits import Limits
from tocsin.rules.model import Rule
from tocsin.rules.no_data import AnyRule, NoData
from tocsin.rules.ranges import RangeRule

__all__ = ["AnyRule", "Limits", "NoData", "RangeRule", "Rule", "microseconds"]
