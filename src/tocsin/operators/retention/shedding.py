"""Load shedding: evict the rows with the smallest utility as soon as the charged cost exceeds a share of memory.

Algorithm: one kernel processes the rows of a slice one at a time, in order of arrival, over all keys and inputs of a
bucket. A row first moves the newest time of its key, so the rows of this key that are too old expire. The row then
enters each input that reads it. An input omits rows as without a budget: equal rows of an unreduced input (*whole*), or
rows that other retained rows cover (*bracketing*, *dominance*). The input is charged the cost of the new row. While
the charged cost exceeds the share, the row with the smallest utility leaves the state, which can be the new row itself.

Each *lane* (the inputs that read one view of a stream) has a binary heap. The entry of a row that has left the state is
stale, and is dropped when it reaches the top. The order of a heap is utility, granule of age (older first), time (older
first, or newer first if the utility rises with age), `tie` and input. With PROB the utility is a number per
row, with AGE the priority of the granule of age, with RECENT 0. A row that is older than the window of its lane has the
utility `PAST`. Utilities depend on the age, so they are computed again when the clock enters another tick. A lane
whose top entry is older than its window loses this row first. If the lanes have target costs, the lane with the
largest excess over its target loses a row. Otherwise the lane with the smallest top entry loses it.

Guarantees: after each row the charged cost is at most the share. A shed row covers no later row. The result depends on
the rows in order of arrival, on their clock and on the parameters, but not on the boundaries of batches. A row leaves
the state after the probe of the row that takes its place.

Complexity: O(log n) per row for n rows of the lane, the cost of the reduction, and O(n) per tick.

References: Srivastava, Widom, VLDB 2004, sections 3.2.1 and 3.3 (AGE and PROB). Differences: costs instead of row
counts, several streams and inputs, reduced inputs, times out of order.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.jit import kernel
from tocsin.operators.retention.bracketing import ABOVE, BELOW, SegmentRows, process_row
from tocsin.operators.retention.dominance import process_row_of_several_values
from tocsin.operators.retention.monotone_queues import HOPPING, MonotoneQueues, Reach, new_queues
from tocsin.operators.retention.sorted_rows import contains_row, insert_row, remove_departed_rows
from tocsin.runtime.contract import NEVER, NEVER_SEEN, Float, Int

# How an input omits rows.
WHOLE, BRACKETING, DOMINANCE = range(3)
# Source of the utility of the rows of a lane.
BY_TIME, BY_KEY, BY_AGE = range(3)
# Utility of a row that is older than the window of its lane.
PAST = -np.inf
# Tick of lanes that are all `BY_TIME`: their order never changes.
NO_TICK = 1 << 61
# State of a row during a slice.
NOT_ARRIVED, HELD, OMITTED, SHED, EXPIRED = range(5)


class SliceRows(NamedTuple):
    """Rows of all inputs in a slice: by segment (input and key), retained rows by time and then new rows by arrival.

    Attributes
    ----------
        offsets: First row of each segment, and the end of the last segment.
        known: Number of retained rows of each segment.
        segment: Segment of each row.
        source: Input of each segment.
        rows: Columns of the reduction. The rank is the serial number, -1 for retained rows.
        values: Comparison values, one row per value. Inputs with one value use `rows.v`.
        cost: Charge of each row.
        utility: Expected results of each row if its lane is `BY_KEY`.
        tie: Number that orders rows of equal utility and time, and remains the same in later slices.
    """

    offsets: Int
    known: Int
    segment: Int
    source: Int
    rows: SegmentRows
    values: Float
    cost: Int
    utility: Float
    tie: Int


class Inputs(NamedTuple):
    """Parameters of the inputs.

    Attributes
    ----------
        lane: Lane of each input.
        reduction: `WHOLE`, `BRACKETING` or `DOMINANCE`.
        lengths: Window lengths of the reduction: one row for the side above, one for the side below.
        kind: Kind of the windows of the reduction.
        horizon: A row expires if it is older than the newest row of its key by more than this time.
    """

    lane: Int
    reduction: Int
    lengths: Int
    kind: Int
    horizon: Int


class Utilities(NamedTuple):
    """Order of the rows of each lane, fixed for a slice.

    Attributes
    ----------
        source: `BY_TIME`, `BY_KEY` or `BY_AGE`.
        window: A row older than this gives no more results in order.
        priorities: Utility by granule of age for lanes that are `BY_AGE`, one row per lane.
        granule: Length of a granule of age.
        tick: Utilities change when the clock enters another multiple of this time.
        target: Cost that each lane may use before other lanes lose rows, or an empty array.
        threshold: A sampled row is retained if its random number, divided by its size, is below this number. The
            utility of a sampled row is the negative quotient.
        is_sampled: Whether rows are sampled.
    """

    source: Int
    window: Int
    priorities: Float
    granule: Int
    tick: int
    target: Float
    threshold: float
    is_sampled: bool


class Arrivals(NamedTuple):
    """New rows of a slice in order of arrival.

    Attributes
    ----------
        lane: Lane of each row. A number that is no lane only moves the newest time of the key.
        key: Key of each row.
        time: Event time of each row.
        clock: Time of the bucket clock at each row, which never decreases.
        serial: Serial number of each row. It increases.
    """

    lane: Int
    key: Int
    time: Int
    clock: Int
    serial: Int


class Versions(NamedTuple):
    """Results of the kernel.

    Attributes
    ----------
        end: Serial number from which on a row is not found: of the arrival that covers it, after the arrival for
            which it was shed, or `NEVER`.
        state: `HELD`, `OMITTED`, `SHED` or `EXPIRED` for each row.
        is_refused: Arrivals for which no row was left to shed. They must not be evaluated.
        threshold: Threshold of the sample after each arrival.
    """

    end: Int
    state: Int
    is_refused: NDArray[np.bool_]
    threshold: Float


def new_versions(rows: int, arrivals: int) -> Versions:
    """Return results to be filled, for a number of rows of all inputs and a number of arrivals."""
    no_state = np.full(rows, NOT_ARRIVED)
    return Versions(np.full(rows, NEVER), no_state, np.zeros(arrivals, np.bool_), np.full(arrivals, np.inf))


class _Heaps(NamedTuple):
    """Heaps of all lanes in one array, and the order of each row."""

    entries: Int
    begin: Int
    size: Int
    utility: Float
    granule: Int
    time: Int
    tie: Int


@kernel
def _is_less(heaps: _Heaps, a: int, b: int) -> bool:
    """Return whether row a leaves the state before row b."""
    if heaps.utility[a] != heaps.utility[b]:
        return bool(heaps.utility[a] < heaps.utility[b])
    if heaps.granule[a] != heaps.granule[b]:
        return bool(heaps.granule[a] > heaps.granule[b])
    if heaps.time[a] != heaps.time[b]:
        return bool(heaps.time[a] < heaps.time[b])
    if heaps.tie[a] != heaps.tie[b]:
        return bool(heaps.tie[a] < heaps.tie[b])
    return a < b


@kernel
def _sift_down(heaps: _Heaps, lane: int, at: int) -> None:
    """Move an entry of a heap down to its place."""
    begin, size, entries = heaps.begin[lane], heaps.size[lane], heaps.entries
    moved = entries[begin + at]
    while 2 * at + 1 < size:
        child = 2 * at + 1
        if child + 1 < size and _is_less(heaps, entries[begin + child + 1], entries[begin + child]):
            child += 1
        if not _is_less(heaps, entries[begin + child], moved):
            break
        entries[begin + at] = entries[begin + child]
        at = child
    entries[begin + at] = moved


@kernel
def _push(heaps: _Heaps, lane: int, row: int) -> None:
    """Add a row to a heap."""
    begin, at, entries = heaps.begin[lane], heaps.size[lane], heaps.entries
    heaps.size[lane] += 1
    while at > 0 and _is_less(heaps, row, entries[begin + (at - 1) // 2]):
        entries[begin + at] = entries[begin + (at - 1) // 2]
        at = (at - 1) // 2
    entries[begin + at] = row


@kernel
def _pop(heaps: _Heaps, lane: int) -> None:
    """Remove the top of a heap."""
    begin = heaps.begin[lane]
    heaps.size[lane] -= 1
    heaps.entries[begin] = heaps.entries[begin + heaps.size[lane]]
    if heaps.size[lane] > 0:
        _sift_down(heaps, lane, 0)


@kernel
def _rank_row(heaps: _Heaps, row: int, lane: int, time: int, static: float, now: int, how: Utilities) -> None:
    """Compute the place of a row in the order of its lane. `now` is the begin of the current tick."""
    age = max(now - time, 0)
    utility, granule, order = 0.0, 0, time
    if how.source[lane] == BY_KEY:
        utility = static
    elif how.source[lane] == BY_AGE:
        granule = min(age // how.granule[lane], how.priorities.shape[1] - 1)
        utility = how.priorities[lane, granule]
        if granule + 1 < how.priorities.shape[1] and how.priorities[lane, granule + 1] > utility:
            order = -time
    # A lane that is ordered by time needs no mark: its oldest row is at the top.
    if how.source[lane] != BY_TIME and now - time > how.window[lane]:
        utility, granule, order = PAST, 0, time
    heaps.utility[row], heaps.granule[row], heaps.time[row] = utility, granule, order


@kernel
def _rebuild(heaps: _Heaps, slice_rows: SliceRows, inputs: Inputs, state: Int, now: int, how: Utilities) -> None:
    """Compute the order of all held rows at the current tick, and build the heaps."""
    for lane in range(heaps.size.shape[0]):
        heaps.size[lane] = 0
    for row in range(state.shape[0]):
        if state[row] == HELD:
            lane = inputs.lane[slice_rows.source[slice_rows.segment[row]]]
            _rank_row(heaps, row, lane, slice_rows.rows.t[row], slice_rows.utility[row], now, how)
            heaps.entries[heaps.begin[lane] + heaps.size[lane]] = row
            heaps.size[lane] += 1
    for lane in range(heaps.size.shape[0]):
        for at in range(heaps.size[lane] // 2 - 1, -1, -1):
            _sift_down(heaps, lane, at)


@kernel
def _choose_lane(heaps: _Heaps, rows: SegmentRows, state: Int, charged: Int, clock: int, how: Utilities) -> int:
    """Return the lane that loses a row, or -1 if no lane has a row. Drop stale entries."""
    best, past, target = -1, -1, how.target
    for lane in range(heaps.size.shape[0]):
        while heaps.size[lane] > 0 and state[heaps.entries[heaps.begin[lane]]] != HELD:
            _pop(heaps, lane)
        if heaps.size[lane] == 0:
            continue
        top = heaps.entries[heaps.begin[lane]]
        if clock - rows.t[top] > how.window[lane]:
            if past < 0 or rows.t[top] < rows.t[heaps.entries[heaps.begin[past]]]:
                past = lane
        if best < 0:
            best = lane
        elif target.shape[0] > 0:
            if charged[lane] - target[lane] > charged[best] - target[best]:
                best = lane
        elif _is_less(heaps, heaps.entries[heaps.begin[lane]], heaps.entries[heaps.begin[best]]):
            best = lane
    return past if past >= 0 else best


@kernel
def shed_rows(  # noqa: PLR0912, PLR0915 - parts called once per row would double its time
    slice_rows: SliceRows,
    arrivals: Arrivals,
    inputs: Inputs,
    how: Utilities,
    newest: Int,
    share: int,
    extra: Int,
    versions: Versions,
) -> tuple[int, int]:
    """Compute when each row leaves the state, and return the charged cost after the slice and its maximum.

    `newest` has the newest time of each key and is updated. `extra` is a bound of all other charges after each arrival.
    `versions` receives the results.
    """
    end, state, is_refused, threshold = versions.end, versions.state, versions.is_refused, how.threshold
    offsets, known, source, rows = slice_rows.offsets, slice_rows.known, slice_rows.source, slice_rows.rows
    count_inputs, segments, lanes = inputs.lane.shape[0], source.shape[0], how.source.shape[0]
    keys = newest.shape[0]
    size = rows.t.shape[0]
    charged, total, most = np.zeros(lanes, np.int64), 0, 0
    heaps = _Heaps(
        np.empty(size, np.int64),
        np.zeros(lanes, np.int64),
        np.zeros(lanes, np.int64),
        np.zeros(size),
        np.zeros(size, np.int64),
        np.zeros(size, np.int64),
        slice_rows.tie,
    )
    # Each segment has a list of retained rows, which begins at `first` and has `count` rows, and its own queues.
    listed, first, count = np.empty(size + 1, np.uint32), np.zeros(segments, np.int64), known.copy()
    limit = 2 * known + 64
    next_row, is_stale = offsets[:-1] + known, np.ones(segments, np.bool_)
    picked, shared = new_queues(offsets)
    above, below, last = np.empty(size, np.uint32), np.empty(size, np.uint32), np.empty(size, np.uint32)
    held, sides, ends = np.empty(size, np.int32), np.empty(size, np.uint8), np.empty((segments, 7), np.int64)
    width = np.zeros(lanes, np.int64)
    for segment in range(segments):
        lane = inputs.lane[source[segment]]
        width[lane] += offsets[segment + 1] - offsets[segment]
        for at in range(known[segment]):
            row = offsets[segment] + at
            # The lists of unreduced inputs have positions in the slice, the other lists positions in the segment.
            listed[row] = row if inputs.reduction[source[segment]] == WHOLE else at
            state[row] = HELD
            charged[lane] += slice_rows.cost[row]
            total += slice_rows.cost[row]
    for lane in range(1, lanes):
        heaps.begin[lane] = heaps.begin[lane - 1] + width[lane - 1]
    is_ranked, tick = False, 0
    for position in range(arrivals.time.shape[0]):
        key, view, clock = arrivals.key[position], arrivals.lane[position], arrivals.clock[position]
        if is_ranked and clock // how.tick != tick:
            is_ranked = False
        # 1. The key moves on, and its old rows expire.
        if arrivals.time[position] > newest[key]:
            newest[key] = arrivals.time[position]
            for one in range(count_inputs):
                segment = one * keys + key
                lo, oldest = offsets[segment], newest[key] - inputs.horizon[one]
                base = 0 if inputs.reduction[one] == WHOLE else lo
                while first[segment] < count[segment]:
                    row = base + listed[lo + first[segment]]
                    if rows.t[row] >= oldest:
                        break
                    if state[row] == HELD:
                        state[row] = EXPIRED
                        charged[inputs.lane[one]] -= slice_rows.cost[row]
                        total -= slice_rows.cost[row]
                        is_stale[segment] = True
                    first[segment] += 1
        # 2. The row enters each input of its view, and covers retained rows. A row that can never fit does not enter.
        alone = extra[position]
        for one in range(count_inputs):
            if inputs.lane[one] == view:
                alone += slice_rows.cost[next_row[one * keys + key]]
        is_refused[position] = view < lanes and alone > share
        for one in range(count_inputs):
            if inputs.lane[one] != view:
                continue
            segment = one * keys + key
            lo, hi = offsets[segment], offsets[segment + 1]
            row = next_row[segment]
            next_row[segment] += 1
            if is_refused[position]:
                state[row], end[row] = SHED, arrivals.serial[position]
                continue
            begin, live = lo + first[segment], count[segment] - first[segment]
            retained = listed[begin : hi + 1]
            if inputs.reduction[one] == WHOLE:
                if contains_row(row, (retained, live), rows.t, rows.tag, end):
                    end[row] = rows.rank[row]
                if how.is_sampled and end[row] == NEVER and -slice_rows.utility[row] >= threshold:
                    state[row], end[row] = SHED, arrivals.serial[position] + 1
                elif end[row] == NEVER:
                    insert_row(row, retained, live, rows.t)
                    live += 1
                    count[segment] += 1
                    state[row] = HELD
                    charged[view] += slice_rows.cost[row]
                    total += slice_rows.cost[row]
                    if is_ranked:
                        _rank_row(heaps, row, view, rows.t[row], slice_rows.utility[row], tick * how.tick, how)
                        _push(heaps, view, row)
                else:
                    state[row] = OMITTED
                if live >= limit[segment]:
                    live = remove_departed_rows(retained, live, end)
                    count[segment], limit[segment] = first[segment] + live, 2 * live + 64
                continue
            i = row - lo
            part = SegmentRows(
                rows.t[lo:hi], rows.v[lo:hi], rows.enter[lo:hi], rows.leave[lo:hi], rows.fixed[lo:hi], rows.tag[lo:hi],
                rows.rank[lo:hi],
            )  # fmt: skip
            departure = end[lo:hi]
            reach = Reach(inputs.lengths[ABOVE, one], inputs.lengths[BELOW, one], inputs.kind[one])
            if inputs.reduction[one] == BRACKETING:
                queues = MonotoneQueues(
                    above[lo:hi], below[lo:hi], ends[segment], last[lo:hi], held[lo:hi], sides[lo:hi], shared.zone
                )
                is_stale[segment] = process_row(
                    i, live, part, reach, (retained, picked, queues), departure, is_stale[segment]
                )
            else:
                process_row_of_several_values(
                    i, live, part, slice_rows.values[:, lo:hi], (max(reach.above, reach.below), reach.kind), retained,
                    departure,
                )  # fmt: skip
            if departure[i] == NEVER:
                if inputs.reduction[one] != DOMINANCE:
                    insert_row(i, retained, live, part.t)
                live += 1
                count[segment] += 1
                state[row] = HELD
                charged[view] += slice_rows.cost[row]
                total += slice_rows.cost[row]
                if is_ranked:
                    _rank_row(heaps, row, view, part.t[i], slice_rows.utility[row], tick * how.tick, how)
                    _push(heaps, view, row)
            else:
                state[row] = OMITTED
            # The covered rows are close to the new row, because they share a window with it.
            far = 2 * max(reach.above, reach.below)
            if reach.kind == HOPPING:
                far = part.leave[i] - part.enter[i] + 1
            at, has_left = live - 1, False
            while at >= 0 and part.leave[retained[at]] >= part.enter[i] - far:
                covered = lo + retained[at]
                if end[covered] != NEVER and state[covered] == HELD:
                    state[covered] = OMITTED
                    charged[view] -= slice_rows.cost[covered]
                    total -= slice_rows.cost[covered]
                has_left |= end[covered] != NEVER
                at -= 1
            # A row that has left would change the begin of the next sweep, but not in the next batch.
            if has_left:
                count[segment] = first[segment] + remove_departed_rows(retained, live, departure)
        # 3. The rows with the smallest utility leave until the share is kept.
        while total + extra[position] > share:
            if not is_ranked:
                is_ranked, tick = True, clock // how.tick
                _rebuild(heaps, slice_rows, inputs, state, tick * how.tick, how)
            lane = _choose_lane(heaps, rows, state, charged, clock, how)
            if lane < 0:
                is_refused[position] = True
                break
            row = heaps.entries[heaps.begin[lane]]
            _pop(heaps, lane)
            if how.is_sampled and clock - rows.t[row] <= how.window[lane]:
                threshold = min(threshold, -slice_rows.utility[row])
            state[row], end[row] = SHED, arrivals.serial[position] + 1
            charged[lane] -= slice_rows.cost[row]
            total -= slice_rows.cost[row]
            segment = slice_rows.segment[row]
            if inputs.reduction[source[segment]] != WHOLE:
                is_stale[segment] = True
                lo, hi, begin = offsets[segment], offsets[segment + 1], offsets[segment] + first[segment]
                live = remove_departed_rows(listed[begin : hi + 1], count[segment] - first[segment], end[lo:hi])
                count[segment] = first[segment] + live
        versions.threshold[position] = threshold
        if not is_refused[position]:
            most = max(most, total + extra[position])
    return total, most


def no_newest(keys: int) -> Int:
    """Return the newest times of keys without rows."""
    return np.full(keys, NEVER_SEEN)
