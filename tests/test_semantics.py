"""What an alert means: the product against the oracle that takes one row at a time (docs/explanation/semantics.md)."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import tocsin
from tests.example_counts import ENGINE
from tests.naive.alerts import Rule, judge, naive_alerts, naive_counts, replay, rows_in_order
from tests.naive.join import Join, Row, full_join, may_join, within_bounds
from tests.naive.lives import identity
from tests.strategies import Case, arrays, cases, signed_sum
from tocsin import local

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# No test has more alerts of one key.
_MOST_ALERTS = 100
_QUALITIES = ("exact", "exact late")
INSIDE = ("none", "between")  # in order inside each stream
Story = list[tuple[Any, ...]]


def run(case: Case, streams: dict[str, Any] | None = None, **options: Any) -> list[dict[str, Any]]:
    """Run the product and give its rows in the oracle's form."""
    given_streams = case.arrays() if streams is None else {name: arrays(table) for name, table in streams.items()}
    rows = tocsin.run_local(given_streams, [tocsin.Rule(**case.keywords())], time="ts", arrival="arrival", **options)
    return [_in_oracle_form(row, case.rule) for row in rows]


def _in_oracle_form(row: dict[str, Any], rule: Rule) -> dict[str, Any]:
    assert row["labels"]["team"] == "tests"
    witness = [(seen["stream"], _micros(seen["time"]), dict(seen["values"])) for seen in row["witness"]]
    return {"alert": row["alert"], "key": tuple(row["labels"][column] for column in rule.on), "state": row["state"],
            "startsAt": _micros(row["startsAt"]), "firesAt": _micros(row["firesAt"]), "endsAt": _micros(row["endsAt"]),
            "value": row["value"], "margin": row["margin"], "witness": witness,
            "late": "late" in (row["quality"] or ""), "sequence": _sequence(row)}  # fmt: skip


def _sequence(row: dict[str, Any]) -> int | None:
    """Return the sequence number that the id of an alert was made of."""
    start, late = _micros(row["startsAt"]), "late" in row["quality"].split()
    assert start is not None
    ids = (identity(row["alert"], row["labels"], start, late, number) for number in range(_MOST_ALERTS))
    return 0 if row["state"] == "match" else next((n for n, text in enumerate(ids) if text == row["id"]), None)


def _micros(time: datetime | int | None) -> int | None:
    return (time - EPOCH) // timedelta(microseconds=1) if isinstance(time, datetime) else time


def stories(rows: Iterable[dict[str, Any]], *leaving_out: str) -> dict[tuple[Any, ...], Story]:
    """Give what happened to each key, on time and late, in order: keys do not wait for each other."""
    told: dict[tuple[Any, ...], Story] = defaultdict(list)
    for row in rows:
        content = tuple(value for column, value in row.items() if column not in leaving_out)
        told[row["key"], row["late"]].append(content)
    return dict(told)


def assert_witnesses_hold(case: Case, rows: Iterable[dict[str, Any]]) -> None:
    """Check that each witness is a combination of input rows with exactly the margin and value of its alert."""
    given_rows = rows_in_order(case.streams, case.rule, "arrival")
    seen = {(row.stream, row.key, row.time, row.columns["value"]) for row in given_rows}
    for alert in rows:
        assert [stream for stream, _, _ in alert["witness"]] == list(case.rule.join.streams)
        assert {(stream, alert["key"], time, values["value"]) for stream, time, values in alert["witness"]} <= seen
        assert may_join(case.rule.join, {stream: time for stream, time, _ in alert["witness"]})
        chosen = [Row(s, alert["key"], t, tuple(values.items())) for s, t, values in alert["witness"]]
        margin, truth, value = judge(case.rule, chosen)
        assert (margin, value) == (alert["margin"], alert["value"])
        assert truth


@ENGINE
@given(cases())
def test_without_shapes_every_row_is_that_of_the_oracle(case: Case) -> None:
    assert stories(run(case)) == stories(naive_alerts(case.streams, case.rule))


@ENGINE
@given(cases(shaped=True, disorder=INSIDE, duplicates=False))
def test_shapes_change_neither_states_nor_times_nor_margins(case: Case) -> None:
    found = run(case)
    assert stories(found, "witness") == stories(naive_alerts(case.streams, case.rule), "witness")
    assert_witnesses_hold(case, found)


@ENGINE
@given(cases(shaped=True))
def test_witnesses_hold_whatever_is_left_out(case: Case) -> None:
    assert_witnesses_hold(case, run(case))


