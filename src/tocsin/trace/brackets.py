"""Which rows excuse one that was left out: the definition of docs/explanation/reduction.md, by plain search.

A row goes when, on each side that its store serves, rows at least as extreme stand before and behind it so close that
every window which holds it holds one of them. A row at the very same time does that alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tocsin.operators.retention.bracketing import hopping_windows
from tocsin.plan import Store
from tocsin.runtime.contract import Float, Int

BRACKET, NO_WINDOW, UNKNOWN = "bracket", "no-window", "unknown"


@dataclass(frozen=True)
class Excuse:
    """Why a row may be omitted: `above` and `below` bracket it, or no window holds it.

    Rows are positions in the stream; the same one stands twice where it is at the very time.
    """

    kind: str
    above: tuple[int, int] | None = None
    below: tuple[int, int] | None = None

    @property
    def rows(self) -> tuple[int, ...]:
        """All rows that excuse, each once."""
        return tuple(dict.fromkeys([*(self.above or ()), *(self.below or ())]))


def find_excuse(store: Store, time: Int, columns: Sequence[Float], there: Int, row: int) -> Excuse:
    """Return the reason why a row was omitted, from its columns and the rows that were retained then."""
    numbers, apart = store.compared(columns)
    if store.whole or apart[row]:
        return Excuse(UNKNOWN)
    inside = there[~apart[there]]
    pairs: dict[str, tuple[int, int] | None] = {"above": None, "below": None}
    for side, reach, sign in (("above", store.above_us, 1.0), ("below", store.below_us, -1.0)):
        if reach < 0:
            continue
        if store.hop_us and _windows(store, time[row])[0] > _windows(store, time[row])[1]:
            return Excuse(NO_WINDOW)
        extreme = np.logical_and.reduce([sign * number[inside] >= sign * number[row] for number in numbers])
        pairs[side] = _pair(store, reach, time, inside[extreme], row)
        if pairs[side] is None:
            return Excuse(UNKNOWN)
    return Excuse(BRACKET, pairs["above"], pairs["below"])


def _pair(store: Store, reach: int, time: Int, extreme: Int, row: int) -> tuple[int, int] | None:
    """The nearest rows before and behind among those at least as extreme, if every window holds one of them."""
    before, behind = extreme[time[extreme] <= time[row]], extreme[time[extreme] >= time[row]]
    left = int(before[np.argmax(time[before])]) if len(before) else None
    right = int(behind[np.argmin(time[behind])]) if len(behind) else None
    candidates = [(left, left), (right, right), (left, right)]
    for one, other in candidates:
        if one is not None and other is not None and _covers(store, reach, time, (one, other), row):
            return one, other
    return None


def _covers(store: Store, reach: int, time: Int, pair: tuple[int, int], row: int) -> bool:
    """Tell whether every window that holds a row holds one of a pair."""
    if not store.hop_us:
        left, right = sorted(int(time[i]) for i in pair)
        return left <= time[row] <= right and right - left <= reach
    first, last = _windows(store, time[row])
    spans = [_windows(store, time[i]) for i in pair]
    return all(any(begin <= k <= end for begin, end in spans) for k in range(first, last + 1))


def _windows(store: Store, time_us: int) -> tuple[int, int]:
    """The numbers of the first and the last hopping window that hold a time; the first is larger where none does."""
    length = max(store.above_us, store.below_us)
    enter, leave = hopping_windows(np.array([time_us]), length, store.hop_us, store.closed)
    return int(enter[0]), int(leave[0])
