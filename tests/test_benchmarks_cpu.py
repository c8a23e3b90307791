"""The benchmark of rules with a budget of processor time: it counts pairs rightly, and a quick run has all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import cpu, cpu_rows

pytestmark = pytest.mark.slow


def test_pairs_are_those_of_equal_keys_within_the_window() -> None:
    calls = cpu.planned(1, cpu.CALL + 300, 1_000, None)[1]
    rows: dict[str, list[tuple[object, int]]] = {"a": [], "b": []}
    for batch in (batch for call in calls for batch in call):
        rows[batch.stream] += [(batch.keys[k], int(t)) for k, t in zip(batch.key, batch.time, strict=True)]
    expected = sum(key == other and abs(at - then) <= 50_000 for key, at in rows["a"] for other, then in rows["b"])
    assert len(calls) == 2
    assert cpu.pairs_of(calls, 50_000) == expected > 0


def test_a_quick_run_has_all_parts_bars_and_the_figure(tmp_path: Path) -> None:
    assert cpu.main(["--quick", "--json", str(tmp_path / "out.json"), "--plots", str(tmp_path)]) == 0
    results = json.loads((tmp_path / "out.json").read_text())
    shares = [row for row in results["runs"] if row["part"] == "shares"]
    assert {(row["rules"], row["asked_percent"]) for row in shares} == {(n, p) for n in (1, 20) for p in cpu.PERCENTS}
    assert all(0 <= row["results_share"] <= 1 for row in shares)
    assert {row["what"] for row in results["runs"] if row["part"] == "costs"} == {"row", "pair", "rule", "result"}
    rows = [row for row in results["runs"] if row["part"] == "rows"]
    asked = {(row["kind"], row["asked_percent"]) for row in rows}
    assert asked == {(kind, percent) for kind in cpu_rows.KINDS for percent in cpu_rows.PERCENTS}
    assert all(0 <= row[f"{way}_share"] <= 1 for row in rows for way in ("results", "oldest", "newest"))
    assert len([row for row in results["runs"] if row["part"] == "row-costs"]) == 3
    assert len(results["bars"]) == 12 + 12
    assert (tmp_path / "cpu_1.png").exists()
