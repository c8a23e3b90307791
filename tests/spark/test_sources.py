"""Sources: rows that can be used, and those that cannot, with the reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tocsin import Rule
from tocsin.errors import PlanError
from tocsin.rules.rulefile import Source, Stream, Value

pytestmark = pytest.mark.spark

JSON = (
    b'{"machine":"m1","ts":1000,"value":1.5,"site":"x"}',
    b'{"machine":"m1","ts":"1970-01-01T00:00:01Z","value":"2"}',
    b'{"machine":5,"ts":1.9,"value":3}',
    b"",
    b"nonsense",
    b"[1,2]",
    b'\xff\xfe{"machine":"m"}',
    b'{"machine":null,"ts":1,"value":1}',
    b'{"machine":"m","ts":"soon","value":1}',
    b'{"machine":"m","ts":1e30,"value":1}',
    b'{"machine":"m","value":1}',
    b'{"machine":"m","ts":1,"value":"abc"}',
    b'{"machine":"m","ts":1,"value":NaN}',
    b'{"machine":"m","ts":1,"value":1e999}',
    b'{"machine":"m","ts":1,"value":true}',
    b'{"ts":"soon","value":[1]}',
)
NOT_JSON, NO_TIME = "it is not a JSON object in UTF-8", "time `ts` is not a time from year 1 to 9999"
NO_NUMBER = "value `value` is not a finite number"
REASONS = [NOT_JSON] * 3 + ["key `machine` is missing", NO_TIME, NO_TIME, "time `ts` is missing"] + [NO_NUMBER] * 4
REASONS.append(f"key `machine` is missing; {NO_TIME}; {NO_NUMBER}")


def stream(kind: str, path: Path, **more: Any) -> Stream:
    return Stream("air", Source(kind, {"path": str(path)}), ("machine",), values={"value": Value("value")}, **more)


def rows(session: Any, given: Stream, *, streaming: bool) -> list[Any]:
    from tocsin.spark.sources import read

    frame = read(session, given, streaming=streaming)
    if not streaming:
        return frame.collect()
    query = frame.writeStream.format("memory").queryName("sourced").trigger(availableNow=True).start()
    query.awaitTermination(120)
    return session.table("sourced").collect()


@pytest.mark.parametrize("streaming", [False, True])
def test_lines_of_json_become_rows_or_say_why_not(spark: Any, tmp_path: Path, streaming: bool) -> None:
    (tmp_path / "a.json").write_bytes(b"\n".join(JSON))
    found = rows(spark, stream("json", tmp_path), streaming=streaming)
    good = [(row.machine, row.ts, row.value) for row in found if row["_tocsin_reason"] is None]
    assert good == [("m1", 1000, 1.5), ("m1", 1_000_000, 2.0), ("5", 1, 3.0)]
    assert json.loads(found[0]["_tocsin_payload"]) == {"site": "x"}
    bad = [row for row in found if row["_tocsin_reason"] is not None]
    assert [row["_tocsin_reason"] for row in bad] == REASONS
    assert [row["_tocsin_raw"] for row in bad] == [line.decode(errors="replace") for line in JSON[4:]]


@pytest.mark.parametrize("streaming", [False, True])
def test_lines_of_csv_become_rows_or_say_why_not(spark: Any, tmp_path: Path, streaming: bool) -> None:
    text = 'machine,ts,value,site\nm1,10,1.0,x\nm1,11\n"m,2",1970-01-01 00:00:01,5,z\nmachine,ts,value,site\nm1,x,1,q\n'
    (tmp_path / "a.csv").write_text(text)
    found = rows(spark, stream("csv", tmp_path), streaming=streaming)
    assert [(r.machine, r.ts, r.value, r.site) for r in found if r["_tocsin_reason"] is None] == [
        ("m1", 10, 1.0, "x"),
        ("m,2", 1_000_000, 5.0, "z"),
    ]
    assert [row["_tocsin_reason"] for row in found if row["_tocsin_reason"]] == ["value `value` is missing", NO_TIME]


@pytest.mark.parametrize(("unit", "number"), [("s", 2), ("ms", 2_000), ("us", 2_000_000), ("ns", 2_000_000_999)])
def test_numbers_are_times_in_the_unit_of_the_stream(spark: Any, tmp_path: Path, unit: str, number: int) -> None:
    (tmp_path / "a.json").write_text(json.dumps({"machine": "m", "ts": number, "value": 1}))
    assert [row.ts for row in rows(spark, stream("json", tmp_path, time_unit=unit), streaming=False)] == [2_000_000]


def test_columns_of_parquet_may_have_any_type(spark: Any, tmp_path: Path) -> None:
    columns = "machine long, ts timestamp, value string, site string"
    made = [(1, None, "1", "x"), (2, None, "no", None), (None, None, None, None)]
    spark.createDataFrame(made, columns).coalesce(1).write.parquet(str(tmp_path / "p"))
    found = rows(spark, stream("parquet", tmp_path / "p"), streaming=False)
    assert [row["_tocsin_reason"] for row in found] == [
        "time `ts` is missing",
        f"time `ts` is missing; {NO_NUMBER}",
        "key `machine` is missing; time `ts` is missing; value `value` is missing",
    ]
    assert json.loads(found[0]["_tocsin_raw"]) == {"machine": 1, "value": "1", "site": "x"}


@pytest.mark.parametrize("streaming", [False, True])
def test_a_run_shows_every_row_that_it_could_not_use(spark: Any, tmp_path: Path, streaming: bool) -> None:
    from tocsin.spark.alerts import rows_of
    from tocsin.spark.sources import read
    from tocsin.spark.stateful import total

    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_bytes(b"\n".join(JSON))
    rule = Rule(alert="Hot", expr="air > 1.4", on=["machine"])
    told = rows_of({"air": read(spark, stream("json", tmp_path / "in"), streaming=streaming)}, rule)
    if streaming:
        query = told.writeStream.format("memory").queryName("told").option("checkpointLocation", str(tmp_path / "c"))
        query.trigger(availableNow=True).start().awaitTermination(120)
        told = spark.table("told")
    found = told.collect()
    dead = [json.loads(row.json) for row in found if row.kind == "dead"]
    assert [row["reason"] for row in dead] == REASONS
    assert {row["stream"] for row in dead} == {"air"}
    counts = total({"counts": [row.json for row in found if row.kind == "counts"]})["air"]
    assert (counts["received"], counts["quarantined"]) == (len(JSON) - 1, len(dead))


def test_text_that_is_not_utf8_is_no_key_and_stops_nothing(spark: Any) -> None:
    from pyspark.sql import functions as F

    from tocsin.spark.alerts import rows_of
    from tocsin.spark.stateful import total

    bad = F.decode(F.unhex(F.lit("6d")), "utf-8")
    frame = spark.range(4).select(
        F.when(F.col("id") == 1, F.unhex(F.lit("FFFE")).cast("string")).otherwise(bad).alias("machine"),
        F.col("id").alias("ts"),
        F.lit(2.0).alias("value"),
        F.when(F.col("id") == 2, F.unhex(F.lit("80")).cast("string")).alias("site"),
    )
    found = rows_of({"air": frame}, Rule(alert="Hot", expr="air > 1", on=["machine"])).collect()
    counts = total({"counts": [row.json for row in found if row.kind == "counts"]})["air"]
    assert (counts["received"], counts["quarantined"]) == (4, 1)
    assert next(json.loads(row.json)["labels"]["machine"] for row in found if row.kind == "alert") == "m"


def test_an_unknown_kind_is_refused(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"stream `air`: source must be one of parquet, .*; got carrier pigeon"):
        rows(spark, stream("carrier pigeon", tmp_path), streaming=False)
