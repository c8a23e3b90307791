"""The late sink of a run: rows that came behind are in RUN/late; those that are too far ahead are in RUN/dead."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.spark.test_run_shared_wait import SECOND, START, run_until

pytestmark = pytest.mark.spark

RULES = """\
streams:
  a: {source: {json: {path: in/a}}, keys: [machine], arrival: at, max_ahead: 5m}
groups:
  - name: plant
    rules:
      - {alert: High, expr: a > 20, on: [machine], quality: {wait: 1s}, allowed_lateness: 1m}
"""
# Time and arrival in seconds: 92 comes 2 s after 94 was taken, 1 is too old for anything, 1000 comes before its time.
ROWS = [(93, 93), (95, 95), (97, 97), (92, 98), (1, 99), (1000, 100), (300, 101)]


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in sorted(folder.rglob("*.jsonl")) for line in path.read_text().splitlines()]


def test_late_rows_go_to_their_sink_and_rows_from_the_future_are_shown(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(RULES)
    (tmp_path / "in" / "a").mkdir(parents=True)
    rows = [{"machine": "m", "ts": START + ts * SECOND, "at": START + at * SECOND, "value": ts} for ts, at in ROWS]
    (tmp_path / "in" / "a" / "0.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    ended = run_until(spark, tmp_path, 0)
    late = [(row["values"]["value"], row["rules"], "dropped" in row["reason"]) for row in lines(tmp_path / "run/late")]
    assert sorted(late) == [(1.0, ["High"], False), (1.0, ["High"], True), (92.0, ["High"], False)]
    (dead,) = lines(tmp_path / "run" / "dead")
    assert "max_ahead" in json.dumps(dead)
    counts = ended.progress.total.counts["a"]
    # 300 is less than 5 minutes ahead: it is used, and its rule waits for what comes after.
    assert (counts["received"], counts["quarantined"], counts["late"], counts["behind"]) == (7, 1, 1, 2)
