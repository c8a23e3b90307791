"""The benchmark of many keys runs, and reports both versions. No times."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import many_keys as bench

pytestmark = pytest.mark.slow


def test_quick_run_reports_time_and_bytes_for_both_versions(tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    assert bench.main(["--quick", "--against", str(bench.ROOT), "--json", str(file)]) == 0
    results = json.loads(file.read_text("utf-8"))
    assert set(results["summary"]) == {"old", "new"}
    for found in results["summary"].values():
        assert found["steady_us_per_row"] > found["pages_us_per_row"] > 0
        assert found["bytes_per_key"] <= 150
