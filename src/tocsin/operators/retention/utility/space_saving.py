"""How frequent values are, in small space, with the past forgotten by halves: SpaceSaving.

Idea: a fixed number of counters. A value that has one adds to it; another takes over the smallest counter and goes on
from there, with what it found noted as its error. After every `half_life` rows all counters are halved, so a row counts
for half of one that comes so many rows later.
Guarantee: with the total T of what all rows count for and m counters: each true count lies between count - error and
count, no error is above T / m, and a value that counts for more than T / m has a counter. Halving is exact.
Cost: O(log m) per row; 24 bytes per counter and a table of 8 bytes for each, at most four times as many.
Source: Metwally, Agrawal, El Abbadi, "Efficient Computation of Frequent and Top-k Elements in Data Streams", ICDT 2005;
a heap in place of the list of buckets, and the halving, are ours.
"""

from __future__ import annotations

from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from tocsin.hashing import mix
from tocsin.jit import kernel
from tocsin.runtime.contract import Float, Int

# Places in `facts`: counters in use, rows until all are halved.
_USED, _LEFT = 0, 1
# A test needs so many rows of a value.
_OFTEN = 20


class Frequencies(NamedTuple):
    """Counters as a heap, the smallest first; `table` has the place of each value (-1: none); the total."""

    key: Int
    counts: Float
    errors: Float
    table: Int
    facts: Int
    total: Float


class Shares(NamedTuple):
    """The shares that values had at some moment, in order of the values; counters that had none stand last, with 0."""

    key: Int
    share: Float


def new_frequencies(counters: int, half_life: int = 0) -> Frequencies:
    """No rows yet; with a half-life of 0 nothing is forgotten."""
    places = 1 << (2 * counters).bit_length()
    facts = np.array([0, half_life])
    return Frequencies(
        np.zeros(counters, np.int64), np.zeros(counters), np.zeros(counters), np.full(places, -1), facts, np.zeros(1)
    )


def with_half_life(of: Frequencies, half_life: int) -> Frequencies:
    """Let rows be forgotten from now on."""
    return of._replace(facts=np.array([of.facts[_USED], half_life]))


@kernel
def place_of(of: Frequencies, key: int) -> int:
    """The place in the table of a value, or where it would be."""
    mask = of.table.shape[0] - 1
    place = mix(int(key)) & mask
    while of.table[place] >= 0 and of.key[of.table[place]] != key:
        place = (place + 1) & mask
    return int(place)


@kernel
def remove(of: Frequencies, place: int) -> None:
    """Take an entry out of the table, and move up those that had to pass it."""
    mask = of.table.shape[0] - 1
    hole, at = place, (place + 1) & mask
    while of.table[at] >= 0:
        wanted = mix(int(of.key[of.table[at]])) & mask
        # It may move if the hole is not before the place that it wants.
        if (at - wanted) & mask >= (at - hole) & mask:
            of.table[hole] = of.table[at]
            hole = at
        at = (at + 1) & mask
    of.table[hole] = -1


@kernel
def swap(of: Frequencies, one: int, other: int) -> None:
    """Let two counters change places."""
    first, second = place_of(of, of.key[one]), place_of(of, of.key[other])
    of.table[first], of.table[second] = other, one
    of.key[one], of.key[other] = of.key[other], of.key[one]
    of.counts[one], of.counts[other] = of.counts[other], of.counts[one]
    of.errors[one], of.errors[other] = of.errors[other], of.errors[one]


@kernel
def sink(of: Frequencies, at: int) -> None:
    """Move a counter that grew behind those that are smaller."""
    used = of.facts[_USED]
    while True:
        least = at
        for child in range(2 * at + 1, min(2 * at + 3, used)):
            if of.counts[child] < of.counts[least]:
                least = child
        if least == at:
            return
        swap(of, at, least)
        at = least


