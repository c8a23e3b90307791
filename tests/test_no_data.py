"""NoData against the oracle: any rows, any cut, any clock; and rules beside it notice nothing."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.driver import CUTS, MINUTE, Driver, parts_of, plan_of, settled, stories
from tests.durations import us
from tests.example_counts import ENGINE
from tests.naive.silence import Row, Silence, naive_silence
from tests.strategies import Case, cases
from tocsin import NoData, PlanError, Rule, RuleError, local, run_local

NAMES = ("a", "b", "c")
SECOND = 10**6

Told = dict[tuple[str, str], list[dict[str, Any]]]
# A row, and whether it has a value.
Sent = tuple[str, str, int, bool]

SENT = st.tuples(st.sampled_from(NAMES), st.sampled_from("xyz"), st.integers(0, 40), st.booleans())
TIMED = st.lists(SENT, max_size=25)
DELAYED = st.lists(st.tuples(SENT, st.integers(0, 12)), max_size=25).map(
    lambda rows: [row for row, _ in sorted(rows, key=lambda pair: pair[0][2] + pair[1])]
)
ROWS = st.one_of(TIMED, DELAYED, TIMED.map(lambda rows: sorted(rows, key=lambda row: row[2])))
SILENCES = st.lists(
    st.builds(NoData, st.sampled_from(NAMES), st.sampled_from([1, 3, 7, 20]).map(us), st.just("m")),
    min_size=1, max_size=3, unique_by=lambda silence: silence.stream,
)  # fmt: skip


def columns(rows: Sequence[Sent]) -> dict[str, dict[str, np.ndarray]]:
    """Give streams in which the rows arrive in the order that they have."""
    numbered = list(enumerate(rows))
    streams = {}
    for name in NAMES:
        mine = [(i, *row) for i, row in numbered if row[0] == name]
        streams[name] = {
            "ts": np.array([row[3] for row in mine], np.int64),
            "m": np.array([row[2] for row in mine], dtype=object),
            "value": np.array([0.5 if row[4] else np.nan for row in mine]),
            "arrival": np.array([row[0] for row in mine], np.int64),
        }
    return streams


def told(alerts: Sequence[Mapping[str, Any]]) -> Told:
    """Give what was told of each stream and key, in the words of the oracle."""
    found: Told = defaultdict(list)
    for row in alerts:
        if row["alert"] != "NoData":
            continue
        (part,) = row["witness"]
        assert (part["values"], part["payload"]) == ({}, None)
        plain = {name: row[name] for name in ("state", "startsAt", "firesAt", "endsAt", "value", "margin", "quality")}
        stream, key = row["labels"]["stream"], row["labels"]["m"]
        found[stream, key].append({**plain, "key": key, "witness": (part["stream"], part["time"])})
    return dict(found)


def expected(oracles: Sequence[Silence]) -> Told:
    found: Told = defaultdict(list)
    for oracle in oracles:
        for row in oracle.told:
            found[oracle.stream, row["key"]].append(row)
    return dict(found)


def heard(rows: Sequence[Sent], silences: Sequence[NoData], beside: Sequence[str] = ()) -> list[Row]:
    """The rows of the streams that a plan reads."""
    return [row[:3] for row in rows if row[0] in beside or any(row[0] == one.stream for one in silences)]


def drive(rows: Sequence[Sent], rules: Sequence[Any], cuts: Sequence[int], *, through_pages: bool = True) -> Any:
    streams = columns(rows)
    plan = plan_of(streams, rules, arrival="arrival")
    return Driver(plan, through_pages=through_pages).run(parts_of(plan, streams, cuts, "arrival"))


@ENGINE
@given(ROWS, SILENCES, CUTS, st.booleans())
def test_silences_are_those_of_the_oracle_whatever_the_cut(
    rows: list[Sent], silences: list[NoData], cuts: list[int], through_pages: bool
) -> None:
    oracles = []
    for one in silences:
        oracles.append(Silence(one.stream, one.for_us, naive_silence(heard(rows, silences), one.stream, one.for_us)))
    out = drive(rows, silences, cuts, through_pages=through_pages)
    assert told(out.alert_rows()) == expected(oracles)


@ENGINE
@given(ROWS, SILENCES, CUTS)
def test_a_rule_beside_silences_and_silences_beside_a_rule_notice_nothing(
    rows: list[Sent], silences: list[NoData], cuts: list[int]
) -> None:
    rule = Rule("x", "a + b > 0", within="6us", on="m", allowed_lateness="9us", for_="2us", shapes={"a": "increasing"})
    alone, together = drive(rows, [rule], cuts), drive(rows, [rule, *silences], cuts)
    assert stories(row for row in together.alert_rows() if row["alert"] == "x") == stories(alone.alert_rows())
    assert settled(alone.counts).items() <= settled(together.counts).items()
    given_rows = heard(rows, silences, beside="ab")
    oracles = [Silence(one.stream, one.for_us, naive_silence(given_rows, one.stream, one.for_us)) for one in silences]
    assert told(together.alert_rows()) == expected(oracles)


@ENGINE
@given(cases(shaped=True), CUTS)
def test_any_rule_is_itself_beside_a_silence_of_its_streams(case: Case, cuts: list[int]) -> None:
    streams, rule = case.arrays(), Rule(**case.keywords())
    silences = [NoData(name, us(4), "machine") for name in streams]
    alone = local.run_local_detailed(streams, rule, arrival="arrival", cuts=cuts)
    together = local.run_local_detailed(streams, [rule, *silences], arrival="arrival", cuts=cuts)
    assert stories(row for row in together.alerts if row["alert"] != "NoData") == stories(alone.alerts)
    assert settled(together.counts) == settled(alone.counts)


CALLS = st.lists(st.tuples(st.lists(SENT, max_size=5), st.integers(0, 30), st.booleans()), max_size=8)


@ENGINE
@given(CALLS, SILENCES, st.booleans(), st.sampled_from([None, 21, 40]))
def test_the_clock_begins_silences_and_forgets_keys_as_the_oracle_says(
    calls: list[tuple[list[Sent], int, bool]], silences: list[NoData], through_pages: bool, ttl: int | None
) -> None:
    plan = plan_of(columns([]), silences, arrival="arrival", key_ttl=None if ttl is None else us(ttl))
    driver, oracles, now = Driver(plan, through_pages=through_pages), [Silence(s.stream, s.for_us) for s in silences], 0
    for rows, passed, looks in calls:
        driver.take(driver.session.push(parts_of(plan, columns(rows), (), "arrival")[0], now))
        for oracle in oracles:
            for row in heard(rows, silences):
                oracle.take(row, now)
        now += passed
        if looks:
            driver.take(driver.session.advance(now))
            for oracle in oracles:
                oracle.look_at_the_clock(now)
                if ttl is not None:
                    oracle.forget(now, ttl)
    assert told(driver.result.alert_rows()) == expected(oracles)


def one_stream(*ts: int) -> list[Sent]:
    return [("a", "x", time, True) for time in ts]


def test_a_gap_is_told_by_the_row_that_ends_it_and_the_end_of_input_is_no_gap() -> None:
    rows = {"ts": [0, 60, 600, 660], "machine": ["m"] * 4, "value": [1.0] * 4}
    rows["ts"] = [second * SECOND for second in rows["ts"]]
    found = run_local({"air": rows}, NoData("air", "5m", "machine", {"team": "x"}))
    firing, resolved = found
    assert firing["labels"] == {"machine": "m", "stream": "air", "team": "x"}
    assert [(row["alert"], row["state"], row["value"], row["margin"]) for row in found] == [
        ("NoData", "firing", 300.0, 0.0),
        ("NoData", "resolved", 540.0, 240.0),
    ]
    assert firing["id"] == resolved["id"]
    assert (resolved["endsAt"] - resolved["startsAt"]).seconds == 240
    part = {"stream": "air", "time": resolved["startsAt"].replace(minute=1), "values": {}, "payload": None}
    assert resolved["witness"] == [part]


def test_a_backlog_behind_another_stream_is_one_silence() -> None:
    # b runs ahead to 100; a comes back with 1, 2, 3 ... and is silent until it has come within 10 of b.
    rows = [("a", "x", 0, True), ("b", "x", 100, True), *one_stream(*range(1, 100))]
    out = drive(rows, [NoData("a", us(10), "m"), NoData("b", us(500), "m")], [3, 50])
    assert [(row["state"], row["startsAt"], row["endsAt"]) for row in out.alert_rows()] == [
        ("firing", 10, None),
        ("resolved", 10, 90),
    ]


def test_a_timer_stands_where_a_key_falls_silent_and_none_while_it_is() -> None:
    streams = {"a": {"ts": np.array([0]), "m": np.array(["x"], dtype=object), "value": np.zeros(1)}}
    plan = plan_of(streams, NoData("a", "2m", "m"))
    driver = Driver(plan)
    assert driver.session.next_timer() is None
    driver.take(driver.session.push(parts_of(plan, streams)[0], MINUTE))
    timer = driver.session.next_timer()
    assert timer == 3 * MINUTE + 1
    assert driver.take(driver.session.advance(timer - 1)) == []
    (firing,) = driver.take(driver.session.advance(timer))
    assert (firing["state"], firing["startsAt"]) == ("firing", 2 * MINUTE)
    assert driver.session.next_timer() is None
    assert driver.take(driver.session.advance(9 * timer)) == []
    # The last row once more is no sign of life.
    assert driver.take(driver.session.push(parts_of(plan, streams)[0], 9 * timer)) == []
    (resolved,) = driver.take(driver.session.push(parts_of(plan, one_row(streams, 5 * MINUTE))[0], 10 * timer))
    assert (resolved["state"], resolved["endsAt"], resolved["value"]) == ("resolved", 5 * MINUTE, 300.0)
    assert driver.session.next_timer() == 10 * timer + 2 * MINUTE + 1


def one_row(streams: Mapping[str, Mapping[str, np.ndarray]], ts: int) -> dict[str, dict[str, np.ndarray]]:
    return {name: {**table, "ts": np.array([ts])} for name, table in streams.items()}


def test_a_silent_key_is_forgotten_after_its_time_to_live_and_says_so() -> None:
    streams = {"a": {"ts": np.array([0]), "m": np.array(["x"], dtype=object), "value": np.zeros(1)}}
    plan = plan_of(streams, NoData("a", "2m", "m"), key_ttl="1h")
    driver = Driver(plan)
    driver.take(driver.session.push(parts_of(plan, streams)[0], 0))
    assert len(driver.take(driver.session.advance(3 * MINUTE))) == 1
    timer = driver.session.next_timer()
    assert timer == 60 * MINUTE + 1
    (ended,) = driver.take(driver.session.advance(timer))
    assert (ended["state"], ended["quality"], ended["endsAt"]) == ("resolved", "exact key-expired", timer)
    assert settled(driver.result.counts)["a"] == {"received": 1, "expired": 1, "freed_keys": 1}
    assert driver.session.next_timer() is None


def test_rows_of_a_stream_that_is_only_heard_are_counted() -> None:
    rows = {"ts": [1, None, 3], "m": ["x", "x", None], "note": ["p", "q", "r"]}
    result = local.run_local_detailed({"a": rows}, NoData("a", "1s", "m"))
    assert settled(result.counts) == {"a": {"received": 3, "quarantined": 2, "expired": 1}}


def test_a_stream_without_keys_is_silent_as_a_whole() -> None:
    rows = {"ts": [0, 9], "m": ["x", "y"], "value": [1.0, 1.0]}
    assert [row["labels"] for row in run_local({"a": rows}, NoData("a", "5us"))] == [{"stream": "a"}] * 2
    assert run_local({"a": rows}, NoData("a", "5us", "m")) == []


def test_the_plan_says_what_is_watched_for_silence() -> None:
    streams = {"air": {"ts": [0], "m": ["x"], "value": [0.0]}}
    rules = [Rule("Warm", "air > 2", on="m"), NoData("air", "5m", "m"), NoData("air", "1d", alert="Dead")]
    assert str(local.explain(streams, rules)).splitlines() == [
        "Pipeline keyed by m; allowed lateness 1h",
        "  Retention air(value): stateless",
        '  Rule "Warm" if air > 2 (stale 5m)',
        "  NoData air: a key without rows for 5m",
        "Pipeline without a key (one bucket processes all rows)",
        '  NoData air: a key without rows for 1d, alert "Dead"',
    ]


MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"alert": " "}, "`alert` must be a name; got ' '"),
    ({"stream": 3}, "`stream` must be a name; got 3"),
    ({"for_": "0s"}, "`for` must be longer than 0; got '0s'"),
    ({"for_": "-5s"}, "`for` must not be negative; got '-5s'"),
    ({"on": 7}, "`on` must list key columns; got 7"),
    ({"labels": "x"}, "`labels` must map names to settings; got 'x'"),
    ({"labels": {"m": "x"}}, "`labels` must not repeat key columns; both have 'm'"),
    ({"labels": {"stream": "x"}}, "`labels` must not contain `stream`, the label with the name of the stream"),
    ({"on": "stream"}, "`on` must not contain `stream`, the label with the name of the stream"),
    ({"labels": {"team": "{{ $value }}"}}, "a value would change the identity of the alert at every evaluation"),
]


@pytest.mark.parametrize(("change", "message"), MISTAKES)
def test_what_a_silence_says_of_itself_is_checked(change: dict[str, Any], message: str) -> None:
    with pytest.raises(RuleError, match=re.escape(message)):
        NoData(**{"stream": "air", "for_": "5m", "on": "m", **change})


def test_what_a_silence_says_of_streams_is_checked_when_it_is_planned() -> None:
    streams = {"air": {"ts": [0], "m": ["x"]}}
    place = 'rule "NoData" of stream "wall"'
    with pytest.raises(RuleError, match=f"^{place}: `wall` must be one of the streams air$"):
        local.explain(streams, NoData("wall", "5m", "m"))
    with pytest.raises(
        RuleError, match=r'of stream "air": stream `air` must have the column \'site\'; its columns are ts, m$'
    ):
        local.explain(streams, NoData("air", "5m", "site"))
    silence = NoData("air", "5m", "m")
    with pytest.raises(PlanError, match=r'^rules must differ in `alert` or `labels`; "NoData" has a duplicate'):
        local.explain(streams, [silence, replace(silence, for_="6m")])
    with pytest.raises(PlanError, match=r"^`key_ttl` must be longer than `for` of each NoData, .* got 5m, and rule"):
        plan_of({"air": {"ts": np.zeros(1), "m": np.zeros(1)}}, silence, key_ttl="5m")
