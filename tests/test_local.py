"""The local engine: threads show nowhere but in the time taken; what it reads, and what it says of a row."""

from __future__ import annotations

import datetime
import re
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, DataType, DateType, DecimalType, DoubleType, FloatType

from tests.test_laws import one_machine
from tocsin import PlanError, Rule, RuleError, local
from tocsin.logic import Batch
from tocsin.spark.alerts import check_buckets
from tocsin.spark.blobs import ARRIVAL, TIME, VALUE, Feed, read_blob
from tocsin.spark.feeds import _key
from tocsin.spark.rows import fold_partition, in_order


def _streams(rows: int, keys: int) -> dict[str, dict[str, object]]:
    rng = np.random.default_rng(7)
    streams: dict[str, dict[str, object]] = {}
    for name in ("air", "surface"):
        value = np.round(rng.normal(size=rows), 1)
        value[rng.integers(0, rows, 20)] = np.nan
        streams[name] = {
            "machine": np.array([f"m{k}" for k in rng.integers(0, keys, rows)]),
            "ts": np.sort(rng.integers(0, rows * 1000, rows)),
            "value": value,
            "site": np.array([f"site {k}" for k in rng.integers(0, 3, rows)]),
        }
    return streams


RULE = Rule(
    alert="Dew",
    expr="air - surface > 4.5",
    within="20ms",
    on=["machine"],
    shapes={"air": "increasing", "surface": "decreasing"},
)


