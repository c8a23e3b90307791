"""Durations in microseconds, in the form that rules accept."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

Bounds = Mapping[tuple[str, str], tuple[int, int]]


def us(count: int) -> timedelta:
    """Return a duration of `count` microseconds."""
    return timedelta(microseconds=count)


def us_bounds(bounds: Bounds) -> dict[tuple[str, str], tuple[timedelta, timedelta]]:
    """Return `within` of a rule from bounds in microseconds."""
    return {pair: (us(low), us(high)) for pair, (low, high) in bounds.items()}
