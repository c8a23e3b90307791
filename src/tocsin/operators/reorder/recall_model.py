"""Recall model: the expected share of true results that a K-slack of K produces, for every K.

Algorithm: a row is joined in order if its delay is at most K plus the wait in the synchronizer (Eq. 2). It finds in a
window, which is divided into basic windows of length b, the rows with delays up to then (Eq. 3). Both are sums of
the histogram up to a position that moves with K. With T(d), the number of rows delayed by more than d, and S(d), the
sum of T from d on, the missing part of a window is a difference of two S. So recall (Eq. 5) needs two reads per stream
and K. Common factors of Eq. 1 and 4 (rates, L and windows) cancel; 1 / W_i of stream i remains. Delays and K are in
steps g.

Guarantees: equal to Eq. 5 and 6 except for rounding, and exactly 1 if nothing is missing. Without selectivities, recall
does not decrease in K, because sums of integers do not, and each operation on doubles keeps the order. Divisions by
zero: a stream without rows is complete and in order. A window of 0 is one microsecond long. If no combination up to K
or no true result is known, the ratio of selectivities is 1.

Complexity: O(streams * largest delay in steps) once, then O(streams) per K if a basic window is a multiple of g, and
otherwise O(streams * g / gcd(b, g)).

References: Ji et al., Quality-Driven Disorder Handling for M-way Sliding Window Stream Joins, ICDE 2016, sections IV-A
and IV-B. Interpretation: Eq. 2 rounds down; |w| in Eq. 4 (second line) and Eq. 5 has no rate; Eq. 6 sums up to K/g.
"""

from __future__ import annotations

from math import gcd
from typing import NamedTuple

import numpy as np

from tocsin.jit import kernel
from tocsin.runtime.contract import Float, Int


class RecallModel(NamedTuple):
    """Statistics that determine the recall. Delays and waits are in steps g.

    Attributes
    ----------
    tail, sums
        `tail[i, d]` is the number of rows of stream i with a delay above d; `sums[i, d]` adds every `stride`-th number
        from d on.
    per_row, per_window
        1 / rows of a stream, and the same divided by its window; 0 for a stream without rows.
    shift
        K_i^sync of each stream.
    cross, results
        M-cross and M-join, cumulative by delay.
    last
        MaxD^H, the largest delay in a histogram.
    basics, rest, weight, basic_us, stride, repeats
        See `WindowShape`.
    """

    tail: Int
    sums: Int
    per_row: Float
    shift: Int
    basics: Int
    rest: Float
    per_window: Float
    weight: Float
    cross: Float
    results: Float
    last: int
    basic_us: int
    stride: int
    repeats: int


class WindowShape(NamedTuple):
    """Constants of a model: windows as sequences of basic windows.

    A window has `basics` whole basic windows and a last one of `rest` microseconds. `weight` is 1/W_i, scaled to 1 for
    the longest window. `repeats` basic windows are as long as `stride` steps; both numbers are minimal.
    """

    windows: Float
    basics: Int
    rest: Float
    weight: Float
    basic_us: int
    grain_us: int
    stride: int
    repeats: int


