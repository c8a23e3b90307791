"""What a trace says is what the engine does, and what the oracles say."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given

import tocsin
from tests.alert_batches import with_times
from tests.example_counts import ENGINE
from tests.naive.alerts import naive_evaluations, replay
from tests.naive.join import is_inside
from tests.strategies import Case, cases, reduced
from tocsin import local
from tocsin.plan import Store
from tocsin.rules.limits import Limits
from tocsin.trace import KeyRows, Traced, trace
from tocsin.trace.brackets import BRACKET, NO_WINDOW
from tocsin.trace.model import FATES, OMITTED


def traced_keys(case: Case) -> dict[tuple[str, ...], Traced]:
    """Trace each key of a case by itself."""
    streams = case.arrays()
    watch = local.explain(streams, tocsin.Rule(**case.keywords()), arrival="arrival").watches[0]
    machines = {machine for table in case.streams.values() for machine in table["machine"] if machine is not None}
    return {(machine,): trace(watch, (machine,), rows_of(streams, machine)) for machine in sorted(machines)}


def rows_of(streams: dict[str, dict[str, np.ndarray]], machine: str) -> dict[str, KeyRows]:
    rows = {}
    for name, table in streams.items():
        mine = table["machine"] == machine
        rows[name] = KeyRows(table["ts"][mine], table["arrival"][mine], {"value": table["value"][mine]})
    return rows


@ENGINE
@given(cases(shaped=True))
def test_alerts_and_counts_are_those_of_the_engine(case: Case) -> None:
    whole = local.run_local_detailed(case.arrays(), tocsin.Rule(**case.keywords()), arrival="arrival")
    traced = traced_keys(case)
    found = [with_times(row) for one in traced.values() for row in one.alerts]
    assert Counter(map(repr, found)) == Counter(map(repr, whole.alerts))
    counts: dict[str, Counter[str]] = {}
    for one in traced.values():
        for name, store in zip(one.watch.store_names, one.stores, strict=True):
            counts.setdefault(name, Counter()).update(as_engine(store.count()))
    for name, count in counts.items():
        outcomes = ("retained", "omitted", "duplicates", "expired", "late")
        expected = {key: whole.counts[name].get(key, 0) for key in outcomes}
        assert {key: count[key] for key in expected} == expected


def as_engine(count: dict[str, int]) -> dict[str, int]:
    """The engine says `retained` of what is kept, and `expired` of what passed a rule that remembers nothing."""
    return {
        "retained": count.get("kept", 0), "omitted": count.get("omitted", 0), "late": count.get("late", 0),
        "duplicates": count.get("duplicates", 0),
        "expired": count.get("expired", 0) + count.get("passed", 0),
    }  # fmt: skip


@ENGINE
@given(cases())
def test_without_shapes_evaluations_are_those_of_the_oracle(case: Case) -> None:
    expected = naive_evaluations(case.streams, case.rule)
    for key, traced in traced_keys(case).items():
        assert evaluations(traced) == sorted(one[1:] for one in expected if one[0] == key)


@ENGINE
@given(reduced(disorder=("none",)))
def test_of_one_reduced_stream_evaluations_are_those_of_the_oracle(case: Case) -> None:
    expected = replay(case.streams, case.rule).evaluations
    for key, traced in traced_keys(case).items():
        assert evaluations(traced) == sorted((e.time, e.margin, e.truth, e.late) for e in expected if e.key == key)


def evaluations(traced: Traced) -> list[tuple[Any, ...]]:
    (found,) = traced.evaluations
    return sorted((one.time_us, one.margin, one.is_true, one.is_late) for one in found)


@ENGINE
@given(cases(shaped=True))
def test_an_evaluation_names_the_rows_of_its_witness(case: Case) -> None:
    for traced in traced_keys(case).values():
        (found,) = traced.evaluations
        for one in found:
            assert (one.stream, one.row) in one.partners
            assert traced.rows[one.stream].time[one.row] == one.time_us
        shown = {(part["stream"], part["time"]) for row in traced.alerts for part in row["witness"]}
        rows = {(name, int(traced.rows[name].time[row])) for one in found for name, row in one.partners}
        assert shown <= rows


@ENGINE
@given(cases(shaped=True, streams_of_a_rule=(1, 1, 2, 3)))
def test_every_row_left_out_has_an_excuse_that_holds(case: Case) -> None:
    for traced in traced_keys(case).values():
        for store in traced.stores:
            for row in np.flatnonzero(store.fate == OMITTED).tolist():
                excuse = store.excuse(row)
                # An excuse may itself go later: what matters is that it was there when the row went.
                assert all(store.rank[other] <= store.gone[row] < store.gone[other] for other in excuse.rows)
                assert excuse.kind in {BRACKET, NO_WINDOW}
                if excuse.kind == BRACKET:
                    assert_brackets(store.store, store.rows, row, (excuse.above, excuse.below))
                elif excuse.kind == NO_WINDOW:
                    assert not windows_of(store.store, int(store.rows.time[row]))


def assert_brackets(store: Store, rows: KeyRows, row: int, pairs: tuple[Any, Any]) -> None:
    for pair, length, sign in zip(pairs, (store.above_us, store.below_us), (1, -1), strict=True):
        assert (pair is not None) == (length >= 0)
        if pair is None:
            continue
        value, times = rows.values["value"], [int(rows.time[other]) for other in pair]
        assert all(sign * value[other] >= sign * value[row] for other in pair)
        if store.hop_us:
            mine = windows_of(store, int(rows.time[row]))
            assert mine <= windows_of(store, times[0]) | windows_of(store, times[1])
        else:
            assert min(times) <= rows.time[row] <= max(times)
            assert max(times) - min(times) <= length


def windows_of(store: Store, time: int) -> set[int]:
    """The hopping windows that hold a time, by trying them."""
    length, hop = max(store.above_us, store.below_us), store.hop_us
    numbers = range((time - length) // hop - 2, time // hop + 3)
    return {k for k in numbers if is_inside(time, k * hop, k * hop + length, store.closed)}


@ENGINE
@given(cases(emit="all", streams_of_a_rule=(1, 2)))
def test_matches_are_those_of_the_engine(case: Case) -> None:
    whole = local.run_local_detailed(case.arrays(), tocsin.Rule(**case.keywords()), arrival="arrival")
    found = [with_times(row) for one in traced_keys(case).values() for row in one.alerts]
    assert Counter(map(repr, found)) == Counter(map(repr, whole.alerts))


def test_a_key_without_rows_has_no_alerts() -> None:
    empty = {"ts": np.zeros(0, np.int64), "value": np.zeros(0), "machine": np.zeros(0, object)}
    watch = local.explain({"a": empty}, tocsin.Rule("x", "a > 0", on="machine")).watches[0]
    traced = trace(watch, ("m1",), {})
    assert traced.alerts == ()
    assert traced.lives(watch.rules[0]) == []
    assert traced.evaluations == ((),)


def test_rows_are_not_written_to() -> None:
    rule = tocsin.Rule("x", "a > 1", within="5us", on="machine", shapes={"a": "increasing"})
    table = {"ts": np.array([3, 1, 2]), "value": np.array([1.0, 2.0, 3.0]), "machine": np.array(["m"] * 3, object)}
    watch = local.explain({"a": table}, rule).watches[0]
    for array in table.values():
        array.flags.writeable = False
    rows = {"a": KeyRows(table["ts"], table["ts"], {"value": table["value"]})}
    assert [life.start_us for life in trace(watch, ("m",), rows).lives(watch.rules[0])] == [1]


@pytest.mark.parametrize("end", [None, 7])
def test_a_life_covers_its_ends(end: int | None) -> None:
    from tocsin.trace import Life

    life = Life("x", "1", "firing", {}, 3, 3, end, 1.0, 1.0, (), is_late=False, has_fired=True)
    assert [life.covers(time) for time in (2, 3, 7, 8)] == [False, True, True, end is None]


def test_several_rules_that_share_stores_are_those_of_the_engine() -> None:
    random, count = np.random.default_rng(11), 400
    streams = {}
    for name in ("a", "b"):
        ts = random.integers(0, 300, count)
        value = random.integers(-4, 5, count) / 2
        value[::50] = np.nan
        streams[name] = {
            "ts": ts, "arrival": ts + random.integers(0, 30, count), "value": value,
            "machine": np.full(count, "m", object),
        }  # fmt: skip
    table = Limits("limits.csv", ("machine",), ("most",), {("m",): (1.0,)})
    rules = [
        tocsin.Rule(
            "join", "a - b > 3", within="3us", on="machine", shapes={"a": "increasing"}, allowed_lateness="20us"
        ),
        tocsin.Rule("alone", "a > 0", within="5us", on="machine", shapes={"a": "increasing"}, allowed_lateness="20us"),
        tocsin.Rule("every", "a > 1", within="5us", on="machine", for_="2us", recovery=0, allowed_lateness="20us"),
        tocsin.Rule(
            "limited", "b > most.most", on="machine", limits={"most": table}, allowed_lateness="20us", stale="9us"
        ),
    ]
    whole = local.run_local_detailed(streams, rules, arrival="arrival", cuts=[100, 333])
    found = trace(local.explain(streams, rules, arrival="arrival").watches[0], ("m",), rows_of(streams, "m"))
    assert Counter(repr(with_times(row)) for row in found.alerts) == Counter(map(repr, whole.alerts))
    assert {row["alert"] for row in found.alerts} == {rule.alert for rule in rules}
    for rule in found.watch.rules:
        told = [life for life in found.lives(rule) if life.has_fired]
        assert len(told) == sum(row["alert"] == rule.alert and row["state"] == "firing" for row in whole.alerts)
    assert any(one.is_holding for one in found.evaluations[2])
    codes = {FATES[code] for store in found.stores for code in store.fate.tolist()}
    assert codes == set(FATES) - {"passed"}
