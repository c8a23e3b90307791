"""Figures of the benchmark of catching up: rates, ratios within a round, and bars. No times."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.catch_up import BATCH, bars, figures, main, summary


def spark_run(seconds: list[float]) -> dict[str, Any]:
    batches = [{"rows": BATCH, "ms": {"triggerExecution": 1000 * one}, "cpu_s": one} for one in seconds]
    return {"batches": batches, "wall_s": 30.0, "cpu_s": 50.0, "alerts": {"match": 7}}


def flink_run(elapsed_s: float) -> dict[str, Any]:
    return {"elapsed_s": elapsed_s, "wall_s": elapsed_s + 10, "cpu_s": 2 * elapsed_s, "pairs": 7}


def test_ratios_exclude_the_first_micro_batch_and_compare_runs_of_one_round() -> None:
    one = {"witness": spark_run([9, 2, 4]), "all": spark_run([9, 3, 3]), "nothing": spark_run([9, 2, 2])}
    found = figures(one | {"flink_first": flink_run(4.0), "flink": flink_run(20.0)}, BATCH, 3)
    assert found["witness: rows/s after the first batch"] == 2 * BATCH / 6
    assert found["witness / nothing: time after the first batch"] == 1.5
    assert found["flink: rows/s"] == 3 * BATCH / 20
    assert found["flink: rows/s after the first 10^6 rows"] == 2 * BATCH / 16
    assert found["witness / flink: rows/s"] == pytest.approx(20 / 9)
    assert found["pairs of all"] == found["pairs of flink"] == 7


def test_bars_use_the_medians_of_all_rounds() -> None:
    rounds = [{"all / nothing: time after the first batch": ratio} for ratio in (1.1, 1.3, 1.15)]
    (bar,) = bars(summary(rounds))
    assert bar == {
        "what": "all / nothing: time after the first batch", "value": 1.15, "asked": "<= 1.2", "met": True
    }  # fmt: skip


def test_missing_folder_of_peers_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("TOCSIN_PEERS", raising=False)
    with pytest.raises(SystemExit):
        main(["--quick"])
    assert "--peers must name the folder" in capsys.readouterr().err
