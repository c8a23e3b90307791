"""The anytime join: exact with unlimited units, never wrong and nothing twice with fewer, led by its preference."""

from __future__ import annotations

from collections import Counter
from math import inf
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from naive import promising as naive
from tocsin.errors import ExprError
from tocsin.stages.promising.anytime_join import COSTS, AnytimeJoin
from tocsin.stages.promising.books import CREDIT, IDLE, SPENT, Costs, Pace
from tocsin.stages.promising.count_sketch import CountSketch
from tocsin.stages.promising.exact_counter import ExactCounter
from tocsin.stages.promising.histogram import Histogram
from tocsin.stages.promising.layout import Layout
from tocsin.stages.promising.preference import ORDERS, Preference

# Pieces that cost nothing to look at are always looked at.
CHEAP = Costs(insert=1.0, summarize=1.0, table=0.0, estimate=0.0, queue=0.0, scan=1.0, emit=1.0)


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    scheme = draw(st.sampled_from([lambda: CountSketch(3, 8, 5), lambda: Histogram(0, 6, 3), ExactCounter]))
    return Layout(
        variant=draw(st.sampled_from(["SHJ", "T1", "T2", "T3", "T4", "T4"])),
        granularity_us=draw(st.sampled_from([1, 4, 10])),
        rate=draw(st.integers(1, 3)),
        depth=draw(st.integers(1, 3)),
        window_us=draw(st.sampled_from([0, 3, 10, 40])),
        buckets=draw(st.integers(1, 3)),
        zones=draw(st.integers(1, 4)),
        theta=draw(st.sampled_from([0.0, 0.4, 1.0])),
        scheme=scheme(),
    )


steps = st.tuples(st.integers(0, 1), st.sampled_from([0, 0, 1, 1, 2, 7]), st.integers(0, 5))
preferences = st.builds(
    Preference,
    st.sampled_from(ORDERS),
    st.sampled_from(["count(s1.item) * count(s2.item)", "s1.item - 3", "1 / (count(s2.item) - 2)", "0 * s2.item"]),
    st.sampled_from([1.0, 0.5]),
)
paces = st.builds(Pace, st.sampled_from([0.0, 1.0, 3.0, 8.0, 30.0]), st.sampled_from([0.0, 0.5]))


def columns(given_: Any) -> tuple[Any, Any, Any]:
    stream, gaps, keys = (np.array([row[i] for row in given_], np.int64) for i in range(3))
    return stream, np.cumsum(gaps, dtype=np.int64), keys


def pairs(found: Any) -> list[tuple[int, int]]:
    return [(i, j) for i, j in found.tolist()]


@given(layouts(), st.lists(steps, max_size=50), preferences, st.sampled_from([CHEAP, COSTS]))
def test_unlimited_units_give_the_exact_join(layout: Layout, given_: Any, preference: Any, costs: Any) -> None:
    rows, join = columns(given_), AnytimeJoin(layout, preference, costs=costs)
    found = pairs(join.take(*rows)) + pairs(join.rest())
    assert sorted(found) == naive.window_join(*(column.tolist() for column in rows), layout.window_us)
    assert join.report()["unprocessed"] == join.report()["waiting"] == 0
    for side in join.sides:
        side.check()


@given(layouts(), st.lists(steps, max_size=50), preferences, paces)
def test_fewer_units_give_a_part_of_it_and_nothing_twice(
    layout: Layout, given_: Any, preference: Any, pace: Pace
) -> None:
    rows, join = columns(given_), AnytimeJoin(layout, preference, pace, costs=CHEAP)
    found = pairs(join.take(*rows))
    join.rest(5.0)
    found += pairs(join.rest())
    assert len(set(found)) == len(found)
    assert set(found) <= set(naive.window_join(*(column.tolist() for column in rows), layout.window_us))
    assert join.report()["waiting"] == 0


@given(layouts(), st.lists(steps, max_size=60), paces)
def test_units_are_accounted_for(layout: Layout, given_: Any, pace: Pace) -> None:
    rows, join = columns(given_), AnytimeJoin(layout, None, pace, costs=CHEAP)
    join.take(*rows)
    given_units = len(given_) * pace.per_arrival
    if len(given_):
        given_units += pace.per_us * float(rows[1][-1] - rows[1][0])
    assert join.books.account[SPENT] + join.books.account[IDLE] + join.books.account[CREDIT] == pytest.approx(
        given_units
    )
    # Work stops when the units are used up; taking a tuple in, with up to 3 rows of its summary, cannot be put off.
    assert join.books.account[CREDIT] >= -(len(given_) * 4.0 + 2.0)


def drawn(rows: int, seed: int, z: float = 1.0, values: int = 500) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(seed)
    weights = np.arange(1, values + 1.0) ** -z
    keys = rng.choice(values, rows, p=weights / weights.sum())
    return rng.integers(0, 2, rows), np.arange(rows) * 50_000, keys


