"""Tuple-Productivity Profiler: by coarse delay, what rows produced, or would have, in the last interval.

Idea: M-cross and M-join sum, by the delay that a row had when it arrived, how many combinations it met in the join and
how many of them were results. A row that came out of order to the join was not joined; it is credited what the best
row in order of the same interval had. That is known at the end of it, so until then such rows are only counted.

Guarantee: any cut of an interval into calls gives the same sums, to the bit: each is added up in order of arrival.
Without a row in order there is no best one: the credit is 0. A delay beyond the last bin is in no map.
Cost: O(1) per row; O(largest delay in grains) at the end of an interval; three numbers per bin.
Source: Ji et al., ICDE 2016, section IV-B; the number of results produced (Result-Size Monitor) is taken on the way.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tocsin.jit import kernel
from tocsin.runtime.contract import Bools, Float, Int

# The place in `facts`.
_LARGEST = 0
# Places in `sizes`.
_PRODUCED, _MOST_CROSS, _MOST_RESULTS = 0, 1, 2


class Profile(NamedTuple):
    """By coarse delay: cross and join results of rows in order, and how many rows were not; largest delay, sizes."""

    cross: Float
    results: Float
    missed: Int
    facts: Int
    sizes: Float


def new_profile(bins: int) -> Profile:
    """Nothing joined yet."""
    return Profile(np.zeros(bins), np.zeros(bins), np.zeros(bins, np.int64), np.array([-1]), np.zeros(3))


@kernel
def coarse(delay_us: int, grain_us: int) -> int:
    """Delay in grains, rounded up; 0 only for a row in order."""
    return (delay_us + grain_us - 1) // grain_us if delay_us > 0 else 0


@kernel
def take_results(profile: Profile, grain_us: int, delay_us: Int, cross: Float, results: Float, in_order: Bools) -> None:
    """Take rows that the join took: what they met, if they came in order."""
    bins = profile.cross.shape[0]
    for row in range(delay_us.shape[0]):
        d = coarse(delay_us[row], grain_us)
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
def close_interval(profile: Profile) -> tuple[Float, Float, float, float]:
    """End the interval: M-cross, M-join, results produced, true results (estimated). The profile begins anew."""
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


def pack_profile(profile: Profile) -> dict[str, Int | Float]:
    """State as arrays, without the bins that nothing reached."""
    end = int(profile.facts[_LARGEST]) + 1
    return {
        "cross": profile.cross[:end].copy(), "results": profile.results[:end].copy(),
        "missed": profile.missed[:end].copy(), "facts": profile.facts.copy(), "sizes": profile.sizes.copy(),
    }  # fmt: skip


def unpack_profile(arrays: dict[str, Int | Float], bins: int) -> Profile:
    """Read what `pack_profile` wrote."""
    profile = new_profile(bins)
    for name, array in arrays.items():
        room = getattr(profile, name)
        room[: len(array)] = array[: len(room)]
    return profile
