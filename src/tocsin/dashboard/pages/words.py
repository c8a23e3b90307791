"""Values on pages: checks of values that a run wrote, and the text of lags and axis numbers."""

from __future__ import annotations

from typing import Any, TypeGuard

from tocsin.formatting import format_duration
from tocsin.runtime.metrics import LARGEST


def is_number(given: Any) -> TypeGuard[float]:
    """Return whether a value that a run wrote is a number in a range that is safe for computations.

    >>> is_number(2.5), is_number(float("nan")), is_number(10**400), is_number("2")
    (True, False, False, False)
    """
    return isinstance(given, int | float) and abs(given) <= LARGEST


def objects_in(given: Any) -> list[dict[str, Any]]:
    """Return the objects of a list that a run wrote, or an empty list for any other value."""
    return [one for one in given if isinstance(one, dict)] if isinstance(given, list) else []


def lag_text(seconds: float) -> str:
    """Return a lag as text. A negative lag belongs to a stream with event times in the future.

    >>> lag_text(50_001.0), lag_text(-0.5), lag_text(1e12)
    ('13 h 53 min', '500 ms ahead', 'more than 30 years')
    """
    if abs(seconds) >= 1e9:
        return "more than 30 years" + " ahead" * (seconds < 0)
    return f"{format_duration(abs(seconds) * 1e6)}{' ahead' * (seconds < 0)}"


def short_number(value: float) -> str:
    """Return a number with three digits and an SI prefix, for an axis.

    >>> short_number(1500), short_number(2_500_000), short_number(0.5)
    ('1.5k', '2.5M', '0.5')
    """
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"


def seconds_text(seconds: float) -> str:
    """Return a number of seconds as a duration, for an axis.

    >>> seconds_text(0.25), seconds_text(90.0)
    ('250 ms', '1 min 30 s')
    """
    return format_duration(seconds * 1e6)
