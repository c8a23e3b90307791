"""The benchmark of start-up runs, and reports each case for both versions. No times."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import startup as bench

pytestmark = pytest.mark.slow


def test_quick_run_reports_cases_without_spark_for_both_versions(tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    assert bench.main(["--quick", "--against", str(bench.ROOT), "--json", str(file)]) == 0
    results = json.loads(file.read_text("utf-8"))
    assert set(results["summary"]) == {"import", "run_local_warm", "run_local_cold", "check"}
    for name, case in results["summary"].items():
        assert set(case) == {"old", "new", "ratio"}, name
        assert all(case[version]["cpu"] > 0 for version in ("old", "new"))
