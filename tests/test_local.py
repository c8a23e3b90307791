"""Local engine: equal results for any number of calls and threads, key and payload columns, errors, and imports."""

from __future__ import annotations

import datetime
import re
import subprocess
import sys
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, DataType, DateType, DecimalType, DoubleType, FloatType

from tests.driver import one_machine
from tocsin import PlanError, Rule, RuleError, jit, local
from tocsin.runtime.contract import Batch
from tocsin.runtime.session import Session
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
def test_result_is_equal_for_any_number_of_calls(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    streams = _streams(600, 3)
    rng = np.random.default_rng(3)
    mixed = {}
    for name, columns in streams.items():
        order = rng.permutation(600)
        mixed[name] = {column: np.asarray(cells)[order] for column, cells in columns.items()}
    monkeypatch.setattr(local, "ROWS_PER_CALL", 10**9)
    one = [local.run_local_detailed(given, RULE) for given in (streams, mixed)]
    assert one[0].alerts
    monkeypatch.setattr(local, "ROWS_PER_CALL", rows)
    for given, expected in zip((streams, mixed), one, strict=True):
        assert local.run_local_detailed(given, RULE).alerts == expected.alerts


@pytest.mark.parametrize("keys", [1, 2, 7])
def test_result_is_equal_for_any_number_of_threads(monkeypatch: pytest.MonkeyPatch, keys: int) -> None:
    streams = _streams(4000, keys)
    one = local.run_local_detailed(streams, RULE)
    assert one.alerts
    for threads in (2, 3, 5):
        monkeypatch.setattr(local, "ROWS_PER_THREAD", 1)
        monkeypatch.setattr(local.os, "cpu_count", lambda threads=threads: threads)
        several = local.run_local_detailed(streams, RULE)
        assert several.alerts == one.alerts
        assert several.counts == one.counts


def test_alerts_are_sorted_by_key_and_events_of_an_alert_by_time() -> None:
    alerts = local.run_local_detailed(_streams(4000, 7), RULE).alerts
    machines = [alert["labels"]["machine"] for alert in alerts]
    assert machines == sorted(machines)
    for alert in alerts:
        states = [other["state"] for other in alerts if other["id"] == alert["id"]]
        assert states in (["firing", "resolved"], ["firing"])


def test_payload_stays_with_its_row_across_batch_boundaries_and_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    streams = _streams(4000, 3)
    whole = local.run_local_detailed(streams, RULE).alerts
    assert {part["payload"]["site"] for alert in whole for part in alert["witness"]} <= {"site 0", "site 1", "site 2"}
    assert local.run_local_detailed(streams, RULE, cuts=[100, 2000, 2001]).alerts == whole


def test_quality_has_out_of_domain_once_when_values_exceed_the_domains_of_the_rule() -> None:
    streams = {"a": one_machine([0], [12]), "b": one_machine([1], [12])}
    settings = {"within": "10us", "on": "machine", "shapes": {"a": "increasing", "b": "increasing"}}
    rules = [
        Rule("both", "a + b > 0", domains={"a": (0, 10), "b": (0, 10)}, **settings),
        Rule("one", "a + b > 0", domains={"a": (0, 20), "b": (0, 10)}, **settings),
        Rule("inside", "a + b > 0", domains={"a": (0, 20), "b": (0, 20)}, **settings),
        Rule("none", "a + b > 0", **settings),
    ]
    quality = {row["alert"]: row["quality"] for row in local.run_local_detailed(streams, rules).alerts}
    assert quality == {
        "both": "exact out-of-domain", "one": "exact out-of-domain", "inside": "exact", "none": "exact"
    }  # fmt: skip


def test_quality_covers_the_domain_of_each_column_of_a_stream() -> None:
    row = {"ts": np.array([0]), "machine": np.array(["m"]), "low": np.array([1.0]), "high": np.array([12.0])}
    rule = Rule("x", "a.low + a.high > 0", on="machine", domains={"a.low": (0, 20), "a.high": (0, 10)})
    (fired,) = local.run_local_detailed({"a": row}, rule).alerts
    assert fired["quality"] == "exact out-of-domain"


KEYS: dict[str, tuple[Any, list[str]]] = {
    "texts": (np.array(["a", "B ", ""], object), ["a", "B ", ""]),
    "whole numbers": (np.array([-1, 10**15, 0]), ["-1", "1000000000000000", "0"]),
    "booleans": (np.array([True, False, True]), ["true", "false", "true"]),
    "booleans as objects": (np.array([True, False, False], object), ["true", "false", "false"]),
}


@pytest.mark.parametrize("kind", KEYS)
def test_key_text_is_equal_in_both_engines(kind: str) -> None:
    column, texts = KEYS[kind]
    row = {"ts": np.arange(3), "key": column, "value": np.ones(3)}
    (watch,) = local.explain({"a": row}, Rule("x", "a > 0", on="key")).watches
    (local_batch,) = local._batches(0, watch, {"a": row}, "ts", None)
    assert [local_batch.keys[k] for k in local_batch.key] == [(text,) for text in texts]
    feed = Feed(0, "a", ("key",), ("value",))
    rows = pa.RecordBatch.from_pydict(
        {"key": pa.array(column.tolist()), TIME: row["ts"], VALUE + "value": row["value"]}
    )
    (batch,) = fold_partition([rows], [(0, feed)], [0])
    (spark_batch,) = in_order([read_blob(blob, [feed]) for blob in batch.column("blob").to_pylist()], [feed])
    assert [spark_batch.keys[k] for k in spark_batch.key] == [(text,) for text in texts]


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        (np.array([1.0, 2.0]), "float64 (integers with a null are float in pandas: use the pandas type Int64)"),
        (np.array([Decimal(1), Decimal(2)], object), "Decimal('1')"),
        (np.array([b"a", b"b"], object), "b'a'"),
        (np.array([datetime.date(2026, 1, 1), None], object), "datetime.date(2026, 1, 1)"),
        (np.array(["a", 1], object), "'a' and 1"),
        (np.array(["a", "\ud800"], object), "'\\ud800', which is not Unicode text"),
    ],
)
def test_run_raises_an_error_when_the_type_of_a_key_column_is_unsupported(column: Any, kind: str) -> None:
    row = {"ts": np.arange(2), "key": column, "value": np.ones(2)}
    sentence = f"stream `a`: key column 'key' must contain strings, integers or booleans; got {kind}"
    with pytest.raises(PlanError, match=f"^{re.escape(sentence)}$"):
        local.run_local_detailed({"a": row}, Rule("x", "a > 0", on="key"))


