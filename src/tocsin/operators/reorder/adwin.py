"""ADWIN: a window over the recent past that shrinks when its mean has changed.

Algorithm: the window consists of buckets of 32, 64, 128, ... rows with their sums, at most five of a size. A sixth
bucket merges the two oldest. With each new bucket every cut is tested: if the means of both sides differ
by more than chance permits, the oldest bucket is removed, and the test is repeated. A ring holds the values, which are
small integers, so the histogram of exactly this window is available.

Guarantees: a change of the mean is detected, with a probability of a false alarm below delta per test, under the
conditions of the theorem: values in [0, R], where R is the largest value in the window. Sums are integers, so batch
boundaries do not change the state.

Complexity: O(1) amortised per row, O(log capacity) per test. The ring has `capacity` values of 2 bytes, a power of two.
If it is full, the oldest bucket is removed, at most a quarter of it. A histogram has at most 65,536 bins.

References: Bifet and Gavalda, Adaptive Windowing, SDM 2007, section 4 (ADWIN2), with
the bound that uses the variance. The scale R, the smallest bucket and the bound on the window differ.
"""

from __future__ import annotations

from math import log, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.jit import kernel
from tocsin.runtime.contract import Int

Small = NDArray[np.uint16]

# Maximum number of buckets of one size. A further bucket merges the oldest two.
MOST = 5
# Rows of the smallest bucket, and between two tests.
EVERY = 32
# Positions in `facts`: rows in the window, position of the oldest row, sum and sum of squares of values, sum
# of companions, largest value, buckets removed because of a change. Then number and both sums of rows without a bucket.
COUNT, START, SUM, SQUARES, OTHER, LARGEST, CUTS, OPEN, OPEN_SUM, OPEN_OTHER = range(10)


class Adwin(NamedTuple):
    """One window per stream.

    Attributes
    ----------
    ring, histogram
        Values of the window, and their histogram.
    buckets, sums, others
        Number of buckets of EVERY * 2^r rows; sum of their values and of a companion, oldest first.
    facts
        See the constants of this module.
    """

    ring: Small
    histogram: Int
    buckets: Int
    sums: Int
    others: Int
    facts: Int


def new_adwin(streams: int, bins: int, capacity: int) -> Adwin:
    """Return empty windows of at most `capacity` rows, which is rounded up to a power of two of at least 256."""
    capacity = max(1 << (capacity - 1).bit_length(), 8 * EVERY)
    sizes = (capacity // EVERY).bit_length()
    facts = np.zeros((streams, 10), np.int64)
    facts[:, LARGEST] = -1
    return Adwin(
        np.zeros((streams, capacity), np.uint16),
        np.zeros((streams, bins), np.int64),
        np.zeros((streams, sizes), np.int64),
        np.zeros((streams, sizes, MOST + 1), np.int64),
        np.zeros((streams, sizes, MOST + 1), np.int64),
        facts,
    )


@kernel
def take_rows(adwin: Adwin, stream: Int, value: Int, other: Int, delta: float) -> None:
    """Add rows in arrival order. A row with a value beyond the last bin is ignored."""
    ring, histogram, facts = adwin.ring, adwin.histogram, adwin.facts
    capacity, bins = ring.shape[1], histogram.shape[1]
    for row in range(stream.shape[0]):
        i, v = stream[row], value[row]
        if v >= bins:
            continue
        if facts[i, COUNT] == capacity:
            drop_oldest(adwin, i)
        ring[i, (facts[i, START] + facts[i, COUNT]) & (capacity - 1)] = v
        histogram[i, v] += 1
        facts[i, COUNT] += 1
        facts[i, SQUARES] += v * v
        facts[i, LARGEST] = max(facts[i, LARGEST], v)
        facts[i, OPEN_SUM] += v
        facts[i, OPEN_OTHER] += other[row]
        facts[i, OPEN] += 1
        if facts[i, OPEN] == EVERY:
            close_bucket(adwin, i)
            while is_changed(adwin, i, delta):
                drop_oldest(adwin, i)
                facts[i, CUTS] += 1


@kernel
def close_bucket(adwin: Adwin, i: int) -> None:
    """Close the bucket of the last rows, and merge the oldest two buckets of each size with too many."""
    facts, sums, others = adwin.facts[i], adwin.sums[i], adwin.others[i]
    value, other = facts[OPEN_SUM], facts[OPEN_OTHER]
    facts[SUM] += value
    facts[OTHER] += other
    facts[OPEN : OPEN_OTHER + 1] = 0
    r = 0
    while adwin.buckets[i, r] == MOST:
        sums[r, MOST], others[r, MOST] = value, other
        value, other = sums[r, 0] + sums[r, 1], others[r, 0] + others[r, 1]
        for at in range(2, MOST + 1):
            sums[r, at - 2], others[r, at - 2] = sums[r, at], others[r, at]
        adwin.buckets[i, r] = MOST - 1
        r += 1
    held = adwin.buckets[i, r]
    sums[r, held], others[r, held] = value, other
    adwin.buckets[i, r] = held + 1


@kernel
def drop_oldest(adwin: Adwin, i: int) -> None:
    """Remove the oldest bucket and its rows from the histogram."""
    facts, sums, others = adwin.facts[i], adwin.sums[i], adwin.others[i]
    ring, histogram, mask = adwin.ring[i], adwin.histogram[i], adwin.ring.shape[1] - 1
    r = adwin.buckets.shape[1] - 1
    while adwin.buckets[i, r] == 0:
        r -= 1
    facts[SUM] -= sums[r, 0]
    facts[OTHER] -= others[r, 0]
    for at in range(1, adwin.buckets[i, r]):
        sums[r, at - 1], others[r, at - 1] = sums[r, at], others[r, at]
    adwin.buckets[i, r] -= 1
    for place in range(facts[START], facts[START] + (EVERY << r)):
        value = int(ring[place & mask])
        histogram[value] -= 1
        facts[SQUARES] -= value * value
    facts[START] = (facts[START] + (EVERY << r)) & mask
    facts[COUNT] -= EVERY << r
    while facts[LARGEST] >= 0 and histogram[facts[LARGEST]] == 0:
        facts[LARGEST] -= 1


@kernel
def is_changed(adwin: Adwin, i: int, delta: float) -> bool:
    """Return whether the means on both sides of a cut between buckets differ by more than chance permits."""
    facts, sums, buckets = adwin.facts[i], adwin.sums[i], adwin.buckets[i]
    count, total, largest = facts[COUNT], facts[SUM], facts[LARGEST]
    # If all rows are in order, nothing has changed.
    if largest == 0:
        return False
    mean = total / count
    variance = max(0.0, facts[SQUARES] / count - mean * mean)
    doubt = log(2.0 * log(float(count)) / delta)
    before, sum_before = 0, 0
    for r in range(buckets.shape[0] - 1, -1, -1):
        for at in range(buckets[r]):
            before += EVERY << r
            sum_before += sums[r, at]
            after = count - before
            if after == 0:
                return False
            gap = abs(sum_before / before - (total - sum_before) / after)
            inverse = 1.0 / before + 1.0 / after
            if gap > sqrt(2.0 * inverse * variance * doubt) + 2.0 / 3.0 * inverse * doubt * largest:
                return True
    return False