def new_shape(windows_us: Int, basic_us: int, grain_us: int) -> WindowShape:
    """Return the constants for windows. The last basic window can have the full length."""
    windows = np.maximum(np.asarray(windows_us, np.int64), 1)
    basics = -(-windows // basic_us) - 1
    rest = (windows - basics * basic_us).astype(np.float64)
    common = gcd(basic_us, grain_us)
    weight = windows.max() / windows.astype(np.float64)
    return WindowShape(
        windows.astype(np.float64), basics, rest, weight, basic_us, grain_us, basic_us // common, grain_us // common
    )


@kernel
def build_model(
    shape: WindowShape, histograms: Int, largest: Int, sync_us: Int, cross: Float, results: Float
) -> RecallModel:
    """Return the model of histograms (streams, bins) with the last used bin of each, or -1, and of both maps."""
    streams = histograms.shape[0]
    last = 0
    for i in range(streams):
        last = max(last, largest[i])
    size = last + 1
    tail, sums = np.zeros((streams, size), np.int64), np.zeros((streams, size), np.int64)
    per_row, per_window = np.zeros(streams), np.zeros(streams)
    for i in range(streams):
        above = 0
        for d in range(largest[i], -1, -1):
            tail[i, d] = above
            above += histograms[i, d]
        for first in range(largest[i], largest[i] - shape.stride, -1):
            total = 0
            for d in range(first, -1, -shape.stride):
                total += tail[i, d]
                sums[i, d] = total
        if above > 0:
            per_row[i] = 1.0 / above
            per_window[i] = 1.0 / (above * shape.windows[i])
    upto_cross, upto_results = np.zeros(max(cross.shape[0], 1)), np.zeros(max(cross.shape[0], 1))
    some_cross, some_results = 0.0, 0.0
    for d in range(cross.shape[0]):
        some_cross += cross[d]
        some_results += results[d]
        upto_cross[d], upto_results[d] = some_cross, some_results
    shift = sync_us // shape.grain_us
    return RecallModel(
        tail, sums, per_row, shift, shape.basics, shape.rest, per_window, shape.weight,
        upto_cross, upto_results, last, shape.basic_us, shape.stride, shape.repeats,
    )  # fmt: skip


@kernel
def in_order_shares(model: RecallModel, i: int, first: int, count: int) -> Float:
    """Return the share of rows of stream i in order for `count` waits from `first` on: Eq. 2 at d = 0."""
    tail, per_row, shift = model.tail[i], model.per_row[i], model.shift[i]
    shares = np.ones(count)
    for n in range(min(count, tail.shape[0] - shift - first)):
        shares[n] = max(0.0, 1.0 - tail[first + shift + n] * per_row)
    return shares


@kernel
def window_shares(model: RecallModel, i: int, first: int, count: int) -> Float:
    """Return the share of the window of stream i that is present for a row in order: Eq. 3, summed over the window."""
    tail, sums, basics = model.tail[i], model.sums[i], model.basics[i]
    stride, repeats, size, start = model.stride, model.repeats, tail.shape[0], model.shift[i] + first
    # Rows missing from whole basic windows. Doubles represent these sums of integers exactly.
    shares = np.zeros(count)
    for r in range(min(repeats, basics)):
        # The basic windows r, r + repeats, ... begin at a distance of `stride` steps.
        begin = start + r * stride // repeats
        end = begin + stride * ((basics - 1 - r) // repeats + 1)
        for n in range(min(count, size - begin)):
            shares[n] += sums[begin + n]
        for n in range(min(count, size - end)):
            shares[n] -= sums[end + n]
    whole, last = float(model.basic_us) * model.per_window[i], model.rest[i] * model.per_window[i]
    oldest = start + basics * stride // repeats
    for n in range(count):
        behind = tail[oldest + n] if oldest + n < size else 0
        shares[n] = max(0.0, 1.0 - (shares[n] * whole + behind * last))
    return shares


@kernel
def true_size(model: RecallModel) -> float:
    """Return Eq. 1 without selectivity and common factors."""
    size = 0.0
    for i in range(model.weight.shape[0]):
        size += model.weight[i]
    return size


@kernel
def produced_sizes(model: RecallModel, first: int, count: int) -> Float:
    """Return Eq. 4 without selectivity and common factors: rows in order of each stream times the other windows."""
    sizes, products = np.zeros(count), np.ones(count)
    for i in range(model.weight.shape[0]):
        ready, there = in_order_shares(model, i, first, count), window_shares(model, i, first, count)
        weight = model.weight[i]
        for n in range(count):
            sizes[n] = sizes[n] * there[n] + weight * ready[n] * products[n]
            products[n] *= there[n]
    return sizes


@kernel
def selectivity_ratios(model: RecallModel, first: int, count: int) -> Float:
    """Return sel(K) / sel: Eq. 6."""
    cross, results = model.cross, model.results
    end = cross.shape[0] - 1
    ratios = np.ones(count)
    if results[end] <= 0.0:
        return ratios
    for n in range(count):
        at = min(first + n, end)
        if cross[at] > 0.0:
            # In this order the ratio is exactly 1 if K reaches the largest delay of the maps.
            ratios[n] = (results[at] * cross[end]) / (cross[at] * results[end])
    return ratios


@kernel
def cross_recalls(model: RecallModel, first: int, count: int) -> Float:
    """Return Eq. 5 with equal selectivities (EqSel) for `count` waits. NonEqSel multiplies it by Eq. 6."""
    return produced_sizes(model, first, count) / true_size(model)
