"""Queries as plans, without an engine: a join of SQL gives the pairs of the oracle, or with a budget some of them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.driver import Driver, limited_logics, stories
from tests.example_counts import ENGINE
from tocsin.plan.anytime import ROW as ROW_COST
from tocsin.query import JoinQuery, parse_sql, resolve
from tocsin.query.model import KEY, ONE, ROW, TIME
from tocsin.query.steps import plan_of
from tocsin.runtime.metrics import OUTCOMES
from tocsin.runtime.session import Session
from tocsin.stages.promising.anytime_join import COSTS

COLUMNS = {"one": ["item", "ts", "price"], "two": ["thing", "ts", "price", "cost"]}
BASE = "SELECT a.ts, b.ts FROM one a, two b WHERE a.item = b.thing"
LIKES = " WITH PREFERENCE desc SUMMARY.Estimate.Count(a.item) * SUMMARY.Estimate.Count(b.thing) * a.item + b.cost"
WINDOW = 10

sides = st.lists(st.tuples(st.integers(0, 3), st.sampled_from([0, 1, 1, 2, 30]), st.integers(0, 3)), max_size=25)


def asked(text: str) -> JoinQuery:
    found = resolve(parse_sql(text), COLUMNS, "ts")
    assert isinstance(found, JoinQuery)
    return found


def tables(one: Any, two: Any) -> dict[str, dict[str, Any]]:
    """The streams as the engine narrows them."""
    found = {}
    for alias, rows, key in (("a", one, "item"), ("b", two, "thing")):
        times = np.cumsum([gap for _, gap, _ in rows], dtype=np.int64)
        found[alias] = {
            TIME: times,
            KEY: np.array([str(item) for item, _, _ in rows], object),
            ONE: np.ones(len(rows)),
            ROW: np.array([json.dumps(i) for i in range(len(rows))], object),
            **{name: np.array([float(number) for _, _, number in rows]) for name in ("price", "cost")},
            key: np.array([float(item) for item, _, _ in rows]),
        }
    return found


def joined(one: Any, two: Any, window: int | None, more: Any = lambda a, b: True) -> list[tuple[int, int]]:
    times = [np.cumsum([gap for _, gap, _ in rows]).tolist() for rows in (one, two)]
    return sorted(
        (i, j)
        for i, a in enumerate(one)
        for j, b in enumerate(two)
        if a[0] == b[0] and (window is None or abs(times[0][i] - times[1][j]) <= window) and more(a, b)
    )


def run(text: str, one: Any, two: Any, cuts: Any = (), *, through_pages: bool = False) -> Any:
    plan = plan_of(asked(text), bounded=True)
    parts = _parts(plan, _narrow(plan, tables(one, two)), cuts)
    out = Driver(plan, through_pages=through_pages).run(parts)
    pairs = [tuple(int(part["payload"][ROW]) for part in row["witness"]) for row in out.alert_rows()]
    return pairs, out


def _narrow(plan: Any, streams: Any) -> Any:
    return {
        name: {c: v for c, v in columns.items() if c in (TIME, KEY, ROW) or c in _read(plan, name)}
        for name, columns in streams.items()
    }


def _read(plan: Any, name: str) -> set[str]:
    return {column for watch in plan.watches for column in watch.columns(name)}


def _parts(plan: Any, streams: Any, cuts: Any) -> Any:
    from tocsin import local

    batches = [b for i, watch in enumerate(plan.watches) for b in local._batches(i, watch, streams, TIME, None)]
    return local._cut(batches, cuts) if cuts else [batches]


@ENGINE
@given(sides, sides)
def test_without_a_budget_all_pairs_are_found(one: Any, two: Any) -> None:
    pairs, _ = run(f"{BASE}{LIKES} WINDOW {WINDOW} MICROSECONDS", one, two)
    assert sorted(pairs) == joined(one, two, WINDOW)


@ENGINE
@given(sides, sides)
def test_conditions_of_pairs_hold(one: Any, two: Any) -> None:
    pairs, _ = run(f"{BASE} AND a.price * 2 > b.cost + 1 WINDOW {WINDOW} MICROSECONDS", one, two)
    assert sorted(pairs) == joined(one, two, WINDOW, lambda a, b: a[2] * 2 > b[2] + 1)


CUTS = st.lists(st.integers(1, 45), max_size=4).map(sorted)
BUDGETS = st.sampled_from(["BUDGET 300 UNITS PER TUPLE", "BUDGET 5000 UNITS PER TUPLE", "BUDGET 50 %", "BUDGET 9000 %"])
SUMMARIES = st.sampled_from(
    ["", "CREATE SUMMARY s ON one(item) WITH COLLAPSE(2, 2) AND SKETCH(3, 16) AND BUCKETS 2 AND VARIANT T4; ",
     "CREATE SUMMARY s ON two(thing) WITH EXACT; "]
)  # fmt: skip


@ENGINE
@given(sides, sides, SUMMARIES, BUDGETS, CUTS, st.booleans())
def test_with_a_budget_some_pairs_are_found_once_and_no_cut_shows(
    one: Any, two: Any, summary: str, budget: str, cuts: Any, through_pages: bool
) -> None:
    text = f"{summary}{BASE}{LIKES} FADE FACTOR 0.5 WINDOW {WINDOW} MICROSECONDS {budget}"
    pairs, out = run(text, one, two)
    assert len(set(pairs)) == len(pairs)
    assert set(pairs) <= set(joined(one, two, WINDOW))
    again, split = run(text, one, two, cuts, through_pages=through_pages)
    assert again == pairs
    assert split.counts == out.counts


@ENGINE
@given(sides, sides, st.integers(1, 60), CUTS)
def test_over_the_whole_stream_pairs_are_those_of_the_tuples_in_memory(
    one: Any, two: Any, memory: int, cuts: Any
) -> None:
    text = f"CREATE SUMMARY s ON one(item) WITH MEMORY {memory} TUPLES; {BASE}"
    pairs, _ = run(text, one, two)
    assert len(set(pairs)) == len(pairs)
    assert set(pairs) <= set(joined(one, two, None))
    if memory >= max(len(one), len(two)):
        assert sorted(pairs) == joined(one, two, None)
    assert run(text, one, two, cuts, through_pages=True)[0] == pairs


def test_over_the_whole_stream_no_cut_shows_in_what_is_told_of_a_budget() -> None:
    text = f"CREATE SUMMARY s ON one(item) WITH MEMORY 20 TUPLES; {BASE} BUDGET 3000 UNITS PER TUPLE"
    draw = np.random.default_rng(1)
    one, two = ([(int(draw.integers(5)), 10, 0) for _ in range(700)] for _ in range(2))
    plan, streams = plan_of(asked(text), bounded=False), tables(one, two)
    told = []
    for cuts in ((), range(100, 1400, 100)):
        driver = Driver(plan, through_pages=bool(cuts))
        alerts = driver.run(_parts(plan, streams, cuts)).alert_rows()
        told.append((stories(alerts), limited_logics(driver.session)[0].bought.shares))
    assert told[0] == told[1]


@pytest.mark.parametrize("budget", ["", " BUDGET 3 UNITS PER TUPLE", " BUDGET 3000 UNITS PER TUPLE"])
def test_a_quiet_stream_keeps_no_row_of_the_other_from_going(budget: str) -> None:
    text = f"CREATE SUMMARY p ON one(item) WITH MEMORY 5 TUPLES; {BASE}{budget}"
    quiet = [(1, 0, 0), (2, 5000, 0), (1, 5000, 0)]
    one, wanted, sizes = [(i % 3, 1, 0) for i in range(12_000)], [], []
    for cuts in ([], [100, 5_000, 9_000]):
        pairs, out = run(text, one, quiet, cuts, through_pages=bool(cuts))
        wanted.append((pairs, out.counts))
        for counts in out.counts.values():
            assert min(counts.values()) >= 0
            assert counts["retained"] <= 5
            assert sum(counts.get(outcome, 0) for outcome in OUTCOMES) == counts["received"]
    assert wanted[0] == wanted[1]
    for rows in (one[:4_000], one):
        plan = plan_of(asked(text), bounded=True)
        session = Session(plan)
        for part in _parts(plan, _narrow(plan, tables(rows, quiet)), [1_000, 3_000]):
            session.push(part)
        sizes.append(sum(len(page or b"") for page in session.changed_pages().values()))
    assert sizes[1] < 2 * sizes[0]


def test_more_units_find_more_and_the_preferred_first() -> None:
    rng = np.random.default_rng(5)
    one, two = ([(int(item), 1, 0) for item in rng.zipf(1.5, 400) % 50] for _ in range(2))
    everything = len(joined(one, two, 100))
    found = []
    for units in (1_000, 10_000, 10**9):
        pairs, out = run(f"{BASE}{LIKES} WINDOW 100 MICROSECONDS BUDGET {units} UNITS PER TUPLE", one, two)
        found.append(len(pairs))
        left = sum(counts.get("unprocessed", 0) for counts in out.counts.values())
        assert (left == 0) == (units == 10**9)
    assert 0 < found[0] < found[1] < found[2] == everything


# Enough to take a row in, and not to summarise it.
FEW = round(ROW_COST + COSTS.insert) + 15


@pytest.mark.parametrize(("setting", "units", "variant"), [
    ("BUCKETS 8", FEW, "SHJ"), ("BUCKETS 8", 5000, "T4"), ("VARIANT T4", FEW, "T4"), ("VARIANT T2", 5000, "T2"),
])  # fmt: skip
def test_units_that_cannot_pay_for_summaries_are_not_spent_on_them(setting: str, units: int, variant: str) -> None:
    rng = np.random.default_rng(5)
    one, two = ([(int(item), 1, 0) for item in rng.integers(0, 1_000, 600)] for _ in range(2))
    text = f"CREATE SUMMARY s ON one(item) WITH {setting}; {BASE} WINDOW 30 MICROSECONDS BUDGET {units} UNITS PER TUPLE"
    assert asked(text).layout.variant == variant
    everything = joined(one, two, 30)
    found, _ = run(text, one, two)
    assert len(everything) > 20
    # With summaries nothing is left to look for partners.
    assert bool(found) == (units > FEW or variant == "SHJ")


def test_what_a_join_leaves_undone_at_the_end_is_unprocessed() -> None:
    one = two = [(0, 1, 0)] * 40
    pairs, out = run(f"{BASE} WINDOW 1000 MICROSECONDS BUDGET 1 UNITS PER TUPLE", one, two)
    assert len(pairs) < 40 * 40
    # A row has nothing to probe where none of the other stream was there before it.
    left = sum(counts["unprocessed"] for counts in out.counts.values())
    assert 70 <= left <= 80
    for counts in out.counts.values():
        assert counts["received"] == 40 == sum(counts.get(outcome, 0) for outcome in OUTCOMES)


def test_the_joined_columns_have_their_own_names_where_one_alias_ends_as_the_other() -> None:
    likes = "WITH PREFERENCE desc SUMMARY.Estimate.Count(ba.thing)"
    query = asked(f"SELECT a.ts FROM one a, two ba WHERE a.item = ba.thing {likes} WINDOW 1 MINUTE")
    assert "preference desc count(ba.thing)" in str(query)


def test_units_that_come_with_rows_alone_call_for_no_timer() -> None:
    rows = [(0, 1, 0)] * 40
    plan = plan_of(asked(f"{BASE} WINDOW 1000 MICROSECONDS BUDGET 1 UNITS PER TUPLE"), bounded=False)
    session = Session(plan)
    (part,) = _parts(plan, tables(rows, rows), ())
    session.push(part, 0)
    assert limited_logics(session)[0].join.waits
    assert session.next_timer() is None
    session.changed_pages()
    assert not session.advance(10_000_000).alert_rows()
    assert session.changed_pages() == {}


def test_a_plan_says_what_a_query_may_spend() -> None:
    query = asked(f"{BASE} WINDOW 1 MINUTE BUDGET 50 %")
    assert "CPU: 50% of a core" in str(plan_of(query, bounded=True))
    assert "CPU: " not in str(plan_of(asked(f"{BASE} WINDOW 1 MINUTE"), bounded=True))
    assert "300 units per row" in str(
        plan_of(asked(f"{BASE} WINDOW 1 MINUTE BUDGET 300 UNITS PER TUPLE"), bounded=False)
    )
