"""The factory as a source of Spark."""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tocsin.errors import PlanError
from tocsin.factory import Factory
from tocsin.rules.rulefile import Source, Stream, Value

pytestmark = pytest.mark.spark

OPTIONS = {"machines": 7, "seed": 3, "rate": 50.0, "disorder": timedelta(seconds=2), "outages": 2}
FACTORY = Factory(7, 3, 50.0, 2_000_000, 2)


def stream(name: str = "humidity", **options: Any) -> Stream:
    return Stream(name, Source("factory", {**OPTIONS, **options}), ("machine",), values={"value": Value("value")})


def of_factory(first: int, stop: int) -> list[tuple[Any, ...]]:
    rows = FACTORY.read("humidity", first, stop)
    columns = (rows[name].tolist() for name in ("machine", "ts", "arrived", "value"))
    return list(zip(*columns, strict=True))


def of_rows(rows: list[Any]) -> list[tuple[Any, ...]]:
    assert {row["_tocsin_reason"] for row in rows} <= {None}
    return [(row.machine, row["_tocsin_time"], row["_tocsin_arrival"], row.value) for row in rows]


def test_a_bounded_read_gives_the_rows_of_the_generator(spark: Any) -> None:
    from tocsin.spark.sources import read

    assert of_rows(read(spark, stream(rows=2_500), streaming=False).collect()) == of_factory(0, 2_500)


def test_a_stream_with_an_end_gives_all_rows_once_over_restarts(spark: Any, tmp_path: Path) -> None:
    from tocsin.spark.sources import read

    def once(rows: int) -> None:
        writer = read(spark, stream(rows=rows), streaming=True).writeStream.format("parquet")
        writer = writer.option("checkpointLocation", str(tmp_path / "c")).option("path", str(tmp_path / "out"))
        writer.trigger(availableNow=True).start().awaitTermination(120)

    once(1_000)
    once(1_700)
    assert sorted(of_rows(spark.read.parquet(str(tmp_path / "out")).collect())) == sorted(of_factory(0, 1_700))


def running(**options: Any) -> Any:
    """The reader of a stream without an end, as Spark would make it, first opened at second 1,000."""
    from tocsin.spark.factory import FactorySource, _options

    source = Stream("air", Source("factory", {"machines": 1, "rate": 50.0, **options}), ("machine",))
    return FactorySource({**_options(source), "since_us": "1000000000"}).streamReader(None)


def read_all(reader: Any, start: dict[str, int], end: dict[str, int]) -> list[dict[str, Any]]:
    return [row for part in reader.partitions(start, end) for batch in reader.read(part) for row in batch.to_pylist()]


def test_without_an_end_rows_come_at_their_rate_since_the_first_start() -> None:
    reader = running()
    start = reader.initialOffset()
    assert start == {"next": 0, "since_us": 1_000_000_000}
    hour_ago = {"next": 10, "since_us": time.time_ns() // 1_000 - 3_600_000_000}
    now = reader.latestOffset(hour_ago, None)
    assert now["since_us"] == hour_ago["since_us"]
    assert now["next"] >= 50 * 3_600
    assert reader.latestOffset({"next": 10**9, "since_us": hour_ago["since_us"]}, None)["next"] == 10**9


@pytest.mark.parametrize("options", [{}, {"machines": 4, "outages": 3, "disorder": timedelta(seconds=1)}])
def test_event_times_without_an_end_are_those_of_the_clock(options: dict[str, Any]) -> None:
    since_us = time.time_ns() // 1_000 - 60_000_000
    reader = running(**options)
    start = {"next": 0, "since_us": since_us}
    end = reader.latestOffset(start, None)
    now_us = time.time_ns() // 1_000
    rows = read_all(reader, start, end)
    times = [round(row["ts"].timestamp() * 1e6) for row in rows]
    # Rows of a machine are 20 ms apart (80 ms where there are four), and none comes before its time.
    assert since_us <= min(times) <= since_us + 80_000
    assert max(times) <= max(row["arrived"] for row in rows) <= now_us
    assert len(rows) >= 50 * 60 - 50 * 10
    if not options:
        assert max(times) > now_us - 1_000_000


def test_event_times_begin_where_they_are_told_to() -> None:
    told = running(start=7_000_000)
    start = {"next": 0, "since_us": time.time_ns() // 1_000 - 2_000_000}
    times = [row["ts"].timestamp() for row in read_all(told, start, told.latestOffset(start, None))]
    assert 7 <= min(times) <= 7.02
    assert max(times) >= 8.9
    # With an end, or as fast as they are taken, rows are the same in every run.
    for options in ({"rows": 5}, {"rate": 0.0}):
        reader = running(**options)
        first = read_all(reader, {"next": 0, "since_us": 5}, {"next": 1, "since_us": 5})
        assert 0 <= first[0]["ts"].timestamp() - 1_767_225_600 < 1


def test_streams_of_one_run_begin_together(spark: Any, tmp_path: Path) -> None:
    from tocsin.rundir.manifest import Manifest
    from tocsin.spark.factory import _since_us

    started = ("2026-02-03T04:05:06.000007Z", "2026-03-01T00:00:00.000000Z")
    Manifest("", "", "", {}, (), None, 1, 1, started=started).write(tmp_path)
    assert _since_us(tmp_path) == 1_770_091_506_000_007
    assert abs(_since_us(None) - time.time_ns() // 1_000) < 10_000_000


def test_what_a_factory_lacks_is_told(spark: Any) -> None:
    from tocsin.spark.sources import read

    with pytest.raises(PlanError, match="must be told `rows` where its end is wanted; it has none"):
        read(spark, stream(), streaming=False)
    odd = Stream("x", Source("factory", {}), ("pump",), values={"value": Value("value")})
    for options in ({"rows": 5}, {"rate": 0.0}):
        with pytest.raises(PlanError, match="must have a time as `start` where its rows do not come by the clock"):
            read(spark, stream(start="now", **options), streaming=True)
    with pytest.raises(PlanError, match=r"has the columns `machine` .a key., `ts` .the time. and `value`; got 'pump'"):
        read(spark, odd, streaming=True)