def test_alerts_have_distinct_ids_when_they_start_at_the_same_time() -> None:
    columns = {"a": {"ts": [0, 0, 0], "value": [9.0, 1.0, 8.0]}, "b": {"ts": [0], "value": [0.0]}}
    rule = tocsin.Rule("Apart", "a - b > 5", within="1us", shapes={"a": None})
    for cuts in ([], [1], [2], [1, 2, 3]):
        rows = tocsin.run_local({"b": columns["b"], "a": columns["a"]}, rule, cuts=cuts)
        assert [row["state"] for row in rows] == ["firing", "resolved", "firing"]
        assert rows[0]["id"] == rows[1]["id"] != rows[2]["id"]


def test_late_alerts_have_ids_of_their_own_when_their_starts_are_equal_or_go_back() -> None:
    times, values = [9, 100, 9, 9, 9, 2, 9], [9.0, 1.0, 8.0, 1.0, 7.0, 9.0, 8.0]
    table = {"ts": times, "value": values, "arrival": [9, 100, 101, 102, 103, 104, 105]}
    rows = tocsin.run_local(
        {"a": table}, tocsin.Rule("Hot", "a > 5", stale="1us", allowed_lateness="1000us"), arrival="arrival"
    )
    fired = [row for row in rows if row["state"] == "firing"]
    starts = {how: [_micros(row["startsAt"]) for row in fired if row["quality"] == how] for how in _QUALITIES}
    assert starts == {"exact": [9], "exact late": [9, 9, 2, 9]}
    assert len({row["id"] for row in fired}) == len(fired)


def test_an_alert_fires_at_the_end_of_for_when_the_next_evaluation_comes_later() -> None:
    table = {"ts": [0, 4, 9, 12, 20, 21], "value": [9.0, 9.0, 9.0, 1.0, 9.0, 1.0]}
    rows = tocsin.run_local({"a": table}, tocsin.Rule("Hot", "a > 5", for_="5us", stale="30us"))
    assert [(row["state"], _micros(row["startsAt"]), _micros(row["firesAt"])) for row in rows] == [
        ("pending", 0, None), ("firing", 0, 5), ("resolved", 0, 5), ("pending", 20, None), ("inactive", 20, None)
    ]  # fmt: skip


@ENGINE
@given(cases(emit="all", disorder=("between", "bounded", "unbounded")), st.booleans())
def test_matches_out_of_order_are_late_or_dropped_with_a_strict_order(case: Case, strict: bool) -> None:
    rule = replace(case.rule, strict=strict)
    oracle = replay(case.streams, rule)
    keywords = case.keywords() | {"quality": {"order": "strict" if strict else "any"}}
    found = local.run_local_detailed(case.arrays(), tocsin.Rule(**keywords), arrival="arrival")
    matches = [_in_oracle_form(row, rule) for row in found.alerts]
    assert stories(matches) == stories(oracle.output)
    assert not (strict and any(row["late"] for row in matches))
    dropped = found.metrics.section("dropped_results").get(case.keywords()["alert"], 0)
    assert dropped == oracle.dropped


@ENGINE
@given(cases(disorder=("between", "bounded", "unbounded")))
def test_late_evaluations_raise_no_alert_with_a_strict_order(case: Case) -> None:
    rule = replace(case.rule, strict=True)
    oracle = replay(case.streams, rule)
    found = local.run_local_detailed(
        case.arrays(), tocsin.Rule(**case.keywords() | {"quality": {"order": "strict"}}), arrival="arrival"
    )
    assert stories(_in_oracle_form(row, rule) for row in found.alerts) == stories(oracle.output)
    assert found.metrics.section("dropped_results").get(case.keywords()["alert"], 0) == oracle.dropped


@ENGINE
@given(cases(emit="all"))
def test_emit_all_gives_every_true_combination_once(case: Case) -> None:
    found, expected = run(case), naive_alerts(case.streams, case.rule)
    assert Counter(map(repr, _exact(found))) == Counter(map(repr, _exact(expected)))


