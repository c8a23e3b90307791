"""Numbers over time, as few as a picture can show: of each stretch the smallest and the largest, so no spike hides.

Guarantee: the smallest and the largest number of any stretch of pixels is drawn, however many numbers there were.
Cost: memory for at most `MOST` stretches, `MOST_OF_ALERT` where each alert has its own numbers; where there are more,
neighbours become one.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import NamedTuple

MOST, MOST_OF_ALERT = 16_384, 2_048


class Stretch(NamedTuple):
    """From when to when, and the smallest and the largest number of that time."""

    start: float
    end: float
    low: float
    high: float


class Series:
    """Numbers by time, in order; neighbours are put together when there are too many."""

    def __init__(self, most: int = MOST) -> None:
        self.most = most
        self.start, self.end = list[float](), list[float]()
        self.low, self.high = list[float](), list[float]()

    def __len__(self) -> int:
        return len(self.start)

    def add(self, time: float, number: float) -> None:
        """Add a number; one whose time lies before the last is taken as of that."""
        time = max(time, self.end[-1]) if self.end else time
        self._put(Stretch(time, time, number, number))

    def _put(self, stretch: Stretch) -> None:
        for column, value in zip((self.start, self.end, self.low, self.high), stretch, strict=True):
            column.append(value)
        if len(self.start) > self.most:
            self._halve()

    def _halve(self) -> None:
        """Make one stretch of each two."""
        self.start = self.start[::2]
        last = len(self.end) - 1
        pairs = [(i, min(i + 1, last)) for i in range(0, last + 1, 2)]
        self.end = [self.end[j] for _, j in pairs]
        self.low = [min(self.low[i], self.low[j]) for i, j in pairs]
        self.high = [max(self.high[i], self.high[j]) for i, j in pairs]

    @property
    def last(self) -> float | None:
        """The newest number, where it stands alone."""
        return self.high[-1] if self.high else None

    def stretches(self, begin: float, stop: float, pixels: int) -> list[Stretch]:
        """What lies between two times, at most one stretch per pixel."""
        first, behind = bisect_left(self.end, begin), bisect_right(self.start, stop)
        found: list[Stretch] = []
        width = (stop - begin) / pixels if stop > begin else 1.0
        pixel = -1
        for i in range(first, behind):
            here = min(int((self.start[i] - begin) / width), pixels - 1)
            mine = Stretch(self.start[i], self.end[i], self.low[i], self.high[i])
            if here == pixel:
                one = found[-1]
                found[-1] = Stretch(one.start, mine.end, min(one.low, mine.low), max(one.high, mine.high))
            else:
                found.append(mine)
            pixel = here
        return found
