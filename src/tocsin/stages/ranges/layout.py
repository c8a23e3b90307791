"""Lay out the queries of one dimension anew: fresh ends, units of equal weight, shelves without gaps.

Done when a run of queries is registered at once, when room is used up, when many slots are empty, when the looks show
that the units no longer fit the elements, and before running sums could overflow.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tocsin.jit import kernel
from tocsin.logic import Float, Int
from tocsin.stages.ranges.ends import BLOCK, FILL, GROUP, Ends, all_cells, high_of, make_ends, unit_of, weight_between
from tocsin.stages.ranges.ends import NUMBER as BLOCK_NUMBER
from tocsin.stages.ranges.shelves import DUE, ELEMENTS, MEASURED, NUMBER, TARGET, WEIGHT, Rack
from tocsin.stages.ranges.shelving import alive_slots, grow_rack, no_regions, put_all, with_room

# At most so many units: finer ones would cost more memory than the queries.
_UNITS_LOG2 = 16
# Elements that make a measure of where the weight falls.
ENOUGH = 1024


# A region is this many runs of units, and a query touches at most so many of them.
RUNS = 4
# Places in a row of `spans` and of `levels`.
LOW, UP = range(2)
BASE, IN_USE = range(2)


class Index(NamedTuple):
    """Ends, queries, and for each level where its regions begin and whether it has queries.

    In `queries` the target is the reading at which the total is the threshold, in `spans` a range is [low, up).
    """

    ends: Ends
    levels: Int
    rack: Rack


class Queries(NamedTuple):
    """Rows of `queries`, in which the target is what lacks, and of `spans`."""

    rows: Int
    spans: Float


def no_queries() -> Queries:
    """Make an empty set of queries."""
    return Queries(np.zeros((0, 6), dtype=np.int64), np.zeros((0, 2)))


def no_index() -> Index:
    """Make an index without queries."""
    return lay_out(no_queries(), np.array([-np.inf]), np.zeros(1, dtype=np.int64), np.zeros(9, dtype=np.int64))


def lay_out_again(index: Index, more: Queries) -> Index:
    """Lay out the alive queries of an index and some more."""
    rack, slots = index.rack, alive_slots(index.rack)
    rows = np.concatenate([rack.queries[slots], more.rows])
    rows[: len(slots), TARGET] = lacks(index, slots)
    spans = np.concatenate([rack.spans[slots], more.spans])
    return lay_out(Queries(rows, spans), *all_cells(index.ends), rack.counts)


def lay_out(queries: Queries, old_cuts: Float, old_weight: Int, old_counts: Int) -> Index:
    """Lay out queries by the weight that lately fell between some cuts."""
    rows, spans = queries
    cuts = np.unique(np.append(spans, -np.inf))
    weight = _carried(cuts, old_cuts, old_weight)
    unit, units_log2 = _units(cuts, weight)
    # Too few elements to tell where the weight falls: they go on counting.
    keep = old_counts[ELEMENTS] < ENOUGH
    ends = make_ends(cuts, weight if keep else np.zeros_like(weight), unit, len(cuts) // (16 * FILL) + 32)
    levels, regions = _levels(units_log2)
    region = regions_of(ends, levels, spans)
    rows[:, DUE] = rows[:, TARGET]
    rack = put_all(rows, spans, region, no_regions(regions), int(old_counts[NUMBER]))
    index = Index(ends, levels, rack)
    rack.counts[MEASURED] = not keep
    if keep and old_counts[ELEMENTS]:
        rack.counts[[WEIGHT, ELEMENTS]] = old_counts[[WEIGHT, ELEMENTS]]
        # From what is lacking to the reading at which nothing will be lacking: the reading now comes on top.
        slots = np.arange(len(rows))
        rack.queries[slots, TARGET] += rack.queries[slots, TARGET] - lacks(index, slots)
    return index


def grow(index: Index) -> Index:
    """Make all arrays that fill up with registrations larger by about a quarter."""
    ends, blocks = index.ends, len(index.ends.first) // 4 + GROUP
    directory = with_room(ends.directory, blocks)
    directory[-blocks:, BLOCK_NUMBER] = np.arange(len(directory) - blocks, len(directory))
    wider = ends._replace(
        first=with_room(ends.first, blocks),
        directory=directory,
        groups=with_room(ends.groups, blocks // GROUP + 1),
        cuts=with_room(ends.cuts, blocks * BLOCK),
        weight=with_room(ends.weight, blocks * BLOCK),
        unit=with_room(ends.unit, blocks * BLOCK),
    )
    return index._replace(ends=wider, rack=grow_rack(index.rack))


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
    inner = np.clip(cuts, *_middle(cuts))
    width = np.diff(np.append(inner, inner[-1]))
    width *= max(0.05 * weight.sum(), 1.0) / (width.sum() or 1.0)
    mass = weight + width
    middle = np.cumsum(mass) - mass / 2
    return (middle / (mass.sum() or 1.0) * ((1 << log2) - 1)).astype(np.int64), log2


def _middle(cuts: Float) -> tuple[float, float]:
    """Bounds of nearly all cuts: a few far ones must not make the units of all others too coarse."""
    finite = cuts[np.isfinite(cuts)] / 2
    if not len(finite):
        return 0.0, 0.0
    low, high = np.quantile(finite, [0.001, 0.999])
    return float(2 * low), float(2 * high)


def _levels(units_log2: int) -> tuple[Int, int]:
    """Make levels without queries; give them and how many regions there are."""
    sizes = [(1 << (units_log2 - level)) + 2 * (RUNS - 1) for level in range(units_log2 + 1)]
    levels = np.zeros((len(sizes), 2), dtype=np.int64)
    levels[1:, BASE] = np.cumsum(sizes[:-1])
    return levels, sum(sizes)


@kernel
def region_of(levels: Int, first: int, last: int) -> int:
    """Give the smallest region that covers two units."""
    level = 0
    while (last >> level) - (first >> level) >= RUNS:
        level += 1
    levels[level, IN_USE] = 1
    return int(levels[level, BASE] + (first >> level) + RUNS - 1)


@kernel
def reading(index: Index, slot: int) -> int:
    """Read the weight between the ends of a query."""
    return weight_between(index.ends, index.rack.spans[slot, LOW], index.rack.spans[slot, UP])


@kernel
def lacks(index: Index, slots: Int) -> Int:
    """Read what some queries lack."""
    lack = np.empty(len(slots), dtype=np.int64)
    for at in range(len(slots)):
        lack[at] = index.rack.queries[slots[at], TARGET] - reading(index, slots[at])
    return lack


@kernel
def regions_of(ends: Ends, levels: Int, spans: Float) -> Int:
    """Give the smallest region that covers each range."""
    region = np.empty(len(spans), dtype=np.int64)
    for at in range(len(spans)):
        last = unit_of(ends, high_of(spans[at, UP]))
        region[at] = region_of(levels, unit_of(ends, spans[at, LOW]), last)
    return region
