"""The factory as a source of Spark."""

from __future__ import annotations

import time
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tocsin.delivery.alert_json import format_time
from tocsin.errors import PlanError, RunError
from tocsin.factory import START_US, Factory
from tocsin.rules.rulefile import Source, Stream, Value
from tocsin.run_directory.manifest import Manifest
from tocsin.spark.sources.factory import (
    BATCH_RANGES,
    RANGE_ROWS,
    check_end,
    factory_of,
    first_start_us,
    ranges_by_time,
    write_ranges,
)

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
    from tocsin.spark.sources.registry import read

    assert of_rows(read(spark, stream(rows=2_500), streaming=False).collect()) == of_factory(0, 2_500)


def test_a_stream_with_an_end_gives_all_rows_once_over_restarts(spark: Any, tmp_path: Path) -> None:
    from tocsin.spark.sources.registry import read

    def once(rows: int) -> None:
        writer = read(spark, stream(rows=rows), streaming=True, run_dir=tmp_path / "run").writeStream.format("parquet")
        writer = writer.option("checkpointLocation", str(tmp_path / "c")).option("path", str(tmp_path / "out"))
        writer.trigger(availableNow=True).start().awaitTermination(120)

    once(1_000)
    once(1_700)
    assert sorted(of_rows(spark.read.parquet(str(tmp_path / "out")).collect())) == sorted(of_factory(0, 1_700))


def live(**options: Any) -> Stream:
    source = Source("factory", {"machines": 1, "rate": 50.0, **options})
    return Stream("air", source, ("machine",), values={"value": Value("value")})


