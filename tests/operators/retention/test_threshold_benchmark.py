"""The benchmark of the reduction runs, on small inputs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.__main__ import main


@pytest.mark.slow
def test_a_quick_run_writes_results_and_draws_plots(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["threshold-kernel", "--quick", "--json", str(tmp_path / "out.json"), "--plots", str(tmp_path)]) == 0
    results = json.loads((tmp_path / "out.json").read_text("utf-8"))
    assert json.loads(capsys.readouterr().out) == results
    assert all(row["kept"] >= row["minimum"] for row in results["table_1"])
    assert len(list(tmp_path.glob("*.png"))) == 4