def _exact(rows: Iterable[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(r["key"], r["state"], r["startsAt"], r["endsAt"], float(r["margin"]), float(r["value"]), r["late"],
             [(s, t, float(values["value"])) for s, t, values in r["witness"]]) for r in rows]  # fmt: skip


@ENGINE
@given(cases(shaped=True))
def test_no_true_combination_of_the_full_join_is_missed(case: Case) -> None:
    # What was left out is represented at most one interval away, and no interval is longer than the widest bound.
    join = case.rule.join
    away = max([high - low for low, high in join.bounds.values()], default=join.within or 0) + 1 if case.shapes else 0
    lives = _lives(run(case))
    served = replay(case.streams, case.rule).served
    for combination in full_join(join, served):
        if judge(case.rule, combination)[1]:
            last = max(combination, key=lambda row: row.place)
            times = [row.time for row in combination] if case.shapes else [last.time]
            inside = [life for life in lives[last.key] if life[0] <= max(times) + away and min(times) - away <= life[1]]
            assert inside, combination


def _lives(rows: Iterable[dict[str, Any]]) -> dict[tuple[Any, ...], list[tuple[int, float]]]:
    """Give start and end of the lives of each key; the last one may never end."""
    lives: dict[tuple[Any, ...], list[tuple[int, float]]] = defaultdict(list)
    opened: dict[tuple[Any, ...], int] = {}
    for row in rows:
        opened[row["key"], row["late"]] = row["startsAt"]
        if row["endsAt"] is not None:
            lives[row["key"]].append((opened.pop((row["key"], row["late"])), row["endsAt"]))
    for (key, _), start in opened.items():
        lives[key].append((start, math.inf))
    return lives


@ENGINE
@given(cases(duplicates=False), st.data())
def test_rows_that_come_again_change_nothing(case: Case, data: st.DataObject) -> None:
    assume(len(case.streams) > 1)  # a rule of one stream remembers no rows
    again = {}
    for name, table in case.streams.items():
        picked = data.draw(st.lists(st.sampled_from(range(len(table["ts"]))), max_size=4)) if table["ts"] else []
        again[name] = {column: [*cells, *(cells[index] for index in picked)] for column, cells in table.items()}
        for place in range(len(table["ts"]), len(again[name]["ts"])):
            again[name]["arrival"][place] += data.draw(st.integers(0, 30))
    expected = stories(naive_alerts(case.streams, case.rule))
    assert stories(naive_alerts(again, case.rule)) == expected
    assert stories(run(case, streams=again)) == expected


@ENGINE
@given(cases())
def test_the_oracle_counts_every_row_once(case: Case) -> None:
    for name, count in naive_counts(case.streams, case.rule).items():
        assert count.pop("received") == sum(count.values()) == len(case.streams[name]["ts"])


def stream(text: str) -> dict[str, list[Any]]:
    """Read `time:value` or `time:value@arrival` of one machine."""
    parts = [[*part.partition("@")[0].split(":"), part.partition("@")[2]] for part in text.split()]
    times, values = [int(time) for time, _, _ in parts], [float(value) for _, value, _ in parts]
    arrival = [int(moment or time) for time, _, moment in parts]
    return {"ts": times, "value": values, "machine": ["m1"] * len(parts), "arrival": arrival}


def told(case: Case, answer: Callable[[Case], list[dict[str, Any]]]) -> list[str]:
    """Give the alerts as short text: state, start, end, and whether late."""
    lines = []
    for row in answer(case):
        end = "" if row["endsAt"] is None else f"-{row['endsAt']}"
        lines.append(f"{row['state']} {row['startsAt']}{end}" + " late" * row["late"])
    return lines


def _naive(case: Case) -> list[dict[str, Any]]:
    return naive_alerts(case.streams, case.rule)


@pytest.fixture(params=[_naive, run], ids=["oracle", "product"])
def answer(request: pytest.FixtureRequest) -> Callable[[Case], list[dict[str, Any]]]:
    return request.param


def example(texts: Sequence[str], join: dict[str, Any] | None = None, **rule: Any) -> Case:
    """Make a case of streams a, b, ...: their sum is watched for being above 0, within 2 unless `join` says else."""
    names = tuple("abcd"[: len(texts)])
    settings = {"within": 2} | (join or {})
    if "bounds" in settings:
        settings["within"] = None
    settings.setdefault("bounds", within_bounds(names, settings["within"] or 0))
    condition = signed_sum(names, [1] * len(names), ">", Fraction(0))
    columns = tuple((name, "value") for name in names)
    streams = {name: stream(text) for name, text in zip(names, texts, strict=True)}
    return Case(streams, Rule(Join(names, **settings), condition.judge, columns, **rule), condition)


EXAMPLES = {
    # a   0   + + +   -        + true, - false
    #     0   1 2 3   5
    "one stream fires at the first true row and is resolved at the first false one": (
        example(["0:-1 1:1 2:1 3:1 5:-1"]), ["firing 1", "resolved 1-5"]),
    # a   + + +   -   +   -    for = 2: the second life is too short
    #     0 1 2   4   6   7
    "a life is pending until it has lasted `for`": (
        example(["0:1 1:1 2:1 4:-1 6:1 7:-1"], for_us=2),
        ["pending 0", "firing 0", "resolved 0-4", "pending 6", "inactive 6-7"]),
    # a   + - + -       +      keep = 3: 1 -> 4 reaches the row at 2; 3 -> 6 does not reach the row at 7
    #     0 1 2 3       7
    "a life keeps firing through a short false": (
        example(["0:1 1:-1 2:1 3:-1 7:1"], {"within": 9}, keep_us=3), ["firing 0", "resolved 0-6", "firing 7"]),
    # a   + -     -+           keep = 3: 1 -> 4; the false row at 4 does not end what the true row at 4 continues
    #     0 1     4
    "a true row at the very end of `keep_firing_for` continues the life, also after a false one": (
        example(["0:1 1:-1 4:-1 4:1"], {"within": 9}, keep_us=3), ["firing 0"]),
    # a   + +         +        stale = 3: silent after 1 + 3
    #     0 1         6
    "silence ends a life after `stale`": (
        example(["0:1 1:1 6:1"], stale_us=3), ["firing 0", "resolved 0-4", "firing 6"]),
    # a   +     +              stale = 3: a row at exactly last + stale is no silence
    #     0     3
    "a row at the very end of `stale` keeps the life": (
        example(["0:1 3:1"], stale_us=3), ["firing 0"]),
    # a   + + + + + + + +      b is silent, then its rows of 1 and 2 arrive: late lives at their own times
    # b     + -
    "a partner that comes back raises the alarms of the gap, late": (
        example(["0:1 1:1 2:1 3:1 4:1 5:1 6:1 7:1", "1:1@8 2:-9@9"]), ["firing 1 late", "resolved 1-2 late"]),
    # a         +              the second late row lies before the first one, which has then ended by silence
    # b   2.  1.
    "a late row before the last late one ends the late life by silence": (
        example(["5:1 6:1 7:1 8:1 9:1", "6:1@20 5:1@21"], stale_us=1, idle_timeout_us=0, allowed_lateness_us=100),
        ["firing 6 late", "resolved 6-7 late", "firing 5 late", "resolved 5-6 late"]),
    # windows [0 2] [3 5]: 2 and 3 are close, but no window holds both
    "hopping windows join only what one window holds": (
        example(["2:1 4:1", "3:1"], {"hop": 3}, emit="all"), ["match 3-4"]),
    "closed at both ends joins at exactly the bound": (
        example(["0:1 4:1", "2:1"], emit="all"), ["match 0-2", "match 2-4"]),
    "closed at neither end does not join at the bound": (
        example(["0:1 4:1", "2:1"], {"closed": "neither"}, emit="all"), []),
    "closed on the left joins at the lower bound only": (
        example(["0:1 4:1", "2:1"], {"closed": "left"}, emit="all"), ["match 2-4"]),
    "closed on the right joins at the upper bound only": (
        example(["0:1 4:1", "2:1"], {"closed": "right"}, emit="all"), ["match 0-2"]),
    # a   0       4            b must come 1 to 3 after a
    # b   0 1   3   5
    "one stream may have to come after the other": (
        example(["0:1 4:1", "0:1 1:1 3:1 5:1"], {"bounds": {("a", "b"): (1, 3)}}, emit="all"),
        ["match 0-1", "match 0-3", "match 4-5"]),
    "emit all gives each true combination when its last row arrives": (
        example(["0:1 1:-9", "1:1 2:3"], emit="all"), ["match 0-1", "match 0-2"]),
    "a row that is later than `allowed_lateness` is not used": (
        example(["0:1 9:-1 3:1@10"], allowed_lateness_us=5, stale_us=20), ["firing 0", "resolved 0-9"]),
}  # fmt: skip


@pytest.mark.parametrize("name", EXAMPLES)
def test_example(name: str, answer: Callable[[Case], list[dict[str, Any]]]) -> None:
    case, expected = EXAMPLES[name]
    assert told(case, answer) == expected


NULL_ARRIVALS = {
    "datetime64": np.array([None, 104, 106], "datetime64[us]"),
    "datetimes": np.array([None, EPOCH + timedelta(microseconds=104), EPOCH + timedelta(microseconds=106)], object),
    "microseconds": np.array([None, 104, 106], object),
}


@pytest.mark.parametrize("kind", NULL_ARRIVALS)
def test_a_row_without_arrival_arrived_at_its_event_time(kind: str) -> None:
    # By event time, 105 comes between those that arrived at 104 and 106: all rows are in order, none is late.
    table = {"ts": [105, 103, 107], "arrival": [None, 104, 106], "value": [1.0, 1.0, -1.0], "machine": ["m1"] * 3}
    condition = signed_sum(("a",), (1,), ">", Fraction(0))
    rule = Rule(Join(("a",), {}, within=10), condition.judge, (("a", "value"),))
    expected = naive_alerts({"a": table}, rule)
    assert [(row["state"], row["startsAt"], row["late"]) for row in expected] == [
        ("firing", 103, False), ("resolved", 103, False)
    ]  # fmt: skip
    columns = {**arrays({name: cells for name, cells in table.items() if name != "arrival"})}
    given_rule = tocsin.Rule(**Case({}, rule, condition).keywords())
    found = tocsin.run_local({"a": columns | {"arrival": NULL_ARRIVALS[kind]}}, given_rule, arrival="arrival")
    assert stories(_in_oracle_form(row, rule) for row in found) == stories(expected)
