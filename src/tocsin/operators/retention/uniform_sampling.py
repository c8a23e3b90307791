"""A join of two windows that gives a random sample of its results, under a hard budget of rows.

    join = SamplingJoin(PPS_CLUSTER, windows=(500, None), memory=(40, 0), fraction=(0.02, 0.0), seed=7)
    taken = join.take(stream, time, key, n, value)

Idea: an arriving row lets go what is expired, meets the held rows of the other window, and is offered to its own, which
holds what `sampling` needs. A result is a held row and the row that met it; it belongs to the direction of the stream
whose row was held (S1-probe: 0, S2-probe: 1).
Guarantee: that of `sampling`; any cut into calls gives the same sample, and so does a state that was written and read.
Rows come in order of time.
Cost: per row the held rows of its key (UNIFORM counts each of them; clusters give each as a result), with a band all
held rows of the other window; O(1) to offer it.
Source: Srivastava, Widom, VLDB 2004, Figures 3 and 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tocsin.jit import kernel
from tocsin.operators.retention.cluster_sampling import (
    AFTER,
    HELD,
    MOST_HELD,
    OLDEST,
    UNIFORM,
    Sampled,
    expire,
    fit,
    join_one,
    lower,
    moved,
    new_sampled,
    offer,
    probability,
    release,
)
from tocsin.runtime.contract import Float, Int

# A window of this length is not kept.
_NO_WINDOW = -1


class Rows(NamedTuple):
    """Rows in order of arrival: stream 0 (S1) or 1 (S2), time, key, how many results are expected, the value."""

    stream: Int
    time: Int
    key: Int
    n: Float
    value: Float


class Sample(NamedTuple):
    """Results: when, direction, numbers of the held row and of the one that met it, values of both, probability."""

    time: Int
    direction: Int
    held: Int
    probe: Int
    held_value: Float
    probe_value: Float
    probability: Float

    def clusters(self, kind: int) -> Int:
        """Number what was chosen together: for UNIFORM each result, else all results of a held row."""
        return np.arange(len(self.held)) if kind == UNIFORM else self.held


class Taken(NamedTuple):
    """The sample of a call, and p of both windows after each of its rows."""

    sample: Sample
    fraction: Float


class State(NamedTuple):
    """Both windows, and how many rows were received: of both streams, of S1, of S2."""

    one: Sampled
    two: Sampled
    received: Int


class Terms(NamedTuple):
    """What does not change: kind of sampling, seed, the band low <= S2.key - S1.key <= high, whether it is 0 to 0.

    The clock of a window `by_tuples` is the number of rows that its stream had.
    """

    kind: int
    seed: int
    low: int
    high: int
    equal: bool
    by_tuples: bool


def _no_results(room: int) -> Sample:
    integers, reals = [np.zeros(room, np.int64) for _ in range(4)], [np.zeros(room) for _ in range(3)]
    return Sample._make([*integers, *reals])


@kernel
def probe(terms: Terms, other: Sampled, rows: Rows, at: int, number: int, found: Sample, count: int) -> int:
    """Let a row meet what the other window holds; give how many results there are now."""
    stream, key = rows.stream[at], rows.key[at]
    slot = other.heads[key if terms.equal else 0]
    while slot >= 0:
        following = other.links[AFTER, slot]
        apart = key - other.key[slot] if stream == 1 else other.key[slot] - key
        if terms.low <= apart <= terms.high:
            chance = probability(terms.kind, other.p[slot], other.n[slot])
            sampled, needed = join_one(other, slot, terms.kind, terms.seed)
            if sampled:
                found.time[count], found.direction[count] = rows.time[at], 1 - stream
                found.held[count], found.probe[count] = other.number[slot], number
                found.held_value[count], found.probe_value[count] = other.value[slot], rows.value[at]
                found.probability[count] = chance
                count += 1
            if not needed:
                release(other, slot, other.key[slot] if terms.equal else 0)
        slot = following
    return count


@kernel
def take_rows(
    terms: Terms, state: State, windows: Int, rows: Rows, begin: int, found: Sample, fraction: Float
) -> tuple[int, int]:
    """Take rows from `begin` on while there is room for their results; give where it stopped, and how many it found."""
    one, two, received = state.one, state.two, state.received
    count, room = 0, found.time.shape[0]
    for at in range(begin, rows.stream.shape[0]):
        mine, group = rows.stream[at], rows.key[at] if terms.equal else 0
        now1, now2 = rows.time[at], rows.time[at]
        if terms.by_tuples:
            now1, now2 = received[1] + (mine == 0), received[2] + (mine == 1)
        if one.facts[HELD] > 0 and one.time[one.facts[OLDEST]] < now1 - windows[0]:
            expire(one, now1 - windows[0], terms.equal)
        if two.facts[HELD] > 0 and two.time[two.facts[OLDEST]] < now2 - windows[1]:
            expire(two, now2 - windows[1], terms.equal)
        row = (now1 if mine == 0 else now2, rows.key[at], rows.value[at], received[0], rows.n[at])
        # Windows are not put into variables, and nothing is called in vain: handing on so many arrays takes time.
        if mine == 0:
            if count + two.facts[HELD] > room:
                return at, count
            if two.heads[group] >= 0:
                count = probe(terms, two, rows, at, received[0], found, count)
            if windows[0] >= 0:
                offer(one, two, terms.kind, terms.seed, row, terms.equal)
        else:
            if count + one.facts[HELD] > room:
                return at, count
            if one.heads[group] >= 0:
                count = probe(terms, one, rows, at, received[0], found, count)
            if windows[1] >= 0:
                offer(two, one, terms.kind, terms.seed, row, terms.equal)
        received[0] += 1
        received[1 + mine] += 1
        fraction[at, 0], fraction[at, 1] = one.fraction[0], two.fraction[0]
    return rows.stream.shape[0], count


class SamplingJoin:
    """A join with its state; `windows` are None for a stream whose rows are not remembered.

    Windows are in units of time, or `by_tuples`, in rows of their own stream.
    """

    def __init__(
        self,
        kind: int,
        windows: tuple[int | None, int | None],
        memory: tuple[int, int],
        fraction: tuple[float, float],
        seed: int = 0,
        band: tuple[int, int] | None = None,
        *,
        by_tuples: bool = False,
    ) -> None:
        low, high = band or (0, 0)
        self.terms = Terms(kind, seed, low, high, band is None, by_tuples)
        self.windows = np.array([_NO_WINDOW if window is None else window for window in windows], np.int64)
        keys = 0 if band is None else 1
        one, two = (new_sampled(kind, rows, p, keys) for rows, p in zip(memory, fraction, strict=True))
        self.state = State(one, two, np.zeros(3, np.int64))

    @property
    def held(self) -> tuple[int, int]:
        """How many rows each window holds."""
        return int(self.state.one.facts[HELD]), int(self.state.two.facts[HELD])

    @property
    def most_held(self) -> tuple[int, int]:
        """The most rows that each window held since its memory was set."""
        return int(self.state.one.facts[MOST_HELD]), int(self.state.two.facts[MOST_HELD])

    def take(self, stream: Int, time: Int, key: Int, n: Float, value: Float | None = None) -> Taken:
        """Take rows in order of time; without a band keys are whole numbers from 0."""
        rows = Rows(stream, time, key, n, np.zeros(len(time)) if value is None else value)
        if self.terms.equal:
            self._make_room(int(key.max(initial=-1)) + 1)
        fraction = np.zeros((len(time), 2))
        parts, begin, room = [_no_results(0)], 0, max(1024, sum(self.held))
        while begin < len(time):
            found = _no_results(room)
            begin, count = take_rows(self.terms, self.state, self.windows, rows, begin, found, fraction)
            parts.append(Sample._make(column[:count] for column in found))
            room = max(2 * room, sum(self.held))
        return Taken(joined(parts), fraction)

    def set_fraction(self, fraction: tuple[float, float]) -> None:
        """Set p. A smaller one thins what is held at once, a larger one is for the rows that come."""
        for window, p in zip((self.state.one, self.state.two), fraction, strict=True):
            if p < window.fraction[0]:
                lower(window, self.terms.kind, self.terms.seed, p, self.terms.equal)
            window.fraction[0] = p

    def set_memory(self, memory: tuple[int, int]) -> None:
        """Give the windows another budget. Where less is left than is held, p falls until it fits.

        With memory for nothing p is 0. More memory alone changes nothing that is held: `set_fraction` makes use of it.
        """
        kind, seed, equal = self.terms.kind, self.terms.seed, self.terms.equal
        windows = [self.state.one, self.state.two]
        for at, rows in enumerate(memory):
            fit(windows[at], windows[1 - at], kind, seed, rows, equal)
        one, two = (moved(window, kind, rows, equal) for window, rows in zip(windows, memory, strict=True))
        self.state = self.state._replace(one=one, two=two)

    def _make_room(self, keys: int) -> None:
        one, two, received = self.state
        if keys > len(one.heads):
            more = np.full(max(keys, 2 * len(one.heads)) - len(one.heads), -1)
            one, two = (w._replace(heads=np.concatenate([w.heads, more])) for w in (one, two))
            self.state = State(one, two, received)


def joined(parts: Sequence[Sample]) -> Sample:
    """Put samples of consecutive calls together."""
    return Sample._make(np.concatenate(columns) for columns in zip(*parts, strict=True))
