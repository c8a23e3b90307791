"""Checks of values that a run wrote, before pages compute with them."""

from __future__ import annotations

from typing import Any, TypeGuard

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
