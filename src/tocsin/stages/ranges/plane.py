"""Regions in the plane: units of equal weight along the first two axes, and the elements of an era to read totals from.

A region is four by four runs of units, of one level per axis; a query belongs to the smallest region that covers its
range. Only pairs of levels that have queries have regions. Cells between all ends would be too many, so the weight in a
range is read from the elements themselves (`history`). The elements of an era are kept. At its end each query reads
what it got in the era, the queries are put on shelves anew, with units that fit these elements, and the elements are
forgotten. Further axes are seen only by the readings.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tocsin.jit import kernel
from tocsin.logic import Float, Int
from tocsin.stages.ranges.ends import high_of
from tocsin.stages.ranges.history import SHORTEST, History, build, no_history, weight_inside
from tocsin.stages.ranges.requests import Elements
from tocsin.stages.ranges.shelves import (
    COUNTS,
    FIRST_DUE,
    LOAD,
    REGIONS,
    TARGET,
    WANTED,
    Rack,
    list_region,
    put,
)
from tocsin.stages.ranges.shelving import Rows, alive_slots, joined, no_rows, put_all

RUNS = 4
# Looks in vain per query before all is laid out anew.
PATIENCE = 4
# Elements of an era per query, and elements from which the borders of the next one are found.
_ERA = 6
_SAMPLED = 1 << 14


class Plane(NamedTuple):
    """Elements of the era, borders between units along two axes, and where the regions of two levels begin, or -1."""

    history: History
    borders: Float
    levels: Int


def no_plane(dims: int) -> tuple[Plane, Rack]:
    """Make a plane without queries."""
    return lay_out(no_rows(dims), np.zeros((0, dims)), np.zeros(COUNTS, dtype=np.int64))


def lay_out_again(plane: Plane, rack: Rack, more: Rows) -> tuple[Plane, Rack]:
    """Begin a new era with the alive queries and some more."""
    slots = alive_slots(rack)
    rows = joined(rack, slots, lacks_in_plane(plane, rack, slots), more)
    return lay_out(rows, plane.history.points[: plane.history.used[0]], rack.counts)


def lay_out(rows: Rows, points: Float, old_counts: Int) -> tuple[Plane, Rack]:
    """Put up queries by where some elements fell."""
    n, dims = len(rows.queries), points.shape[1]
    units_log2 = int(np.clip(np.ceil(np.log2(n + 1) / 2) - 1, 2, 8))
    ends = np.clip(np.concatenate([rows.spans[:, :dims], rows.spans[:, dims:]]), -1e300, 1e300)
    sample = points if len(points) else ends if n else np.zeros((1, dims))
    share = np.linspace(0, 1, (1 << units_log2) + 1)[1:-1]
    sample = sample[:: 1 + len(sample) // _SAMPLED, :2]
    borders = np.ascontiguousarray(np.quantile(sample, share, axis=0, method="lower").T)
    levels = np.full((units_log2 + 1, units_log2 + 1), -1)
    region, regions = regions_of(borders, levels, rows.spans)
    rack = put_all(rows, region, regions, old_counts, PATIENCE)
    size = int(np.clip(_ERA * n, 4096, 1 << 20)) if dims == 2 else 4096
    return Plane(no_history(dims, size), borders, levels), rack


@kernel
def unit_of(borders: Float, axis: int, value: float) -> int:
    """Give the unit of a value; one that many borders share is in the middle of them, far from its neighbours."""
    count = borders.shape[1]
    low, length = 0, count
    while length > 0:
        half = length // 2
        if borders[axis, low + half] < value:
            low += half + 1
            length -= half + 1
        else:
            length = half
    last = low
    while last < count and borders[axis, last] == value:
        last += 1
    return (low + last) // 2


@kernel
def width_of(levels: Int, level: int) -> int:
    """Count the regions of a level along an axis: those that begin before the first unit too."""
    return (1 << (len(levels) - 1 - level)) + 2 * (RUNS - 1)


@kernel
def corner_of(borders: Float, span: Float) -> tuple[int, int, int, int]:
    """Give the levels of the smallest region that covers a range, and where it begins, along both axes."""
    dims = len(span) // 2
    level_x, level_y, corner_x, corner_y = 0, 0, 0, 0
    for axis in range(2):
        first, last = unit_of(borders, axis, span[axis]), unit_of(borders, axis, high_of(span[dims + axis]))
        level = 0
        while (last >> level) - (first >> level) >= RUNS:
            level += 1
        level_x, level_y = level_y, level
        corner_x, corner_y = corner_y, (first >> level) + RUNS - 1
    return level_x, level_y, corner_x, corner_y


@kernel
def regions_of(borders: Float, levels: Int, spans: Float) -> tuple[Int, int]:
    """Give the smallest region that covers each range, and how many regions the levels have that were needed."""
    corners = np.empty((len(spans), 4), dtype=np.int64)
    for at in range(len(spans)):
        level_x, level_y, corner_x, corner_y = corner_of(borders, spans[at])
        corners[at, 0], corners[at, 1], corners[at, 2], corners[at, 3] = level_x, level_y, corner_x, corner_y
        levels[level_x, level_y] = 0
    base = 0
    for level_x in range(len(levels)):
        for level_y in range(len(levels)):
            if levels[level_x, level_y] == 0:
                levels[level_x, level_y] = base
                base += width_of(levels, level_x) * width_of(levels, level_y)
    region = np.empty(len(spans), dtype=np.int64)
    for at in range(len(spans)):
        level_x, level_y, corner_x, corner_y = corners[at]
        region[at] = levels[level_x, level_y] + corner_x * width_of(levels, level_y) + corner_y
    return region, base


@kernel
def lack_in_plane(plane: Plane, rack: Rack, slot: int) -> int:
    """Read what a query lacks."""
    return int(rack.queries[slot, TARGET] - weight_inside(plane.history, rack.spans, slot))


@kernel
def lacks_in_plane(plane: Plane, rack: Rack, slots: Int) -> Int:
    """Read what some queries lack."""
    lack = np.empty(len(slots), dtype=np.int64)
    for at in range(len(slots)):
        lack[at] = lack_in_plane(plane, rack, slots[at])
    return lack


@kernel
def room_in_plane(plane: Plane) -> int:
    """Count the elements until the end of the era."""
    return int(len(plane.history.weights) - plane.history.used[0])


@kernel
def count_in_plane(plane: Plane, rack: Rack, elements: Elements, start: int, stop: int) -> None:
    """Keep elements, and add them to their regions; list the regions that reached something due."""
    history, borders, levels = plane
    points, kept, used = history.points, history.weights, history.used
    regions, counts, values, weights = rack.regions, rack.counts, elements.values, elements.weights
    dims, in_use = values.shape[1], np.argwhere(levels >= 0)
    for at in range(start, stop):
        weight = weights[at]
        for axis in range(dims):
            points[used[0], axis] = values[at, axis]
        kept[used[0]] = weight
        used[0] += 1
        if used[0] % SHORTEST == 0:
            build(history)
        x, y = unit_of(borders, 0, values[at, 0]), unit_of(borders, 1, values[at, 1])
        for pair in range(len(in_use)):
            level_x, level_y = in_use[pair, 0], in_use[pair, 1]
            width = width_of(levels, level_y)
            corner = levels[level_x, level_y] + (x >> level_x) * width + (y >> level_y)
            for row in range(RUNS):
                for region in range(corner + row * width, corner + row * width + RUNS):
                    regions[region, LOAD] += weight
                    if regions[region, LOAD] >= regions[region, FIRST_DUE]:
                        list_region(regions, counts, region)


@kernel
def enrol_in_plane(plane: Plane, rack: Rack, key: int, span: Float, threshold: int) -> int:
    """Register a query here and now; give its slot, or -1 if there is no room for the regions of its levels."""
    levels, counts = plane.levels, rack.counts
    level_x, level_y, corner_x, corner_y = corner_of(plane.borders, span)
    width = width_of(levels, level_y)
    if levels[level_x, level_y] < 0:
        size = width_of(levels, level_x) * width
        if counts[REGIONS] + size > len(rack.regions):
            counts[WANTED] = size
            return -1
        levels[level_x, level_y] = counts[REGIONS]
        counts[REGIONS] += size
    region = levels[level_x, level_y] + corner_x * width + corner_y
    slot = put(rack, region, key, threshold, threshold)
    for column in range(len(span)):
        rack.spans[slot, column] = span[column]
    rack.queries[slot, TARGET] += weight_inside(plane.history, rack.spans, slot)
    return slot