@pytest.mark.parametrize("kind", [DoubleType(), FloatType(), DecimalType(3, 0), BinaryType(), DateType()])
def test_spark_raises_an_error_for_the_same_types_of_key_columns(kind: DataType) -> None:
    sentence = "stream `a`: key column 'key' must contain strings, integers or booleans; its type is "
    with pytest.raises(PlanError, match=f"^{re.escape(sentence + kind.simpleString())}$"):
        _key("a", "key", kind)


def test_spark_orders_rows_without_arrival_time_by_event_time() -> None:
    feed = Feed(0, "a", (), ("value",), arrival=True)
    rows = pa.RecordBatch.from_pydict({
        TIME: pa.array([105, 103, 107]), ARRIVAL: pa.array([None, 104, 106], pa.int64()),
        VALUE + "value": pa.array([1.0] * 3)
    })  # fmt: skip
    (batch,) = fold_partition([rows], [(0, feed)], [0])
    (result,) = in_order([read_blob(blob, [feed]) for blob in batch.column("blob").to_pylist()], [feed])
    assert result.time[np.argsort(result.arrival)].tolist() == [103, 105, 107]


def test_check_buckets_raises_an_error_when_the_number_does_not_fit_16_bits() -> None:
    for valid in (1, 32_767):
        check_buckets(valid)
    with pytest.raises(PlanError, match=r"^`buckets` must be an integer from 1; got 0$"):
        check_buckets(0)
    with pytest.raises(PlanError, match=r"^`buckets` must be at most 32767; got 32768$"):
        check_buckets(32_768)


def test_explain_excludes_the_arrival_column_from_the_values() -> None:
    # Without it, `came` would be a second value column.
    row = {"ts": np.arange(2), "came": np.arange(2), "machine": np.array(["m", "m"]), "temp": np.ones(2)}
    rule = Rule("x", "a > 0", within="10us", on="machine")
    assert str(local.explain({"a": row}, rule, arrival="came")).startswith("Pipeline keyed by machine")
    assert len(local.run_local_detailed({"a": row}, rule, arrival="came").alerts) == 1


