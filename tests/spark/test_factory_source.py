"""The factory as a source of Spark."""

from __future__ import annotations

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


def test_without_an_end_rows_come_at_their_rate_since_the_first_start(spark: Any, tmp_path: Path) -> None:
    from tocsin.spark.factory import FactorySource

    reader = FactorySource({"machines": "1", "seed": "0", "rate": "50", "disorder_us": "0", "outages": "0", "rows": "0",
                            "sensor": "air"}).streamReader(None)  # fmt: skip
    start = reader.initialOffset()
    hour_ago = {"next": 10, "since_us": start["since_us"] - 3_600_000_000}
    now = reader.latestOffset(hour_ago, None)
    assert now["since_us"] == hour_ago["since_us"]
    assert now["next"] >= 50 * 3_600
    assert reader.latestOffset({"next": 10**9, "since_us": start["since_us"]}, None)["next"] == 10**9


def test_what_a_factory_lacks_is_told(spark: Any) -> None:
    from tocsin.spark.sources import read

    with pytest.raises(PlanError, match="must be told `rows` where its end is wanted; it has none"):
        read(spark, stream(), streaming=False)
    odd = Stream("x", Source("factory", {}), ("pump",), values={"value": Value("value")})
    with pytest.raises(PlanError, match=r"has the columns `machine` .a key., `ts` .the time. and `value`; got 'pump'"):
        read(spark, odd, streaming=True)
