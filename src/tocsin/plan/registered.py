"""The registered queries of one key, as they were asked for: by id, and by slot, which is what an index knows them by.

A slot is used again when its query is gone, the lowest first, so slots stay dense. Pages hold the alive queries of
4,096 slots each; one without any is removed.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tocsin.logic import Float, Int
from tocsin.pages import pack, unpack

SLOTS_PER_PAGE = 4096


class Registered:
    """Alive queries: id and payload as texts, time of the request, threshold, and the ends of its range."""

    def __init__(self, dims: int) -> None:
        self.slot: dict[str, int] = {}
        self.id: list[str | None] = []
        self.payload: list[str | None] = []
        self.time = np.zeros(0, np.int64)
        self.threshold = np.zeros(0, np.int64)
        self.ends = np.zeros((0, 2 * dims))
        self._free: list[int] = []
        self._touched: set[int] = set()

    def __len__(self) -> int:
        """Count alive queries."""
        return len(self.slot)

    def open(self, count: int) -> Int:
        """Give slots that are free; `put` or `free` must follow."""
        again = [heapq.heappop(self._free) for _ in range(min(count, len(self._free)))]
        more = count - len(again)
        begin = len(self.id)
        self.id += [None] * more
        self.payload += [None] * more
        if len(self.id) > len(self.time):
            self._grow(len(self.id))
        return np.array([*again, *range(begin, begin + more)], np.int64)

    def put(
        self, slots: Int, ids: list[str], payload: list[str | None], time: Int, threshold: Int, ends: Float
    ) -> None:
        """Keep requests in slots that were opened."""
        self.time[slots], self.threshold[slots], self.ends[slots] = time, threshold, ends
        for slot, name, text in zip(slots.tolist(), ids, payload, strict=True):
            self.id[slot], self.payload[slot] = name, text
            self.slot[name] = slot
        self._touched.update((slots // SLOTS_PER_PAGE).tolist())

    def free(self, slots: Int) -> None:
        """Forget the queries of some slots, which may be free for others."""
        for slot in slots.tolist():
            name = self.id[slot]
            if name is not None and self.slot.get(name) == slot:
                del self.slot[name]
            self.id[slot] = self.payload[slot] = None
            heapq.heappush(self._free, slot)
        self._touched.update((slots // SLOTS_PER_PAGE).tolist())

    def _grow(self, least: int) -> None:
        room = max(least, len(self.time) * 3 // 2, 64) - len(self.time)
        self.time = np.concatenate([self.time, np.zeros(room, np.int64)])
        self.threshold = np.concatenate([self.threshold, np.zeros(room, np.int64)])
        self.ends = np.concatenate([self.ends, np.zeros((room, self.ends.shape[1]))])

    def changed_pages(self) -> dict[str, bytes | None]:
        """Give the pages that changed since the last call."""
        touched, self._touched = sorted(self._touched), set()
        return {str(page): self._page(page) for page in touched}

    def _page(self, page: int) -> bytes | None:
        begin, end = page * SLOTS_PER_PAGE, min((page + 1) * SLOTS_PER_PAGE, len(self.id))
        slots = np.array([slot for slot in range(begin, end) if self.id[slot] is not None], np.int64)
        if not len(slots):
            return None
        texts: dict[str, NDArray[Any]] = {}
        for name, column in (("id", self.id), ("payload", self.payload)):
            texts[name] = np.empty(len(slots), dtype=object)
            texts[name][:] = [column[slot] for slot in slots.tolist()]
        numbers = {"time": self.time[slots], "threshold": self.threshold[slots], "ends": self.ends[slots]}
        return pack({"slot": slots, **numbers, **texts})

    def load(self, pages: Mapping[str, bytes]) -> None:
        """Take up what was written."""
        for data in pages.values():
            arrays, _ = unpack(data)
            slots = arrays["slot"]
            most = int(slots.max()) + 1
            self.id += [None] * (most - len(self.id))
            self.payload += [None] * (most - len(self.payload))
            if most > len(self.time):
                self._grow(most)
            ids, payload = arrays["id"].tolist(), arrays["payload"].tolist()
            self.put(slots, ids, payload, arrays["time"], arrays["threshold"], arrays["ends"])
        self._free = [slot for slot in range(len(self.id)) if self.id[slot] is None]
        self._touched = set()
