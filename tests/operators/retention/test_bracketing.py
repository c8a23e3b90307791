"""The kernels of bracketing against brute force."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from naive import retained as naive
from tocsin.operators.retention.bracketing import (
    CLOSED,
    HOPPING,
    NEVER,
    OPEN,
    Reach,
    SegmentRows,
    compute_departure_ranks,
    hopping_windows,
    sweep,
)

KINDS = {"both": CLOSED, "left": CLOSED, "right": CLOSED, "neither": OPEN}

lengths = st.sampled_from([(4, 4), (3, 6), (6, 3), (5, -1), (-1, 5), (1, 1), (0, 0)])


def streams(longest: int) -> st.SearchStrategy[list[tuple[int, int]]]:
    """Times and values with many ties."""
    dense = st.tuples(st.integers(0, 6), st.integers(0, 2))
    loose = st.tuples(st.integers(-9, 20), st.integers(-3, 3))
    return st.lists(dense, max_size=longest) | st.lists(loose, max_size=longest)


def columns(rows: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([t for t, _ in rows], np.int64), np.array([v for _, v in rows], np.float64)


def sides(reach: tuple[int, int]) -> list[tuple[int, int]]:
    return [(length, sign) for length, sign in zip(reach, (1, -1), strict=True) if length >= 0]


def follow(
    rows: list[tuple[int, int]],
    reach: tuple[int, int],
    closed: str = "both",
    hop: int | None = None,
    cuts: tuple[int, ...] = (),
    fixed: frozenset[int] = frozenset(),
) -> np.ndarray:
    """Give the arrival at which each tuple goes, with the input cut into several calls."""
    t, v = columns(rows)
    gone, state = np.full(t.size, NEVER), np.empty(0, np.int64)
    stops = [*sorted(min(cut, t.size) for cut in cuts), t.size]
    for start, stop in zip([0, *stops], stops, strict=False):
        new = np.arange(start, stop)
        at = np.concatenate((state, new))
        keys = (t[at], t[at]) if hop is None else hopping_windows(t[at], max(reach), hop, closed)
        out_of_domain = np.array([value in fixed for value in v[at]], np.bool_)
        rank = np.concatenate((np.full(state.size, -1), new))
        table = SegmentRows(t[at], v[at], *keys, out_of_domain, v[at].astype(np.int64), rank)
        far = np.array([[length if hop is None or length < 0 else 0] for length in reach], np.int64)
        kind = KINDS[closed] if hop is None else HOPPING
        order, out = np.empty(at.size, np.int64), np.empty(at.size, np.int64)
        compute_departure_ranks((np.array([0, at.size]), np.array([state.size])), table, (far, kind), order, out)
        assert order.tolist() == np.lexsort((np.arange(at.size), t[at])).tolist()
        gone[at] = out
        stays = at[out == NEVER]
        state = stays[np.argsort(t[stays], kind="stable")]
    return gone


@given(streams(10), lengths, st.sampled_from(sorted(KINDS)))
def test_a_sweep_meets_every_window_with_the_fewest_tuples(
    rows: list[tuple[int, int]], reach: tuple[int, int], closed: str
) -> None:
    t, v = columns(sorted(rows))
    gone = np.zeros(t.size, np.uint8)
    sweep(np.array([0, t.size]), (t, t), v, Reach(*reach, KINDS[closed]), gone)
    kept = set(np.flatnonzero(gone == 0).tolist())
    if min(reach, key=abs) == 0 and closed != "both":
        return
    asked = naive.demands(t.tolist(), v.tolist(), sides(reach), closed)
    assert naive.met(kept, asked)
    assert len(kept) == naive.minimum(asked, t.size)


@given(st.lists(streams(6), max_size=4), lengths)
def test_segments_are_swept_each_alone(parts: list[list[tuple[int, int]]], reach: tuple[int, int]) -> None:
    t, v = columns([row for part in parts for row in sorted(part)])
    offsets = np.cumsum([0] + [len(part) for part in parts])
    together = np.zeros(t.size, np.uint8)
    sweep(offsets, (t, t), v, Reach(*reach, CLOSED), together)
    for lo, hi in itertools.pairwise(offsets):
        alone = np.zeros(hi - lo, np.uint8)
        sweep(np.array([0, hi - lo]), (t[lo:hi], t[lo:hi]), v[lo:hi], Reach(*reach, CLOSED), alone)
        assert alone.tolist() == together[lo:hi].tolist()


@given(streams(14), lengths, st.sampled_from(["both", "neither"]))
def test_going_is_what_taking_tuples_one_at_a_time_gives(
    rows: list[tuple[int, int]], reach: tuple[int, int], closed: str
) -> None:
    oracle = naive.OneAtATime(sides(reach), closed)
    if min(reach, key=abs) == 0 and closed != "both":
        return
    expected = [NEVER] * len(rows)
    for number, (t, v) in enumerate(rows):
        for gone in oracle.arrive(t, v, number):
            expected[gone] = number
    assert follow(rows, reach, closed).tolist() == expected


@given(
    streams(24),
    lengths,
    st.sampled_from([None, 1, 3, 5]),
    st.lists(st.integers(0, 24), max_size=5),
    st.sampled_from([frozenset[int](), frozenset({2}), frozenset({0, -3})]),
)
def test_remembered_tuples_handed_back_change_nothing(
    rows: list[tuple[int, int]],
    reach: tuple[int, int],
    hop: int | None,
    cuts: list[int],
    fixed: frozenset[int],
) -> None:
    if hop is not None:
        reach = (max(reach) if reach[0] >= 0 else -1, max(reach) if reach[1] >= 0 else -1)
    whole = follow(rows, reach, hop=hop, fixed=fixed)
    assert follow(rows, reach, hop=hop, fixed=fixed, cuts=tuple(cuts)).tolist() == whole.tolist()


@given(streams(12), st.sampled_from([(4, 4), (6, -1), (-1, 2)]), st.sampled_from(sorted(KINDS)), st.integers(1, 5))
def test_every_hopping_window_is_met_at_every_arrival(
    rows: list[tuple[int, int]], reach: tuple[int, int], closed: str, hop: int
) -> None:
    gone = follow(rows, reach, closed, hop)
    for stop in range(1, len(rows) + 1):
        t, v = columns(rows[:stop])
        asked = naive.demands(t.tolist(), v.tolist(), sides(reach), closed, hop)
        assert naive.met(set(np.flatnonzero(gone[:stop] >= stop).tolist()), asked)


@given(streams(20), lengths)
def test_a_value_outside_its_domain_always_stays_and_excuses_nothing(
    rows: list[tuple[int, int]], reach: tuple[int, int]
) -> None:
    rows = list(dict.fromkeys(rows))
    gone = follow(rows, reach, fixed=frozenset({1}))
    inside = [number for number, (_, v) in enumerate(rows) if v != 1]
    assert all(gone[number] == NEVER for number, (_, v) in enumerate(rows) if v == 1)
    alone = follow([rows[number] for number in inside], reach)
    renumbered = [inside[rank] if rank != NEVER else NEVER for rank in alone.tolist()]
    assert gone[inside].tolist() == renumbered


@given(streams(20), st.lists(st.integers(0, 20), max_size=3))
def test_where_nothing_may_be_left_out_only_exact_duplicates_go(rows: list[tuple[int, int]], cuts: list[int]) -> None:
    gone = follow(rows, (-1, -1), cuts=tuple(cuts))
    first = [rows.index(row) == number for number, row in enumerate(rows)]
    assert [rank == NEVER for rank in gone.tolist()] == first
    assert all(rank == number for number, rank in enumerate(gone.tolist()) if not first[number])


def test_a_tuple_between_stronger_ones_of_its_time_is_refused_on_arrival() -> None:
    assert follow([(0, 1), (0, 9), (0, 5)], (3, 3)).tolist() == [NEVER, NEVER, 2]


def test_a_late_tuple_takes_the_place_of_those_it_brackets() -> None:
    # (2, 1) is below (1, 2) and (3, 2); nothing lies below it, so only a function increasing in the value can spare it.
    assert follow([(1, 2), (2, 1), (4, 0), (3, 2)], (3, -1)).tolist() == [NEVER, 3, NEVER, NEVER]


@pytest.mark.parametrize("closed", sorted(KINDS))
def test_a_time_that_no_hopping_window_holds_is_refused(closed: str) -> None:
    assert follow([(3, 1), (11, 2)], (2, 2), closed, hop=10).tolist() == [0, NEVER]
