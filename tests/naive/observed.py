"""The wait by observed results, written out: what results need, forgotten as new ones come, beside Eq. 5 of all rows.

Needs and waits are in grains. What is forgotten, and how far above the recall it aims, are real numbers: doubles.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import exp, sqrt

from tests.naive.disorder import Histogram, coarse, recall

# How many results are remembered, and how many the delays of all rows are worth beside them.
LASTING, PRIOR = 1000, 20


def needs(rows: Iterable[tuple[int, int, int]], syncs: Sequence[int], grain: int, bins: int) -> dict[int, int]:
    """Results by the wait they need, of rows (stream, delay, results): the delay, less what the stream leads by."""
    found: dict[int, int] = {}
    for stream, delay, results in rows:
        need = coarse(delay - syncs[stream], grain)
        if results and need < bins:
            found[need] = found.get(need, 0) + results
    return found


def remembered(known: Mapping[int, float], fresh: Mapping[int, int]) -> dict[int, float]:
    """What is known after an interval: as many results as are new let a share of the old ones be forgotten."""
    stay = exp(-sum(fresh.values()) / LASTING)
    return {need: known.get(need, 0.0) * stay + fresh.get(need, 0) for need in known.keys() | fresh.keys()}


def requirement(wanted: float, true: int, enough: float) -> float:
    """The recall to aim at: one standard deviation above the one wanted, at most half the way to 1."""
    if true < enough:
        return wanted
    return wanted + min(sqrt(wanted * (1 - wanted) / true), (1 - wanted) / 2)


def recall_at(known: Mapping[int, float], of_rows: float, wait: int) -> float:
    """The share of results that need no longer wait, with that of rows for `PRIOR` more; without results of rows."""
    whole = sum(known.values())
    if not whole:
        return of_rows
    return (sum(n for need, n in known.items() if need <= wait) + PRIOR * of_rows) / (whole + PRIOR)


def next_wait(
    known: Mapping[int, float], histograms: Sequence[Histogram], windows: Sequence[int], syncs: Sequence[int],
    basic: int, grain: int, required: float,
) -> tuple[int, list[float]]:  # fmt: skip
    """The least wait whose recall is enough, else the longest that makes a difference; and the recall of each tried."""
    longest = max((d for h in histograms for d, n in h.items() if n), default=0) + 1
    longest = max([longest, *(need for need, n in known.items() if n)])
    tried: list[float] = []
    for wait in range(longest + 1):
        of_rows = float(recall(histograms, windows, syncs, wait * grain, basic, grain))
        tried.append(recall_at(known, of_rows, wait))
        if tried[-1] >= required:
            return wait, tried
    return longest, tried
