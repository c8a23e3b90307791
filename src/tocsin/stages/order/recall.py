"""Recall by wait: what share of the true results a K-slack of K would produce, for every K at O(streams).

Idea: a row is joined in order if its delay is at most K plus what the Synchronizer makes it wait (Eq. 2), and it finds
in a window, cut into basic windows of length b, the rows whose delays have passed by then (Eq. 3). Both are sums of the
histogram up to a place that moves with K. So with T(d), the rows delayed by more than d, and S(d), the sum of T from d
on, what is missing from a window is a difference of two S, and recall (Eq. 5) takes two reads per stream and K.
Eq. 1 and 4 have common factors, rates, L and windows, that cancel; they are left out here: of stream i stays 1/W_i.
Delays and K are counted in grains of length g.

Guarantee: Eq. 5 and 6 but for the rounding of doubles; exactly 1 where nothing is missing; not falling in K before the
selectivities come in (sums of integers fall, and each operation on doubles keeps order). Where it would divide by
zero: a stream that delivered nothing is complete and in order; a window of 0 is one microsecond long; where nothing of
the cross join is known up to K, or no true result at all, the ratio of selectivities is 1: nothing tells them apart.
Cost: O(streams * largest delay in grains) once, then O(streams) per K if basic windows are whole grains; else
O(streams * g / gcd(b, g)).
Source: Ji et al., Quality-Driven Disorder Handling for M-way Sliding Window Stream Joins, ICDE 2016, section IV-A and
B. Read with: Eq. 2 rounds down; |w| in Eq. 4 (second line) and 5 is without the rate; Eq. 6 sums up to K/g.
"""

from __future__ import annotations

from math import gcd
from typing import NamedTuple

import numpy as np

from tocsin.jit import kernel
from tocsin.runtime.contract import Float, Int


class Model(NamedTuple):
    """What recall depends on. Delays and waits are in grains; `last` is MaxD^H, the largest delay in a histogram.

    `tail[i, d]` has the rows of stream i delayed by more than d, `sums[i, d]` adds every `stride`-th of them from d on;
    `per_row` is 1 over the rows of a stream, `per_window` that over its window, 0 if it delivered nothing; `shift` is
    K_i^sync in grains; `cross` and `results` are M-cross and M-join summed up to each delay. The rest is as in `Shape`.
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


class Shape(NamedTuple):
    """What of a model never changes: windows cut into basic windows, and how these stand to grains.

    A window has `basics` whole basic windows and a last one of `rest` microseconds; `weight` is 1/W_i, scaled to 1 for
    the longest window. `repeats` basic windows are as long as `stride` grains: the least numbers of which that is true.
    """

    windows: Float
    basics: Int
    rest: Float
    weight: Float
    basic_us: int
    grain_us: int
    stride: int
    repeats: int


def new_shape(windows_us: Int, basic_us: int, grain_us: int) -> Shape:
    """Cut windows into basic ones: `basics` whole ones and a last one of `rest` microseconds, which may be whole."""
    windows = np.maximum(np.asarray(windows_us, np.int64), 1)
    basics = -(-windows // basic_us) - 1
    rest = (windows - basics * basic_us).astype(np.float64)
    common = gcd(basic_us, grain_us)
    weight = windows.max() / windows.astype(np.float64)
    return Shape(
        windows.astype(np.float64), basics, rest, weight, basic_us, grain_us, basic_us // common, grain_us // common
    )


@kernel
def build_model(shape: Shape, histograms: Int, largest: Int, sync_us: Int, cross: Float, results: Float) -> Model:
    """Sum up histograms (streams, bins), `largest` being the last bin in use of each, and maps, cut behind their last.

    A stream that delivered nothing has -1 for its largest delay.
    """
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
    return Model(
        tail, sums, per_row, shift, shape.basics, shape.rest, per_window, shape.weight,
        upto_cross, upto_results, last, shape.basic_us, shape.stride, shape.repeats,
    )  # fmt: skip


@kernel
def in_order_shares(model: Model, i: int, first: int, count: int) -> Float:
    """Share of the rows of stream i that the join gets in order, for `count` waits from `first` on: Eq. 2 at d = 0."""
    tail, per_row, shift = model.tail[i], model.per_row[i], model.shift[i]
    shares = np.ones(count)
    for n in range(min(count, tail.shape[0] - shift - first)):
        shares[n] = max(0.0, 1.0 - tail[first + shift + n] * per_row)
    return shares


@kernel
def window_shares(model: Model, i: int, first: int, count: int) -> Float:
    """Share of the window of stream i that is there when a row in order comes: Eq. 3, summed, over the window."""
    tail, sums, basics = model.tail[i], model.sums[i], model.basics[i]
    stride, repeats, size, start = model.stride, model.repeats, tail.shape[0], model.shift[i] + first
    # Rows missing from whole basic windows: sums of whole numbers, which doubles hold exactly.
    shares = np.zeros(count)
    for r in range(min(repeats, basics)):
        # The basic windows r, r + repeats, ... begin `stride` grains one behind the other.
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
def true_size(model: Model) -> float:
    """Eq. 1 without selectivity and common factors."""
    size = 0.0
    for i in range(model.weight.shape[0]):
        size += model.weight[i]
    return size


@kernel
def produced_sizes(model: Model, first: int, count: int) -> Float:
    """Eq. 4 without selectivity and common factors: for each stream, its rows in order times the other windows."""
    sizes, products = np.zeros(count), np.ones(count)
    for i in range(model.weight.shape[0]):
        ready, there = in_order_shares(model, i, first, count), window_shares(model, i, first, count)
        weight = model.weight[i]
        for n in range(count):
            sizes[n] = sizes[n] * there[n] + weight * ready[n] * products[n]
            products[n] *= there[n]
    return sizes


@kernel
def selectivity_ratios(model: Model, first: int, count: int) -> Float:
    """sel(K) / sel: Eq. 6."""
    cross, results = model.cross, model.results
    end = cross.shape[0] - 1
    ratios = np.ones(count)
    if results[end] <= 0.0:
        return ratios
    for n in range(count):
        at = min(first + n, end)
        if cross[at] > 0.0:
            # In this order it is exactly 1 where K reaches the largest delay of the maps.
            ratios[n] = (results[at] * cross[end]) / (cross[at] * results[end])
    return ratios


@kernel
def cross_recalls(model: Model, first: int, count: int) -> Float:
    """Eq. 5 with equal selectivities (EqSel), for waits of first, first + 1, ... grains; times Eq. 6 it is NonEqSel."""
    return produced_sizes(model, first, count) / true_size(model)
