"""Observed wait in plain code: the waits that results need, their weights, and Eq. 5 of the paper for all rows.

Needs and waits are in steps. Weights and the required recall are real numbers, so they are doubles.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import exp, sqrt

from tests.naive.disorder import Histogram, coarse, recall

# Results that are retained at least, and the weight of the delays of all rows in results.
MIN_RESULTS, PRIOR = 1000, 20


def needs(rows: Iterable[tuple[int, int, int]], grain: int, bins: int) -> dict[int, int]:
    """Return results by the wait that they need, from rows (delay, skew, results): the delay minus the skew."""
    found: dict[int, int] = {}
    for delay, skew, results in rows:
        need = coarse(delay - skew, grain)
        if results and need < bins:
            found[need] = found.get(need, 0) + results
    return found


def retained(known: Mapping[int, float], fresh: Mapping[int, int], share_of_period: float) -> dict[int, float]:
    """Return weights after an interval, or several: results expire with new results, at most in proportion to time."""
    stay = exp(-min(sum(fresh.values()) / MIN_RESULTS, share_of_period))
    return {need: known.get(need, 0.0) * stay + fresh.get(need, 0) for need in known.keys() | fresh.keys()}


def requirement(wanted: float, true: int, enough: float) -> float:
    """Return the recall to aim at: a standard deviation above the target, from a quarter to half the way to 1."""
    if true < enough:
        return wanted
    return wanted + min(max(sqrt(wanted * (1 - wanted) / true), (1 - wanted) / 4), (1 - wanted) / 2)


def recall_at(known: Mapping[int, float], of_rows: float, wait: int) -> float:
    """Return the share of results that need at most a wait; the rows count like `PRIOR` results."""
    whole = sum(known.values())
    if not whole:
        return of_rows
    return (sum(n for need, n in known.items() if need <= wait) + PRIOR * of_rows) / (whole + PRIOR)


def next_wait(
    known: Mapping[int, float], histograms: Sequence[Histogram], windows: Sequence[int], syncs: Sequence[int],
    basic: int, grain: int, required: float,
) -> tuple[int, list[float]]:  # fmt: skip
    """Return the shortest sufficient wait, or the longest useful one, and the recall of each wait tried."""
    longest = max((d for h in histograms for d, n in h.items() if n), default=0) + 1
    longest = max([longest, *(need for need, n in known.items() if n)])
    tried: list[float] = []
    for wait in range(longest + 1):
        of_rows = float(recall(histograms, windows, syncs, wait * grain, basic, grain))
        tried.append(recall_at(known, of_rows, wait))
        if tried[-1] >= required:
            return wait, tried
    return longest, tried
