"""On Spark, rules that wait give the alerts of the local engine, bounded and as a stream, however that is cut."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tocsin
from spark.scenarios import Scenario, disorder, plain
from tocsin.local import run
from tocsin.logic import FATES

pytestmark = pytest.mark.spark

WAITS: dict[str, dict[str, Any]] = {
    "fixed": {"wait": "8s"},
    "max": {"wait": "max"},
    "recall": {"quality": {"recall": 0.95, "over": "20s", "in_order": True}},
}


def waiting(kind: str) -> Scenario:
    scenario = disorder(machines=4, seconds=120)
    return replace(scenario, rule=replace(scenario.rule, **WAITS[kind]))


@pytest.mark.parametrize(("kind", "buckets"), [("fixed", 3), ("max", 1), ("recall", 1)])
def test_a_bounded_query_gives_the_alerts_of_the_local_engine(
    spark: Any, tmp_path: Path, kind: str, buckets: int
) -> None:
    scenario = waiting(kind)
    scenario.write(tmp_path, files=3)
    frames = scenario.frames(spark, tmp_path, streaming=False)
    found = tocsin.alerts(frames, scenario.rule, arrival=scenario.arrival, buckets=buckets)
    local = run(scenario.arrays(), scenario.rule, arrival=scenario.arrival)
    assert local.counts["load"]["behind"] > 0, "some rows must come later than rows wait"
    assert plain(found.collect()) == plain(local.alerts)


@pytest.mark.parametrize(("kind", "files", "buckets"), [("fixed", 5, 3), ("recall", 4, 1)])
def test_a_stream_tells_what_the_local_engine_tells_as_far_as_it_has_come(
    spark: Any, tmp_path: Path, kind: str, files: int, buckets: int
) -> None:
    from tocsin.spark import counts_of

    scenario = waiting(kind)
    scenario.write(tmp_path / "in", files)
    frames = scenario.frames(spark, tmp_path / "in", streaming=True)
    out = tocsin.alerts(frames, scenario.rule, arrival=scenario.arrival, buckets=buckets)
    writer = out.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "check"))
    query = writer.trigger(availableNow=True).start(str(tmp_path / "out"))
    query.awaitTermination()
    found = plain(spark.read.parquet(str(tmp_path / "out")).collect())
    whole = plain(scenario.local())
    assert len(found) > 20
    # What still waits has said nothing yet; the closing rows are the last to be taken.
    assert Counter(found) <= Counter(whole)
    assert len(found) >= 0.9 * len(whole)
    total: dict[str, Counter[str]] = {name: Counter() for name in scenario.streams}
    for progress in query.recentProgress:
        for name, counts in counts_of(progress.observedMetrics).items():
            total[name].update(counts)
    for name, counts in total.items():
        assert counts["received"] == len(scenario.streams[name]["ts"])
        assert counts["received"] == sum(counts[fate] for fate in FATES)
        assert counts["held"] > 0
