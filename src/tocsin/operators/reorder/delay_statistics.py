"""Statistics Manager: recent delays of each stream, and its mean skew against the slowest stream.

Algorithm: one ADWIN window per stream over delays in steps, rounded up, is R_i^stat, the recent past. Its histogram is
H_i. K_i^sync, the wait of the rows of a stream in the synchronizer beyond K, is a mean over the same rows: the distance
of the clock of the stream to the slowest clock, minus the smallest of these means.

Guarantees: batch boundaries do not change the state. No wait can save a row with a delay beyond the last bin, so it is
ignored. A skew beyond the last bin counts as this bin, because a larger value does not change Eq. 2. Means of skews are
rounded down to microseconds. A stream without rows has no mean.

Complexity: see `adwin`; 2 bytes per row of history and 8 per bin for each stream. The stored state has 2 bytes per row
of the window and about 2,000 more bytes.

References: Ji et al., ICDE 2016, section IV-A. Rates are not needed: they cancel in Eq. 5.
"""

from __future__ import annotations

import numpy as np

from tocsin.jit import kernel
from tocsin.operators.reorder.adwin import COUNT, LARGEST, OPEN_OTHER, OTHER, START, Adwin, new_adwin, take_rows
from tocsin.operators.reorder.productivity import coarse_delay
from tocsin.runtime.contract import Int

# Confidence of ADWIN, the value of its authors.
DELTA = 0.002


@kernel
def take_arrivals(delays: Adwin, grain_us: int, delta: float, stream: Int, delay_us: Int, skew_us: Int) -> None:
    """Add delay and skew of rows in arrival order."""
    bins = delays.histogram.shape[1]
    value, other = np.empty_like(delay_us), np.empty_like(delay_us)
    for row in range(stream.shape[0]):
        value[row] = coarse_delay(delay_us[row], grain_us)
        other[row] = min(max(skew_us[row], 0), bins * grain_us)
    take_rows(delays, stream, value, other, delta)


@kernel
def sync_estimates(delays: Adwin) -> Int:
    """Return K_i^sync: the mean skew of each stream minus the smallest mean."""
    return sync_of(skew_sums(delays), delays.facts[:, COUNT])


@kernel
def skew_sums(delays: Adwin) -> Int:
    """Return the sum of skews in the window of each stream."""
    return delays.facts[:, OTHER] + delays.facts[:, OPEN_OTHER]


@kernel
def sync_of(skews_us: Int, rows: Int) -> Int:
    """Return K_i^sync from the sum of skews and the number of rows of each stream."""
    sync_us = np.zeros(rows.shape[0], np.int64)
    least = -1
    for i in range(rows.shape[0]):
        if rows[i] > 0:
            sync_us[i] = skews_us[i] // rows[i]
            least = sync_us[i] if least < 0 else min(least, sync_us[i])
    for i in range(rows.shape[0]):
        if rows[i] > 0:
            sync_us[i] -= least
    return sync_us


@kernel
def largest_delays(delays: Adwin) -> Int:
    """Return MaxD^H of each stream in steps; -1 for a stream without rows."""
    return delays.facts[:, LARGEST].copy()


def pack_delays(delays: Adwin) -> dict[str, Int]:
    """Return the state as arrays of 64 bits: only the windows of the ring, four rows per number, without histograms."""
    mask = delays.ring.shape[1] - 1
    windows = [
        ring[(start + np.arange(count)) & mask]
        for ring, start, count in zip(delays.ring, delays.facts[:, START], delays.facts[:, COUNT], strict=True)
    ]
    rows = np.concatenate([*windows, np.zeros(-int(delays.facts[:, COUNT].sum()) % 4, np.uint16)])
    return {
        "rows": rows.astype("<u2").view("<i8").astype(np.int64), "buckets": delays.buckets.copy(),
        "sums": delays.sums.copy(), "others": delays.others.copy(), "facts": delays.facts.copy(),
    }  # fmt: skip


def unpack_delays(arrays: dict[str, Int], bins: int, history: int) -> Adwin:
    """Read the arrays of `pack_delays`."""
    delays = new_adwin(len(arrays["facts"]), bins, history)
    for name in ("buckets", "sums", "others", "facts"):
        getattr(delays, name)[:] = arrays[name]
    rows, begin = arrays["rows"].astype("<i8").view("<u2"), 0
    for i, (start, count) in enumerate(delays.facts[:, [START, COUNT]].tolist()):
        window = rows[begin : begin + count]
        delays.ring[i, (start + np.arange(count)) & (delays.ring.shape[1] - 1)] = window
        delays.histogram[i] = np.bincount(window, minlength=bins)
        begin += count
    return delays
