"""`max_ahead`: a row with a time in the future is quarantined and shown, and makes no other row of its key late."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tocsin import Rule
from tocsin.errors import RuleError
from tocsin.rules.rulefile import Source, Stream, Value

pytestmark = pytest.mark.spark

DAY_US, CENTURY_US = 86_400_000_000, 4_102_444_800_000_000
HOT = Rule("Hot", "a.temp > 40", on=["machine"], allowed_lateness="1h")
REASON = "time `ts` is later than the arrival or the clock by more than `max_ahead` (1d)"


def now_us() -> int:
    return round(time.time() * 1e6)


def write(folder: Path, number: int, rows: list[dict[str, Any]]) -> None:
    folder.mkdir(exist_ok=True)
    path = folder / f"{number}.json"
    path.write_text("\n".join(json.dumps({"machine": "m", "temp": 50.0} | row) for row in rows) + "\n")
    os.utime(path, (number + 1, number + 1))  # Spark takes files by the time of their last change.


def a_row_of_2100_then_ten_of_now(folder: Path, machine: str) -> None:
    write(folder, 0, [{"machine": machine, "ts": CENTURY_US}])
    times = range(now_us() - 10_000_000, now_us(), 1_000_000)
    write(folder, 1, [{"machine": machine, "ts": at} for at in times][:10])


def stream_of(folder: Path, arrival: str | None, max_ahead_us: int) -> Stream:
    source = Source("json", {"path": str(folder), "max_files_per_batch": 1})
    return Stream("a", source, ("machine",), arrival=arrival, values={"temp": Value("temp")}, max_ahead_us=max_ahead_us)


def test_later_rows_are_late_only_when_ahead_accepts_a_row_of_2100(spark: Any, tmp_path: Path) -> None:
    from tocsin.spark.alerts import rows_of
    from tocsin.spark.results import merged_metrics
    from tocsin.spark.sources.registry import read

    frames = {}
    for name, max_ahead_us in (("day", DAY_US), ("century", 100 * 366 * DAY_US)):
        # Each stream has a machine of its own, because streams with equal keys share a watermark.
        a_row_of_2100_then_ten_of_now(tmp_path / name, name)
        frames[name] = read(spark, stream_of(tmp_path / name, None, max_ahead_us), streaming=True)
    rules = [Rule(name, f"{name}.temp > 40", on=["machine"], allowed_lateness="1h") for name in frames]
    told = rows_of(frames, rules, time="_tocsin_time", arrival="_tocsin_arrival", buckets=1)
    writer = told.writeStream.format("memory").queryName("ahead").option("checkpointLocation", str(tmp_path / "c"))
    writer.trigger(availableNow=True).start().awaitTermination(120)
    found = spark.table("ahead").collect()
    counts = merged_metrics(row.json for row in found if row.kind == "metrics").section("counts")
    outcomes = {
        name: (parts["received"], parts.get("quarantined", 0), parts.get("late", 0))
        for name, parts in counts.items()
        if name in frames
    }
    assert outcomes == {"day": (11, 1, 0), "century": (11, 0, 10)}
    (dead,) = [json.loads(row.json) for row in found if row.kind == "dead"]
    assert (dead["stream"], dead["reason"]) == ("day", REASON)
    assert str(CENTURY_US) in dead["raw"]


def test_ahead_uses_the_earlier_of_arrival_and_clock_when_a_stream_has_an_arrival(spark: Any, tmp_path: Path) -> None:
    from tocsin.spark.sources.registry import read

    past, now, hour = 1_700_000_000_000_000, now_us(), 3_600_000_000
    cases = [
        # Time, arrival, and whether the row is rejected.
        (past + DAY_US, past, False),
        (past + DAY_US + 1, past, True),
        (past, past + 400 * DAY_US, False),
        (now + DAY_US - hour, CENTURY_US, False),
        (now + DAY_US + hour, CENTURY_US, True),
        (CENTURY_US, CENTURY_US, True),
        (CENTURY_US, None, True),
        (CENTURY_US, "unknown", True),
        (CENTURY_US, 10**18, True),
        (CENTURY_US, -(10**18), True),
        (now + hour, -(10**18), False),
        (now + hour, None, False),
        (-(10**15), None, False),
    ]
    write(tmp_path / "in", 0, [{"ts": ts, "at": at, "rejected": rejected} for ts, at, rejected in cases])
    frame = read(spark, stream_of(tmp_path / "in", "at", DAY_US), streaming=False)
    found = frame.select("_tocsin_reason", "_tocsin_raw", "_tocsin_payload").collect()
    dead = [json.loads(row["_tocsin_raw"]) for row in found if row["_tocsin_reason"] is not None]
    assert sorted((row["ts"], str(row["at"])) for row in dead) == sorted(
        (ts, str(at)) for ts, at, rejected in cases if rejected
    )
    assert {row["_tocsin_reason"] for row in found} == {None, REASON}


def test_repeated_micro_batch_rejects_the_same_rows_when_the_clock_has_moved_on(spark: Any, tmp_path: Path) -> None:
    from pyspark.errors import StreamingQueryException

    from tocsin.spark.sources.registry import read

    seen: list[list[tuple[int, bool]]] = []
    begin = now_us()
    write(tmp_path / "in", 0, [{"ts": begin + second * 1_000_000} for second in range(-5, 600)])

    def take(frame: Any, _: int) -> None:
        rows = frame.selectExpr("get_json_object(_tocsin_raw, '$.ts') AS ts").collect()
        seen.append(sorted(int(row.ts) for row in rows if row.ts is not None))
        if len(seen) == 1:
            message = "fails once"
            raise RuntimeError(message)

    for _ in range(2):
        frame = read(spark, stream_of(tmp_path / "in", None, 0), streaming=True)
        writer = frame.writeStream.foreachBatch(take).option("checkpointLocation", str(tmp_path / "c"))
        query = writer.trigger(availableNow=True).start()
        try:
            query.awaitTermination(120)
        except StreamingQueryException:
            time.sleep(3)  # Rows that were in the future at the first try are in the past now.
    first, second = seen
    assert first == second
    assert 0 < len(first) < 605


def test_alerts_quarantines_future_rows_when_frames_are_streaming(spark: Any, tmp_path: Path) -> None:
    """One query per value of `max_ahead`. The streams of the first query hold the same times as three types."""
    from tocsin.spark.alerts import alerts, row_outcomes

    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Pacific/Kiritimati")  # 14 hours before UTC
    try:
        at = [datetime.now(UTC) + timedelta(hours=hours) for hours in (-2, -1, 1, 23, 25, 24 * 400)]
        number = [round(one.timestamp() * 1e6) for one in at]
        made = spark.createDataFrame([("m", one, 50.0) for one in number], "machine string, us long, temp double")
        text = "timestamp_ntz '1970-01-01' + make_dt_interval(0, 0, 0, us / 1000000.0)"
        times = {"timestamp": "timestamp_micros(us)", "timestamp_ntz": text, "long": "us"}
        for kind, column in times.items():
            made.selectExpr("machine", f"{column} AS ts", "temp").write.parquet(str(tmp_path / kind))

        def rules(kinds: Iterable[str]) -> list[Rule]:
            return [Rule(f"Hot {kind}", f"{kind}.temp > 40", on=["machine"], allowed_lateness="1h") for kind in kinds]

        def frames(reader: Any, kinds: Iterable[str]) -> dict[str, Any]:
            return {
                kind: reader.schema(f"machine string, ts {kind}, temp double").parquet(str(tmp_path / kind))
                for kind in kinds
            }

        found = {}
        queries: dict[str, tuple[Iterable[str], dict[str, Any]]] = {
            "default": (times, {}),
            "none": (["timestamp"], {"max_ahead": None}),
            "hour": (["long"], {"max_ahead": "90m"}),
        }
        for name, (kinds, options) in queries.items():
            out = alerts(frames(spark.readStream, kinds), rules(kinds), buckets=1, **options)
            writer = out.writeStream.format("noop").option("checkpointLocation", str(tmp_path / name))
            query = writer.trigger(availableNow=True).start()
            query.awaitTermination(120)
            (counts,) = [row_outcomes(p.observedMetrics) for p in query.recentProgress if p.numInputRows]
            found[name] = {kind: (counts[kind]["received"], counts[kind].get("quarantined", 0)) for kind in kinds}
        assert found == {
            "default": dict.fromkeys(times, (6, 2)),
            "none": {"timestamp": (6, 0)},
            "hour": {"long": (6, 3)},
        }
        bounded = alerts(frames(spark.read, times), rules(times), buckets=1).collect()
        for kind in times:
            assert at[-1].year in {row.startsAt.year for row in bounded if row.alert == f"Hot {kind}"}
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)


def test_alerts_rejects_ahead_when_it_is_not_a_duration(spark: Any) -> None:
    from tocsin.spark.alerts import alerts

    frame = spark.createDataFrame([], "machine string, ts long, temp double")
    with pytest.raises(
        RuleError, match=r"`max_ahead` must be a duration such as '10s', '1h30m' or '500ms'; got 'soon'"
    ):
        alerts({"a": frame}, HOT, max_ahead="soon")
