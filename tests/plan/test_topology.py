"""The interval of a stream against every combination of the others, and graphs of bounds that are refused."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.durations import us, us_bounds
from tests.naive.join import Join, furthest_after, is_inside, may_join, span, within_bounds
from tests.strategies import CLOSED
from tocsin import Rule, RuleError
from tocsin.errors import Diagnostics
from tocsin.plan.topology import Topology, topology

NAMES = ("a", "b", "c", "d")


def join_graph(rule: Rule, streams: Sequence[str]) -> Topology:
    diagnostics = Diagnostics()
    found = topology(rule, streams, diagnostics)
    diagnostics.raise_errors(rule.location)
    return found


def topology_of(join: Join) -> Topology:
    """Read the bounds of a join as the product does."""
    within = us_bounds(join.bounds) if join.within is None else us(join.within)
    return join_graph(Rule("x", " + ".join(join.streams) + " > 0", within=within, closed=join.closed), join.streams)


def times_left_to(join: Join, stream: str) -> Iterator[list[int]]:
    """Give, for every choice of times of the other streams that leaves any, the times that `stream` may take."""
    first, *others = [name for name in join.streams if name != stream]
    most = furthest_after(join)
    reach = [range(-most[name, first], most[first, name] + 1) for name in others]
    mine = range(-most[stream, first], most[first, stream] + 1)
    inner = Join((first, *others), {p: b for p, b in join.bounds.items() if stream not in p}, join.closed)
    outer = {pair: bounds for pair, bounds in join.bounds.items() if stream in pair}
    for places in itertools.product(*reach):
        times = {first: 0, **dict(zip(others, places, strict=True))}
        if may_join(inner, times):
            left = [t for t in mine if _keeps(outer, times | {stream: t}, join.closed)]
            if left:
                yield left


def _keeps(bounds: dict[tuple[str, str], tuple[int, int]], times: dict[str, int], closed: str) -> bool:
    return all(is_inside(times[s] - times[r], low, high, closed) for (r, s), (low, high) in bounds.items())


def shortest_window(join: Join, stream: str) -> int:
    return min(left[-1] - left[0] for left in times_left_to(join, stream))


@st.composite
def graphs(draw: st.DrawFn) -> Join:
    """Draw a connected graph of small unequal bounds that some times meet."""
    names = NAMES[: draw(st.sampled_from([2, 3, 3, 4]))]
    place = {name: draw(st.integers(-2, 2)) for name in names}
    pairs = {(draw(st.sampled_from(names[:i])), names[i]) for i in range(1, len(names))}
    pairs |= set(draw(st.lists(st.sampled_from(list(itertools.combinations(names, 2))), max_size=4)))
    bounds = {}
    for pair in sorted(pairs):
        r, s = draw(st.permutations(pair))
        middle = place[s] - place[r]
        bounds[r, s] = (middle - draw(st.integers(1, 4)), middle + draw(st.integers(1, 4)))
    return Join(names, bounds, draw(st.sampled_from(CLOSED)))


@given(graphs())
def test_partners_never_leave_a_stream_less_than_its_interval(join: Join) -> None:
    topo = topology_of(join)
    # Brackets one microsecond further apart than an open window is long cannot both lie outside it.
    rule_of_one = join.closed != "both"
    for i, stream in enumerate(join.streams):
        interval = topo.interval_us(i)
        if interval is not None:
            assert shortest_window(join, stream) >= interval - rule_of_one > 0


@given(graphs())
def test_implied_bounds_and_span_are_those_of_all_paths(join: Join) -> None:
    topo, most = topology_of(join), furthest_after(join)
    for (i, r), (j, s) in itertools.permutations(enumerate(join.streams), 2):
        assert topo.implied[i][j] == most[r, s]
    assert topo.span_us == max(span(join), 0)


@given(graphs())
def test_a_stream_with_one_neighbour_has_the_whole_width_of_its_bound(join: Join) -> None:
    topo = topology_of(join)
    for i, stream in enumerate(join.streams):
        mine = [bounds for pair, bounds in join.bounds.items() if stream in pair]
        if len(mine) == 1:
            # a + b, each end that does not belong being one microsecond further in, and then the rule of one.
            low, high = mine[0]
            ends = {"both": 0, "left": 1, "right": 1, "neither": 2}[join.closed]
            width = high - low - ends
            assert topo.interval_us(i) == (width + (join.closed != "both") if width > 0 else None)
            if width > 0:
                assert shortest_window(join, stream) == width


@given(st.integers(2, 6), st.sampled_from([3, 4]), st.sampled_from(["both", "neither"]))
def test_each_stream_of_a_clique_has_the_length_of_its_window(within: int, count: int, closed: str) -> None:
    join = Join(NAMES[:count], within_bounds(NAMES[:count], within), closed, within=within)
    assert [topology_of(join).interval_us(i) for i in range(count)] == [within] * count


@given(st.sampled_from(CLOSED), st.integers(2, 5), st.sampled_from([3, 4]))
def test_a_clique_with_one_open_end_is_never_given_too_much(closed: str, within: int, count: int) -> None:
    join = Join(NAMES[:count], within_bounds(NAMES[:count], within), closed, within=within)
    topo = topology_of(join)
    for i, stream in enumerate(join.streams):
        interval = topo.interval_us(i)
        assert interval is not None
        assert within - 1 <= interval <= shortest_window(join, stream) + (closed != "both")


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=2, max_size=3), st.sampled_from(CLOSED))
def test_of_the_centre_of_a_star_nothing_is_left_out(sides: list[tuple[int, int]], closed: str) -> None:
    names = NAMES[: len(sides) + 1]
    bounds = {("a", name): (-low, high) for name, (low, high) in zip(names[1:], sides, strict=True)}
    assert topology_of(Join(names, bounds, closed)).interval_us(0) is None


def test_unequal_bounds_make_the_interval_of_a_clique_shorter_than_each_of_them() -> None:
    # b at 0 and c at 5 belong together and leave to a only 2..3, though each of them leaves it a window of 6.
    join = Join(("a", "b", "c"), {("a", "b"): (-3, 3), ("a", "c"): (-3, 3), ("b", "c"): (-5, 5)})
    assert topology_of(join).interval_us(0) == 1
    assert shortest_window(join, "a") == 1


def test_hopping_windows_and_single_streams_have_the_length_of_their_window() -> None:
    hopping = join_graph(Rule("x", "a + b > 0", within="9us", hop="3us", closed="neither"), ["a", "b"])
    assert [hopping.interval_us(i) for i in range(2)] == [9, 9]
    assert hopping.span_us == 7  # the times 1..8 of an open window [0, 9]
    assert join_graph(Rule("x", "a > 0", within="9us"), ["a"]).interval_us(0) == 9


REFUSED = {
    "a graph in two parts": (
        {("a", "b"): (-1, 1), ("c", "d"): (-1, 1)}, "both",
        "`within` must connect all streams; no bound connects 'a' and 'c'"),
    "bounds that contradict each other": (
        {("a", "b"): (1, 2), ("b", "c"): (1, 2), ("c", "d"): (0, 1), ("a", "c"): (5, 6)}, "both",
        "`within` must not have contradictory bounds; no combination of rows satisfies all"),
    "a bound that its open ends leave empty": (
        {("a", "b"): (1, 2), ("b", "c"): (0, 9), ("c", "d"): (0, 9)}, "neither",
        "no combination of rows satisfies all"),
    "a stream that the condition does not read": (
        {("a", "e"): (0, 1)}, "both", r"`within` must name streams of `expr` \(a, b, c, d\); got 'e'"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    bounds, closed, message = REFUSED[name]
    with pytest.raises(RuleError, match=f'rule "x": .*{message}'):
        join_graph(Rule("x", "a + b + c + d > 0", within=us_bounds(bounds), closed=closed), NAMES)


def test_streams_without_bounds_are_refused() -> None:
    with pytest.raises(RuleError, match='rule "x": `within` is needed to join a, b'):
        join_graph(Rule("x", "a + b > 0"), ["a", "b"])