def limited(preference: Preference, pace: float, layout: Layout | None = None, seed: int = 3) -> tuple[Any, Any]:
    rows = drawn(6_000, seed)
    layout = layout or Layout(buckets=4, scheme=CountSketch(5, 256))
    return pairs(AnytimeJoin(layout, preference, Pace(pace, 0.0)).take(*rows)), rows


def test_waiting_regions_come_out_in_the_order_of_the_preference() -> None:
    stream, times, keys = drawn(400, 5, values=40)
    layout = Layout(granularity_us=10**9, zones=1, depth=1, window_us=10**9, buckets=4, scheme=ExactCounter())
    counts = [Counter(keys[stream == side].tolist()) for side in (0, 1)]
    for order in ("desc", "asc"):
        join = AnytimeJoin(layout, Preference(order, "s1.item"), Pace(0.0, 0.0), costs=CHEAP)
        assert len(join.take(stream, times, keys)) == 0
        values = [int(keys[i]) for i, _ in pairs(join.rest())]
        assert values == sorted(values, reverse=order == "desc")
        assert Counter(values) == {key: counts[0][key] * counts[1][key] for key in counts[0] if counts[1][key]}


def test_desc_finds_more_than_a_join_without_summaries() -> None:
    # About 2,400 tuples of each stream in a window: half of what it takes to scan a fourth of them, for each tuple.
    found = {}
    for variant in ("SHJ", "T4"):
        layout = Layout(variant, window_us=240_000_000, buckets=4, scheme=CountSketch(5, 256))
        found[variant] = len(limited(Preference(), 300.0, layout)[0])
    assert found["T4"] > 1.3 * found["SHJ"]


@given(st.lists(steps, max_size=60), st.sampled_from([0.0, 1.0, 2.0, 4.5, 12.0]), st.sampled_from(["T2", "T3", "T4"]))
def test_a_bound_leaves_out_what_there_was_too_much_of_when_a_tuple_came(
    given_: Any, most: float, variant: str
) -> None:
    stream, times, keys = columns(given_)
    layout = Layout(variant, 10**6, window_us=10**6, buckets=2, scheme=ExactCounter())
    join = AnytimeJoin(layout, Preference("asc", most=most))
    found = pairs(join.take(stream, times, keys)) + pairs(join.rest())
    seen, expected = Counter[tuple[int, int]](), []
    for row, (side, key) in enumerate(zip(stream.tolist(), keys.tolist(), strict=True)):
        seen[side, key] += 1
        if seen[0, key] * seen[1, key] <= most:
            others = [i for i in range(row) if stream[i] != side and keys[i] == key]
            expected += [(row, i) if side == 0 else (i, row) for i in others]
    assert sorted(found) == sorted(expected)
    assert join.report()["unprocessed"] == join.report()["waiting"] == 0


def test_asc_finds_rare_values() -> None:
    found, (_, _, keys) = limited(Preference("asc"), 60.0)
    often = np.bincount(keys)[[int(keys[i]) for i, _ in found]]
    everything, _ = limited(Preference("desc"), inf)
    usual = np.bincount(keys)[[int(keys[i]) for i, _ in everything]]
    assert np.median(often) < 0.2 * np.median(usual)


def test_weighted_divides_results_in_the_ratio_of_the_estimates() -> None:
    found, (_, _, keys) = limited(Preference("weighted"), 70.0)
    everything, _ = limited(Preference("desc"), inf)
    share = len(found) / len(everything)
    assert 0.1 < share < 0.8
    # Of the ten most frequent values each has about the same share of its results.
    got, exact = (Counter(int(keys[i]) for i, _ in rows) for rows in (found, everything))
    shares = np.array([got[value] / exact[value] for value in range(10)])
    assert np.all(np.abs(shares / share - 1) < 0.35)


def test_fading_makes_fresher_pairs() -> None:
    layout = Layout(
        granularity_us=15_000_000, rate=2, depth=4, window_us=200_000_000, buckets=2, scheme=CountSketch(5, 256)
    )
    ages = []
    for fade in (1.0, 0.3):
        found, (_, times, _) = limited(Preference(fade=fade), 150.0, layout)
        ages.append(np.mean([abs(int(times[i] - times[j])) for i, j in found]))
    assert ages[1] < 0.8 * ages[0]


def test_an_attribute_of_the_partner_counts_as_its_mean() -> None:
    streams: Any = (("a", ["item", "price"]), ("b", ["item", "price"]))
    join = AnytimeJoin(Layout(scheme=ExactCounter()), Preference("desc", "a.price * b.price"), streams=streams)
    join.take(np.array([1, 1, 0]), np.arange(3), np.zeros(3, np.int64), np.array([[2.0], [4.0], [10.0]]))
    assert join.guide.sums.tolist() == [[10.0, 1.0], [6.0, 2.0]]
    assert join.guide.x[4:].tolist() == [10.0, 3.0]


