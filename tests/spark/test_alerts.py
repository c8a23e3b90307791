"""`tocsin.alerts` gives what the oracle and the local engine give: bounded, and streaming however it is cut."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import tocsin
from spark.scenarios import SCENARIOS, Scenario, condensation, matches, plain
from tocsin.local import run_local_detailed

pytestmark = pytest.mark.spark

PARTS = ("held", "retained", "expired", "omitted", "duplicates", "shed", "late", "quarantined", "unprocessed")
SCHEMA = (
    "alert string, id string, state string, labels map<string,string>, startsAt timestamp, "
    "firesAt timestamp, endsAt timestamp, value double, margin double, "
    "witness array<struct<stream:string,time:timestamp,values:map<string,double>,payload:map<string,string>>>, "
    "quality string"
)


# Scenarios that share a query: all use event time as arrival, or all have an arrival column.
QUERIES = {"times": ("condensation", "matches", "peaks"), "arrivals": ("disorder",)}


def stream(
    session: Any, folder: Path, *scenarios: Scenario, buckets: int | None = None
) -> tuple[dict[str, list[tuple[Any, ...]]], Any]:
    """Run one query of all rules over the written input to its end; return all alerts by rule, and the query."""
    out = alerts_of(session, folder / "in", scenarios, streaming=True, buckets=buckets)
    writer = out.writeStream.format("parquet").option("checkpointLocation", str(folder / "check"))
    query = writer.trigger(availableNow=True).start(str(folder / "out"))
    query.awaitTermination()
    return by_rule(session.read.parquet(str(folder / "out")).collect()), query


def alerts_of(
    session: Any, folder: Path, scenarios: Sequence[Scenario], *, streaming: bool, buckets: int | None
) -> Any:
    frames = {}
    for scenario in scenarios:
        frames |= scenario.frames(session, folder, streaming=streaming)
    (arrival,) = {scenario.arrival for scenario in scenarios}
    return tocsin.alerts(frames, [scenario.rule for scenario in scenarios], arrival=arrival, buckets=buckets)


def by_rule(alerts: list[Any]) -> dict[str, list[tuple[Any, ...]]]:
    return {name: plain([row for row in alerts if row["alert"] == name]) for name in {row["alert"] for row in alerts}}


def local(scenarios: Sequence[Scenario]) -> dict[str, list[tuple[Any, ...]]]:
    return {scenario.rule.alert: plain(scenario.local()) for scenario in scenarios}


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_local_engine_gives_what_the_oracle_gives(name: str) -> None:
    scenario = SCENARIOS[name]()
    found = [_in_oracle_form(row, scenario) for row in plain(scenario.local())]
    expected = [_exact(row) for row in scenario.oracle()]
    assert len(expected) > 10
    assert expected == [_exact(row) for row in scenario.oracle(end=False)], "the scenario must end with nothing open"
    assert _rounded(found) == _rounded(expected)


@pytest.mark.parametrize("query", QUERIES)
def test_a_bounded_query_gives_the_alerts_of_the_local_engine(spark: Any, tmp_path: Path, query: str) -> None:
    scenarios = [SCENARIOS[name]() for name in QUERIES[query]]
    for scenario in scenarios:
        scenario.write(tmp_path, files=3)
    found = alerts_of(spark, tmp_path, scenarios, streaming=False, buckets=3)
    assert by_rule(found.collect()) == local(scenarios)


@pytest.mark.parametrize(("name", "files", "buckets"), [("times", 3, 5), ("arrivals", 4, 3)])
def test_a_stream_gives_the_same_alerts_however_it_is_cut(
    spark: Any, tmp_path: Path, name: str, files: int, buckets: int
) -> None:
    scenarios = [SCENARIOS[one]() for one in QUERIES[name]]
    for scenario in scenarios:
        scenario.write(tmp_path / "in", files)
    found, query = stream(spark, tmp_path, *scenarios, buckets=buckets)
    assert found == local(scenarios)
    assert len([p for p in query.recentProgress if p.numInputRows]) == files
    _check_counts(scenarios, query)


def _check_counts(scenarios: Sequence[Scenario], query: Any) -> None:
    """Every row is accounted for, over the whole run, and as the local engine accounts for it."""
    from tocsin.spark import row_outcomes

    total: dict[str, Counter[str]] = defaultdict(Counter)
    for progress in query.recentProgress:
        for name, counts in row_outcomes(progress.observedMetrics).items():
            total[name].update(counts)
    streams = {name: columns for scenario in scenarios for name, columns in scenario.arrays().items()}
    (arrival,) = {scenario.arrival for scenario in scenarios}
    # Rules with the same keys share a clock, so the local engine runs all rules, too.
    expected = run_local_detailed(streams, [scenario.rule for scenario in scenarios], arrival=arrival).counts
    for name, columns in streams.items():
        counts = total[name]
        assert counts["received"] == len(columns["ts"])
        assert counts["received"] == sum(counts[part] for part in PARTS)
        assert {part: n for part, n in counts.items() if n} == {part: n for part, n in expected[name].items() if n}


def test_the_columns_are_the_public_ones_and_times_are_timestamps(spark: Any, tmp_path: Path) -> None:
    scenario = matches()
    scenario.write(tmp_path, files=1)
    wanted = spark.createDataFrame([], SCHEMA).schema
    for streaming in (False, True):
        out = tocsin.alerts(scenario.frames(spark, tmp_path, streaming=streaming), scenario.rule)
        assert out.isStreaming == streaming
        assert out.schema.simpleString() == wanted.simpleString()


def test_times_without_a_zone_are_utc_whatever_the_zone_of_the_session(spark: Any, tmp_path: Path) -> None:
    scenario = matches()
    scenario.write(tmp_path, files=1)
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        from pyspark.sql import functions as F

        found = tocsin.alerts(scenario.frames(spark, tmp_path, streaming=False), scenario.rule)
        starts = [row[0] for row in found.select(F.unix_micros("startsAt")).collect()]
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert sorted(starts) == sorted(row["startsAt"] for row in scenario.oracle())


def test_alerts_warns_once_per_group_when_the_session_lacks_settings(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from tocsin.spark import LOCAL_DISK_CONF

    scenario = matches(seconds=1)
    scenario.write(tmp_path, files=1)
    # The groups of settings, and a setting of each that a query of the user can lack.
    disk, master = next(iter(LOCAL_DISK_CONF)), "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled"
    for lacks_settings in (True, False):
        # The package has a function of the same name.
        monkeypatch.setattr(import_module("tocsin.spark.alerts"), "_checked", set())
        session = spark.newSession()
        for name in (disk, master) if lacks_settings else ():
            session.conf.unset(name)
        for streaming in (False, True, False, True):
            tocsin.alerts(scenario.frames(session, tmp_path, streaming=streaming), scenario.rule)
    rest = "so a query starts later or its micro-batches take longer; add `tocsin.spark.{}` to the settings of the"
    assert [message.partition(" session before")[0] for message in caplog.messages] == [
        f"the session does not set {master}, {rest.format('LOCAL_MASTER_CONF')}",
        f"the session does not set {disk}, {rest.format('LOCAL_DISK_CONF')}",
    ]


def _bad_time(frames: dict[str, Any]) -> dict[str, Any]:
    return {**frames, "air": frames["air"].withColumn("ts", frames["air"]["ts"].cast("string"))}


def _bad_value(frames: dict[str, Any]) -> dict[str, Any]:
    return {**frames, "surface": frames["surface"].withColumn("value", frames["surface"]["value"].cast("string"))}


def _no_key(frames: dict[str, Any]) -> dict[str, Any]:
    return {**frames, "air": frames["air"].drop("machine")}


def _no_time(frames: dict[str, Any]) -> dict[str, Any]:
    return {**frames, "air": frames["air"].drop("ts")}


def _mixed(frames: dict[str, Any]) -> dict[str, Any]:
    rate = frames["air"].sparkSession.readStream.format("rate").load()
    return {**frames, "air": rate.selectExpr("timestamp as ts", "'m' as machine", "1e0 as value")}


def _not_a_frame(frames: dict[str, Any]) -> dict[str, Any]:
    return {**frames, "air": [1, 2]}


def _pandas_frame(frames: dict[str, Any]) -> dict[str, Any]:
    return {**frames, "air": pd.DataFrame({"value": [1.0]})}


def _misspelt(frames: dict[str, Any]) -> dict[str, Any]:
    return {"airs": frames["air"], "humidity": frames["humidity"], "surface": frames["surface"]}


BAD_INPUT: dict[str, tuple[Callable[..., dict[str, Any]], dict[str, Any], str]] = {
    "a time that is text": (
        _bad_time, {}, "stream `air`: column 'ts' must be a timestamp or integer microseconds; its type is string"),
    "a value that is text": (
        _bad_value, {}, "stream `surface`: column 'value' must contain numbers; its type is string"),
    "a missing key column": (
        _no_key, {}, "stream `air` must have the column 'machine'; its columns are ts, value"),
    "a missing time column": (
        _no_time, {}, "stream `air` must have the column 'ts'; its columns are machine, value"),
    "a missing arrival column": (
        dict, {"arrival": "at"}, r"must have the column 'at' \(`arrival`\); its columns are ts, machine, value"),
    "streaming and bounded input": (
        _mixed, {}, "must be all streaming or all bounded; `air` is streaming and `surface` is bounded"),
    "what is no DataFrame": (
        _not_a_frame, {}, r"stream `air` must be a Spark DataFrame \(pyspark.sql.DataFrame\); got list"),
    "a DataFrame of pandas": (
        _pandas_frame, {}, r"must be a Spark DataFrame \(pyspark.sql.DataFrame\); got pandas\.(\w+\.)*DataFrame"),
    "a variable without stream": (
        _misspelt, {}, "`air` must be one of the streams airs, humidity, surface; did you mean `airs`?"),
    "no streams": (
        lambda _: {}, {}, "`streams` must map names to DataFrames; got an empty mapping"),
    "no buckets": (
        dict, {"buckets": 0}, "`buckets` must be an integer from 1; got 0"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_INPUT)
def test_bad_input_is_rejected_before_a_job_starts(spark: Any, case: str) -> None:
    change, options, words = BAD_INPUT[case]
    schema = "ts timestamp, machine string, value double"
    frames = {name: spark.createDataFrame([], schema) for name in ("air", "humidity", "surface")}
    spark.sparkContext.setJobGroup("bad-input", case)
    try:
        with pytest.raises(tocsin.TocsinError, match=words) as caught:
            tocsin.alerts(change(frames), condensation().rule, **options)
        assert "Traceback" not in str(caught.value)
        assert not spark.sparkContext.statusTracker().getJobIdsForGroup("bad-input")
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)


def test_checkpoint_rejects_another_number_of_buckets_and_keeps_its_partitions(spark: Any, tmp_path: Path) -> None:
    from pyspark.errors import StreamingQueryException

    scenario = matches(seconds=20)
    scenario.write(tmp_path / "in", files=2)
    held_back = {path: path.read_bytes() for path in (tmp_path / "in").glob("*/001.parquet")}
    for path in held_back:
        path.unlink()
    stream(spark, tmp_path, scenario, buckets=2)
    for path, content in held_back.items():
        path.write_bytes(content)
    with pytest.raises(StreamingQueryException, match="must have the number of buckets 4; got 2: use the earlier"):
        stream(spark, tmp_path, scenario, buckets=4)
    spark.conf.set("spark.sql.shuffle.partitions", "3")
    try:
        found, _ = stream(spark, tmp_path, scenario, buckets=2)
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", "2")
    assert found == local([scenario])
    assert sorted(path.name for path in (tmp_path / "check" / "state" / "0").glob("[0-9]*")) == ["0", "1"]


def _in_oracle_form(row: tuple[Any, ...], scenario: Scenario) -> tuple[Any, ...]:
    _, _, state, labels, start, fires, end, value, margin, witness, quality = row
    key = tuple(dict(labels)[column] for column in scenario.rule.on)
    rows = tuple((name, time, values) for name, time, values, _ in witness)
    return key, state, start, fires, end, value, margin, rows, "late" in quality


def _exact(row: dict[str, Any]) -> tuple[Any, ...]:
    rows = tuple((name, time, _floats(values)) for name, time, values in row["witness"])
    key, value, margin = tuple(str(part) for part in row["key"]), float(row["value"]), float(row["margin"])
    return key, row["state"], row["startsAt"], row["firesAt"], row["endsAt"], value, margin, rows, row["late"]


def _floats(values: dict[str, Any]) -> tuple[tuple[str, float], ...]:
    return tuple((column, float(cell)) for column, cell in values.items())


def _rounded(rows: list[tuple[Any, ...]]) -> list[str]:
    # The kernel's logarithm may differ from Python's in the last digit.
    return sorted(repr((*row[:5], round(row[5], 9), round(row[6], 9), *row[7:])) for row in rows)
