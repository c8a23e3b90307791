"""What the user wrote: rules, durations, limits; `load.py` reads them from files."""

from tocsin.rules.durations import microseconds
from tocsin.rules.limits import Limits
from tocsin.rules.model import Rule

__all__ = ["Limits", "Rule", "microseconds"]
