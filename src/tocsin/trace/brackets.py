"""Which rows excuse one that was left out: the definition of docs/concepts/omission.md, by plain search.

A row goes when, on each side that its store serves, rows at least as extreme stand before and behind it so close that
every window which holds it holds one of them. A row at the very same time does that alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tocsin.logic import Float, Int
from tocsin.plan import Store
from tocsin.stages.reduce.bracket import hops

REPEAT, BRACKET, NO_WINDOW, UNKNOWN = "repeat", "bracket", "no-window", "unknown"


@dataclass(frozen=True)
class Excuse:
    """Why a row may be left out: an equal one is there, `above` and `below` bracket it, or no window holds it.

    Rows are positions in the stream; the same one stands twice where it is at the very time.
    """

    kind: str
    above: tuple[int, int] | None = None
    below: tuple[int, int] | None = None
    same: int | None = None

    @property
    def rows(self) -> tuple[int, ...]:
        """All rows that excuse, each once."""
        named = [*(self.above or ()), *(self.below or ()), *([] if self.same is None else [self.same])]
        return tuple(dict.fromkeys(named))


def find_excuse(
    store: Store, time: Int, shown: tuple[Sequence[Float], Mapping[int, str | None]], there: Int, row: int
) -> Excuse:
    """Say what excuses a row, given the rows that were there when it went.

    `shown` has the columns, and the payload of the row and of those at its time.
    """
    columns, texts = shown
    same = [i for i in there if time[i] == time[row] and all(value[i] == value[row] for value in columns)]
    same = [i for i in same if texts[int(i)] == texts[row]]
    if same:
        return Excuse(REPEAT, same=int(same[0]))
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
    enter, leave = hops(np.array([time_us]), length, store.hop_us, store.closed)
    return int(enter[0]), int(leave[0])
