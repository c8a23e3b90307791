"""Standing selections and aggregates: exact with unlimited units, never wrong with fewer; errors are as said."""

from __future__ import annotations

from statistics import median
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from naive import promising as naive
from tocsin.stages.promising.anytime_join import COSTS
from tocsin.stages.promising.books import Costs, Pace
from tocsin.stages.promising.count_sketch import CountSketch
from tocsin.stages.promising.histogram import Histogram
from tocsin.stages.promising.layout import FOREVER, Layout
from tocsin.stages.promising.selection import PROMISES, Query, StandingSelection

CHEAP = Costs(insert=1.0, summarize=1.0, table=0.0, estimate=0.0, queue=0.0, scan=1.0, emit=1.0)
numbers = st.sampled_from([-3.0, -1.0, -0.5, 0.0, 0.25, 1.0, 1.5, 2.0, 3.0, 4.0, 9.0])


@st.composite
def queries(draw: st.DrawFn) -> list[Query]:
    out = []
    for _ in range(draw(st.integers(0, 5))):
        low, high = sorted((draw(numbers), draw(numbers)))
        since = draw(st.sampled_from([-FOREVER, 0, 5, 20]))
        out.append(Query(low, high, since, draw(st.sampled_from([FOREVER, since + 1, since + 12]))))
    return out


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    window = draw(st.sampled_from([5, 20, 1000]))
    return Layout(
        draw(st.sampled_from(["T3", "T4"])), granularity_us=draw(st.sampled_from([2, 10, 60])), rate=2, depth=2,
        window_us=window, zones=draw(st.integers(2, 4)), theta=draw(st.sampled_from([0.0, 0.4, 0.7])),
        max_length_us=draw(st.sampled_from([1, 4, 5])), scheme=Histogram(-1.0, 3.0, draw(st.sampled_from([1, 4, 5]))),
    )  # fmt: skip


rows = st.lists(st.tuples(st.sampled_from([0, 1, 1, 2, 30]), numbers), max_size=50)
goals = st.sampled_from(list(PROMISES.values()))


def columns(given_: Any) -> tuple[Any, Any]:
    return np.cumsum([gap for gap, _ in given_], dtype=np.int64), np.array([value for _, value in given_], np.float64)


def pairs(found: Any) -> list[tuple[int, int]]:
    return [(query, row) for query, row, _ in found.tolist()]


@given(layouts(), queries(), rows, goals, st.sampled_from([CHEAP, COSTS]))
def test_unlimited_units_select_exactly(layout: Layout, asked: Any, given_: Any, goal: Any, costs: Any) -> None:
    times, values = columns(given_)
    selection = StandingSelection(layout, asked, goal, costs=costs)
    found = pairs(selection.take(times, values)) + pairs(selection.rest())
    wanted = naive.selected(times.tolist(), values.tolist(), asked)
    assert sorted(found) == wanted
    assert selection.unprocessed == 0
    for number in range(len(asked)):
        mine = [float(values[row]) for query, row in wanted if query == number]
        assert selection.count(number) == (len(mine), 0)
        assert selection.total(number) == (sum(mine), 0)
        if mine:
            assert selection.average(number) == (pytest.approx(sum(mine) / len(mine)), 0)


@given(layouts(), queries(), rows, goals, st.sampled_from([0.0, 2.0, 4.0, 9.0]), st.integers(1, 20))
def test_no_cut_and_no_page_shows_and_fewer_units_select_a_part(
    layout: Layout, asked: Any, given_: Any, goal: Any, units: float, size: int
) -> None:
    times, values = columns(given_)
    whole, cut = (StandingSelection(layout, asked, goal, Pace(units, 0.0), costs=CHEAP) for _ in range(2))
    wanted, found = whole.take(times, values).tolist(), []
    for begin in range(0, len(given_), size):
        found += cut.take(times[begin : begin + size], values[begin : begin + size]).tolist()
        page, cut = cut.page(), StandingSelection(layout, asked, goal, Pace(units, 0.0), costs=CHEAP)
        cut.read(page)
    assert found == wanted
    assert cut.rest(7.0).tolist() == whole.rest(7.0).tolist()
    assert cut.books.account.tolist() == whole.books.account.tolist()
    results = [(query, row) for query, row, _ in wanted]
    assert len(set(results)) == len(results)
    assert set(results) <= set(naive.selected(times.tolist(), values.tolist(), asked))


@given(layouts(), queries(), rows, st.integers(1, 9), st.sampled_from([None, 3.0]), st.data())
def test_queries_join_and_leave_a_running_selection(
    layout: Layout, asked: Any, given_: Any, size: int, units: float | None, data: Any
) -> None:
    """Each is as good as one that stood from the start, with the rows from where it joined to where it left."""
    times, values = columns(given_)
    pace = {} if units is None else {"pace": Pace(units, 0.0), "costs": CHEAP}
    running, waiting, standing = StandingSelection(layout, [], **pace), list(asked), dict[int, int]()
    found, wanted = list[Any](), list[Any]()
    for begin in range(0, len(given_), size):
        # A turn for all, so that who joins is not offered what came before.
        found += [(standing[query], row) for query, row in pairs(running.rest(np.inf if units is None else 0.0))]
        while waiting and data.draw(st.booleans()):
            standing[running.join(waiting[-1])] = len(waiting) - 1
            waiting.pop()
        for number in list(standing):
            if data.draw(st.integers(0, 3)) == 0:
                running.leave(number)
                del standing[number]
        part = slice(begin, begin + size)
        mine = naive.selected(times[part].tolist(), values[part].tolist(), [asked[i] for i in standing.values()])
        wanted += [(list(standing.values())[query], row + begin) for query, row in mine]
        results = pairs(running.take(times[part], values[part]))
        found += [(standing[query], row) for query, row in results]
        page, running = running.page(), StandingSelection(layout, [], **pace)
        running.read(page)
    found += [(standing[query], row) for query, row in pairs(running.rest(np.inf if units is None else 0.0))]
    assert len(set(found)) == len(found)
    assert set(found) <= set(wanted)
    if units is None:
        assert sorted(found) == sorted(wanted)