@pytest.mark.parametrize("rows", [1, 17, 1000])
def test_any_number_of_calls_gives_the_same_result(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    streams = _streams(4000, 3)
    rng = np.random.default_rng(3)
    mixed = {}
    for name, columns in streams.items():
        order = rng.permutation(4000)
        mixed[name] = {column: np.asarray(cells)[order] for column, cells in columns.items()}
    monkeypatch.setattr(local, "ROWS_PER_CALL", 10**9)
    one = [local.run(given, RULE) for given in (streams, mixed)]
    assert one[0].alerts
    monkeypatch.setattr(local, "ROWS_PER_CALL", rows)
    for given, expected in zip((streams, mixed), one, strict=True):
        assert local.run(given, RULE).alerts == expected.alerts


@pytest.mark.parametrize("keys", [1, 2, 7])
def test_any_number_of_threads_gives_the_same_result(monkeypatch: pytest.MonkeyPatch, keys: int) -> None:
    streams = _streams(4000, keys)
    one = local.run(streams, RULE)
    assert one.alerts
    for threads in (2, 3, 5):
        monkeypatch.setattr(local, "ROWS_PER_THREAD", 1)
        monkeypatch.setattr(local.os, "cpu_count", lambda threads=threads: threads)
        several = local.run(streams, RULE)
        assert several.alerts == one.alerts
        assert several.counts == one.counts


def test_alerts_come_by_key_and_each_life_in_its_order() -> None:
    alerts = local.run(_streams(4000, 7), RULE).alerts
    machines = [alert["labels"]["machine"] for alert in alerts]
    assert machines == sorted(machines)
    for alert in alerts:
        life = [other["state"] for other in alerts if other["id"] == alert["id"]]
        assert life in (["firing", "resolved"], ["firing"])


def test_payload_follows_its_row_through_cuts_and_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    streams = _streams(4000, 3)
    whole = local.run(streams, RULE).alerts
    assert {part["payload"]["site"] for alert in whole for part in alert["witness"]} <= {"site 0", "site 1", "site 2"}
    assert local.run(streams, RULE, cuts=[100, 2000, 2001]).alerts == whole


def test_quality_says_once_that_values_lie_outside_the_domains_of_their_own_rule() -> None:
    streams = {"a": one_machine([0], [12]), "b": one_machine([1], [12])}
    settings = {"within": "10us", "on": "machine", "shapes": {"a": "increasing", "b": "increasing"}}
    rules = [
        Rule("both", "a + b > 0", domains={"a": (0, 10), "b": (0, 10)}, **settings),
        Rule("one", "a + b > 0", domains={"a": (0, 20), "b": (0, 10)}, **settings),
        Rule("inside", "a + b > 0", domains={"a": (0, 20), "b": (0, 20)}, **settings),
        Rule("none", "a + b > 0", **settings),
    ]
    told = {row["alert"]: row["quality"] for row in local.run(streams, rules).alerts}
    assert told == {
        "both": "exact out-of-domain", "one": "exact out-of-domain", "inside": "exact", "none": "exact"
    }  # fmt: skip


def test_the_domain_of_each_column_of_a_stream_is_looked_at() -> None:
    row = {"ts": np.array([0]), "machine": np.array(["m"]), "low": np.array([1.0]), "high": np.array([12.0])}
    rule = Rule("x", "a.low + a.high > 0", on="machine", domains={"a.low": (0, 20), "a.high": (0, 10)})
    (fired,) = local.run({"a": row}, rule).alerts
    assert fired["quality"] == "exact out-of-domain"


KEYS: dict[str, tuple[Any, list[str]]] = {
    "texts": (np.array(["a", "B ", ""], object), ["a", "B ", ""]),
    "whole numbers": (np.array([-1, 10**15, 0]), ["-1", "1000000000000000", "0"]),
    "booleans": (np.array([True, False, True]), ["true", "false", "true"]),
    "booleans as objects": (np.array([True, False, False], object), ["true", "false", "false"]),
}


@pytest.mark.parametrize("kind", KEYS)
def test_the_text_of_a_key_is_the_same_in_both_engines(kind: str) -> None:
    column, texts = KEYS[kind]
    row = {"ts": np.arange(3), "key": column, "value": np.ones(3)}
    (watch,) = local.explain({"a": row}, Rule("x", "a > 0", on="key")).watches
    (mine,) = local._batches(0, watch, {"a": row}, "ts", None)
    assert [mine.keys[k] for k in mine.key] == [(text,) for text in texts]
    feed = Feed(0, "a", ("key",), ("value",))
    rows = pa.RecordBatch.from_pydict(
        {"key": pa.array(column.tolist()), TIME: row["ts"], VALUE + "value": row["value"]}
    )
    (batch,) = fold_partition([rows], [(0, feed)], [0])
    (other,) = in_order([read_blob(blob, [feed]) for blob in batch.column("blob").to_pylist()], [feed])
    assert [other.keys[k] for k in other.key] == [(text,) for text in texts]


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        (np.array([1.0, 2.0]), "double (whole numbers with a null are float in pandas: use its type Int64)"),
        (np.array([Decimal(1), Decimal(2)], object), "decimal128(1, 0)"),
        (np.array([b"a", b"b"], object), "binary"),
        (np.array([datetime.date(2026, 1, 1), None], object), "date32[day]"),
        (np.array(["a", 1], object), "object"),
    ],
)
def test_a_key_whose_text_is_not_plain_is_refused(column: Any, kind: str) -> None:
    row = {"ts": np.arange(2), "key": column, "value": np.ones(2)}
    sentence = f"stream `a`: key column 'key' must hold text, whole numbers or booleans; it holds {kind}"
    with pytest.raises(PlanError, match=f"^{re.escape(sentence)}$"):
        local.run({"a": row}, Rule("x", "a > 0", on="key"))


@pytest.mark.parametrize("kind", [DoubleType(), FloatType(), DecimalType(3, 0), BinaryType(), DateType()])
def test_spark_refuses_the_same_keys(kind: DataType) -> None:
    sentence = "stream `a`: key column 'key' must hold text, whole numbers or booleans; it holds "
    with pytest.raises(PlanError, match=f"^{re.escape(sentence + kind.simpleString())}$"):
        _key("a", "key", kind)


