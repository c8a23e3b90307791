"""What the user wrote: rules, durations, limits; `load.py` reads them from files."""

from tocsin.rules.durations import microseconds
from tocsin.rules.limits import Limits
from tocsin.rules.model import Rule
from tocsin.rules.no_data import AnyRule, NoData
from tocsin.rules.ranges import Ranges

__all__ = ["AnyRule", "Limits", "NoData", "Ranges", "Rule", "microseconds"]