def test_a_query_that_left_cannot_leave_again_and_its_tuples_are_unprocessed() -> None:
    layout = Layout("T3", 10, window_us=100, zones=2, scheme=Histogram(0.0, 4.0, 4))
    selection = StandingSelection(layout, [Query(0, 1), Query(0, 4)], pace=Pace(0.0, 0.0))
    selection.take(np.arange(20), np.arange(20) % 4.0)
    selection.rest(0.0)
    selection.leave(1)
    assert selection.unprocessed == 20
    with pytest.raises(ValueError, match="`query` must be the number of an active query; got 1"):
        selection.leave(1)
    assert selection.join(Query(2, 3)) == 1
    assert selection.count(1) == (0, 0)


@given(layouts(), queries(), rows, st.integers(1, 20))
def test_results_are_reported_once_when_they_leave_the_window(
    layout: Layout, asked: Any, given_: Any, size: int
) -> None:
    times, values = columns(given_)
    selection, results, gone = StandingSelection(layout, asked), [], []
    for begin in range(0, len(given_), size):
        results += selection.take(times[begin : begin + size], values[begin : begin + size]).tolist()
        gone += selection.expired().tolist()
    limit = (int(times[-1]) if len(times) else 0) - layout.window_us  # type: ignore[operator]
    assert sorted(gone) == sorted(result for result in results if result[2] < limit)


def test_memory_is_as_said() -> None:
    layout = Layout("T3", granularity_us=100, window_us=100, zones=2, max_length_us=10, scheme=Histogram(0, 10, 8))
    selection = StandingSelection(layout, [Query(0, 4), Query(2, 8), Query(1, 9)])
    found, given_out = 0, 0
    for begin in range(0, 2_000, 50):
        found += len(selection.take(np.arange(begin, begin + 50), np.arange(50) % 10.0))
        given_out += len(selection.expired())
        assert selection.reported.nbytes == 24 * (found - given_out)
        # Each tuple of a window, and of its last microsecond, is a result of three queries at most.
        assert found - given_out <= 3 * 101
    standing = selection.standing
    by_bin = (standing.part, standing.seen, standing.bins, standing.sums, standing.lost)
    assert sum(array.nbytes for array in by_bin) == 40 * 3 * selection.scheme.width
    # A tuple is a result of 2.1 queries, and 2,000 came; those of the last zone had no turn yet.
    assert 2.1 * 1_980 <= found <= 2.1 * 2_000


def test_aggregates_of_a_part_are_close_and_say_how_close() -> None:
    rng = np.random.default_rng(2)
    values = rng.gamma(2.0, 10.0, 40_000)
    layout = Layout("T3", granularity_us=10**6, window_us=10**6, max_length_us=1_000, scheme=Histogram(0, 100, 40))
    asked = [Query(low, low + 7.3) for low in rng.uniform(0, 60, 100)]
    away: dict[str, list[float]] = {"sum": [], "avg": []}
    for goal in ("sum", "avg"):
        selection = StandingSelection(layout, asked, PROMISES[goal], Pace(30.0, 0.0))
        selection.take(np.arange(len(values)), values)
        selection.rest(0.0)
        shares = []
        for number, query in enumerate(asked):
            mine = values[(values >= query.low) & (values <= query.high)]
            truth = float(mine.sum()) if goal == "sum" else float(mine.mean())
            value, error = selection.total(number) if goal == "sum" else selection.average(number)
            assert value == pytest.approx(truth, rel=0.05)
            away[goal].append((value - truth) / error if error else 0.0)
            shares.append(selection.results(number) / len(mine))
            middle, reach = selection.median(number)
            assert abs(middle - median(mine)) <= 2 * reach
        assert 0.02 < np.mean(shares) < 0.98
        # Errors are of the size that was said; values are not spread evenly over a bin, so some are larger.
        assert np.median(np.abs(away[goal])) < 2.5


def test_more_queries_than_units_are_served_better_than_one_by_one() -> None:
    rng = np.random.default_rng(3)
    values, asked = rng.uniform(0, 100, 20_000), [Query(low, low + 7.5) for low in rng.uniform(0, 92, 100)]
    layout = Layout("T3", granularity_us=10**6, window_us=10**6, max_length_us=1_000, scheme=Histogram(0, 100, 50))
    # What it takes to ask 20 queries about each tuple, and to give out what they select.
    selection = StandingSelection(layout, asked, pace=Pace(20 * 1.075, 0.0))
    found = len(selection.take(np.arange(len(values)), values))
    exact = sum(int(np.sum((values >= query.low) & (values <= query.high))) for query in asked)
    assert found / exact > 1.25 * 0.2


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: StandingSelection(Layout(scheme=CountSketch()), []), "needs a histogram, variant T3 or T4"),
        (lambda: StandingSelection(Layout("T2", scheme=Histogram(0, 1)), []), "got Histogram, T2 and 8"),
        (
            lambda: StandingSelection(Layout(max_length_us=9, window_us=5, scheme=Histogram(0, 1)), []),
            "a zone must not be longer than the window; got 9 and 5",
        ),
        (lambda: StandingSelection(Layout(scheme=Histogram(0, 1)), [Query(2, 1)]), "query 0 must have `low` <= `high`"),
        (
            lambda: StandingSelection(Layout(scheme=Histogram(0, 1)), []).take(np.arange(1), np.array([np.nan])),
            "`values` must be finite",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
