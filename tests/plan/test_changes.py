"""A plan takes over the state of another: what is the same goes on, what is gone has its last words."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.example_counts import ENGINE
from tocsin import NoData, Rule
from tocsin.errors import RunError
from tocsin.local import explain
from tocsin.plan import Plan, describe_plan, make_plan, plan_changes
from tocsin.rules.limits import Limits
from tocsin.runtime.contract import Batch, Out
from tocsin.runtime.session import Session, store_pages
from tocsin.runtime.state_codec import unpack

SECOND = 1_000_000
STREAMS = {name: {"m": ["x"], "site": ["n"], "ts": [0], "value": [0.0]} for name in ("air", "wall", "door")}
SHAPES = {"air": "increasing", "wall": "decreasing"}
DEW = Rule("Dew", "air - wall > 1", within="4s", on=["m"], shapes=SHAPES, keep_firing_for="1s")
OPEN = Rule("Open", "door > 0", on=["m"], labels={"team": "a"}, stale="5s")
WARM = Rule("Warm", "air > 2", within="3s", on=["m"], shapes={"air": "increasing"})
SITE = Rule("Site", "door > 1", on=["site"], stale="5s")
QUIET = NoData("air", "3s", ["m"])
HUSHED = NoData("door", "2s", ["site"])
AnyRule = Rule | NoData


def plan(*rules: AnyRule) -> Plan:
    return explain(STREAMS, rules)


def batches(made: Plan, rows: list[tuple[str, int, str, float]]) -> list[Batch]:
    found = []
    for number, watch in enumerate(made.watches):
        for name in watch.streams:
            mine = [(i, row) for i, row in enumerate(rows) if row[0] == name]
            keys = [(row[2],) for _, row in mine]
            time, place = np.array([row[1] * SECOND for _, row in mine], np.int64), np.array([i for i, _ in mine])
            values = {"value": np.array([row[3] for _, row in mine], np.float64)}
            found.append(Batch(number, name, keys, np.arange(len(mine)), time, place.astype(np.int64), values))
    return found


def drive(made: Plan, rows: list[tuple[str, int, str, float]], pages: dict[str, bytes], *, end: bool = False) -> Out:
    """Run a plan on rows over pages, which take what it leaves."""
    session = Session(made, pages)
    out = session.push(batches(made, rows))
    if end:
        out.add(session.end())
    for name, page in session.changed_pages().items():
        if page is None:
            del pages[name]
        else:
            pages[name] = page
    return out


def stories(rows: list[dict[str, Any]], alert: str) -> list[dict[str, Any]]:
    return sorted((row for row in rows if row["alert"] == alert), key=lambda row: sorted(row["labels"].items()))


ROWS = st.lists(
    st.tuples(st.sampled_from(["air", "wall", "door"]), st.integers(0, 12), st.sampled_from("xy"), st.integers(-3, 3)),
    max_size=20,
)
CHOICES = st.lists(st.sampled_from([DEW, OPEN, WARM, SITE, QUIET, HUSHED]), unique_by=id, max_size=5)


@ENGINE
@given(ROWS, ROWS, CHOICES, CHOICES, st.sampled_from([DEW, OPEN, SITE]))
def test_a_rule_that_stays_does_not_notice_that_others_come_and_go(
    first: Any, second: Any, before: list[AnyRule], after: list[AnyRule], stays: Rule
) -> None:
    before, after = ([*(rule for rule in rules if rule.alert != stays.alert), stays] for rules in (before, after))
    pages: dict[str, bytes] = {}
    disturbed = drive(plan(*before), first, pages)
    disturbed.add(drive(plan(*after), second, pages, end=True))
    alone: dict[str, bytes] = {}
    expected = drive(plan(stays), first, alone)
    expected.add(drive(plan(stays), second, alone, end=True))
    assert stories(disturbed.alert_rows(), stays.alert) == stories(expected.alert_rows(), stays.alert)


@ENGINE
@given(ROWS, ROWS, CHOICES, CHOICES)
def test_a_silence_that_stays_notices_only_which_streams_are_heard(
    first: Any, second: Any, before: list[AnyRule], after: list[AnyRule]
) -> None:
    # HUSHED hears the door alone; DEW and OPEN keep all streams heard by QUIET, whatever else comes and goes.
    always = [DEW, OPEN, QUIET, HUSHED]
    first, second = ([row for row in rows if row[0] != "wall"] for rows in (first, second))
    pages: dict[str, bytes] = {}
    told = []
    for rules, rows in ((before, first), (after, second)):
        others = [rule for rule in rules if rule not in always]
        told += drive(plan(*others, *always), rows, pages).alert_rows()
    alone: dict[str, bytes] = {}
    expected = [*drive(plan(*always), first, alone).alert_rows(), *drive(plan(*always), second, alone).alert_rows()]
    assert stories(told, "NoData") == stories(expected, "NoData")


@ENGINE
@given(ROWS, CHOICES)
def test_every_life_that_was_opened_is_ended_once(rows: Any, rules: list[AnyRule]) -> None:
    pages: dict[str, bytes] = {}
    told = drive(plan(*rules), rows, pages).alert_rows() if rules else []
    other = replace(DEW, alert="Other")
    told += drive(plan(other), [], pages).alert_rows()
    told += drive(plan(other), [], pages).alert_rows()
    opened = {row["id"]: row["firesAt"] for row in told if row["state"] in {"firing", "pending"}}
    ended = [(row["id"], row["firesAt"]) for row in told if row["state"] in {"resolved", "inactive"}]
    assert sorted(opened.items(), key=str) == sorted(ended, key=str)
    assert all(name.startswith("m/") for name in pages)


def test_a_rule_that_is_gone_has_its_last_words() -> None:
    pages: dict[str, bytes] = {}
    drive(plan(OPEN, SITE), [("door", 1, "x", 1.0), ("door", 4, "x", 3.0)], pages)
    assert sorted(pages) == ["m/0", "site/0"]
    out = drive(plan(DEW), [], pages)
    assert [(row["alert"], row["state"], row["startsAt"], row["endsAt"], row["value"]) for row in out.alert_rows()] == [
        ("Open", "resolved", SECOND, 4 * SECOND, 3.0),
        ("Site", "resolved", 4 * SECOND, 4 * SECOND, 3.0),
    ]
    assert {row["quality"] for row in out.alert_rows()} == {"exact rule-changed"}
    assert out.alert_rows()[0]["labels"] == {"team": "a", "m": "x"}
    assert sorted(pages) == ["m/0"]


def test_a_rule_that_is_gone_has_its_last_words_though_the_input_ends_at_once() -> None:
    pages: dict[str, bytes] = {}
    drive(plan(OPEN, SITE), [("door", 1, "x", 1.0), ("door", 4, "x", 3.0)], pages)
    session = Session(plan(DEW), pages)
    assert [(row["alert"], row["state"]) for row in session.end().alert_rows()] == [
        ("Open", "resolved"),
        ("Site", "resolved"),
    ]
    changed = session.changed_pages()
    assert changed["site/0"] is None
    store_pages(pages, changed)
    assert not Session(plan(DEW), pages).end().alert_rows()


def test_a_life_goes_on_under_other_durations_and_ends_under_another_condition() -> None:
    pages: dict[str, bytes] = {}
    drive(plan(OPEN), [("door", 1, "x", 1.0)], pages)
    assert not drive(plan(replace(OPEN, stale="1m", for_="1s", recovery=-1)), [], pages).alert_rows()
    (ended,) = drive(plan(replace(OPEN, expr="door > 0.5", stale="1m")), [], pages).alert_rows()
    assert (ended["state"], ended["quality"]) == ("resolved", "exact rule-changed")


def test_a_pending_alert_fires_after_the_new_for_when_for_becomes_shorter() -> None:
    pages: dict[str, bytes] = {}
    slow = replace(OPEN, for_="4s")
    (pending,) = drive(plan(slow), [("door", 1, "x", 1.0)], pages).alert_rows()
    (firing,) = drive(plan(replace(slow, for_="2s")), [("door", 4, "x", 1.0)], pages).alert_rows()
    assert (pending["state"], pending["firesAt"]) == ("pending", None)
    assert (firing["state"], firing["firesAt"], firing["id"]) == ("firing", 3 * SECOND, pending["id"])
    (resolved,) = drive(plan(replace(slow, for_="0s")), [("door", 5, "x", -1.0)], pages).alert_rows()
    assert (resolved["state"], resolved["firesAt"]) == ("resolved", 3 * SECOND)


def test_a_removed_rule_ends_an_alert_under_its_id_when_an_earlier_alert_started_at_the_same_time() -> None:
    pages: dict[str, bytes] = {}
    rows = drive(plan(OPEN), [("door", 1, "x", 1.0), ("door", 1, "x", -1.0), ("door", 1, "x", 2.0)], pages).alert_rows()
    rows += drive(plan(SITE), [], pages).alert_rows()
    assert [row["state"] for row in rows] == ["firing", "resolved", "firing", "resolved"]
    assert rows[0]["id"] == rows[1]["id"] != rows[2]["id"] == rows[3]["id"]
    assert {row["firesAt"] for row in rows} == {SECOND}


def test_a_silence_goes_on_under_another_length_and_ends_when_it_is_gone() -> None:
    pages: dict[str, bytes] = {}
    rows = [("air", 1, "x", 0.0), ("air", 1, "y", 0.0), ("wall", 9, "x", 0.0)]
    (firing,) = drive(plan(DEW, QUIET), rows, pages).alert_rows()
    assert (firing["state"], firing["startsAt"], firing["labels"]) == (
        "firing",
        4 * SECOND,
        {"m": "x", "stream": "air"},
    )
    assert not drive(plan(DEW, replace(QUIET, for_="9s")), [("wall", 10, "y", 0.0)], pages).alert_rows()
    (ended,) = drive(plan(DEW, replace(QUIET, labels={"team": "a"})), [], pages).alert_rows()
    assert (ended["state"], ended["id"], ended["quality"]) == ("resolved", firing["id"], "exact rule-changed")
    assert (ended["endsAt"], ended["value"], ended["margin"]) == (9 * SECOND, 8.0, 5.0)
    assert not drive(plan(DEW, QUIET), [("wall", 90, "x", 0.0)], pages).alert_rows()


def test_the_alerts_of_silences_whose_keys_nobody_has_any_more_are_ended() -> None:
    pages: dict[str, bytes] = {}
    drive(plan(HUSHED), [("door", 1, "n", 0.0)], pages)
    session = Session(plan(HUSHED), pages)
    assert len(session.advance(9 * SECOND).alert_rows()) == 1
    pages |= {name: page for name, page in session.changed_pages().items() if page is not None}
    (ended,) = drive(plan(DEW), [], pages).alert_rows()
    assert (ended["startsAt"], ended["endsAt"], ended["quality"]) == (3 * SECOND, 3 * SECOND, "exact rule-changed")
    assert not pages


def test_what_changes_of_silences_is_said() -> None:
    before = describe_plan(plan(DEW, QUIET, HUSHED))
    after = describe_plan(plan(DEW, replace(QUIET, for_="1m"), NoData("wall", "1m", ["m"])))
    assert plan_changes(before, after) == [
        'rule "NoData" {stream="air"}: it has changed; its open alerts stay open',
        'rule "NoData" {stream="wall"}: it is new; it starts with the next row of a key',
        "keys site: no rule uses this pipeline any more; its state is dropped",
        'rule "NoData" {stream="door"}: it was removed; its open alerts end',
    ]
    without = {name: {k: v for k, v in watch.items() if k != "silences"} for name, watch in before.items()}
    assert 'rule "NoData" {stream="wall"}: it is new; it starts with the next row of a key' in plan_changes(
        without, after
    )


def test_what_changes_is_said() -> None:
    wider = replace(DEW, within="9s")
    before, after = describe_plan(plan(DEW, OPEN, SITE)), describe_plan(plan(wider, replace(OPEN, stale="9s"), WARM))
    assert plan_changes(before, before) == []
    assert plan_changes(before, after) == [
        'rule "Dew": its condition has changed; its open alerts end, and the rule starts again',
        'rule "Open" {team="a"}: it has changed; its open alerts stay open',
        'rule "Warm": it is new; it starts with the retained rows',
        "stream air(value): keep the maximum in every 18s window; before: keep the maximum in every 8s window; "
        "omitted rows are not restored, so alerts that need them can be missed for rows up to 1h36s old",
        "stream wall(value): keep the minimum in every 18s window; before: keep the minimum in every 8s window; "
        "omitted rows are not restored, so alerts that need them can be missed for rows up to 1h36s old",
        "stream air(value): keep the maximum in every 3s window: its rows are retained from now on",
        "keys site: no rule uses this pipeline any more; its state is dropped",
        'rule "Site": it was removed; its open alerts end',
    ]


@ENGINE
@given(ROWS, ROWS, CHOICES, CHOICES)
def test_every_row_is_accounted_for_whatever_rules_come_and_go(
    first: Any, second: Any, before: list[Rule], after: list[Rule]
) -> None:
    pages: dict[str, bytes] = {}
    out = Out()
    for rules, rows in ((before, first), (after, second), ([replace(DEW, alert="Other", on=["m"], within="9s")], [])):
        if rules:
            out.add(drive(plan(*rules), rows, pages))
    held = 0
    for page in pages.values():
        arrays, facts = unpack(page)
        stores = [f"{name}.time" for name, kind, _, _ in facts["sections"] if kind == "retention"]
        held += sum(len(arrays[name]) for name in stores)
    assert sum(counts.get("retained", 0) for counts in out.counts.values()) == held, pages


def test_changed_limits_are_said() -> None:
    tables = [Limits("t.csv", ("m",), ("most",), {("x",): (number,)}) for number in (1.0, 2.0)]
    one, other = (describe_plan(plan(Rule("Hot", "air > by.most", on=["m"], limits={"by": table}))) for table in tables)
    assert plan_changes(one, one) == []
    assert plan_changes(one, other) == [
        'rule "Hot": its limits have changed; its open alerts stay open under the new limits'
    ]


def _renamed(pages: dict[str, bytes], old: str, new: str) -> dict[str, bytes]:
    return {new if name == old else name: page for name, page in pages.items()}


@pytest.mark.parametrize(
    ("new", "sentence"),
    [
        (
            "m",
            "state page `m` must have a name of key columns and a number, such as `machine/0`; it belongs to another "
            "plan",
        ),
        ("m/x", "state page `m/x` must have a name of key columns and a number"),
        ("m/-1", "state page `m/-1` must have a name of key columns and a number"),
        ("m/00", "state page `m/00` must have a name of key columns and a number"),
        ("a b/0", "state page `a b/0` must have a name of key columns and a number"),
        ("m/2", "state page `m/0` is missing, but `m/2` exists"),
        ("m,site/0", r"state page `m,site/0` has unexpected content \(ValueError: keys must have 2 columns; got 1"),
    ],
)
def test_pages_with_odd_names_are_refused_in_a_sentence_that_names_one(new: str, sentence: str) -> None:
    pages: dict[str, bytes] = {}
    drive(plan(OPEN), [("door", 1, "x", 1.0)], pages)
    with pytest.raises(RunError, match=sentence):
        drive(plan(OPEN), [], _renamed(pages, "m/0", new))


def test_a_page_of_other_keys_and_a_damaged_one_are_refused_by_name() -> None:
    pages: dict[str, bytes] = {}
    drive(plan(OPEN), [("door", 1, "x", 1.0)], pages)
    two = replace(OPEN, on=("m", "site"))
    with pytest.raises(RunError, match=r"state page `m,site/0` has unexpected content .* must have 2 columns"):
        drive(plan(two), [], _renamed(pages, "m/0", "m,site/0"))
    for made in (OPEN, SITE):
        with pytest.raises(RunError, match=r"state page `m/0` is damaged"):
            drive(plan(made), [], {name: page[:-1] for name, page in pages.items()})


def test_the_rows_of_an_anytime_join_are_told_of_when_its_window_changes() -> None:
    columns = {name: ["ts", "machine", "value"] for name in "ab"}

    def described(within: str, cpu: str) -> dict[str, Any]:
        rule = Rule("Near", "a > b", within=within, on="machine", emit="all", quality={"cpu": cpu})
        return describe_plan(make_plan(rule, columns))

    before = described("1s", "50%")
    assert plan_changes(before, described("1s", "20%")) == []
    told = plan_changes(before, described("2s", "50%"))
    assert told[0].startswith("keys machine (rules with a CPU budget): no rule uses this pipeline any more")
    assert 'rule "Near": it is new; it starts with the retained rows' in told
