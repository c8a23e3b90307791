"""The benchmark of the order stage runs, and says when, where and beside what load it was measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import order_speed

pytestmark = pytest.mark.slow


def test_a_quick_run_gives_every_figure(tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    assert order_speed.main(["--quick", "--json", str(file)]) == 0
    results = json.loads(file.read_text("utf-8"))
    assert {"date", "machine", "load_before"} <= results.keys()
    assert [(one["keys"], one["streams"]) for one in results["stage"]] == [(1, 2), (1, 4), (1000, 2), (1000, 4)]
    for one in results["stage"]:
        assert one["order"]["ns_per_row"] > 0
        assert one["with_statistics"]["ns_per_row"] > 0
    assert results["ratio_of_waiting"]["none"] == 1


def test_rows_come_100_a_second_in_each_stream_and_up_to_20_s_late() -> None:
    key, stream, time_us = order_speed.make_rows(40_000, 10, 2)
    for k, s in ((0, 0), (9, 1)):
        mine = time_us[(key == k) & (stream == s)]
        assert len(mine) == 2_000
        delay = [10_000 * i - time for i, time in enumerate(mine.tolist())]
        assert (min(delay), max(delay) <= 20_000_000, {d % 100_000 for d in delay}) == (0, True, {0})