def test_a_row_without_arrival_takes_its_place_by_event_time_on_spark_too() -> None:
    feed = Feed(0, "a", (), ("value",), arrival=True)
    rows = pa.RecordBatch.from_pydict({
        TIME: pa.array([105, 103, 107]), ARRIVAL: pa.array([None, 104, 106], pa.int64()),
        VALUE + "value": pa.array([1.0] * 3)
    })  # fmt: skip
    (batch,) = fold_partition([rows], [(0, feed)], [0])
    (made,) = in_order([read_blob(blob, [feed]) for blob in batch.column("blob").to_pylist()], [feed])
    assert made.time[np.argsort(made.arrival)].tolist() == [103, 105, 107]


def test_the_number_of_buckets_fits_the_type_that_rows_are_sorted_by() -> None:
    for good in (1, 32_767):
        check_buckets(good)
    with pytest.raises(PlanError, match=r"^`buckets` must be a whole number from 1; got 0$"):
        check_buckets(0)
    with pytest.raises(PlanError, match=r"^`buckets` must be at most 32767; got 32768$"):
        check_buckets(32_768)


def test_explain_knows_the_arrival_column_as_a_run_does() -> None:
    # Without it, `came` would be a second value column.
    row = {"ts": np.arange(2), "came": np.arange(2), "machine": np.array(["m", "m"]), "temp": np.ones(2)}
    rule = Rule("x", "a > 0", within="10us", on="machine")
    assert str(local.explain({"a": row}, rule, arrival="came")).startswith("Watch on machine")
    assert len(local.run({"a": row}, rule, arrival="came").alerts) == 1


def test_a_missing_arrival_column_is_named() -> None:
    sentence = r"""^rule "x": stream `a` must have the column 'came' \(`arrival`\); it has ts, machine, value$"""
    for call in (local.run, local.explain):
        with pytest.raises(RuleError, match=sentence):
            call({"a": one_machine([1], [1])}, Rule("x", "a > 0", on="machine"), arrival="came")


@pytest.mark.parametrize("column", ["ts", "machine", "value", "came", "note"])
def test_columns_of_unequal_lengths_are_refused(column: str) -> None:
    row = one_machine([1, 2, 3], [1, 1, 1]) | {"came": np.arange(3), "note": np.arange(3)}
    row[column] = row[column][:2]
    with pytest.raises(PlanError, match=r"^stream `a`: columns must have equal lengths; got \[2, 3\]$"):
        local.run({"a": row}, Rule("x", "a.value > 0", on="machine"), arrival="came")


def test_two_batches_of_one_stream_keep_their_payloads() -> None:
    def batches(ts: list[int], **rest: Any) -> list[Batch]:
        return local._batches(0, plan.watches[0], {"a": one_machine(ts, [1.0] * len(ts)) | rest}, "ts", None)

    rule = Rule("x", "a.value > 0", on="machine", emit="all")
    plan = local.explain({"a": one_machine([], []) | {"note": np.array([])}}, rule)
    given = [*batches([4, 1], note=np.array(["d", "a"])), *batches([3]), *batches([2], note=np.array(["b"]))]
    told = {row["startsAt"]: row["witness"][0]["payload"] for row in plan.build({}).on_data(given).alerts}
    assert told == {1: {"note": "a"}, 2: {"note": "b"}, 3: None, 4: {"note": "d"}}
    arrays = [replace(given[0], payload=np.array(['{"note": "d"}', None], object)), given[2]]
    told = {row["startsAt"]: row["witness"][0]["payload"] for row in plan.build({}).on_data(arrays).alerts}
    assert told == {1: None, 2: {"note": "b"}, 4: {"note": "d"}}


def test_the_simplest_rule_fires_after_its_time_and_once() -> None:
    ts = np.arange(0, 100, 10) * 1_000_000
    value = np.where(ts < 80_000_000, 90.0, 70.0)
    rule = Rule("Hot", "temp > 80", on="machine", for_="20s")
    rows = local.run_local({"temp": {"ts": ts, "machine": np.full(10, "m"), "value": value}}, rule)
    assert [row["state"] for row in rows] == ["pending", "firing", "resolved"]