@kernel
def add_key(of: Frequencies, key: int, half_life: int = 0) -> None:
    """Count a row."""
    place = place_of(of, key)
    at = of.table[place]
    if at < 0 and of.facts[_USED] < of.key.shape[0]:
        at = of.facts[_USED]
        of.facts[_USED] += 1
        of.key[at], of.counts[at], of.errors[at], of.table[place] = key, 0.0, 0.0, at
        while at > 0 and of.counts[(at - 1) // 2] > 0.0:
            swap(of, at, (at - 1) // 2)
            at = (at - 1) // 2
    elif at < 0:
        at = 0
        remove(of, place_of(of, of.key[0]))
        of.key[0], of.errors[0] = key, of.counts[0]
        of.table[place_of(of, key)] = 0
    of.counts[at] += 1.0
    of.total[0] += 1.0
    sink(of, at)
    of.facts[_LEFT] -= 1
    if of.facts[_LEFT] == 0:
        forget_half(of)
        of.facts[_LEFT] = half_life


@kernel
def forget_half(of: Frequencies) -> None:
    """Let all rows so far count for half."""
    of.counts[:] *= 0.5
    of.errors[:] *= 0.5
    of.total[0] *= 0.5


@kernel
def frequency_of(of: Frequencies, key: int) -> float:
    """The share of rows with a value that is certain: from below, by at most 1 / counters."""
    at = of.table[place_of(of, key)]
    if at < 0 or of.total[0] == 0.0:
        return 0.0
    return float((of.counts[at] - of.errors[at]) / of.total[0])


@kernel
def frequencies_of(of: Frequencies, keys: Int) -> Float:
    """The shares of rows with some values, each from below."""
    shares = np.empty(keys.shape[0])
    for i in range(keys.shape[0]):
        shares[i] = frequency_of(of, keys[i])
    return shares


def known(of: Frequencies) -> tuple[Int, Float]:
    """The values that have a counter, and their frequencies from below."""
    used, total = int(of.facts[_USED]), max(float(of.total[0]), 1e-300)
    return of.key[:used].copy(), (of.counts[:used] - of.errors[:used]) / total


def shares_now(of: Frequencies) -> Shares:
    """What the counters say now, to be asked for later (`shares_of`): 16 bytes per counter, used or not."""
    keys, shares = known(of)
    order, free = np.argsort(keys), len(of.key) - len(keys)
    return Shares(
        np.concatenate([keys[order], np.full(free, np.iinfo(np.int64).max)]),
        np.concatenate([shares[order], np.zeros(free)]),
    )


def shares_of(then: Shares, keys: Int) -> Float:
    """The shares of rows that some values had then, each from below."""
    at = np.minimum(np.searchsorted(then.key, keys), len(then.key) - 1)
    return np.where(then.key[at] == keys, then.share[at], 0.0)


def have_changed(before: Frequencies, recent: Frequencies, alpha: float) -> bool:
    """Tell whether recent rows, which `before` has counted too, are of another distribution than those before them.

    A chi-square test of the values of which at least 20 recent rows were to be expected. Of what counters leave open,
    the least difference counts. False alarms come with `alpha` where rows are independent.
    """
    rows, earlier = float(recent.total[0]), float(before.total[0] - recent.total[0])
    keys, low = known(before)
    often = low * rows >= _OFTEN
    if earlier <= 0 or not often.any():
        return False
    keys, low = keys[often], low[often]
    high = before.counts[: len(often)][often] / before.total[0]
    its_low = frequencies_of(recent, keys)
    its_high = np.array([_at_most(recent, key) for key in keys.tolist()])
    gap = np.maximum(0.0, np.maximum(low - its_high, its_low - high))
    # The recent rows are part of both: what differs is the earlier part alone.
    statistic = float(np.sum(gap**2 / low)) * rows * float(before.total[0]) / earlier
    part = 2 / (9 * len(keys))
    limit = len(keys) * (1 - part + NormalDist().inv_cdf(1 - alpha) * part**0.5) ** 3
    return bool(statistic > limit)


def _at_most(of: Frequencies, key: int) -> float:
    """The share of rows with a value, from above."""
    used = int(of.facts[_USED])
    at = int(of.table[place_of(of, key)])
    least = float(of.counts[0]) if used == len(of.key) else 0.0
    return (float(of.counts[at]) if at >= 0 else least) / float(of.total[0])
