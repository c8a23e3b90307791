"""The benchmark of the dashboard runs, and the directory it makes is one that a run could have written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import dashboard
from benchmarks.dashboard_data import make_run
from tocsin.dashboard.alert_index import AlertFilter
from tocsin.dashboard.store import Store
from tocsin.delivery import AlertLog
from tocsin.run_directory import read_manifest, read_progress

pytestmark = pytest.mark.slow


def test_a_quick_run_gives_every_figure(tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    assert dashboard.main(["--quick", "--json", str(file)]) == 0
    result = json.loads(file.read_text("utf-8"))
    assert {"date", "machine", "load_before"} <= result["conditions"].keys()
    assert list(result["read"]["pages"]) == list(dashboard.PAGES)
    assert all(page["answer_ms"] > 0 for page in result["read"]["pages"].values())
    assert result["cpu_seconds_until_read"] > 0
    assert result["restart"]["log_bytes_read"] == 0 < result["restart"]["events"]


def test_what_is_made_is_read_back_whole(tmp_path: Path) -> None:
    run = make_run(tmp_path / "big", alerts=300, rules=12, batches=9)
    log = AlertLog(run / "alerts")
    changes = [alert for _, alert in log.read()]
    assert log.corrupt == 0
    assert len({change["id"] for change in changes}) == 300
    progress = read_progress(run)
    assert len(progress) == 9
    assert sum(progress[-1].total.firing().values()) == 3
    manifest = read_manifest(run)
    assert manifest is not None
    assert len(manifest.rules) == 12
    store = Store([run])
    store.look()
    known = store.runs["big"]
    assert known.faults == []
    assert len(store.alerts(known, AlertFilter(state="firing"), 1000).alerts) == 3
    assert known.index.count == 300
    # The same seed makes the same directory.
    again = make_run(tmp_path / "again", alerts=300, rules=12, batches=9)
    assert [a for _, a in AlertLog(again / "alerts").read()] == changes
