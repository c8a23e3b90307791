"""Key recall: the share of results that PROB finds, measured on blocks of rows with the frequencies known before.

Algorithm: after each block of rows, the keys of the block are ranked by their frequency in the other stream before the
block. PROB with memory for a share of the rows of the window retains the first keys of this ranking. The results of a
key are proportional to the product of its rows in the block in both streams. The cumulative sums in the order of the
ranking are a curve: the share of results by the share of rows. Keys of equal frequency share memory in proportion.

Guarantees: the ranking and the results are of different rows, so a distribution that drifts, or frequencies that are
only noise, show no gain. Rare keys with many partners count with all rows of the block, and not only with the rows of
a lifetime sample. If a counter table overflows, the results of keys without a counter are missing; the caller corrects
the curve with the share of these results in the lifetime sample.

Complexity: O(m log m) per block for m counters.

References: Srivastava, Widom, VLDB 2004, section 3.3; the measurement is part of Tocsin.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tocsin.operators.retention.utility.space_saving import Frequencies, known
from tocsin.runtime.contract import Float, Int

# Shares of memory at which the curve is known.
AMOUNTS = np.concatenate([[0.0], np.geomspace(1 / 256, 1.0, 32)])
# Least weight of a new block in the averages, and the number of blocks that averages with this weight count for.
_WEIGHT, _BLOCKS = 0.2, 9
# Smallest standard deviation of a block.
_LEAST_DEVIATION = 0.02
# A gain is significant from this number of standard errors.
_SIGNIFICANT = 2.0


class KeyRecall(NamedTuple):
    """Averages over blocks.

    Attributes
    ----------
        mean, square: Average recall and average squared recall of PROB at `AMOUNTS`.
        facts: Number of blocks, and whether a counter table overflowed in the last block.
    """

    mean: Float
    square: Float
    facts: Int

    @property
    def is_known(self) -> bool:
        """Whether a block was measured."""
        return bool(self.facts[0])

    def recall(self, share: float, untracked: float) -> float:
        """Return the recall of PROB with memory for a share of the rows.

        `untracked` is the share of results of keys without counters, which counts if a table overflowed.
        """
        tracked = float(np.interp(share, AMOUNTS, self.mean))
        untracked *= bool(self.facts[1])
        return (1 - untracked) * tracked + untracked * share

    def error(self, share: float) -> float:
        """Return the standard error of the recall of the next blocks."""
        variance = float(np.interp(share, AMOUNTS, np.maximum(self.square - self.mean**2, _LEAST_DEVIATION**2)))
        return float(np.sqrt(variance / min(max(int(self.facts[0]), 1), _BLOCKS)))

    def has_gain(self, share: float, untracked: float) -> bool:
        """Return whether PROB finds more results than any rows do."""
        return self.is_known and self.recall(share, untracked) - share > _SIGNIFICANT * self.error(share)


def no_key_recall() -> KeyRecall:
    """Return averages without a block."""
    return KeyRecall(np.zeros(len(AMOUNTS)), np.zeros(len(AMOUNTS)), np.zeros(2, np.int64))


def add_block(
    before: KeyRecall, own: tuple[Frequencies, Frequencies], other: tuple[Frequencies, Frequencies]
) -> KeyRecall:
    """Return the averages with one more block.

    `own` and `other` are the frequencies of all rows and of the rows of the block, for the stream of the window and
    for the other stream.
    """
    curve = _measure_block(own[1], *other)
    if curve is None:
        return before
    weight = max(_WEIGHT, 1 / (int(before.facts[0]) + 1))
    is_full = any(int(table.facts[0]) == len(table.key) for table in (own[1], other[1]))
    return KeyRecall(
        before.mean + weight * (curve - before.mean),
        before.square + weight * (curve**2 - before.square),
        np.array([int(before.facts[0]) + 1, is_full]),
    )


def _measure_block(own: Frequencies, other_all: Frequencies, other: Frequencies) -> Float | None:
    """Return the recall of PROB at `AMOUNTS` in one block, or None if the block has no results."""
    keys, share = known(own)
    rows, partners = share * float(own.total[0]), _counts(other, keys)
    results = rows * partners
    if float(other_all.total[0]) <= float(other.total[0]) or not results.any():
        return None
    earlier = np.maximum(_counts(other_all, keys) - partners, 0.0)
    # Halving makes earlier counts of a rare key fractions of a row.
    level, place = np.unique(-np.round(earlier, 6), return_inverse=True)
    memory = np.bincount(place.reshape(-1), rows, len(level))
    found = np.bincount(place.reshape(-1), results, len(level))
    # Rows of keys without a counter are ranked with the unknown keys.
    memory[-1] += max(float(own.total[0]) - float(memory.sum()), 0.0)
    x, y = (np.concatenate([[0.0], np.cumsum(part) / part.sum()]) for part in (memory, found))
    return np.asarray(np.interp(AMOUNTS, x, y), np.float64)


def _counts(of: Frequencies, keys: Int) -> Float:
    """Return the rows of some keys that are certain."""
    have, share = known(of)
    order = np.argsort(have)
    if not len(have):
        return np.zeros(len(keys))
    at = np.minimum(np.searchsorted(have, keys, sorter=order), len(have) - 1)
    found = order[at]
    return np.where(have[found] == keys, share[found] * float(of.total[0]), 0.0)
