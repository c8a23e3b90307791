"""K-slack and Synchronizer of many groups at once against rows taken one at a time."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from naive.order import Order
from tocsin.operators.reorder.k_slack import NEVER_IDLE
from tocsin.operators.reorder.reorder_rows import StreamClocks, drain_rows, new_clocks, reorder_rows
from tocsin.runtime.contract import NEVER_SEEN

STREAMS, GROUPS = 3, 3


@st.composite
def arrivals(draw: st.DrawFn) -> list[tuple[int, int, int]]:
    """Draw (group, stream, time) in order of arrival: disorder, ties, streams that never deliver or fall silent."""
    pace = draw(st.sampled_from([0, 1, 2]))
    parts = st.tuples(st.sampled_from([0, 0, 0, 1, 2]), st.integers(0, STREAMS - 1), st.integers(0, 8))
    drawn = draw(st.lists(parts, max_size=40, min_size=draw(st.integers(0, 40))))
    return [(group, stream, time + place * pace // 4) for place, (group, stream, time) in enumerate(drawn)]


rows_as_they_arrive = arrivals()
cuts = st.sets(st.integers(0, 40))
idles = st.sampled_from([None, 0, 2, 5])
slacks = st.integers(0, 6)


@dataclass
class Went:
    """What a feed gave: per group (row, row that let it go); per row delay and skew; rows that stay; the clocks."""

    left: list[list[tuple[int, int]]]
    seen: dict[int, tuple[int, int]]
    held: np.ndarray
    clocks: StreamClocks


def feed(
    rows: Sequence[tuple[int, int, int]], cut_at: set[int], slack: int, idle: int | None, *, prompt: bool = False
) -> Went:
    """Arrange rows call by call; all that stays between calls is written to bytes and read back."""
    group, stream, time = (np.array([row[i] for row in rows], np.int64) for i in range(3))
    clocks, number, stage = new_clocks(GROUPS, STREAMS), np.zeros(0, np.int64), np.zeros(0, np.int64)
    left: list[list[tuple[int, int]]] = [[] for _ in range(GROUPS)]
    seen: dict[int, tuple[int, int]] = {}
    bounds = sorted({0, len(rows)} | {cut for cut in cut_at if cut < len(rows)})
    for start, stop in itertools.pairwise(bounds):
        clocks = StreamClocks(*(np.frombuffer(bytearray(c.tobytes()), np.int64).reshape(c.shape) for c in clocks))
        number = np.concatenate([number, np.arange(start, stop)])
        stage = np.concatenate([stage, np.zeros(stop - start, np.int64)])
        by_group = np.argsort(group[number], kind="stable")
        number, stage = number[by_group], stage[by_group]
        arrays = (group[number], stream[number], time[number], stage)
        copies = [array.copy() for array in arrays]
        idle_us = NEVER_IDLE if idle is None else idle
        released, by, stage, delay, skew = reorder_rows(clocks, *arrays, slack, idle_us, prompt)
        assert all((array == copy).all() for array, copy in zip(arrays, copies, strict=True))
        for row, sender in zip(number[released].tolist(), number[by].tolist(), strict=True):
            left[group[row]].append((row, sender))
        new = number >= start
        assert (delay[~new] == -1).all()
        assert (skew[~new] == -1).all()
        seen |= dict(zip(number[new].tolist(), zip(delay[new].tolist(), skew[new].tolist(), strict=True), strict=True))
        assert (stage[released] == 0).all()
        assert np.count_nonzero(stage == 0) == len(released)
        number, stage = number[stage > 0], stage[stage > 0]
    return Went(left, seen, number, clocks)


def one_at_a_time(
    rows: Sequence[tuple[int, int, int]], slack: int, idle: int | None, *, prompt: bool = False
) -> tuple[list[list[tuple[int, int]]], dict[int, tuple[int, int]], list[Order]]:
    """Give what leaves each group with the row that let it go, and delay and skew of each row."""
    orders = [Order([slack] * STREAMS, idle, prompt) for _ in range(GROUPS)]
    left: list[list[tuple[int, int]]] = [[] for _ in range(GROUPS)]
    seen = {}
    for number, (group, stream, time) in enumerate(rows):
        row, order = (number, stream, time), orders[group]
        left[group] += [(gone[0], number) for gone in order.arrive(row)]
        seen[number] = (order.delay(row), order.skew(row))
    return left, seen, orders


@given(rows_as_they_arrive, cuts, slacks, idles, st.booleans())
def test_any_cut_into_calls_gives_what_single_rows_give(
    rows: list[tuple[int, int, int]], cut_at: set[int], slack: int, idle: int | None, prompt: bool
) -> None:
    went = feed(rows, cut_at, slack, idle, prompt=prompt)
    left, seen, orders = one_at_a_time(rows, slack, idle, prompt=prompt)
    assert went.left == left
    assert went.seen == seen
    assert sorted(went.held.tolist()) == sorted(row[0] for order in orders for row in order.held())
    for group, order in enumerate(orders):
        clocks = [k.clock for k in order.k_slacks]
        assert went.clocks.newest[group].tolist() == [NEVER_SEEN if clock is None else clock for clock in clocks]
        t_sync = order.synchronizer.t_sync
        assert went.clocks.released[group] == (NEVER_SEEN if t_sync is None else t_sync)


@given(rows_as_they_arrive, cuts, slacks, idles, st.booleans())
def test_each_row_leaves_once_or_is_held(
    rows: list[tuple[int, int, int]], cut_at: set[int], slack: int, idle: int | None, prompt: bool
) -> None:
    went = feed(rows, cut_at, slack, idle, prompt=prompt)
    gone = [row for group in went.left for row, _ in group]
    assert sorted(gone + went.held.tolist()) == list(range(len(rows)))


@given(rows_as_they_arrive, cuts, st.sampled_from([0, 2, 5]))
def test_row_leaves_in_order_if_the_wait_is_its_delay_minus_its_skew(
    rows: list[tuple[int, int, int]], cut_at: set[int], idle: int
) -> None:
    """Delay and skew do not depend on K. So they state for each row a wait that is sufficient to put it in order."""
    rows = [row for row in rows if row[1] < 2]
    for slack in range(10):
        went = feed(rows, cut_at, slack, idle, prompt=True)
        for left in went.left:
            newest = NEVER_SEEN
            for row, _ in left:
                delay, skew = went.seen[row]
                assert rows[row][2] >= newest or delay - skew > slack
                newest = max(newest, rows[row][2])


def test_first_row_of_a_stream_has_a_delay_behind_the_newest_clock_of_its_key() -> None:
    rows = [(0, 0, 10), (0, 1, 7), (0, 1, 8), (1, 1, 3)]
    assert feed(rows, set(), 0, 5).seen == {0: (0, 0), 1: (3, 0), 2: (2, 0), 3: (0, 0)}


def test_row_of_an_idle_stream_has_a_delay_behind_the_newest_clock_of_its_key() -> None:
    # Stream 1 stops at 1 and is idle at 10; with its row at 7 it is active again.
    rows = [(0, 1, 1), (0, 0, 10), (0, 1, 7), (0, 0, 11)]
    assert feed(rows, set(), 0, 5).seen == {0: (0, 0), 1: (0, 0), 2: (3, 0), 3: (0, 1)}


@given(rows_as_they_arrive, cuts)
def test_with_a_wait_of_the_largest_delay_all_leave_in_order(
    rows: list[tuple[int, int, int]], cut_at: set[int]
) -> None:
    went = feed(rows, cut_at, 40, None)
    for group in went.left:
        times = [rows[row][2] for row, _ in group]
        assert times == sorted(times)


@given(rows_as_they_arrive, cuts, slacks)
def test_draining_gives_all_that_is_held_in_order(
    rows: list[tuple[int, int, int]], cut_at: set[int], slack: int
) -> None:
    went = feed(rows, cut_at, slack, None)
    number = went.held
    group, time = (np.array([rows[row][i] for row in number], np.int64) for i in (0, 2))
    before = went.clocks.released.copy()
    ends = np.array([True, False, True])
    given_now = number[drain_rows(went.clocks, group, time, ends)].tolist()
    held = [row for row in number.tolist() if ends[rows[row][0]]]
    assert given_now == sorted(held, key=lambda row: (rows[row][0], rows[row][2], row))
    for here in range(GROUPS):
        times = [rows[row][2] for row in given_now if rows[row][0] == here]
        assert went.clocks.released[here] == max([before[here], *times])


def test_what_waited_only_for_a_stream_leaves_with_the_arrival_that_makes_it_idle() -> None:
    # Stream 1 stops at 1, so 5 and 7 of stream 0 wait in the Synchronizer, and 6, which came behind, in K-slack (K = 0)
    # for the clock to rise. 12 is more than 5 ahead of stream 1: what it sends on and what waited leave in order.
    rows = [(0, 1, 1), (0, 0, 5), (0, 0, 7), (0, 0, 6), (0, 0, 12)]
    went = feed(rows, set(), 0, 6)
    assert [(rows[row][2], by) for row, by in went.left[0]] == [(1, 0), (5, 4), (6, 4), (7, 4), (12, 4)]


def test_what_a_shorter_idle_time_lets_go_leaves_with_the_next_arrival() -> None:
    # 5 and 6 of stream 0 wait for stream 1, which stands at 1. The next call no longer waits for it.
    clocks, nothing = new_clocks(1, 2), np.zeros(3, np.int64)
    first = reorder_rows(clocks, nothing, np.array([1, 0, 0]), np.array([1, 5, 6]), nothing, 0, NEVER_IDLE)
    assert (first[0].tolist(), first[2].tolist()) == ([0], [0, 2, 2])
    then = reorder_rows(clocks, nothing, np.array([0, 0, 0]), np.array([5, 6, 7]), np.array([2, 2, 0]), 0, 2)
    assert (then[0].tolist(), then[1].tolist()) == ([0, 1, 2], [2, 2, 2])


def test_a_stream_that_never_delivers_stops_all_where_none_is_idle() -> None:
    rows = [(0, 0, time) for time in range(5)]
    assert feed(rows, set(), 0, None).left[0] == []
    assert feed(rows, set(), 0, 100).left[0] == [(row, row) for row in range(5)]


def test_a_prompt_row_leaves_though_the_clock_stands_in_the_future() -> None:
    rows = [(0, 0, 1_000), (0, 0, 10), (0, 0, 11)]
    assert feed(rows, set(), 5, 0).left[0] == []
    assert feed(rows, set(), 5, 0, prompt=True).left[0] == [(1, 1), (2, 2)]


def test_no_rows_are_fine() -> None:
    nothing = np.zeros(0, np.int64)
    clocks = new_clocks(0, 2)
    assert all(len(array) == 0 for array in reorder_rows(clocks, nothing, nothing, nothing, nothing, 1, NEVER_IDLE))
    assert len(drain_rows(clocks, nothing, nothing, np.zeros(0, np.bool_))) == 0


@dataclass
class Rounds:
    """Streams that tick: in each round each clock rises by one, in a fixed order; late rows come in between."""

    starts: list[int]
    rows: list[tuple[int, int, int]]
    ends: list[int]


@st.composite
def rounds(draw: st.DrawFn) -> Rounds:
    """Draw streams with a row at every tick and constant skew."""
    starts = draw(st.lists(st.integers(0, 5), min_size=STREAMS, max_size=STREAMS))
    order = draw(st.permutations(range(STREAMS)))
    rows: list[tuple[int, int, int]] = []
    ends = []
    for tick in range(draw(st.integers(1, 12))):
        for stream in order:
            rows.append((len(rows), stream, starts[stream] + tick))
            for delay in draw(st.lists(st.integers(0, 8), max_size=1)):
                rows.append((len(rows), stream, starts[stream] + tick - delay))
        ends.append(len(rows))
    return Rounds(starts, rows, ends)


def run(slacks_of: Sequence[int], case: Rounds) -> tuple[list[set[int]], list[int | None]]:
    """Give, after each round, which rows have left, and T_sync."""
    order, gone, left, t_sync = Order(list(slacks_of)), set[int](), [], []
    for row in case.rows:
        gone |= {passed[0] for passed in order.arrive(row)}
        if row[0] + 1 in case.ends:
            left.append(set(gone))
            t_sync.append(order.synchronizer.t_sync)
    return left, t_sync


@given(rounds(), st.lists(st.integers(0, 6), min_size=STREAMS, max_size=STREAMS))
def test_theorem_1_any_waits_act_as_one_wait_after_each_round(case: Rounds, waits: list[int]) -> None:
    # The premise: every clock rises by one in each round, so skews stay and the K of the theorem is a constant.
    same = min(case.starts) - min(start - wait for start, wait in zip(case.starts, waits, strict=True))
    left, t_sync = run(waits, case)
    went = feed([(0, stream, time) for _, stream, time in case.rows], set(), same, None)
    left_same = [{row for row, by in went.left[0] if by < end} for end in case.ends]
    _, t_sync_same = run([same] * STREAMS, case)
    settled = max(same, *waits)
    assert left[settled:] == left_same[settled:]
    assert t_sync[settled:] == t_sync_same[settled:]
    slowest = min(start - wait for start, wait in zip(case.starts, waits, strict=True))
    assert t_sync[settled:] == [slowest + tick for tick in range(settled, len(case.ends))]


def test_theorem_1_does_not_hold_of_single_arrivals() -> None:
    # Clocks 1 and 1, waits 0 and 1: K = 1 - min(1 - 0, 1 - 1) = 1. When stream 1 brings 2, its 1 leaves K-slack under
    # both, but with K = 1 the 1 of stream 0 is still there, and 1 leaves only when stream 0 brings 2 as well.
    arrivals = [(0, 0, 1), (1, 1, 1), (2, 1, 2)]
    unlike, same = Order([0, 1]), Order([1, 1])
    assert [unlike.arrive(row) for row in arrivals] == [[], [], [arrivals[0], arrivals[1]]]
    assert [same.arrive(row) for row in arrivals] == [[], [], []]


def gap_of(times: list[int]) -> float:
    """The largest distance between neighbours."""
    ordered = sorted(times)
    return max((b - a for a, b in itertools.pairwise(ordered)), default=math.inf)


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 30)), min_size=2, max_size=40), slacks)
def test_proposition_1_what_k_slack_gives_has_the_skew_of_its_input_but_for_a_gap(
    rows: list[tuple[int, int]], slack: int
) -> None:
    order = Order([slack, slack])
    given_up_to: list[int | None] = [None, None]
    known: list[list[int]] = [[], []]
    pending: list[list[int]] = [[], []]
    for number, (stream, time) in enumerate(rows):
        rises = order.k_slacks[stream].clock is None or time > order.k_slacks[stream].clock
        pending[stream].append(time)
        if rises:
            known[stream] += pending[stream]
            pending[stream] = []
        for *_, passed in order.k_slacks[stream].arrive((number, stream, time)):
            given_up_to[stream] = passed if given_up_to[stream] is None else max(given_up_to[stream], passed)
        if None not in given_up_to:
            clocks = [k.clock for k in order.k_slacks]
            skew, skew_given = clocks[0] - clocks[1], given_up_to[0] - given_up_to[1]
            assert abs(skew - skew_given) < max(gap_of(known[0]), gap_of(known[1]), 1)


@pytest.mark.parametrize("slack", [0, 3])
def test_proposition_1_is_exact_where_streams_tick(slack: int) -> None:
    order = Order([slack, slack])
    for tick in range(10):
        for stream, start in ((0, 0), (1, 4)):
            passed = order.k_slacks[stream].arrive((0, stream, start + tick))
            expected = [start + tick - slack] if tick >= slack else []
            assert [time for *_, time in passed] == expected
