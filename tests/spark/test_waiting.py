"""On Spark, rules that wait give the alerts of the local engine, bounded and as a stream, however that is cut."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tocsin
from spark.scenarios import Scenario, disorder, plain
from tocsin import Rule
from tocsin.local import run_local_detailed
from tocsin.runtime.metrics import OUTCOMES

pytestmark = pytest.mark.spark

WAITS: dict[str, dict[str, Any]] = {
    "fixed": {"quality": {"wait": "8s"}},
    "max": {"quality": {"wait": "max"}},
    "recall": {"quality": {"recall": 0.95, "period": "20s", "in_order": True}},
}


def waiting(*kinds: str) -> tuple[Scenario, list[Rule]]:
    """Return the input, and one rule per kind of wait."""
    scenario = disorder(machines=4, seconds=120)
    return scenario, [replace(scenario.rule, alert=kind, **WAITS[kind]) for kind in kinds]


@pytest.mark.parametrize(("kinds", "buckets"), [(("fixed",), 3), (("max", "recall"), 1)])
def test_a_bounded_query_gives_the_alerts_of_the_local_engine(
    spark: Any, tmp_path: Path, kinds: tuple[str, ...], buckets: int
) -> None:
    scenario, rules = waiting(*kinds)
    scenario.write(tmp_path, files=3)
    frames = scenario.frames(spark, tmp_path, streaming=False)
    found = tocsin.alerts(frames, rules, arrival=scenario.arrival, buckets=buckets).collect()
    for rule in rules:
        local = run_local_detailed(scenario.arrays(), rule, arrival=scenario.arrival)
        assert local.counts["load"]["behind"] > 0, "some rows must come later than rows wait"
        assert plain([row for row in found if row["alert"] == rule.alert]) == plain(local.alerts)


def test_a_stream_tells_what_the_local_engine_tells_as_far_as_it_has_come(spark: Any, tmp_path: Path) -> None:
    from tocsin.spark import row_outcomes

    scenario, rules = waiting("fixed", "recall")
    scenario.write(tmp_path / "in", 4)
    frames = scenario.frames(spark, tmp_path / "in", streaming=True)
    out = tocsin.alerts(frames, rules, arrival=scenario.arrival, buckets=1)
    writer = out.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "check"))
    query = writer.trigger(availableNow=True).start(str(tmp_path / "out"))
    query.awaitTermination()
    alerts = spark.read.parquet(str(tmp_path / "out")).collect()
    for rule in rules:
        found = plain([row for row in alerts if row["alert"] == rule.alert])
        whole = plain(run_local_detailed(scenario.arrays(), rule, arrival=scenario.arrival).alerts)
        assert len(found) > 20
        # What still waits has said nothing yet; the closing rows are the last to be taken.
        assert Counter(found) <= Counter(whole)
        assert len(found) >= 0.9 * len(whole)
    total: dict[str, Counter[str]] = {name: Counter() for name in scenario.streams}
    for progress in query.recentProgress:
        for name, counts in row_outcomes(progress.observedMetrics).items():
            total[name].update(counts)
    for name, counts in total.items():
        # Both rules count each row of both streams.
        assert counts["received"] == len(rules) * len(scenario.streams[name]["ts"])
        assert counts["received"] == sum(counts[outcome] for outcome in OUTCOMES)
        assert counts["held"] > 0
