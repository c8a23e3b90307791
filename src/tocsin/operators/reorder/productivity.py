"""Tuple-Productivity Profiler: the combinations and results of the rows of an interval, by delay.

Algorithm: M-cross and M-join sum, by the delay that a row had at its arrival, the combinations of the row in the join
and the true ones among them. The paper does not join an out-of-order row. It counts as the most productive row in order
of the same interval. This row is known at the end of the interval, so out-of-order rows are only counted before.

Guarantees: batch boundaries do not change the sums, because they are added in arrival order. Without a row in order the
productivity of out-of-order rows is 0. The maps ignore delays beyond the last bin.

Complexity: O(1) per row; O(largest delay in steps) at the end of an interval. The state has three numbers per bin.

References: Ji et al., ICDE 2016, section IV-B. The profile also counts produced results (Result-Size Monitor).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tocsin.jit import kernel
from tocsin.runtime.contract import Bools, Float, Int

# Position in `facts`.
_LARGEST = 0
# Positions in `sizes`.
_PRODUCED, _MOST_CROSS, _MOST_RESULTS = 0, 1, 2


class ProductivityProfile(NamedTuple):
    """Combinations and results of rows in order and number of other rows by delay. Largest delay and sizes."""

    cross: Float
    results: Float
    missed: Int
    facts: Int
    sizes: Float


def new_profile(bins: int) -> ProductivityProfile:
    """Return a profile without rows."""
    return ProductivityProfile(np.zeros(bins), np.zeros(bins), np.zeros(bins, np.int64), np.array([-1]), np.zeros(3))


@kernel
def coarse_delay(delay_us: int, grain_us: int) -> int:
    """Return a delay in steps, rounded up. It is 0 only for a row in order."""
    return (delay_us + grain_us - 1) // grain_us if delay_us > 0 else 0


@kernel
def take_results(
    profile: ProductivityProfile, grain_us: int, delay_us: Int, cross: Float, results: Float, in_order: Bools
) -> None:
    """Add released rows with their combinations and results."""
    bins = profile.cross.shape[0]
    for row in range(delay_us.shape[0]):
        d = coarse_delay(delay_us[row], grain_us)
        if d >= bins:
            continue
        profile.facts[_LARGEST] = max(profile.facts[_LARGEST], d)
        if not in_order[row]:
            profile.missed[d] += 1
            continue
        profile.cross[d] += cross[row]
        profile.results[d] += results[row]
        profile.sizes[_PRODUCED] += results[row]
        profile.sizes[_MOST_CROSS] = max(profile.sizes[_MOST_CROSS], cross[row])
        profile.sizes[_MOST_RESULTS] = max(profile.sizes[_MOST_RESULTS], results[row])


@kernel
def close_interval(profile: ProductivityProfile) -> tuple[Float, Float, float, float]:
    """Return M-cross, M-join, produced results and estimated true results of the interval, and clear the profile."""
    end = profile.facts[_LARGEST] + 1
    cross, results = profile.cross[:end].copy(), profile.results[:end].copy()
    produced, true = profile.sizes[_PRODUCED], 0.0
    for d in range(end):
        cross[d] += profile.missed[d] * profile.sizes[_MOST_CROSS]
        results[d] += profile.missed[d] * profile.sizes[_MOST_RESULTS]
        true += results[d]
    profile.cross[:end] = 0.0
    profile.results[:end] = 0.0
    profile.missed[:end] = 0
    profile.facts[_LARGEST] = -1
    profile.sizes[:] = 0.0
    return cross, results, produced, true


def pack_profile(profile: ProductivityProfile) -> dict[str, Int | Float]:
    """Return the state as arrays, without unused bins."""
    end = int(profile.facts[_LARGEST]) + 1
    return {
        "cross": profile.cross[:end].copy(), "results": profile.results[:end].copy(),
        "missed": profile.missed[:end].copy(), "facts": profile.facts.copy(), "sizes": profile.sizes.copy(),
    }  # fmt: skip


def unpack_profile(arrays: dict[str, Int | Float], bins: int) -> ProductivityProfile:
    """Read the arrays of `pack_profile`."""
    profile = new_profile(bins)
    for name, array in arrays.items():
        room = getattr(profile, name)
        room[: len(array)] = array[: len(room)]
    return profile
