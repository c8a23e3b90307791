"""Sources: rows that can be used, and those that cannot, with the reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tocsin import Rule
from tocsin.errors import PlanError
from tocsin.rules.rulefile import Source, Stream, Value
from tocsin.runtime.alert_arrow import unpack_alerts

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
NOT_JSON, NO_TIME = (
    "the line is not a JSON object in UTF-8",
    "time `ts` is not a time from year 1 to 9999 (`time_unit: us`)",
)
NO_FORM = "time `ts` is neither a number nor a time in ISO 8601 such as 2015-02-02T14:19:59Z"
NO_NUMBER = "value `value` is not a finite number"
REASONS = [NOT_JSON] * 3 + ["key `machine` is missing", NO_FORM, NO_TIME, "time `ts` is missing"] + [NO_NUMBER] * 4
REASONS.append(f"key `machine` is missing; {NO_FORM}; {NO_NUMBER}")


TIME, ARRIVAL, PAYLOAD = "_tocsin_time", "_tocsin_arrival", "_tocsin_payload"
REASON, RAW = "_tocsin_reason", "_tocsin_raw"


def stream(kind: str, path: Path, values: tuple[str, ...] = ("value",), **more: Any) -> Stream:
    return Stream("air", Source(kind, {"path": str(path)}), ("machine",), values={v: Value(v) for v in values}, **more)


def rows(session: Any, given: Stream, *, streaming: bool) -> list[Any]:
    from tocsin.spark.sources.registry import read

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
    assert found[0].__fields__ == ["machine", TIME, ARRIVAL, "value", PAYLOAD, REASON, RAW]
    good = [(row.machine, row[TIME], row[ARRIVAL], row.value) for row in found if row[REASON] is None]
    assert good == [("m1", 1000, None, 1.5), ("m1", 1_000_000, None, 2.0), ("5", 1, None, 3.0)]
    assert json.loads(found[0][PAYLOAD]) == {"site": "x"}
    bad = [row for row in found if row[REASON] is not None]
    assert [row[REASON] for row in bad] == REASONS
    assert [row[RAW] for row in bad] == [line.decode(errors="replace") for line in JSON[4:]]
    assert {(row[TIME], row.value) for row in bad} == {(None, None)}


@pytest.mark.parametrize("streaming", [False, True])
def test_lines_of_csv_become_rows_or_say_why_not(spark: Any, tmp_path: Path, streaming: bool) -> None:
    text = 'machine,ts,value,site\r\nm1,10,1.0,x\n\nm1,11\n"m,2",1970-01-01 00:00:01,5,z\nm1,10,1,q,2\n'
    text += "machine,ts,value,site\nm1,x,1,q\n"
    (tmp_path / "a.csv").write_bytes(b"\xef\xbb\xbf" + text.encode() + b"m\xff,1,1,x\n" + b"m1,12,3" + b"," * 30_000)
    found = rows(spark, stream("csv", tmp_path), streaming=streaming)
    assert [(r.machine, r[TIME], r.value, r[PAYLOAD]) for r in found if r[REASON] is None] == [
        ("m1", 10, 1.0, '{"site":"x"}'),
        ("m,2", 1_000_000, 5.0, '{"site":"z"}'),
    ]
    broken = "the line is not CSV in UTF-8 with 4 fields"
    assert [row[REASON] for row in found if row[REASON]] == [broken, broken, NO_FORM, broken, broken]


@pytest.mark.parametrize("kind", ["json", "parquet"])
def test_a_stream_may_read_one_file(spark: Any, tmp_path: Path, kind: str) -> None:
    row = '{"machine":"m","ts":1,"value":2}'
    for name in ("a[1]?", "a1x"):
        path = tmp_path / f"{name}.{kind}"
        if kind == "json":
            path.write_text(row)
        else:
            pq.write_table(pa.table({"machine": ["m"], "ts": [1], "value": [2]}), path)
    assert len(rows(spark, stream(kind, tmp_path / f"a[1]?.{kind}"), streaming=True)) == 1


def test_a_header_names_what_is_needed_once(spark: Any, tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    for text, message in {
        "m1,10,1\n": r"the header of its CSV files must have the columns `machine`, `ts`, `value`; got 'm1,10,1'",
        "machine,ts,valu\n": (
            r"stream `air`: the header of its CSV files must have the columns `value`; got 'machine,ts,valu'"
        ),
        "machine,ts,value,value\n": "must list each column once; got 'machine,ts,value,value'",
        "\n": r"must contain a CSV file with a header when a run starts; no file was found",
    }.items():
        file.write_text(text)
        with pytest.raises(PlanError, match=message):
            rows(spark, stream("csv", tmp_path), streaming=False)


def test_a_header_names_each_value_and_the_arrival(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("machine,ts,mm_s\nm1,10,1\n")
    given = stream("csv", tmp_path, ("mm_s", "mms"), arrival="came")
    with pytest.raises(PlanError, match=r"must have the columns `came`, `mms`; got 'machine,ts,mm_s'"):
        rows(spark, given, streaming=False)


@pytest.mark.parametrize("streaming", [False, True])
def test_a_schema_of_parquet_names_what_is_needed(spark: Any, tmp_path: Path, streaming: bool) -> None:
    pq.write_table(pa.table({"machine": ["m"], "time": [1], "mm_s": [2]}), tmp_path / "a.parquet")
    message = (
        r"stream `air`: the schema of its Parquet files must have the columns `ts`, `mms`; got 'machine, time, mm_s'"
    )
    with pytest.raises(PlanError, match=message):
        rows(spark, stream("parquet", tmp_path, ("mms",)), streaming=streaming)


@pytest.mark.parametrize(("unit", "number"), [("s", 2), ("ms", 2_000), ("us", 2_000_000), ("ns", 2_000_000_999)])
def test_numbers_are_times_in_the_unit_of_the_stream(spark: Any, tmp_path: Path, unit: str, number: int) -> None:
    (tmp_path / "a.json").write_text(json.dumps({"machine": "m", "ts": number, "value": 1}))
    assert [row[TIME] for row in rows(spark, stream("json", tmp_path, time_unit=unit), streaming=False)] == [2_000_000]


# Texts, and the microseconds since 1970 that they mean.
TEXTS: dict[str, int | None] = {
    "1970-01-02": 86_400_000_000,
    " 1970-01-01T00:00:01 ": 1_000_000,
    "1970-01-01 00:01": 60_000_000,
    "1970-01-01T00:00:01.0000019Z": 1_000_001,
    "1970-01-01T01:00+01:00": 0,
    "1970-01-01T01:00:00+0100": 0,
    "1970-01-01T00:00:00-01": 3_600_000_000,
    "1.5e1": 15,
    "1e-999999999": None,
    "1e999999999": None,
    "12:30": None,
    "T12:30:00": None,
    "1970": 1970,
    "1970-01-32": None,
    "1970-01-01T25:00:00": None,
    "10000-01-01": None,
    "9" * 100_000 + "x": None,
    "0x10": None,
    "": None,
}


def test_a_time_without_a_zone_is_utc_whatever_the_session_says(spark: Any, tmp_path: Path) -> None:
    lines = [json.dumps({"machine": "m", "ts": text, "value": 1}) for text in TEXTS]
    (tmp_path / "a.json").write_text("\n".join(lines))
    when = "timestamp_ntz'2024-03-31 02:30:00.000001'"
    spark.sql(f"select 'm' machine, {when} ts, 1 value").write.parquet(str(tmp_path / "p"))
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    try:
        assert [row[TIME] for row in rows(spark, stream("json", tmp_path / "a.json"), streaming=False)] == [
            *TEXTS.values()
        ]
        found = rows(spark, stream("parquet", tmp_path / "p"), streaming=False)
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert [row[TIME] for row in found] == [1_711_852_200_000_001]


def test_a_row_that_lacks_some_values_goes_on(spark: Any, tmp_path: Path) -> None:
    lines = [
        '"temp":1',
        '"hum":2,"temp":null',
        '"temp":null',
        '"temp":1,"hum":"wet"',
        '"temp":"1d","hum":2',
        '"hum":""',
    ]
    (tmp_path / "a.json").write_text("\n".join(f'{{"machine":"m","ts":1,{line}}}' for line in lines))
    found = rows(spark, stream("json", tmp_path, ("temp", "hum")), streaming=False)
    assert [(row.temp, row.hum, row[REASON]) for row in found] == [
        (1.0, None, None),
        (None, 2.0, None),
        (None, None, "all values are missing: `temp`, `hum`"),
        (None, None, "value `hum` is not a finite number"),
        (None, None, "value `temp` is not a finite number"),
        (None, None, "value `hum` is not a finite number"),
    ]


def test_columns_of_parquet_may_have_any_type(spark: Any, tmp_path: Path) -> None:
    columns = "machine long, ts timestamp, value string, site string"
    made = [(1, None, "1", "x"), (2, None, "no", None), (None, None, None, None)]
    spark.createDataFrame(made, columns).coalesce(1).write.parquet(str(tmp_path / "p"))
    found = rows(spark, stream("parquet", tmp_path / "p"), streaming=False)
    assert [row[REASON] for row in found] == [
        "time `ts` is missing",
        f"time `ts` is missing; {NO_NUMBER}",
        "key `machine` is missing; time `ts` is missing; value `value` is missing",
    ]
    assert json.loads(found[0][RAW]) == {"machine": 1, "ts": None, "value": "1", "site": "x"}


def test_reason_for_a_time_distinguishes_its_form_from_its_year(spark: Any, tmp_path: Path) -> None:
    no_form = ["02/02/2015 14:19:59", "2015-02-30", "12:30", "Infinity", "", "1_000", [1], True, {"at": 1}]
    no_year = ["0000-01-01", "9" * 40, "-1e400", "1e99999", 10**30, -1e300]
    lines = [json.dumps({"machine": "m", "ts": ts, "value": 1}) for ts in [*no_form, *no_year]]
    (tmp_path / "a.json").write_text("\n".join(lines))
    found = [row[REASON] for row in rows(spark, stream("json", tmp_path), streaming=False)]
    assert found == [NO_FORM] * len(no_form) + [NO_TIME] * len(no_year)


def test_a_column_of_parquet_that_can_be_no_key_is_refused_and_one_that_is_no_number_is_told(
    spark: Any, tmp_path: Path
) -> None:
    odd = (
        "select 1.5D machine, 1 ts, 1 value",
        "select 1 machine, 1 ts, array(1) value",
        "select 1 machine, array(1) ts, 1 value",
    )
    for number, query in enumerate(odd):
        spark.sql(query).write.parquet(str(tmp_path / str(number)))
    with pytest.raises(
        PlanError, match=r"key column 'machine' must contain strings, integers or booleans; its type is double"
    ):
        rows(spark, stream("parquet", tmp_path / "0"), streaming=False)
    assert [row[REASON] for row in rows(spark, stream("parquet", tmp_path / "1"), streaming=False)] == [NO_NUMBER]
    assert [row[REASON] for row in rows(spark, stream("parquet", tmp_path / "2"), streaming=False)] == [NO_FORM]


def test_rows_arrive_by_the_column_that_the_stream_names(spark: Any, tmp_path: Path) -> None:
    lines = [f'{{"machine":"m","ts":1,"value":1,"came":{came}}}' for came in ("7", '"soon"', "null")]
    (tmp_path / "a.json").write_text("\n".join(lines))
    found = rows(spark, stream("json", tmp_path, arrival="came"), streaming=False)
    assert [(row[ARRIVAL], row[REASON], row[PAYLOAD]) for row in found] == [(7, None, None), *[(None, None, None)] * 2]


def test_of_a_long_text_the_beginning_is_shown(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("x" * 1_000_000)
    (row,) = rows(spark, stream("json", tmp_path), streaming=False)
    assert row[REASON] == f"{NOT_JSON}; only 65,536 characters are shown"
    assert row[RAW] == "x" * 65_536


@pytest.mark.parametrize("streaming", [False, True])
def test_a_run_shows_every_row_that_it_could_not_use(spark: Any, tmp_path: Path, streaming: bool) -> None:
    from tocsin.spark.alerts import rows_of
    from tocsin.spark.results import merged_metrics
    from tocsin.spark.sources.registry import read

    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_bytes(b"\n".join(JSON))
    rule = Rule(alert="Hot", expr="air > 1.4", on=["machine"])
    given = read(spark, stream("json", tmp_path / "in"), streaming=streaming)
    told = rows_of({"air": given}, rule, time=TIME, arrival=ARRIVAL)
    if streaming:
        query = told.writeStream.format("memory").queryName("told").option("checkpointLocation", str(tmp_path / "c"))
        query.trigger(availableNow=True).start().awaitTermination(120)
        told = spark.table("told")
    found = told.collect()
    dead = [json.loads(row.json) for row in found if row.kind == "dead"]
    assert [row["reason"] for row in dead] == REASONS
    assert {row["stream"] for row in dead} == {"air"}
    counts = merged_metrics(row.json for row in found if row.kind == "metrics").section("counts")["air"]
    assert (counts["received"], counts["quarantined"]) == (len(JSON) - 1, len(dead))


def test_text_that_is_not_utf8_is_no_key_and_stops_nothing(spark: Any) -> None:
    from pyspark.sql import functions as F

    from tocsin.spark.alerts import rows_of
    from tocsin.spark.results import merged_metrics

    bad = F.decode(F.unhex(F.lit("6d")), "utf-8")
    frame = spark.range(4).select(
        F.when(F.col("id") == 1, F.unhex(F.lit("FFFE")).cast("string")).otherwise(bad).alias("machine"),
        F.col("id").alias("ts"),
        F.lit(2.0).alias("value"),
        F.when(F.col("id") == 2, F.unhex(F.lit("80")).cast("string")).alias("site"),
    )
    found = rows_of({"air": frame}, Rule(alert="Hot", expr="air > 1", on=["machine"])).collect()
    counts = merged_metrics(row.json for row in found if row.kind == "metrics").section("counts")["air"]
    assert (counts["received"], counts["quarantined"]) == (4, 1)
    batches = [batch for row in found if row.kind == "alerts" for batch in unpack_alerts(row.alerts)]
    assert batches[0].rows()[0]["labels"]["machine"] == "m"


def test_an_unknown_kind_is_refused(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"stream `air`: source must be one of parquet, .*; got carrier pigeon"):
        rows(spark, stream("carrier pigeon", tmp_path), streaming=False)


def test_what_a_rule_does_not_read_travels_to_its_witness(spark: Any, tmp_path: Path) -> None:
    from tocsin.spark.alerts import rows_of
    from tocsin.spark.sources.registry import read

    (tmp_path / "in").mkdir()
    lines = ['{"machine":"m1","ts":1,"temp":5,"hum":7,"site":"x"}', '{"machine":"m1","ts":2,"temp":6}']
    (tmp_path / "in" / "a.json").write_text("\n".join(lines))
    frame = read(spark, stream("json", tmp_path / "in", ("temp", "hum")), streaming=False)
    rules = [Rule("Hot", "air.temp > 5", on=["machine"]), Rule("Damp", "air.temp + air.hum > 1", on=["machine"])]
    rows = rows_of({"air": frame}, rules, time=TIME, arrival=ARRIVAL).collect()
    found = [one for row in rows if row.kind == "alerts" for batch in unpack_alerts(row.alerts) for one in batch.rows()]
    shown = {row["alert"]: row["witness"][0]["payload"] for row in found if row["state"] == "firing"}
    assert shown == {"Hot": {"hum": None}, "Damp": {"site": "x"}}
