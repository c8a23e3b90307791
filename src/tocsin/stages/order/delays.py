"""Statistics Manager: by stream, how late rows came in the recent past, and how far a stream runs ahead of the slowest.

Idea: one ADWIN window per stream over coarse delays (in grains, rounded up) is R_i^stat, the recent past; its histogram
is H_i. K_i^sync, what the Synchronizer makes the rows of a stream wait beyond K, is averaged over the same rows: it is
the skew, how far the clock of the stream is ahead of the slowest, less the smallest such mean of all streams.

Guarantee: any cut of the arrivals into calls gives the same state. A delay beyond the last bin cannot be waited for and
enters nothing: its row is behind, and counted so where it is taken. A skew beyond the last bin counts as that bin: more
of it makes no difference to Eq. 2. Means of skews are rounded down to microseconds; a stream that delivered nothing has
none, and is not the smallest.
Cost: that of `adwin`: by stream 2 bytes per row of history and 8 per bin; stored, 2 bytes per row in the window and
some 2,000 bytes more.
Source: Ji et al., ICDE 2016, section IV-A. Rates are not kept: they cancel in Eq. 5, and M-join estimates true sizes.
"""

from __future__ import annotations

import numpy as np

from tocsin.jit import kernel
from tocsin.runtime.contract import Int
from tocsin.stages.order.adwin import COUNT, LARGEST, OPEN_OTHER, OTHER, START, Adwin, new_adwin, take_rows
from tocsin.stages.order.productivity import coarse

# Confidence of ADWIN, as its authors set it.
DELTA = 0.002


@kernel
def take_arrivals(delays: Adwin, grain_us: int, delta: float, stream: Int, delay_us: Int, skew_us: Int) -> None:
    """Take rows in order of arrival: how far behind their own stream's clock, and that clock before the slowest."""
    bins = delays.histogram.shape[1]
    value, other = np.empty_like(delay_us), np.empty_like(delay_us)
    for row in range(stream.shape[0]):
        value[row] = coarse(delay_us[row], grain_us)
        other[row] = min(max(skew_us[row], 0), bins * grain_us)
    take_rows(delays, stream, value, other, delta)


@kernel
def sync_estimates(delays: Adwin) -> Int:
    """K_i^sync: the mean skew of each stream less the smallest one."""
    return sync_of(skew_sums(delays), delays.facts[:, COUNT])


@kernel
def skew_sums(delays: Adwin) -> Int:
    """The skews of each stream, summed over the rows of its window."""
    return delays.facts[:, OTHER] + delays.facts[:, OPEN_OTHER]


@kernel
def sync_of(skews_us: Int, rows: Int) -> Int:
    """K_i^sync by the sum of skews of each stream over so many rows."""
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
    """MaxD^H of each stream, in grains; -1 if it delivered nothing."""
    return delays.facts[:, LARGEST].copy()


def pack_delays(delays: Adwin) -> dict[str, Int]:
    """State as arrays of 64 bits: of the ring only the windows, four rows to a number; histograms follow from them."""
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
    """Read what `pack_delays` wrote."""
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
