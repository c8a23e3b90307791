"""Two versions of rules: what only one has, what both have, and what moved."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tests.report.cases import HOT, MINUTE, life, result, streams
from tocsin.cli.tables import _difference
from tocsin.plan import Plan
from tocsin.report import Result, compare
from tocsin.trace import Life

EMPTY = Plan(())


def version(*lives: Life) -> Result:
    return Result("rules.yaml", EMPTY, (), (), lives)


def test_lives_that_overlap_are_the_same_alert() -> None:
    before = version(life(0, 10), life(20, 30), life(50, 60), life(90, None))
    after = version(life(2, 8), life(31, 40), life(50, 60), life(95, None))
    found = compare(before, after)
    assert [one.start_us for one in found.only_first] == [20]
    assert [one.start_us for one in found.only_second] == [31]
    assert [(one.start_us, two.start_us) for one, two in found.both] == [(0, 2), (50, 50), (90, 95)]
    assert [(one.start_us, two.start_us) for one, two in found.moved] == [(0, 2), (90, 95)]


def test_other_names_labels_and_late_lives_are_other_alerts() -> None:
    before = version(life(0, 10), life(0, 10, alert="Cold"), life(0, 10, late=True))
    after = version(life(0, 10, machine="m2"), life(0, 10, alert="Warm"), life(0, 10))
    found = compare(before, after)
    assert len(found.both) == 1
    assert len(found.only_first) == len(found.only_second) == 2


def test_what_never_fired_does_not_count() -> None:
    found = compare(version(replace(life(0, 10), has_fired=False)), version())
    assert found.only_first == found.only_second == found.both == ()


@st.composite
def lives(draw: st.DrawFn) -> tuple[Life, ...]:
    """Draw the lives of one alert: they follow one another, and the last may be open."""
    found, time = [], 0
    for gap, length in draw(st.lists(st.tuples(st.integers(1, 6), st.integers(0, 6)), max_size=6)):
        found.append(life(time + gap, time + gap + length))
        time += gap + length
    if found and draw(st.booleans()):
        found[-1] = replace(found[-1], end_us=None, state="firing")
    return tuple(found)


@given(lives(), lives())
def test_every_life_is_told_once_and_pairs_overlap(before: tuple[Life, ...], after: tuple[Life, ...]) -> None:
    found = compare(version(*before), version(*after))
    firsts = [one for one, _ in found.both] + list(found.only_first)
    seconds = [two for _, two in found.both] + list(found.only_second)
    assert sorted(firsts, key=str) == sorted(before, key=str)
    assert sorted(seconds, key=str) == sorted(after, key=str)
    assert all(_overlap(one, two) for one, two in found.both)
    # What has no partner overlaps only with lives that have one.
    assert not any(_overlap(one, two) for one in found.only_first for two in found.only_second)
    assert compare(version(*after), version(*before)).only_first == found.only_second


def _overlap(one: Life, two: Life) -> bool:
    ends = [float("inf") if each.end_us is None else each.end_us for each in (one, two)]
    return one.start_us <= ends[1] and two.start_us <= ends[0]


def test_a_moved_threshold_moves_alerts() -> None:
    tables = streams(["m1", "m2"])
    before, after = result(tables), result(tables, replace(HOT, expr="air - surface > 7.5"))
    found = compare(before, after)
    assert [len(part) for part in (found.only_first, found.only_second)] == [0, 0]
    assert {(one.labels["machine"], two.labels["machine"]) for one, two in found.both} == {("m1", "m1"), ("m2", "m2")}
    assert all(two.start_us >= one.start_us for one, two in found.moved)
    higher = compare(before, result(tables, replace(HOT, expr="air - surface > 50")))
    assert [one.labels["machine"] for one in higher.only_first] == ["m1", "m2"]
    assert before.rules[0].longest_us > 55 * MINUTE


def test_of_two_that_are_both_open_the_table_says_so() -> None:
    results = [version(life(90, None)), version(life(95, None))]
    (moved,) = [line for line in _difference(results, compare(*results)) if "start" in line]
    assert moved.endswith("start 5 us later, end both open")