def test_streams_may_have_unequally_many_columns() -> None:
    stream, times, keys = drawn(200, 6, values=20)
    values = np.stack([np.arange(200.0), np.full(200, 7.0)], axis=1)
    layout = Layout(granularity_us=10**9, zones=1, depth=1, window_us=10**9, buckets=4, scheme=ExactCounter())
    streams: Any = (("a", ["item"]), ("b", ["item", "price", "cost"]))
    join = AnytimeJoin(layout, Preference("desc", "b.cost * b.price"), Pace(0.0, 0.0), streams=streams, costs=CHEAP)
    assert len(join.take(stream, times, keys, values)) == 0
    found = pairs(join.rest())
    assert sorted(found) == sorted(naive.window_join(stream.tolist(), times.tolist(), keys.tolist(), 10**9))
    # Of b each knows its own price; a takes the mean of those that came before it, which grows more slowly.
    probing = [j for i, j in found if j > i]
    assert probing == sorted(probing, reverse=True)
    with pytest.raises(
        ExprError, match=r"`a.price` is not defined here; expected one of count\(a.item\), .*, b.cost\n"
    ):
        AnytimeJoin(layout, Preference("desc", "a.price"), streams=streams)


def test_joins_of_one_layout_learn_values_apart() -> None:
    layout = Layout(scheme=ExactCounter())
    one, other = AnytimeJoin(layout), AnytimeJoin(layout)
    one.take(np.array([0, 0, 1]), np.array([0, 1, 2]), np.array([3, 7, 7]))
    page = one.page()
    other.take(np.array([0] * 50), np.arange(50), np.arange(50))
    back = AnytimeJoin(layout)
    back.read(page)
    for join in (one, back):
        join.take(np.array([0]), np.array([3]), np.array([7]))
        assert join.report()["results_expected"] == 2
    assert pairs(back.rest()) == pairs(one.rest())


@pytest.mark.parametrize(
    ("expr", "message"),
    [
        ("count(s1.item", r"expected `\)` for this `\(`; got the end\n.*count\(s1.item\n +\^"),
        ("count(s3.item) + 1", r"`count\(s3.item\)` is not defined here; expected one of count\(s1.item\), "),
        ("s1.cost", r"`s1.cost` is not defined here"),
        ("count(s1.item) > 2", "expected a number; got a condition|expected a number; got a preference"),
        ("s1.item__count", "must not end in `__count`"),
    ],
)
def test_a_preference_that_cannot_be_meant_is_underlined(expr: str, message: str) -> None:
    with pytest.raises(ExprError, match=message):
        AnytimeJoin(Layout(), Preference("desc", expr))


def test_times_that_fall_and_odd_orders_are_refused() -> None:
    join = AnytimeJoin(Layout())
    join.take(np.array([0]), np.array([9]), np.array([1]))
    with pytest.raises(ValueError, match="`times` must not decrease"):
        join.take(np.array([1]), np.array([8]), np.array([1]))
    with pytest.raises(
        ValueError, match="`most` of a preference must be a number and needs the order `asc`; got desc and 3"
    ):
        Preference("desc", most=3)
    with pytest.raises(ValueError, match="must be one of desc, asc, weighted; got 'up'"):
        Preference("up")
    with pytest.raises(ValueError, match="`fade` of a preference must be above 0"):
        Preference(fade=0.0)


@pytest.mark.parametrize(
    ("stream", "times", "keys", "message"),
    [
        ([0, 2], [1, 2], [1, 1], r"`stream` must be 0 or 1; got \[0, 2\]"),
        ([0, 1], [1], [1, 1], r"columns must have 2 integers each; got int64 of shape \(1,\)"),
        ([0, 1], [1, 2], [0.5, 1], "columns must have 2 integers each; got float64"),
    ],
)
def test_columns_that_cannot_be_joined_are_refused(stream: Any, times: Any, keys: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        AnytimeJoin(Layout()).take(np.array(stream), np.array(times), np.array(keys))


def test_times_and_keys_at_the_ends_of_64_bits_are_joined() -> None:
    last = 253_402_300_799_999_999
    times = np.array([-62_135_596_800_000_000, -62_135_596_800_000_000, last, last])
    keys = np.array([-(2**63), -(2**63), 2**63 - 1, 2**63 - 1])
    for layout in (Layout(), Layout(window_us=None, memory=9)):
        join = AnytimeJoin(layout)
        assert pairs(join.take(np.array([0, 1, 1, 0]), times, keys)) + pairs(join.rest()) == [(0, 1), (3, 2)]


def test_an_empty_batch_is_fine() -> None:
    join = AnytimeJoin(Layout())
    assert join.take(np.array([]), np.array([]), np.array([])).shape == (0, 2)
    assert join.rest().shape == (0, 2)
