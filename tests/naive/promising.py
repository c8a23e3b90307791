"""Summaries of streams, from their definitions: loops over values, whole numbers of any size, nothing clever."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from statistics import median

WORD = 1 << 64


def mixed(value):
    """The mixing step of splitmix64, which is one to one."""
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 % WORD
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB % WORD
    return value ^ (value >> 31)


def sketch_place(value, numbers, width):
    """Place and sign of a value in a row: the highest bits of (a x low half + b x high half + c) mod 2^64."""
    a, b, c = (number % WORD for number in numbers)
    value = mixed(value % WORD)
    bits = (a * (value % 2**32) + b * (value // 2**32) + c) % WORD
    return (bits * width * 2 // WORD) % width, -1 if bits >= WORD // 2 else 1


def sketch(values, numbers, width):
    """The table of a count sketch."""
    table = [[0] * width for _ in numbers]
    for value in values:
        for row, own in zip(table, numbers, strict=True):
            place, sign = sketch_place(value, own, width)
            row[place] += sign
    return table


def sketch_estimate(table, value, numbers):
    """The median over rows of what stands at the place of a value."""
    found = []
    for row, own in zip(table, numbers, strict=True):
        place, sign = sketch_place(value, own, len(row))
        found.append(sign * row[place])
    return median(found)


def bin_counts(values, low, high, bins):
    """How many values lie below `low`, in each of the bins, and from `high` on; by exact arithmetic."""
    counts = Counter()
    step = (Fraction(high) - Fraction(low)) / bins
    for value in values:
        at = (Fraction(value) - Fraction(low)) // step
        counts[max(-1, min(bins, at))] += 1
    return [counts[at] for at in range(-1, bins + 1)]


def in_range(values, low, high):
    """How many values lie in a closed range."""
    return sum(low <= value <= high for value in values)


class Stream:
    """The intermediate representation on lists: zones are lists of numbers of arrival, oldest zone first.

    `confidence` is a function of the values of a zone. A zone is [granularity, first time, last time, numbers of all
    tuples that came into it].
    """

    def __init__(self, *, zone_us, zones, rate, grain_us, theta, window_us, memory, confidence):
        self.zone_us, self.most, self.rate, self.grain_us = zone_us, zones, rate, grain_us
        self.theta, self.window_us, self.memory, self.confidence = theta, window_us, memory, confidence
        self.tuples, self.alive, self.zones = [], [], []

    def insert(self, key, time):
        while self.alive and self.tuples[self.alive[0]][1] < time - self.window_us:
            self.drop()
        if len(self.alive) >= self.memory:
            self.drop()
        if not self.zones or self.ended(time):
            self.begin(time)
        number = len(self.tuples)
        self.tuples.append((key, time))
        self.alive.append(number)
        self.zones[-1][2] = time
        self.zones[-1][3].append(number)

    def drop(self):
        self.alive.pop(0)
        self.zones = [zone for zone in self.zones if any(number in self.alive for number in zone[3])]

    def ended(self, time):
        _, start, _, numbers = self.zones[-1]
        sure = self.confidence([self.tuples[number][0] for number in numbers])
        return time - start >= self.zone_us or sure < self.theta

    def begin(self, time):
        def newest():
            return [zone for zone in self.zones if zone[0] == 0]

        while newest() and (len(newest()) >= self.most or newest()[0][2] < time - self.grain_us[0]):
            self.collapse(0)
        self.zones.append([0, time, time, []])

    def collapse(self, grain):
        """Let the oldest zone of a granularity go over into the next; the last granularity forgets it."""
        zone = next(zone for zone in self.zones if zone[0] == grain)
        if grain + 1 == len(self.grain_us):
            self.zones.remove(zone)
            return
        older = [other for other in self.zones if other[0] == grain + 1]
        if older and zone[2] - older[-1][1] <= self.grain_us[grain]:
            older[-1][2] = zone[2]
            older[-1][3] += zone[3]
            self.zones.remove(zone)
            return
        if len(older) >= self.rate:
            self.collapse(grain + 1)
            self.collapse(grain)
            return
        zone[0] = grain + 1


def window_join(stream, times, keys, window_us):
    """All pairs of rows (of stream 0, of stream 1) with one key and times at most a window apart."""
    rows = range(len(keys))
    return [
        (i, j)
        for i in rows
        for j in rows
        if stream[i] == 0 and stream[j] == 1 and keys[i] == keys[j] and abs(times[i] - times[j]) <= window_us
    ]


def selected(times, values, queries):
    """All (query, row) with the value in the query's closed range while it stands."""
    return [
        (number, row)
        for number, (low, high, since, until) in enumerate(queries)
        for row, (time, value) in enumerate(zip(times, values, strict=True))
        if low <= value <= high and since <= time < until
    ]


def windows(times, values, query, length_us, slide_us=None):
    """The values that a query selects in each window that has any: its start to a list; no length: one window."""
    found, slide_us = {}, slide_us or length_us
    for time, value in zip(times, values, strict=True):
        if query.low <= value <= query.high and query.since_us <= time < query.until_us:
            starts = [None]
            if length_us is not None:
                starts = range(time // slide_us * slide_us, time - length_us, -slide_us)
            for start in starts:
                found.setdefault(start, []).append(value)
    return dict(sorted(found.items())) if length_us is not None else found
