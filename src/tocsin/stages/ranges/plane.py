"""Regions in the plane: units of equal weight along the first two axes, and the elements of an era to read totals from.

A region is four by four runs of units, of one level per axis; a query belongs to the smallest region that covers its
range. Only pairs of levels that have queries have regions. They take elements when something may be due: many at once
from sums, few one by one. Cells between all ends would be too many, so the elements of an era are kept
(`history`). A look reads the weight of a query's cover; only when that could be all that it lacked, the weight of its
range. At the end of the era each query reads what it got in it (`sweep`), the queries are put on shelves anew,
with units that fit these elements, and the elements are forgotten. Further axes are seen only by the readings.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tocsin.jit import kernel
from tocsin.runtime.contract import Float, Int
from tocsin.stages.ranges.ends import high_of
from tocsin.stages.ranges.history import (
    LOADED,
    SUMMED,
    USED,
    History,
    no_history,
    sum_up,
    unit_of,
    weight_inside,
    weight_of_cover,
    weight_of_units,
)
from tocsin.stages.ranges.places import Places
from tocsin.stages.ranges.requests import Elements
from tocsin.stages.ranges.shelves import (
    ALIVE,
    BEHIND,
    COUNTS,
    COVER,
    LOAD,
    NEVER,
    REGIONS,
    SLACK,
    TARGET,
    WANTED,
    Rack,
    note_load,
    put,
)
from tocsin.stages.ranges.shelving import Rows, alive_slots, joined, no_rows, put_all
from tocsin.stages.ranges.sweep import weights_inside

RUNS = 4
# Looks in vain per query before all is laid out anew.
PATIENCE = 4
# Elements of an era per query when it begins, and at most while queries end; to an era of `_LEAST` no one objects.
_ERA, _WIDE = 12, 24
_LEAST = 1 << 14
# A sweep pays for so many queries, of so many elements.
_MANY, _LONG = 1 << 12, 1 << 14
# Elements that are not summed yet are at most a part of this of the cells: a look walks over them.
_MOST_SINCE = 64
# Elements from which the borders of an era are found.
_SAMPLED = 1 << 14


class Plane(NamedTuple):
    """Elements of the era, and where the regions of two levels begin, or -1."""

    history: History
    levels: Int


def no_plane(dims: int) -> tuple[Plane, Rack]:
    """Make a plane without queries."""
    return lay_out(no_rows(dims), np.zeros((0, dims)), np.zeros(COUNTS, dtype=np.int64))


def lay_out_again(plane: Plane, rack: Rack, more: Rows) -> tuple[Plane, Rack]:
    """Begin a new era with the alive queries and some more."""
    slots, points = alive_slots(rack), plane.history.points[: plane.history.seen[USED]]
    return lay_out(joined(rack, slots, lacks_in_plane(plane, rack, slots), more), points, rack.counts)


def lacks_in_plane(plane: Plane, rack: Rack, slots: Int) -> Int:
    """Read what some queries lack."""
    used = plane.history.seen[USED]
    points, weights = plane.history.points[:used], plane.history.weights[:used]
    if points.shape[1] == 2 and len(slots) >= _MANY and used >= _LONG:
        got = weights_inside(points, weights, rack.spans[slots])
    else:
        catch_up(plane)
        got = weights_in_plane(plane, rack, slots)
    return np.asarray(rack.queries[slots, TARGET] - got)


def lay_out(rows: Rows, points: Float, old_counts: Int) -> tuple[Plane, Rack]:
    """Put up queries by where some elements fell."""
    n, dims = len(rows.queries), points.shape[1]
    units_log2 = int(np.clip(np.ceil(np.log2(n + 1) / 2) - 1, 2, 8))
    sample = points if len(points) else _guess(rows.spans, dims)
    size = int(np.clip(_ERA * n, 4096, 1 << 20)) if dims == 2 else 4096
    history = no_history(dims, size, sample[:: 1 + len(sample) // _SAMPLED], units_log2)
    levels = np.full((units_log2 + 1, units_log2 + 1), -1)
    region, regions = regions_of(history.borders, levels, rows.spans)
    rows.queries[:, COVER] = rows.queries[:, TARGET]
    return Plane(history, levels), put_all(rows, region, regions, old_counts, PATIENCE)


def _guess(spans: Float, dims: int) -> Float:
    """Guess where elements will fall: as often between the ends of ranges as where these are dense."""
    if not len(spans):
        return np.zeros((1, dims))
    ends = np.clip(np.concatenate([spans[:, :dims], spans[:, dims:]])[:: 1 + len(spans) // _SAMPLED], -1e300, 1e300)
    return np.concatenate([ends, np.linspace(ends.min(axis=0) / 2, ends.max(axis=0) / 2, len(ends)) * 2])


@kernel
def width_of(levels: Int, level: int) -> int:
    """Count the regions of a level along an axis: those that begin before the first unit too."""
    return (1 << (len(levels) - 1 - level)) + 2 * (RUNS - 1)


@kernel
def corner_of(borders: tuple[Places, Places], span: Float) -> tuple[int, int, int, int]:
    """Give the levels of the smallest region that covers a range, and where it begins, along both axes."""
    dims = len(span) // 2
    level_x, level_y, corner_x, corner_y = 0, 0, 0, 0
    for axis in range(2):
        first, last = unit_of(borders[axis], span[axis]), unit_of(borders[axis], high_of(span[dims + axis]))
        level = 0
        while (last >> level) - (first >> level) >= RUNS:
            level += 1
        level_x, level_y = level_y, level
        corner_x, corner_y = corner_y, (first >> level) + RUNS - 1
    return level_x, level_y, corner_x, corner_y


@kernel
def regions_of(borders: tuple[Places, Places], levels: Int, spans: Float) -> tuple[Int, int]:
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
def weights_in_plane(plane: Plane, rack: Rack, slots: Int) -> Int:
    """Read what fell into the ranges of some queries."""
    weight = np.empty(len(slots), dtype=np.int64)
    for at in range(len(slots)):
        weight[at] = weight_inside(plane.history, rack.spans, slots[at])
    return weight


@kernel
def catch_up(plane: Plane) -> None:
    """Sum up what came since the last time, if a reading would have to walk over much of it."""
    seen = plane.history.seen
    if _MOST_SINCE * (seen[USED] - seen[SUMMED]) >= plane.history.cells.size:
        sum_up(plane.history)


@kernel
def room_in_plane(plane: Plane) -> int:
    """Count the elements until the end of the era."""
    return int(len(plane.history.weights) - plane.history.seen[USED])


@kernel
def is_wide(plane: Plane, rack: Rack) -> bool:
    """Tell whether the era has far more room than the queries that are left would get."""
    return bool(len(plane.history.weights) > _WIDE * rack.counts[ALIVE] + _LEAST)


@kernel
def look_in_plane(plane: Plane, rack: Rack, slot: int) -> int:
    """Give what a query lacks if that is nothing, else no more than it lacks."""
    queries = rack.queries
    cover = weight_of_cover(plane.history, rack.spans, slot)
    if cover < queries[slot, COVER]:
        return int(queries[slot, COVER] - cover)
    lack = lack_in_plane(plane, rack, slot)
    queries[slot, COVER] = cover + lack
    return lack


@kernel
def count_in_plane(plane: Plane, elements: Elements, start: int, stop: int) -> None:
    """Keep elements; cells and regions take them later."""
    points, kept, seen = plane.history.points, plane.history.weights, plane.history.seen
    values, weights = elements.values, elements.weights
    for at in range(start, stop):
        for axis in range(values.shape[1]):
            points[seen[USED], axis] = values[at, axis]
        kept[seen[USED]] = weights[at]
        seen[USED] += 1


@kernel
def load_in_plane(plane: Plane, rack: Rack) -> None:
    """Let regions take the elements since the last time; list those that reached something due."""
    seen, cells, in_use = plane.history.seen, plane.history.cells.size, np.argwhere(plane.levels >= 0)
    one_by_one = (seen[USED] - seen[LOADED]) * len(in_use) * RUNS * RUNS
    if one_by_one < cells + 4 * rack.counts[REGIONS] and _MOST_SINCE * (seen[USED] - seen[SUMMED]) < cells:
        load_one_by_one(plane, rack, in_use)
    else:
        load_from_sums(plane, rack, in_use)


@kernel
def load_one_by_one(plane: Plane, rack: Rack, in_use: Int) -> None:
    """Add each element to its regions."""
    points, weights, borders, seen = (
        plane.history.points,
        plane.history.weights,
        plane.history.borders,
        plane.history.seen,
    )
    levels, regions, counts = plane.levels, rack.regions, rack.counts
    for at in range(seen[LOADED], seen[USED]):
        x, y, weight = unit_of(borders[0], points[at, 0]), unit_of(borders[1], points[at, 1]), weights[at]
        for pair in range(len(in_use)):
            level_x, level_y = in_use[pair, 0], in_use[pair, 1]
            width = width_of(levels, level_y)
            corner = levels[level_x, level_y] + (x >> level_x) * width + (y >> level_y)
            for row in range(RUNS):
                for region in range(corner + row * width, corner + row * width + RUNS):
                    regions[region, LOAD] += weight
                    note_load(regions, counts, region)
    seen[LOADED], counts[BEHIND] = seen[USED], 0


@kernel
def load_from_sums(plane: Plane, rack: Rack, in_use: Int) -> None:
    """Sum up the grid and read the load of each region."""
    history, levels = plane
    sums, regions, counts, units = history.sums, rack.regions, rack.counts, len(history.cells)
    sum_up(history)
    history.seen[LOADED], counts[BEHIND], counts[SLACK] = history.seen[USED], 0, NEVER
    for pair in range(len(in_use)):
        level_x, level_y = in_use[pair, 0], in_use[pair, 1]
        base, width = levels[level_x, level_y], width_of(levels, level_y)
        for corner_x in range(width_of(levels, level_x)):
            right = min((corner_x + 1) << level_x, units)
            left = min(max((corner_x + 1 - RUNS) << level_x, 0), right)
            for corner_y in range(width):
                above = min((corner_y + 1) << level_y, units)
                below = min(max((corner_y + 1 - RUNS) << level_y, 0), above)
                region = base + corner_x * width + corner_y
                regions[region, LOAD] = weight_of_units(sums, left, right, below, above)
                note_load(regions, counts, region)


@kernel
def enrol_in_plane(plane: Plane, rack: Rack, key: int, span: Float, threshold: int) -> int:
    """Register a query here and now; give its slot, or -1 if there is no room for the regions of its levels."""
    levels, counts = plane.levels, rack.counts
    catch_up(plane)
    level_x, level_y, corner_x, corner_y = corner_of(plane.history.borders, span)
    width = width_of(levels, level_y)
    if levels[level_x, level_y] < 0:
        size = width_of(levels, level_x) * width
        if counts[REGIONS] + size > len(rack.regions):
            counts[WANTED] = size
            return -1
        levels[level_x, level_y] = counts[REGIONS]
        counts[REGIONS] += size
        load_from_sums(plane, rack, np.argwhere(levels >= 0))
    region = levels[level_x, level_y] + corner_x * width + corner_y
    slot = put(rack, region, key, threshold, threshold)
    for column in range(len(span)):
        rack.spans[slot, column] = span[column]
    rack.queries[slot, TARGET] += weight_inside(plane.history, rack.spans, slot)
    rack.queries[slot, COVER] = threshold + weight_of_cover(plane.history, rack.spans, slot)
    return slot