def rows_by_time(source: Stream, since_us: int, ticks: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    factory = factory_of(source, since_us)
    rows = []
    for first, stop in ranges_by_time(ticks, factory, "air", since_us):
        columns = factory.read("air", first, stop)
        rows += list(zip(columns["ts"].tolist(), columns["arrived"].tolist(), strict=True))
    return rows


@pytest.mark.parametrize("options", [{}, {"machines": 4, "outages": 3, "disorder": timedelta(seconds=1)}])
def test_each_second_of_the_clock_has_the_rows_that_arrive_in_it(options: dict[str, Any]) -> None:
    # The query starts 7.3 s after the run.
    since_us, start_us = 1_770_000_000_000_000, 1_770_000_007_300_000
    ticks = [(number, start_us + number * 1_000_000) for number in range(30)]
    source = live(**options)
    rows = rows_by_time(source, since_us, ticks)
    whole = factory_of(source, since_us).read("air", 0, len(rows) + 1)
    assert [arrived for _, arrived in rows] == whole["arrived"][:-1].tolist()
    assert whole["arrived"][len(rows) - 1] <= start_us + 30_000_000 < whole["arrived"][len(rows)]
    assert rows == [row for tick in ticks for row in rows_by_time(source, since_us, [tick])]
    # Rows of a machine are 20 ms apart (80 ms if there are four), and no row is there before its time.
    assert since_us <= min(time_us for time_us, _ in rows) <= since_us + 80_000
    assert all(time_us <= arrived for time_us, arrived in rows)


def test_a_start_time_sets_the_event_times_and_not_the_arrival() -> None:
    ticks = [(0, 5_000_000_000), (1, 5_001_000_000)]
    rows = rows_by_time(live(start=7_000_000), 5_000_000_000, ticks)
    assert len(rows) == 100
    assert 7_000_000 <= min(rows)[0] <= 7_020_000
    for options in ({"rows": 5}, {"rate": 0.0}):
        assert factory_of(live(**options), 5).start_us == START_US


def test_a_live_stream_has_each_row_once_over_restarts(spark: Any, tmp_path: Path) -> None:
    from tocsin.spark.sources.registry import read

    (tmp_path / "run").mkdir()
    Manifest("", "", "", {}, (), None, 1, 1, started=(format_time(time.time() - 3),)).write(tmp_path / "run")

    batches: dict[int, list[tuple[Any, ...]]] = {}

    def record(frame: Any, batch: int) -> None:
        rows = of_rows(frame.collect())
        # A micro-batch that was stopped before its commit runs again.
        assert batches.setdefault(batch, rows) == rows

    def run_until(rows: int) -> int:
        frame = read(spark, live(), streaming=True, run_dir=tmp_path / "run")
        writer = frame.writeStream.option("checkpointLocation", str(tmp_path / "c"))
        query = writer.foreachBatch(record).start()
        deadline = time.monotonic() + 120
        while sum(map(len, batches.values())) < rows and query.isActive and time.monotonic() < deadline:
            time.sleep(0.2)
        query.stop()
        return sum(map(len, batches.values()))

    first = run_until(150)
    second = run_until(first + 50)
    assert second > first >= 150
    found = [row[2] for batch in sorted(batches) for row in sorted(batches[batch], key=lambda row: row[2])]
    factory = factory_of(live(), first_start_us(tmp_path / "run"))
    assert found == factory.read("air", 0, second)["arrived"].tolist()


def test_a_rate_of_0_has_the_next_ranges_in_each_micro_batch(spark: Any, tmp_path: Path) -> None:
    from tocsin.spark.sources.registry import read

    (tmp_path / "run").mkdir()
    for _ in range(2):
        frame = read(spark, live(rate=0.0, machines=7), streaming=True, run_dir=tmp_path / "run")
        writer = frame.groupBy().count().writeStream.format("memory").queryName("counted").outputMode("complete")
        writer = writer.option("checkpointLocation", str(tmp_path / "c"))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination(120)
    assert spark.table("counted").collect()[0][0] == 2 * BATCH_RANGES * RANGE_ROWS


def test_the_ranges_of_a_stream_with_an_end_are_files_in_order(tmp_path: Path) -> None:
    for rows in (RANGE_ROWS + 7, 2 * RANGE_ROWS, 2 * RANGE_ROWS):
        write_ranges(tmp_path, rows)
    files = sorted(tmp_path.iterdir(), key=lambda path: path.stat().st_mtime)
    assert [path.name for path in files] == sorted(path.name for path in tmp_path.iterdir())
    ranges = [tuple(map(int, path.read_text("ascii").split())) for path in files]
    first, second = RANGE_ROWS, RANGE_ROWS + 7
    assert ranges == [(0, first), (first, second), (second, 2 * RANGE_ROWS)]


def test_streams_of_one_run_begin_together(tmp_path: Path) -> None:
    started = ("2026-02-03T04:05:06.000007Z", "2026-03-01T00:00:00.000000Z")
    Manifest("", "", "", {}, (), None, 1, 1, started=started).write(tmp_path)
    assert first_start_us(tmp_path) == 1_770_091_506_000_007


def test_once_needs_an_end() -> None:
    check_end([live(), live(rows=5), live(rate=0.0, rows=5)])
    with pytest.raises(RunError, match="stream `air`: source factory needs `rows` or a `rate` above 0 with --once"):
        check_end([live(rate=0.0)])


def test_what_a_factory_lacks_is_told(spark: Any) -> None:
    from tocsin.spark.sources.registry import read

    with pytest.raises(PlanError, match="needs `rows` for a bounded input"):
        read(spark, stream(), streaming=False)
    odd = Stream("x", Source("factory", {}), ("pump",), values={"value": Value("value")})
    for options in ({"rows": 5}, {"rate": 0.0}):
        with pytest.raises(PlanError, match="needs a time as `start` unless it has a `rate` above 0"):
            read(spark, stream(start="now", **options), streaming=True)
    with pytest.raises(PlanError, match="stream `humidity`: source factory needs a run directory"):
        read(spark, stream(), streaming=True)
    with pytest.raises(PlanError, match=r"has only the columns `machine` .key., `ts` .time. and `value`; got 'pump'"):
        read(spark, odd, streaming=True)
