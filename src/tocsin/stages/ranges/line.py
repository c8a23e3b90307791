"""Regions on a line: units of equal weight, and the ends of all ranges to read totals from.

The line is cut into units of about equal weight. A region is eight neighbouring runs of 2^l units, and a query belongs
to the smallest region that covers its range. Only levels that have queries have regions. All is laid out anew when a
run of queries is registered at once, when the looks show that the units no longer fit the elements, when most ends are
of queries that are gone, and before running sums could overflow.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tocsin.jit import kernel
from tocsin.runtime.contract import Float, Int
from tocsin.stages.ranges.cuts import all_cells, distinct, make_ends, middle_of
from tocsin.stages.ranges.ends import (
    FILL,
    Ends,
    add_cut,
    cell_before,
    cell_of,
    position_of,
    weight_between,
    weight_of_cells,
)
from tocsin.stages.ranges.shelves import (
    ALIVE,
    BEHIND,
    COUNTS,
    ELEMENTS,
    FIRST_DUE,
    LOAD,
    REGIONS,
    TARGET,
    WANTED,
    WEIGHT,
    Rack,
    list_region,
    put,
)
from tocsin.stages.ranges.shelving import Rows, alive_slots, joined, no_rows, put_all

# At most so many units: finer ones would cost more memory than the queries.
_UNITS_LOG2 = 16
# Elements that make a measure of where the weight falls.
ENOUGH = 1024
# Elements that are taken together: what matures among them is searched for by walking over them.
CHUNK = 1024
# A region is this many runs of units, and a query touches at most so many of them.
RUNS = 8
# Looks in vain per query before all is laid out anew, if the units are a guess and if they are measured.
HASTY, PATIENT = 2, 16


class Line(NamedTuple):
    """Ends, and where the regions of each level begin, or -1; a run of the last level has all units.

    `late` are the elements that no region has taken yet, unit and weight of each; the first row has how many they are.
    """

    ends: Ends
    levels: Int
    late: Int


def no_line() -> tuple[Line, Rack]:
    """Make a line without queries."""
    return lay_out(no_rows(1), np.array([-np.inf]), np.zeros(1, dtype=np.int64), np.zeros(COUNTS, dtype=np.int64))


def lay_out_again(line: Line, rack: Rack, more: Rows) -> tuple[Line, Rack]:
    """Lay out the alive queries and some more."""
    slots = alive_slots(rack)
    rows = joined(rack, slots, lacks_on_line(line, rack, slots), more)
    return lay_out(rows, *all_cells(line.ends), rack.counts)


def lay_out(rows: Rows, old_cuts: Float, old_weight: Int, old_counts: Int) -> tuple[Line, Rack]:
    """Lay out queries by the weight that lately fell between some cuts."""
    cuts = distinct(np.append(rows.spans, -np.inf))
    weight = _carried(cuts, old_cuts, old_weight)
    unit, units_log2 = _units(cuts, weight)
    # Too few elements to tell where the weight falls: they go on counting.
    keep = old_counts[ELEMENTS] < ENOUGH
    room = len(cuts) // (16 * FILL) + min(32, 4 + len(cuts) // 8)
    ends = make_ends(cuts, weight if keep else np.zeros_like(weight), unit, room)
    levels = np.full(units_log2 + 1, -1)
    region, regions = regions_of(ends, levels, rows.spans)
    rack = put_all(rows, region, regions, old_counts, HASTY if keep else PATIENT)
    line = Line(ends, levels, np.zeros((CHUNK + 1, 2), dtype=np.int64))
    if keep and old_counts[ELEMENTS]:
        rack.counts[[WEIGHT, ELEMENTS]] = old_counts[[WEIGHT, ELEMENTS]]
        # From what is lacking to the reading at which nothing will be lacking: the reading now comes on top.
        slots = np.arange(len(region))
        rack.queries[slots, TARGET] += rack.queries[slots, TARGET] - lacks_on_line(line, rack, slots)
    return line, rack


def _carried(cuts: Float, old_cuts: Float, old_weight: Int) -> Int:
    """Give the weight of new cells, so that readings between cuts that stay are what they were."""
    before = np.concatenate([[0], np.cumsum(old_weight)])
    start = before[np.searchsorted(old_cuts, cuts, side="right") - 1]
    return np.diff(np.append(start, before[-1]))


def _units(cuts: Float, weight: Int) -> tuple[Int, int]:
    """Number the cells by the weight before their middles, so that a heavy cell is far from its neighbours.

    A twentieth of the weight is spread evenly over the line: nothing is known where no element fell yet.
    """
    log2 = min(_UNITS_LOG2, int(np.ceil(np.log2(len(cuts) + 1))))
    # Quarters, since their sum must be finite.
    inner = np.clip(cuts, *middle_of(cuts)) / 4
    width = np.diff(np.append(inner, inner[-1]))
    width *= max(0.05 * weight.sum(), 1.0) / max(width.sum(), 1e-290)
    mass = weight + width
    middle = np.cumsum(mass) - mass / 2
    return (middle / (mass.sum() or 1.0) * ((1 << log2) - 1)).astype(np.int64), log2


@kernel
def level_of(first: int, last: int) -> int:
    """Give the level of the smallest region that covers two units."""
    level = 0
    while (last >> level) - (first >> level) >= RUNS:
        level += 1
    return level


@kernel
def size_of(levels: Int, level: int) -> int:
    """Count the regions of a level: those that begin before the first unit too."""
    return (1 << (len(levels) - 1 - level)) + 2 * (RUNS - 1)


@kernel
def regions_of(ends: Ends, levels: Int, spans: Float) -> tuple[Int, int]:
    """Give the smallest region that covers each range, and how many regions the levels have that were needed."""
    first, guide, scale, directory, _, cuts, _, unit, _ = ends
    region, level = np.empty(len(spans), dtype=np.int64), np.empty(len(spans), dtype=np.int64)
    for at in range(len(spans)):
        low, up = spans[at, 0], spans[at, 1]
        region[at] = unit[cell_of(directory, cuts, position_of(first, guide, scale, low), low)]
        there = position_of(first, guide, scale, up)
        last = cell_before(directory, there, cell_of(directory, cuts, there, up))
        level[at] = level_of(region[at], unit[last])
        levels[level[at]] = 0
    base = 0
    for each in range(len(levels)):
        if levels[each] == 0:
            levels[each] = base
            base += size_of(levels, each)
    for at in range(len(spans)):
        region[at] = levels[level[at]] + (region[at] >> level[at]) + RUNS - 1
    return region, base


@kernel
def lack_on_line(line: Line, rack: Rack, slot: int) -> int:
    """Read what a query lacks."""
    first, guide, scale, directory, groups, cuts, weight, _, _ = line.ends
    low, up = rack.spans[slot, 0], rack.spans[slot, 1]
    now = weight_between(first, guide, scale, directory, groups, cuts, weight, low, up)
    return int(rack.queries[slot, TARGET] - now)


@kernel
def lacks_on_line(line: Line, rack: Rack, slots: Int) -> Int:
    """Read what some queries lack."""
    first, guide, scale, directory, groups, cuts, weight, _, _ = line.ends
    queries, spans = rack.queries, rack.spans
    lack = np.empty(len(slots), dtype=np.int64)
    for at in range(len(slots)):
        low, up = spans[slots[at], 0], spans[slots[at], 1]
        now = weight_between(first, guide, scale, directory, groups, cuts, weight, low, up)
        lack[at] = queries[slots[at], TARGET] - now
    return lack


@kernel
def has_cuts(line: Line) -> bool:
    """Tell whether two more cuts surely fit."""
    return bool(line.ends.used[0] + 2 <= len(line.ends.first))


@kernel
def load_on_line(line: Line, rack: Rack) -> None:
    """Let regions take the elements since the last time; list those that reached something due."""
    levels, late, regions, counts = line.levels, line.late, rack.regions, rack.counts
    for level in range(len(levels)):
        if levels[level] < 0:
            continue
        if RUNS * late[0, 0] < 2 * size_of(levels, level):
            for at in range(1, late[0, 0] + 1):
                first = levels[level] + (late[at, 0] >> level)
                for region in range(first, first + RUNS):
                    regions[region, LOAD] += late[at, 1]
                    if regions[region, LOAD] >= regions[region, FIRST_DUE]:
                        list_region(regions, counts, region)
        else:
            load_level(levels, late, regions, counts, level)
    late[0, 0] = counts[BEHIND] = 0


@kernel
def load_level(levels: Int, late: Int, regions: Int, counts: Int, level: int) -> None:
    """Let all regions of a level take elements: the weight of each run goes to the regions that it is part of."""
    size, load = size_of(levels, level), 0
    runs = np.zeros(size + RUNS, dtype=np.int64)
    for at in range(1, late[0, 0] + 1):
        runs[RUNS + (late[at, 0] >> level)] += late[at, 1]
    for at in range(size):
        region = levels[level] + at
        load += runs[RUNS + at] - runs[at]
        regions[region, LOAD] += load
        if regions[region, LOAD] >= regions[region, FIRST_DUE]:
            list_region(regions, counts, region)


@kernel
def enrol_on_line(line: Line, rack: Rack, key: int, low: float, up: float, threshold: int) -> int:
    """Register a query here and now; give its slot, or -1 if there is no room for the regions of its level."""
    first, guide, scale, directory, groups, cuts, weight, unit, _ = line.ends
    levels, counts = line.levels, rack.counts
    add_cut(line.ends, low)
    there = add_cut(line.ends, up)
    here = position_of(first, guide, scale, low)
    start, stop = cell_of(directory, cuts, here, low), cell_of(directory, cuts, there, up)
    level = level_of(unit[start], unit[cell_before(directory, there, stop)])
    if levels[level] < 0:
        size = size_of(levels, level)
        if counts[REGIONS] + size > len(rack.regions):
            counts[WANTED] = size
            return -1
        levels[level] = counts[REGIONS]
        counts[REGIONS] += size
    region = levels[level] + (unit[start] >> level) + RUNS - 1
    now = weight_of_cells(directory, groups, weight, here, start, there, stop)
    return put(rack, region, key, threshold, threshold + now)


@kernel
def is_worn(line: Line, rack: Rack) -> bool:
    """Tell whether most cuts are of queries that are gone."""
    return bool(line.ends.used[0] * FILL > 8 * rack.counts[ALIVE] + 4096)
