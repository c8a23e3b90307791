"""What the user wrote: rules, durations."""

from tocsin.rules.durations import microseconds
from tocsin.rules.model import Rule

__all__ = ["Rule", "microseconds"]
