"""A run goes on with an edited rule file: what stayed does not notice, what is gone is ended, streams come and go."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spark import plant
from spark.test_run import InProcess, alerts, check_alerts
from tocsin.run_directory import read_manifest

pytestmark = pytest.mark.spark

HOT = """\
      - alert: Hot
        expr: air > 0
        on: [machine]
        stale: 30d
"""
COLD = """\
      - alert: Cold
        expr: surface < 100
        on: [machine]
        stale: 30d
"""


@pytest.fixture
def inside(spark: Any, tmp_path: Path) -> Iterator[InProcess]:
    from tocsin.spark.sources.data_sources import NAMED_SOURCES

    before = {name: spark.conf.get(name, None) for name in NAMED_SOURCES}
    for name, value in NAMED_SOURCES.items():
        spark.conf.set(name, value)
    yield InProcess(spark, tmp_path)
    for name, value in before.items():
        spark.conf.unset(name) if value is None else spark.conf.set(name, value)


def without(text: str, stream: str, alert: str) -> str:
    """The rules without a stream and the rule that reads it alone."""
    head, _, rest = text.partition(f"  {stream}:\n")
    text = head + rest[rest.index("time_unit: s\n") + len("time_unit: s\n") :]
    head, _, rest = text.partition(f"      - alert: {alert}\n")
    return head + rest[rest.index("      - alert:") :]


def test_rules_and_streams_come_and_go(inside: InProcess) -> None:
    fewer = without(plant.RULES, "pulse", "Pulse")
    inside.rules(fewer + HOT)
    assert inside.run(stop_after=1).stopped
    hot = {row["labels"]["machine"]: row["id"] for row in alerts(inside.folder, "Hot")}
    assert len(hot) == plant.MACHINES
    # A rule goes, another comes, and a stream with it; the rule that stays has the alerts that it would have had.
    inside.rules(plant.RULES + COLD)
    assert not inside.run().stopped
    assert read_manifest(inside.folder / "run").changes == (
        'rule "Hot" {team="hvac"}: it was removed; its open alerts end',
        'rule "Cold" {team="hvac"}: it is new; it starts with the retained rows',
        'rule "Pulse" {team="hvac"}: it is new; it starts with the retained rows',
    )
    ended = [row for row in alerts(inside.folder, "Hot") if row["state"] == "resolved"]
    assert {row["labels"]["machine"]: row["id"] for row in ended} == hot
    assert {row["quality"] for row in ended} == {"exact rule-changed"}
    assert [row["state"] for row in alerts(inside.folder, "Cold")] == ["firing"] * plant.MACHINES
    check_alerts(inside.folder, ["firing"])
    # And a stream goes.
    inside.rules(fewer + COLD)
    inside.run()
    assert [row["quality"] for row in alerts(inside.folder, "Pulse")] == ["exact", "exact rule-changed"]
