"""A query of one stream as a step: the laws of every logic, and the answers of the oracle where units are unlimited."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from naive import promising as naive
from stages.promising.test_selection import layouts, numbers
from stages.promising.test_windows import asked
from tests.driver import Driver
from tests.example_counts import ENGINE
from tocsin.errors import RunError
from tocsin.interim.cpu.stream_query import KINDS, Select
from tocsin.runtime.contract import Batch, Out
from tocsin.runtime.session import Session
from tocsin.runtime.state_codec import pack
from tocsin.stages.promising.layout import Layout
from tocsin.stages.promising.selection import PROMISES, Query

rows = st.lists(st.tuples(st.sampled_from([0, 1, 1, 2, 30, -3]), st.one_of(numbers, st.just(np.nan))), max_size=40)
CUTS = st.lists(st.integers(0, 40), max_size=5).map(sorted)
# What a step may spend; a core does 50 units in a microsecond.
spendings = st.sampled_from([{}, {"units": 3.0}, {"units": 90.0}, {"cores": 0.04}, {"cores": 2.0}])


def batch_of(given_: Any, begin: int, end: int) -> Batch:
    time = np.cumsum([gap for gap, _ in given_], dtype=np.int64)[begin:end]
    value = np.array([value for _, value in given_], np.float64)[begin:end]
    text = np.array([json.dumps({"n": n}) for n in range(begin, min(end, len(given_)))], object)
    arrays = time, np.arange(len(time)), value
    for array in arrays:
        array.flags.writeable = False
    return Batch(
        0, "s", [()], np.zeros(len(time), np.int64), time, arrays[1], {"x": value}, text, quarantined=begin == 0
    )


def parts(given_: Any, cuts: Sequence[int] = ()) -> list[list[Batch]]:
    ends = [0, *(cut for cut in cuts if cut <= len(given_)), len(given_)]
    return [
        [batch_of(given_, begin, end)] if begin < end or n == 0 else [] for n, (begin, end) in enumerate(pairwise(ends))
    ]


@ENGINE
@given(layouts(), asked(), rows, CUTS, spendings, st.booleans(), st.booleans())
def test_no_cut_and_no_page_shows_and_counts_add_up(
    layout: Layout, query: Query, given_: Any, cuts: list[int], spending: Any, aggregates: bool, through_pages: bool
) -> None:
    cuts = [cut for cut in cuts if cut > 0]
    step = Select("s", "x", layout, (query, Query(-1.0, 1.0))[: 2 - aggregates], **spending, aggregates=aggregates)
    whole = Driver(step, through_pages=False).run(parts(given_))
    split = Driver(step, through_pages=through_pages).run(parts(given_, cuts))
    assert str(split.answers) == str(whole.answers)
    assert split.counts == whole.counts
    assert split.metrics.section("newest_us") == whole.metrics.section("newest_us")


@ENGINE
@given(layouts(), asked(), rows)
def test_unlimited_units_answer_exactly(layout: Layout, query: Query, given_: Any) -> None:
    out = Driver(Select("s", "x", layout, (query,)), through_pages=False).run(parts(given_))
    times = np.cumsum([gap for gap, _ in given_]).tolist()
    values = [value for _, value in given_]
    usable, newest = [], -(10**9)
    for n, (time, value) in enumerate(zip(times, values, strict=True)):
        if np.isfinite(value) and time >= newest:
            newest = time
            usable.append(n)
    found = naive.selected([times[n] for n in usable], [values[n] for n in usable], [query])
    assert sorted(json.loads(one["row"])["n"] for one in out.answers) == [usable[row] for _, row in found]
    counts = out.counts["s"]
    assert counts.get("late", 0) == sum(np.isfinite(value) for value in values) - len(usable)
    assert counts["quarantined"] == 1 + sum(not np.isfinite(value) for value in values)
    assert counts.get("unprocessed", 0) == 0
    told = Driver(Select("s", "x", layout, (query,), aggregates=True), through_pages=False).run(parts(given_))
    windows = naive.windows([times[n] for n in usable], [values[n] for n in usable], query, layout.window_us)
    assert [one["start_us"] for one in told.answers] == list(windows)
    for one, mine in zip(told.answers, windows.values(), strict=True):
        wanted = {"count": len(mine), "sum": sum(mine), "avg": np.mean(mine), "median": np.median(mine)}
        assert {kind: one[kind] for kind in KINDS} == {kind: [pytest.approx(wanted[kind]), 0] for kind in KINDS}


def test_rows_without_anything_beside_what_is_read_are_given_out_as_none() -> None:
    layout = Layout("T3", 10, window_us=10, zones=2, scheme=layout_scheme())
    out = Session(Select("s", "x", layout, (Query(0, 9),)))
    number = np.arange(2)
    given_ = out.push([Batch(0, "s", [()], number * 0, number, number, {"x": number + 0.5})])
    given_.add(out.end())
    assert given_.answers == [{"query": 0, "row": None}, {"query": 0, "row": None}]


def written(step: Select, given_: Any) -> tuple[dict[str, bytes], Out]:
    driver = Driver(step, through_pages=True)
    driver.take(driver.session.push([batch_of(given_, 0, len(given_))]))
    return driver.pages, driver.result


def edited() -> list[Select]:
    """A step, and others that ask for something else."""
    first = Select("s", "x", Layout("T3", 10, window_us=100, zones=2, scheme=layout_scheme()), (Query(0, 2),))
    other = replace(layout_scheme(), bins=7)
    return [
        first,
        replace(first, queries=(Query(3, 4),)),
        replace(first, queries=(Query(0, 2), Query(3, 4))),
        replace(first, layout=replace(first.layout, scheme=other)),
        replace(first, layout=replace(first.layout, window_us=90)),
        replace(first, aggregates=True),
        replace(first, aggregates=True, slide_us=20),
        replace(first, preference=PROMISES["avg"]),
        replace(first, rows="another filter"),
        replace(first, stream="t"),
    ]


@pytest.mark.parametrize("n", range(1, 10))
def test_an_edited_query_starts_anew_and_rows_of_the_old_one_expire(n: int) -> None:
    first, *_ = steps = edited()
    given_ = [(1, 0.5 + n % 4) for n in range(12)]
    pages, out = written(first, given_)
    assert out.counts["s"]["retained"] == 12
    session = Session(steps[n], pages)
    fresh = Session(steps[n])
    taken = session.push([])
    assert taken.counts == {"s": {"received": 0, "retained": -12, "expired": 12}}
    changed = session.changed_pages()
    assert changed == dict.fromkeys(pages)
    later = [replace(batch_of(given_, 0, 12), stream=steps[n].stream)]
    assert str([session.push(later), session.end()]) == str([fresh.push(later), fresh.end()])
    assert session.changed_pages() == fresh.changed_pages()


@pytest.mark.parametrize(("before", "after"), [(None, 2.0), (2.0, None)])
def test_a_query_that_may_cost_otherwise_goes_on(before: float | None, after: float | None) -> None:
    given_ = [(1, 0.5 + n % 4) for n in range(60)]
    step = replace(edited()[0], units=before)
    pages, out = written(step, given_[:30])
    session = Session(replace(step, units=after), pages)
    out.add(session.push([batch_of(given_, 30, 60)]))
    out.add(session.end())
    found = [json.loads(one["row"])["n"] for one in out.answers]
    wanted = [n for n, (_, value) in enumerate(given_) if value <= 2]
    assert len(set(found)) == len(found)
    # Some rows at the end are not offered while they come; with few units they are not found at the end either.
    assert (sorted(found) == wanted) == (after is None)


def test_a_unit_lasts_as_long_as_it_did_when_it_was_first_measured() -> None:
    """A replay on a faster machine, or a busier one, does the same work."""
    given_ = [(1, 0.5 + n % 4) for n in range(60)]
    step = replace(edited()[0], cores=2.0, unit_ns=10.0)
    whole = Driver(step, through_pages=False).run(parts(given_))
    pages, out = written(step, given_[:30])
    session = Session(replace(step, unit_ns=500.0), pages)
    out.add(session.push([batch_of(given_, 30, 60)]))
    out.add(session.end())
    assert 0 < len(out.answers) < 45
    assert out.answers == whole.answers
    slower = Driver(replace(step, unit_ns=500.0), through_pages=False).run(parts(given_))
    assert len(slower.answers) < len(whole.answers)


def test_a_page_that_is_damaged_or_of_something_else_is_refused_by_name() -> None:
    step, other = edited()[:2]
    pages, _ = written(step, [(1, 0.5)] * 4)
    ((name, page),) = pages.items()
    for bad, why in (
        (page[:-1], "is damaged"),
        (b"", "is damaged or was not written by Tocsin"),
        (pack({}, first=0), r"has unexpected content \(KeyError"),
    ):
        for one in (step, other):
            with pytest.raises(RunError, match=f"state page `{name}` {why}"):
                Session(one, {name: bad})
    with pytest.raises(RunError, match="state page `~promising/00/join` must belong to a query of one stream"):
        Session(step, {"~promising/00/join": page})


@pytest.mark.parametrize("ranges", [1, 3])
@pytest.mark.parametrize("window_us", [10, 1000])
def test_what_is_left_undone_is_unprocessed_once_per_row(ranges: int, window_us: int) -> None:
    """With units for nothing, all rows that a query asks for are unprocessed, the others not."""
    layout = Layout("T3", 10, window_us=window_us, zones=2, scheme=layout_scheme())
    step = Select("s", "x", layout, (Query(0, 2.5),) * ranges, units=0.5)
    out = Driver(step, through_pages=True).run(parts([(1, 0.5 + n % 4) for n in range(40)], [7, 20]))
    assert out.answers == []
    # Bins of 0.5, 1.5 and 2.5, the last of which is cut.
    counts = out.counts["s"]
    assert counts["unprocessed"] == 30
    assert counts["retained"] + counts["expired"] == 10


@ENGINE
@given(layouts(), rows, spendings, st.integers(1, 3))
def test_rows_that_are_not_unprocessed_were_looked_at(layout: Layout, given_: Any, spending: Any, ranges: int) -> None:
    """A row that is missing in an answer was counted; none is counted where all queries have all of theirs."""
    queries = (Query(-2.0, 2.0), Query(0.0, 9.0), Query(-9.0, 1.0))[:ranges]
    out = Driver(Select("s", "x", layout, queries, **spending), through_pages=False).run(parts(given_))
    whole = Driver(Select("s", "x", layout, queries), through_pages=False).run(parts(given_))
    found, wanted = ({(one["query"], one["row"]) for one in run.answers} for run in (out, whole))
    assert found <= wanted
    assert out.counts["s"].get("unprocessed", 0) >= len({row for _, row in wanted - found})


def layout_scheme() -> Any:
    from tocsin.stages.promising.histogram import Histogram

    return Histogram(0.0, 4.0, 4)
