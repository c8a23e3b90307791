"""Rows under a budget: the paper's schedules, and every policy against its definition."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from benchmarks.papers.p001 import policies
from benchmarks.papers.p001 import window_memory as window
from benchmarks.papers.p001.policies import Policy
from benchmarks.papers.p001.refit import refit
from benchmarks.papers.p001.window_memory import COUNT, MOST, REFUSED, ROW, Held
from naive import memory as naive
from tocsin.operators.retention.utility.age_model import AgeCurve
from tocsin.runtime.state_codec import pack, unpack

PRIORITIES = st.lists(st.integers(0, 4).map(float), min_size=1, max_size=6)
AMOUNTS = st.lists(st.integers(0, 5).map(float), min_size=1, max_size=6)
KEYS = 5


@st.composite
def ways(draw_: st.DrawFn, length: int) -> tuple[Policy, naive.Choose]:
    """A policy, and its definition."""
    kind = draw_(st.sampled_from(["age", "table", "prob", "recent"]))
    granule = draw_(st.integers(1, 4))
    if kind == "age":
        p = draw_(AMOUNTS)
        priority = AgeCurve(np.array(p), granule).priorities()
        assert priority == pytest.approx([naive.priority(p, i) for i in range(len(p))])
        return policies.age(AgeCurve(np.array(p), granule), length), naive.drop_by_age(priority.tolist(), granule)
    if kind == "table":
        priority = np.array(draw_(PRIORITIES))
        return policies.by_age(priority, granule, length), naive.drop_by_age(priority.tolist(), granule)
    if kind == "prob":
        f = [count / 9 for count in draw_(st.lists(st.integers(0, 3), min_size=1, max_size=KEYS))]
        return policies.prob(np.array(f)), naive.drop_rarest(f)
    return policies.recent(length), naive.drop_oldest


def read_back(held: Held) -> Held:
    return Held(**unpack(pack(held._asdict()))[0])


def take(held: Held, policy: Policy, length: int, row: naive.Row) -> tuple[list[int], int | None]:
    """Let a row come: who expires, and who is shed for it."""
    expired = []
    while (slot := window.expire(held, length, row.time)) >= 0:
        expired.append(int(held.slots[slot, ROW]))
    slot = window.find_victim(held, policy, row.time, row.key)
    if slot == REFUSED:
        return expired, row.number
    gone = int(held.slots[slot, ROW]) if slot >= 0 else None
    if slot >= 0:
        window.remove(held, slot)
    window.insert(held, policy, row.time, row.key, row.number)
    return expired, gone


def now_held(held: Held) -> list[int]:
    return held.slots[window.rows_held(held), ROW].tolist()


@st.composite
def cases(draw_: st.DrawFn) -> tuple[int, tuple[Policy, naive.Choose], list[naive.Row]]:
    length = draw_(st.sampled_from([0, 1, 3, 7, 20]))
    steps = draw_(st.lists(st.tuples(st.sampled_from([0, 0, 1, 1, 1, 2, 5, 30]), st.integers(0, KEYS)), max_size=60))
    times = np.cumsum([draw_(st.sampled_from([0, -40, 10**15]))] + [step for step, _ in steps])[1:].tolist()
    rows = [naive.Row(n, time, key) for n, (time, (_, key)) in enumerate(zip(times, steps, strict=True))]
    return length, draw_(ways(length)), rows


@given(cases(), st.integers(0, 6))
def test_who_stays_is_as_defined_and_never_more_than_the_budget(
    case: tuple[int, tuple[Policy, naive.Choose], list[naive.Row]], budget: int
) -> None:
    length, (policy, choose), rows = case
    held, plain = window.empty(budget, policy), []
    for row in rows:
        before = {other.number for other in plain}
        naive.expire(plain, length, row.time)
        due = before - {other.number for other in plain}
        gone = naive.offer(plain, row, budget, choose)
        expired, shed = take(held, policy, length, row)
        assert (set(expired), shed) == (due, None if gone is None else gone.number)
        assert expired == sorted(expired)
        assert now_held(held) == sorted(other.number for other in plain)
        assert held.state[COUNT] == len(plain)
        assert held.state[MOST] <= budget
        held = read_back(held)


def schedule(p: Sequence[float], budget: int, until: int) -> tuple[list[set[int]], list[int | None]]:
    """Rows held after each time from 1 on, a row coming at each, and who is discarded."""
    policy, length = policies.age(AgeCurve(np.array(p, np.float64)), len(p)), len(p)
    held, table, discarded = window.empty(budget, policy), [], []
    for time in range(1, until + 1):
        expired, shed = take(held, policy, length, naive.Row(time, time, 0))
        assert not expired
        table.append(set(now_held(held)))
        discarded.append(shed)
    return table, discarded


def test_example_3_3_with_one_cell_is_the_table_of_the_paper() -> None:
    table, discarded = schedule([1, 1, 2, 1], 1, 7)
    assert table == [{1}, {1}, {1}, {4}, {4}, {4}, {7}]
    assert discarded == [None, 2, 3, 1, 5, 6, 4]


def test_example_3_3_with_two_cells_is_staggered_as_in_the_paper() -> None:
    table, discarded = schedule([1, 1, 2, 1], 2, 7)
    assert table == [{1}, {1, 2}, {1, 2}, {4, 2}, {4, 5}, {4, 5}, {7, 5}]
    assert discarded == [None, None, 3, 1, 2, 6, 4]


def test_example_3_4_alternates_between_one_and_three_units_as_in_the_paper() -> None:
    table, discarded = schedule([3, 0, 2], 2, 7)
    assert table == [{1}, {1, 2}, {1, 3}, {4, 3}, {5, 3}, {5, 6}, {5, 7}]
    assert discarded == [None, None, 2, 1, 4, 3, 6]


@given(AMOUNTS, st.integers(1, 6))
def test_without_minima_a_row_stays_for_k_opt_or_as_long_as_there_is_room(p: list[float], budget: int) -> None:
    smooth = sorted(p[::2]) + sorted(p[1::2], reverse=True)
    best = naive.k_opt(smooth)
    # Where a longer stay gives as much per unit of time, either is right.
    assume(budget <= len(p) and all(sum(smooth[:k]) * best < sum(smooth[:best]) * k for k in range(best + 1, len(p))))
    table, _ = schedule(smooth, budget, 60)
    stays = {time - row for time, (kept, after) in enumerate(itertools.pairwise(table), 2) for row in kept - after}
    assert stays == {max(best, budget)}


@given(st.lists(st.integers(0, 3).map(float), min_size=1, max_size=4), st.integers(2, 4))
def test_a_table_may_be_longer_than_the_window(priority: list[float], budget: int) -> None:
    longer = [*priority, 5.0]
    policy, choose = policies.by_age(np.array(longer), 2, 3), naive.drop_by_age(longer, 2)
    held, plain = window.empty(budget, policy), []
    for number, time in enumerate([1, 1, 1, 1, 2, 2, 3, 4, 4, 4, 4, 5, 5, 7, 8]):
        row = naive.Row(number, time, 0)
        naive.expire(plain, 3, time)
        naive.offer(plain, row, budget, choose)
        take(held, policy, 3, row)
        assert now_held(held) == sorted(other.number for other in plain)


@given(cases(), st.integers(0, 6), st.integers(0, 6), st.data())
def test_a_new_policy_or_budget_leaves_what_dropping_row_by_row_would(
    case: tuple[int, tuple[Policy, naive.Choose], list[naive.Row]], budget: int, smaller: int, data: st.DataObject
) -> None:
    length, (policy, choose), rows = case
    other, choose_other = data.draw(ways(length))
    held, plain = window.empty(budget, policy), []
    for row in rows:
        naive.expire(plain, length, row.time)
        naive.offer(plain, row, budget, choose)
        take(held, policy, length, row)
    now = rows[-1].time if rows else 0
    held, gone = refit(held, other, smaller, now)
    went = []
    while len(plain) > smaller:
        went.append(choose_other(plain, now))
        plain.remove(went[-1])
    assert gone.tolist() == [row.number for row in went]
    assert now_held(held) == sorted(row.number for row in plain)
    assert held.state[COUNT] <= smaller
    # From here on it is a memory like any other.
    later = naive.Row(len(rows), now, 0)
    shed = naive.offer(plain, later, smaller, choose_other)
    assert take(held, other, length, later) == ([], None if shed is None else shed.number)
