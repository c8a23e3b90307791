"""Dominance against its definition: of each tuple in it, every window keeps one that is at least as large in all."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from naive.retained import windows
from tocsin.operators.retention.bracketing import (
    CLOSED,
    HOPPING,
    NEVER,
    OPEN,
    SegmentRows,
    compute_departure_ranks,
    hopping_windows,
)
from tocsin.operators.retention.dominance import compute_dominance_ranks

points = st.tuples(st.integers(0, 30), st.tuples(st.integers(0, 3), st.integers(0, 3)))
ENDS = {OPEN: "neither", CLOSED: "both"}


def taken(
    rows: list[tuple[int, tuple[int, int]]], length: int, kind: int, hop: int, cuts: list[int], fixed: set[int]
) -> list[int]:
    """Take rows in batches that end at `cuts`; give for each the number of the arrival at which it went."""
    remembered: list[int] = []
    fate = [NEVER] * len(rows)
    for begin, end in zip([0, *cuts], [*cuts, len(rows)], strict=True):
        batch = sorted(remembered, key=lambda i: (rows[i][0], i)) + list(range(begin, end))
        t = np.array([rows[i][0] for i in batch], np.int64)
        enter, leave = hopping_windows(t, length, hop, "both") if kind == HOPPING else (t, t)
        rank = np.array([-1] * len(remembered) + list(range(begin, end)), np.int64)
        values = np.array([rows[i][1] for i in batch], float).reshape(-1, 2).T.copy()
        held = np.array([i in fixed for i in batch], np.bool_)
        columns = SegmentRows(t, values[0].copy(), enter, leave, held, np.zeros(len(batch), np.int64), rank)
        order, gone = np.empty(len(batch), np.int64), np.empty(len(batch), np.int64)
        bounds = np.array([0, len(batch)]), np.array([len(remembered)])
        compute_dominance_ranks(bounds, columns, values, (length, kind), order, gone)
        assert list(order) == sorted(range(len(batch)), key=lambda p: (t[p], p))
        for i, when in zip(batch, gone, strict=True):
            fate[i] = int(when)
        remembered = [i for i in batch if fate[i] == NEVER]
    return fate


@given(
    st.lists(points, max_size=12),
    st.integers(0, 12),
    st.sampled_from([OPEN, CLOSED, HOPPING]),
    st.integers(1, 6),
    st.data(),
)
def test_every_window_keeps_a_match_of_each_tuple_that_it_holds(
    rows: list[Any], length: int, kind: int, hop: int, data: st.DataObject
) -> None:
    fixed = data.draw(st.sets(st.integers(0, 11), max_size=2))
    fate = taken(rows, length, kind, hop, [], fixed)
    kept = [i for i in range(len(rows)) if fate[i] == NEVER]
    assert fixed & set(range(len(rows))) <= set(kept)
    times = [row[0] for row in rows]
    for _, holds in windows(times, length, ENDS.get(kind, "both"), hop if kind == HOPPING else None):
        for i in range(len(rows)):
            if holds(times[i]) and i not in fixed:
                assert any(holds(times[k]) and k not in fixed and _beats(rows[k][1], rows[i][1]) for k in kept)


@given(
    st.lists(points, max_size=12), st.integers(0, 12), st.sampled_from([CLOSED, HOPPING]), st.integers(1, 6), st.data()
)
def test_the_cut_into_batches_does_not_show(
    rows: list[Any], length: int, kind: int, hop: int, data: st.DataObject
) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=3)))
    assert taken(rows, length, kind, hop, cuts, set()) == taken(rows, length, kind, hop, [], set())


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 5)), max_size=14), st.integers(1, 12))
def test_one_value_in_order_keeps_as_few_as_bracketing(rows: list[tuple[int, int]], length: int) -> None:
    rows = sorted(rows, key=lambda row: row[0])
    fate = taken([(t, (v, v)) for t, v in rows], length, CLOSED, 0, [], set())
    t, v = np.array([row[0] for row in rows], np.int64), np.array([row[1] for row in rows], float)
    columns = SegmentRows(t, v, t, t, np.zeros(len(t), np.bool_), np.zeros(len(t), np.int64), np.arange(len(t)))
    order, gone = np.empty(len(t), np.int64), np.empty(len(t), np.int64)
    lengths = np.array([[length], [-1]])
    compute_departure_ranks((np.array([0, len(t)]), np.array([0])), columns, (lengths, CLOSED), order, gone)
    assert sum(when == NEVER for when in fate) == sum(when == NEVER for when in gone)


def _beats(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one[0] >= other[0] and one[1] >= other[1]
