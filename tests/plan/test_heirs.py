"""State of rules that wait is found again whatever rules come and go beside them, and though they wait otherwise."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.driver import parts_of, plan_of
from tests.driver import stories as by_key
from tests.example_counts import ENGINE
from tests.plan.test_changes import ROWS, SECOND, drive, plan, stories
from tests.test_waiting_adaptive import FOLLOWING, following, late_rows
from tocsin import Rule
from tocsin.plan import Plan, plan_changes
from tocsin.plan.changes import describe_plan
from tocsin.plan.identity import memory_pipeline_name
from tocsin.runtime.contract import Out
from tocsin.runtime.metrics import OUTCOMES
from tocsin.runtime.session import Session, store_pages
from tocsin.runtime.state_registry import assign_groups, first_adopters

# Two ways of waiting for what one pair of streams brings, and a watch that does not wait.
FIVE, SIX, OTHER, PLAIN = f"m~{'a' * 16}{'5' * 16}", f"m~{'a' * 16}{'6' * 16}", f"m~{'b' * 16}{'5' * 16}", "m"
SEVEN = f"{FIVE[:-1]}7"
LIMITED = memory_pipeline_name("m", ["A"])


@pytest.mark.parametrize(
    ("stored", "planned", "expected"),
    [
        ({}, {FIVE: {"A"}, PLAIN: set()}, {}),
        ({PLAIN: set()}, {PLAIN: set()}, {PLAIN: PLAIN}),
        ({FIVE: {"A"}}, {FIVE: {"A"}, SIX: {"0", "B"}}, {FIVE: FIVE}),
        ({FIVE: {"A"}, SIX: {"0", "B"}}, {FIVE: {"A"}}, {FIVE: FIVE}),
        ({FIVE: {"A"}}, {SIX: {"A"}}, {SIX: FIVE}),
        ({FIVE: {"A"}, SIX: {"B"}}, {FIVE: {"B"}, SIX: {"A"}}, {FIVE: SIX, SIX: FIVE}),
        # Those that wait together part: all of them take over the state that they had.
        ({FIVE: {"A", "B"}}, {FIVE: {"B"}, SIX: {"A"}}, {FIVE: FIVE, SIX: FIVE}),
        ({SIX: {"A", "B"}}, {FIVE: {"B"}, SEVEN: {"A"}}, {FIVE: SIX, SEVEN: SIX}),
        ({PLAIN: {"A"}}, {"n": {"A"}}, {}),
        # Two join: the one that waits as before keeps the state, or the first of them.
        ({FIVE: {"A"}, SIX: {"B"}}, {SIX: {"A", "B"}}, {SIX: SIX}),
        ({FIVE: {"B"}, SIX: {"A"}}, {SEVEN: {"A", "B"}}, {SEVEN: SIX}),
        # A new rule finds what is remembered under its name, unless that is another's.
        ({FIVE: {"A"}}, {FIVE: {"B"}}, {FIVE: FIVE}),
        ({FIVE: {"A"}}, {FIVE: {"B"}, SIX: {"A"}}, {SIX: FIVE}),
        # A rule reads other columns, or gains a wait or a budget: its state stays where it is stored.
        ({OTHER: {"A"}}, {FIVE: {"A"}}, {FIVE: OTHER}),
        ({PLAIN: {"A"}}, {FIVE: {"A"}}, {FIVE: PLAIN}),
        ({FIVE: {"A"}}, {PLAIN: {"A"}}, {PLAIN: FIVE}),
        ({PLAIN: {"A"}}, {PLAIN: {"B"}, FIVE: {"A"}}, {FIVE: PLAIN}),
        # Memory is limited from now on, for some of the rules or for all, or no more, or for others.
        ({PLAIN: {"A"}}, {LIMITED: {"A"}}, {LIMITED: PLAIN}),
        ({PLAIN: {"A", "B"}}, {LIMITED: {"A"}, PLAIN: {"B"}}, {LIMITED: PLAIN, PLAIN: PLAIN}),
        ({LIMITED: {"A"}}, {PLAIN: {"A"}}, {PLAIN: LIMITED}),
        ({LIMITED: {"A"}, PLAIN: {"B"}}, {PLAIN: {"A", "B"}}, {PLAIN: PLAIN}),
        ({LIMITED: {"A"}}, {f"{LIMITED[:-1]}0": {"A", "B"}}, {f"{LIMITED[:-1]}0": LIMITED}),
        ({FIVE: {"A"}}, {LIMITED: {"A"}}, {LIMITED: FIVE}),
    ],
)
def test_state_goes_to_the_rules_that_it_is_of(stored: Any, planned: Any, expected: dict[str, str]) -> None:
    assert assign_groups(stored, planned) == expected


def test_one_pipeline_continues_stored_shards_and_others_begin_with_a_copy() -> None:
    assert first_adopters({FIVE: FIVE, SIX: FIVE, SEVEN: FIVE}) == {FIVE: FIVE}
    assert first_adopters({SIX: FIVE, SEVEN: FIVE, PLAIN: OTHER}) == {FIVE: SEVEN, OTHER: PLAIN}


def test_state_is_not_moved_when_a_rule_gains_or_loses_a_wait_or_a_budget() -> None:
    plain = Rule("M", "air - wall > 1", within="4s", on=["m"], keep_firing_for="1s", emit="all")
    pages: dict[str, bytes] = {}
    drive(plan(plain), [("air", 1, "x", 2.0), ("wall", 1, "y", 0.0)], pages)
    assert sorted(pages) == ["m/0"]
    for quality in ({"wait": "2s"}, {"memory": "1MB"}, {"wait": "max"}, None):
        session = Session(plan(replace(plain, quality=quality)), pages)
        assert session.changed_pages().keys() <= {"m/pace", "m/memory"}
        out = session.push([])
        assert not out.alert_rows()
        store_pages(pages, session.changed_pages())
        assert set(pages) <= {"m/0", "m/pace", "m/memory"}
    # The retained row is still found.
    (match,) = drive(plan(plain), [("wall", 2, "x", 0.0)], pages).alert_rows()
    assert match["startsAt"] == SECOND


STAYS = Rule("M", "air - wall > 1", within="4s", on=["m"], quality={"wait": "2s"}, keep_firing_for="1s")
OTHERS = [
    replace(STAYS, alert="0", quality={"wait": "3s"}),
    replace(STAYS, alert="Z", quality={"wait": "1s"}),
    replace(STAYS, alert="1", expr="air - wall > 2"),
    replace(STAYS, alert="Y", quality={"wait": "max"}),
    replace(STAYS, alert="2", quality=None),
    Rule("3", "air > 0", on=["m"], quality={"wait": "2s"}),
    Rule("4", "air - wall + door > 0", within="4s", on=["m"], quality={"wait": "2s"}),
]


def assert_one_group_per_pipeline(pages: dict[str, bytes], made: Plan) -> None:
    """Assert that no page of removed state is left."""
    groups = {name.partition("/")[0] for name in pages}
    assert len(groups) <= len(made.watches)
    assert set(pages) <= {f"{group}/{part}" for group in groups for part in ("0", "pace")}


CHOICES = st.lists(st.sampled_from(OTHERS), unique_by=id, max_size=5)


@ENGINE
@given(ROWS, ROWS, CHOICES, CHOICES, st.integers(0, 5))
def test_a_rule_that_waits_does_not_notice_that_others_come_and_go(
    first: Any, second: Any, before: list[Rule], after: list[Rule], place: int
) -> None:
    def with_neighbours(others: list[Rule]) -> Any:
        return plan(*others[:place], STAYS, *others[place:])

    pages: dict[str, bytes] = {}
    disturbed = drive(with_neighbours(before), first, pages)
    disturbed.add(drive(with_neighbours(after), second, pages, end=True))
    alone: dict[str, bytes] = {}
    expected = drive(plan(STAYS), first, alone)
    expected.add(drive(plan(STAYS), second, alone, end=True))
    assert stories(disturbed.alert_rows(), "M") == stories(expected.alert_rows(), "M")


@ENGINE
@given(ROWS, ROWS, st.permutations(["1s", "2s", "3s", "max"]), st.permutations(["1s", "2s", "3s", "max"]))
def test_rules_may_change_the_way_they_wait_with_each_other(
    first: Any, second: Any, before: list[str], after: list[str]
) -> None:
    """Each of four rules that wait in four ways goes on as it does where the others are not there."""
    names = ["M", "A", "Z", "B"]

    def rules(waits: list[str]) -> list[Rule]:
        return [replace(STAYS, alert=name, quality={"wait": wait}) for name, wait in zip(names, waits, strict=True)]

    pages: dict[str, bytes] = {}
    disturbed = drive(plan(*rules(before)), first, pages)
    disturbed.add(drive(plan(*rules(after)), second, pages, end=True))
    for one, other in zip(rules(before), rules(after), strict=True):
        alone: dict[str, bytes] = {}
        expected = drive(plan(one), first, alone)
        expected.add(drive(plan(other), second, alone, end=True))
        assert stories(disturbed.alert_rows(), one.alert) == stories(expected.alert_rows(), one.alert)
    assert_one_group_per_pipeline(pages, plan(*rules(after)))


@ENGINE
@given(ROWS, ROWS, st.permutations(["1s", "2s", "3s", "max"]), st.sampled_from(["2s", "9s"]))
def test_rules_that_waited_together_and_part_all_go_on(first: Any, second: Any, after: list[str], before: str) -> None:
    """Each of four rules goes on as it does where the others are not there; counts add up, and one that goes ends."""
    names = ["M", "A", "Z", "B"]
    one_way = [replace(STAYS, alert=name, quality={"wait": before}) for name in [*names, "gone"]]
    apart = [replace(STAYS, alert=name, quality={"wait": wait}) for name, wait in zip(names, after, strict=True)]
    pages: dict[str, bytes] = {}
    parted = drive(plan(*one_way), first, pages)
    parted.add(drive(plan(*apart), second, pages, end=True))
    for name, counts in parted.counts.items():
        assert counts["received"] == sum(counts.get(outcome, 0) for outcome in OUTCOMES), name
    for rules in [*zip(one_way, apart, strict=False), (one_way[-1], replace(OTHERS[0], alert="new"))]:
        alone: dict[str, bytes] = {}
        expected = drive(plan(rules[0]), first, alone)
        expected.add(drive(plan(rules[1]), second, alone, end=True))
        assert stories(parted.alert_rows(), rules[0].alert) == stories(expected.alert_rows(), rules[0].alert)
    assert_one_group_per_pipeline(pages, plan(*apart))


def test_rules_that_part_are_not_said_to_have_changed() -> None:
    both = [replace(STAYS, alert=name) for name in "AB"]
    after = [both[0], replace(both[1], quality={"wait": "9s"})]
    assert plan_changes(describe_plan(plan(*both)), describe_plan(plan(*after))) == []


@pytest.mark.parametrize("kind", FOLLOWING)
def test_what_a_wait_has_learnt_survives_a_neighbour(kind: str) -> None:
    """After half of the rows a rule that waits in another way, and stands first, comes; after some more it goes."""
    streams, rule = late_rows(3, 900), following(kind)
    neighbour = replace(rule, alert="0", quality={"wait": "1s"})
    found = []
    for plans in ([[rule]] * 3, [[rule], [neighbour, rule], [rule]]):
        pages, out, waits = dict[str, bytes](), Out(), []
        for number, rules in enumerate(plans):
            made = plan_of(streams, rules, arrival="arrival")
            session = Session(made, pages)
            # Rows are sent to each way of waiting by itself.
            cuts = [900 * len(made.watches), 1300 * len(made.watches)]
            said = session.push(parts_of(made, streams, cuts, "arrival")[number])
            waits.append(said.metrics.section("waits")["x"])
            out.add(said)
            for name, data in session.changed_pages().items():
                pages.pop(name, None)
                pages |= {} if data is None else {name: data}
        found.append((waits, by_key(row for row in out.alert_rows() if row["alert"] == "x")))
    assert found[0] == found[1]
    assert found[0][0][0]["wait_us"] > 0, "the wait must have moved"
