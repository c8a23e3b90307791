"""Benchmark of `tocsin backtest`: its data, its rule file and its measurement of processes."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from benchmarks import backtest
from rule_files import load_file

pytestmark = pytest.mark.slow


def test_write_day_writes_equal_ordered_rows_in_each_call(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        assert backtest.write_day(tmp_path / folder, 2, 3, seed=5) == 3 * 1440 * 3
    for stream in backtest.STREAMS:
        one, two = (pq.read_table(tmp_path / folder / "data" / stream / "day-002.parquet") for folder in ("one", "two"))
        assert one.equals(two)
        assert one.num_rows == 3 * 1440
        times = one.column("ts").to_numpy()
        assert (times[1:] >= times[:-1]).all()
        assert len(one.column("machine").unique()) == 3


def test_rule_file_of_the_benchmark_is_valid(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(backtest.RULES)
    assert [rule.alert for rule in load_file(tmp_path / "rules.yaml").rules] == ["Condensation"]


def test_memory_and_cpu_time_are_0_when_the_process_does_not_exist() -> None:
    assert os.getpid() in backtest.process_tree(os.getpid())
    assert backtest.memory_bytes(os.getpid()) > 1 << 20
    assert backtest.cpu_seconds(os.getpid()) > 0
    assert backtest.memory_bytes(2**30) == backtest.cpu_seconds(2**30) == 0
