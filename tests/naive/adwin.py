"""ADWIN on plain lists: every row is kept, every mean is added up anew."""

from __future__ import annotations

from math import log, sqrt

EVERY, MOST = 32, 5


class Adwin:
    """A window over values; `buckets` has lists of them, oldest first, `open` those that fill no bucket yet."""

    def __init__(self, capacity: int, delta: float) -> None:
        self.capacity, self.delta = capacity, delta
        self.buckets: list[list[int]] = []
        self.open: list[int] = []
        self.cuts = 0

    @property
    def window(self) -> list[int]:
        return [value for bucket in self.buckets for value in bucket] + self.open

    def take(self, value: int) -> None:
        if len(self.window) == self.capacity:
            self.buckets.pop(0)
        self.open.append(value)
        if len(self.open) < EVERY:
            return
        self.buckets.append(self.open)
        self.open = []
        self._merge()
        while self._is_changed():
            self.buckets.pop(0)
            self.cuts += 1

    def _merge(self) -> None:
        size = EVERY
        while len(alike := [at for at, bucket in enumerate(self.buckets) if len(bucket) == size]) > MOST:
            oldest = alike[0]
            self.buckets[oldest : oldest + 2] = [self.buckets[oldest] + self.buckets[oldest + 1]]
            size *= 2

    def _is_changed(self) -> bool:
        window = self.window
        n = len(window)
        mean = sum(window) / n
        variance = max(0.0, sum(value * value for value in window) / n - mean * mean)
        doubt = log(2.0 * log(n) / self.delta)
        for cut in range(1, len(self.buckets)):
            before = [value for bucket in self.buckets[:cut] for value in bucket]
            after = window[len(before) :]
            inverse = 1.0 / len(before) + 1.0 / len(after)
            chance = sqrt(2.0 * inverse * variance * doubt) + 2.0 / 3.0 * inverse * doubt * max(window)
            if abs(sum(before) / len(before) - sum(after) / len(after)) > chance:
                return True
        return False
