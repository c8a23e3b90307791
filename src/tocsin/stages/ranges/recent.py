"""Elements that still count, oldest first: new ones come behind, those that expired leave in front."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from tocsin.runtime.contract import Float, Int
from tocsin.runtime.state_codec import pack, unpack

# Elements per page.
PAGE = 4096


class Moments(NamedTuple):
    """Elements with the moments at which they came; moments never fall."""

    values: Float
    weights: Int
    moments: Int


class Recent:
    """A queue of elements; those from number `first` to before `end` of the stream are there."""

    def __init__(self, dims: int, first: int = 0) -> None:
        self.first = self.end = first
        self._room = _make_room(1024, dims)
        self._start = 0
        self._written = first
        self._stored = range(0)

    def append(self, new: Moments) -> None:
        """Let elements come."""
        count = self.end - self.first
        needed = count + len(new.weights)
        if self._start + needed > len(self._room.weights):
            # At least half of the room is free afterwards, so an element is moved once on average.
            size = len(self._room.weights)
            room = _make_room(max(size, 2 * needed), new.values.shape[1])
            for column, old in zip(room, self.all(), strict=True):
                column[:count] = old
            self._room, self._start = room, 0
        behind = self._start + count
        for column, more in zip(self._room, new, strict=True):
            column[behind : behind + len(more)] = more
        self.end += len(new.weights)

    def drop(self, first: int) -> None:
        """Let the elements before number `first` leave."""
        self._start += first - self.first
        self.first = first

    def all(self) -> Moments:
        """Give all elements; the arrays are the queue's own."""
        stop = self._start + self.end - self.first
        return Moments._make(column[self._start : stop] for column in self._room)

    def part(self, start: int, stop: int) -> Moments:
        """Give the elements from number `start` to before `stop`."""
        begin = self._start + start - self.first
        return Moments._make(column[begin : begin + stop - start] for column in self._room)

    def changed_pages(self) -> dict[str, bytes | None]:
        """Give the pages that changed since the last call; None: all elements of the page have left."""
        there = range(self.first // PAGE, -(-self.end // PAGE)) if self.end > self.first else range(0)
        pages: dict[str, bytes | None] = {str(page): None for page in self._stored if page not in there}
        for page in there:
            start, stop = max(self.first, page * PAGE), min(self.end, (page + 1) * PAGE)
            if stop > self._written or page not in self._stored:
                pages[str(page)] = pack(self.part(start, stop)._asdict(), first=start)
        self._stored, self._written = there, self.end
        return pages

    @classmethod
    def from_pages(cls, pages: Mapping[str, bytes], dims: int, first: int) -> Recent:
        """Read what `changed_pages` wrote, from number `first` on."""
        recent = cls(dims, first)
        numbers = sorted(int(name) for name in pages)
        for number in numbers:
            arrays, facts = unpack(pages[str(number)])
            elements = Moments._make(arrays[name][max(0, first - facts["first"]) :] for name in Moments._fields)
            recent.append(elements)
        recent._written = recent.end
        recent._stored = range(numbers[0], numbers[-1] + 1) if numbers else range(0)
        return recent


def _make_room(size: int, dims: int) -> Moments:
    return Moments(np.empty((size, dims)), np.empty(size, dtype=np.int64), np.empty(size, dtype=np.int64))