def test_error_names_the_arrival_column_when_it_is_missing() -> None:
    sentence = (
        r"""^rule "x": stream `a` must have the column 'came' \(`arrival`\); its columns are ts, machine, value$"""
    )
    for call in (local.run_local_detailed, local.explain):
        with pytest.raises(RuleError, match=sentence):
            call({"a": one_machine([1], [1])}, Rule("x", "a > 0", on="machine"), arrival="came")


@pytest.mark.parametrize("column", ["ts", "machine", "value", "came", "note"])
def test_run_raises_an_error_when_columns_have_unequal_lengths(column: str) -> None:
    row = one_machine([1, 2, 3], [1, 1, 1]) | {"came": np.arange(3), "note": np.arange(3)}
    row[column] = row[column][:2]
    with pytest.raises(PlanError, match=r"^stream `a`: columns must have equal lengths; got \[2, 3\]$"):
        local.run_local_detailed({"a": row}, Rule("x", "a.value > 0", on="machine"), arrival="came")


def test_payloads_stay_with_their_rows_when_a_stream_has_two_batches() -> None:
    def batches(ts: list[int], **rest: Any) -> list[Batch]:
        return local._batches(0, plan.watches[0], {"a": one_machine(ts, [1.0] * len(ts)) | rest}, "ts", None)

    rule = Rule("x", "a.value > 0", on="machine", emit="all")
    plan = local.explain({"a": one_machine([], []) | {"note": np.array([])}}, rule)
    given = [*batches([4, 1], note=np.array(["d", "a"])), *batches([3]), *batches([2], note=np.array(["b"]))]
    payloads = {row["startsAt"]: row["witness"][0]["payload"] for row in Session(plan).push(given).alert_rows()}
    assert payloads == {1: {"note": "a"}, 2: {"note": "b"}, 3: None, 4: {"note": "d"}}
    arrays = [replace(given[0], payload=np.array(['{"note": "d"}', None], object)), given[2]]
    payloads = {row["startsAt"]: row["witness"][0]["payload"] for row in Session(plan).push(arrays).alert_rows()}
    assert payloads == {1: None, 2: {"note": "b"}, 4: {"note": "d"}}


def test_rule_with_for_fires_once_after_its_duration() -> None:
    ts = np.arange(0, 100, 10) * 1_000_000
    value = np.where(ts < 80_000_000, 90.0, 70.0)
    rule = Rule("Hot", "temp > 80", on="machine", for_="20s")
    rows = local.run_local({"temp": {"ts": ts, "machine": np.full(10, "m"), "value": value}}, rule)
    assert [row["state"] for row in rows] == ["pending", "firing", "resolved"]


UNWANTED = "pandas", "numba", "llvmlite", "yaml", "rich", "asyncio", "pydantic", "pyspark"


@pytest.mark.parametrize(("read", "unwanted"), [("arrays", ("pyarrow", *UNWANTED)), ("table", UNWANTED)])
def test_small_run_imports_no_unneeded_library(read: str, unwanted: tuple[str, ...]) -> None:
    code = f"""
import io, sys, numpy as np, tocsin

def arrays(text):
    columns = zip(*(line.split(",") for line in text.splitlines()[1:]))
    ts, machine, value = map(np.array, columns)
    return dict(ts=ts.astype(int), machine=machine, value=value.astype(float))

def table(text):
    # Arrow imports pandas when it converts lists or arrays.
    from pyarrow import csv
    return csv.read_csv(io.BytesIO(text.encode()))

rows = "".join(f"{{t * 1_000_000}},press-7,{{9.5 + t % 7}}\\n" for t in range(60))
streams = dict.fromkeys(["a", "b"], {read}("ts,machine,value\\n" + rows))
alerts = tocsin.run_local(streams, tocsin.Rule("High", "a - b > 4", on="machine", within="1m"))
print(bool(alerts), sorted(set({unwanted}) & sys.modules.keys()))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("True []\n", "")


@pytest.mark.parametrize("cuts", [[], [10]])
def test_kernels_are_interpreted_by_the_number_of_rows_of_all_streams(
    monkeypatch: pytest.MonkeyPatch, cuts: list[int]
) -> None:
    counted = jit._InterpretedRows()
    monkeypatch.setattr(jit, "_INTERPRETED_ROWS", counted)
    local.run_local_detailed(_streams(100, 2), RULE, cuts=cuts)
    assert not counted.add(jit.MOST_INTERPRETED_ROWS_UNCACHED - 199)
    assert counted.add(jit.MOST_INTERPRETED_ROWS - 200)
