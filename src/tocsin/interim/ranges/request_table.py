"""The registered queries of one key, as they were asked for: by id, and by slot, which is what an index knows them by.

A slot is used again when its query is gone, the lowest first, so slots stay dense. A page holds the alive queries of
4,096 slots as they were when it was written; a second one, with the same name and `+`, what has changed in it since, so
that a query that ends costs eight bytes and not a page. When that is an eighth of new queries, or half of all slots,
the page is written anew and the second one goes. A page without alive queries is removed.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tocsin.runtime.contract import Bools, Float, Int
from tocsin.runtime.state_codec import pack, unpack

SLOTS_PER_PAGE = 4096
_MOST_NEW, _MOST_CHANGED = SLOTS_PER_PAGE // 8, SLOTS_PER_PAGE // 2
_SINCE = "+"
_COLUMNS = ("time", "threshold", "ends", "id", "payload")

Texts = NDArray[Any]


class Registered:
    """Alive queries: id and payload as texts, time of the request, threshold, and the ends of its range."""

    def __init__(self, dims: int) -> None:
        self.slot: dict[str, int] = {}
        self.id: Texts = np.empty(0, dtype=object)
        self.payload: Texts = np.empty(0, dtype=object)
        self.time: Int = np.zeros(0, np.int64)
        self.threshold: Int = np.zeros(0, np.int64)
        self.ends: Float = np.zeros((0, 2 * dims))
        # Slots that hold a query, and those in which something changed since their page was written whole.
        self._alive: Bools = np.zeros(0, np.bool_)
        self._changed: Bools = np.zeros(0, np.bool_)
        self._used = 0
        self._free: list[int] = []
        self._touched: set[int] = set()
        self._written: set[str] = set()

    def __len__(self) -> int:
        """Count alive queries."""
        return len(self.slot)

    def open(self, count: int) -> Int:
        """Give slots that are free; `put` or `free` must follow."""
        again = [heapq.heappop(self._free) for _ in range(min(count, len(self._free)))]
        begin, self._used = self._used, self._used + count - len(again)
        self._make_room()
        return np.concatenate([np.array(again, np.int64), np.arange(begin, self._used)])

    def put(
        self, slots: Int, ids: list[str], payload: list[str | None], time: Int, threshold: Int, ends: Float
    ) -> None:
        """Keep requests in slots that were opened."""
        self.time[slots], self.threshold[slots], self.ends[slots] = time, threshold, ends
        self.id[slots], self.payload[slots] = _texts(ids), _texts(payload)
        self._alive[slots] = True
        self.slot.update(zip(ids, slots.tolist(), strict=True))
        self._touch(slots)

    def free(self, slots: Int) -> None:
        """Forget the queries of some slots, which may be free for others."""
        for slot, name in zip(slots.tolist(), self.id[slots].tolist(), strict=True):
            if name is not None and self.slot.get(name) == slot:
                del self.slot[name]
            heapq.heappush(self._free, slot)
        self.id[slots] = self.payload[slots] = None
        self._alive[slots] = False
        self._touch(slots)

    def _touch(self, slots: Int) -> None:
        self._changed[slots] = True
        self._touched.update(np.unique(slots // SLOTS_PER_PAGE).tolist())

    def _make_room(self) -> None:
        """Let there be a place for each slot in use."""
        have = len(self.time)
        if self._used <= have:
            return
        more = max(self._used, have * 3 // 2, 64) - have
        for name in (*_COLUMNS, "_alive", "_changed"):
            column = getattr(self, name)
            setattr(self, name, np.concatenate([column, np.zeros((more, *column.shape[1:]), column.dtype)]))
        # An empty place has no text, and NumPy fills it with 0.
        self.id[have:] = self.payload[have:] = None

    def changed_pages(self) -> dict[str, bytes | None]:
        """Give the pages that changed since the last call."""
        touched, self._touched = sorted(self._touched), set()
        changed = {name: page for number in touched for name, page in self._pages(number).items()}
        self._written = {name for name in {*self._written, *changed} if changed.get(name, b"") is not None}
        return changed

    def _pages(self, number: int) -> dict[str, bytes | None]:
        """Write a page whole, or what changed in it; None for what is no longer there."""
        part = slice(number * SLOTS_PER_PAGE, min((number + 1) * SLOTS_PER_PAGE, self._used))
        alive, changed = self._alive[part], self._changed[part]
        whole, since = str(number), f"{number}{_SINCE}"
        first = number * SLOTS_PER_PAGE
        few = (alive & changed).sum() <= _MOST_NEW and changed.sum() <= _MOST_CHANGED
        if whole in self._written and few and alive.any():
            gone = first + np.flatnonzero(changed & ~alive)
            return {since: self._page(first + np.flatnonzero(changed & alive), gone)}
        self._changed[part] = False
        pages: dict[str, bytes | None] = dict.fromkeys({whole, since} & self._written)
        return pages | ({whole: self._page(first + np.flatnonzero(alive))} if alive.any() else {})

    def _page(self, slots: Int, gone: Int | None = None) -> bytes:
        columns = {name: getattr(self, name)[slots] for name in _COLUMNS}
        return pack({"slot": slots, **columns} | ({} if gone is None else {"gone": gone}))

    def load(self, pages: Mapping[str, bytes]) -> None:
        """Take up what was written: pages first, then what changed since."""
        for name in sorted(pages, key=lambda name: name.endswith(_SINCE)):
            self._load(unpack(pages[name])[0], is_since=name.endswith(_SINCE))
        alive = np.flatnonzero(self._alive)
        self.slot = dict(zip(self.id[alive].tolist(), alive.tolist(), strict=True))
        self._free = np.flatnonzero(~self._alive[: self._used]).tolist()
        self._written = set(pages)

    def _load(self, arrays: Mapping[str, NDArray[Any]], *, is_since: bool) -> None:
        """Take up a page."""
        slots, gone = arrays["slot"], arrays.get("gone", np.zeros(0, np.int64))
        both = np.concatenate([slots, gone])
        self._used = max(self._used, int(both.max(initial=-1)) + 1)
        self._make_room()
        for name in _COLUMNS:
            getattr(self, name)[slots] = arrays[name]
        self._alive[slots], self._alive[gone] = True, False
        self.id[gone] = self.payload[gone] = None
        self._changed[both] = is_since


def _texts(texts: list[Any]) -> Texts:
    """An array of texts, or None."""
    column: Texts = np.empty(len(texts), dtype=object)
    column[:] = texts
    return column
