"""The benchmark of `tocsin backtest`: its data are seeded and in order, and its rule file is right."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow.parquet as pq

from benchmarks import backtest
from loaded import load_file


def test_a_day_is_a_reading_a_minute_and_machine_and_the_same_each_time(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        assert backtest.write_day(tmp_path / folder, 2, 3, seed=5) == 3 * 1440 * 3
    for stream in backtest.STREAMS:
        one, two = (pq.read_table(tmp_path / folder / "data" / stream / "day-002.parquet") for folder in ("one", "two"))
        assert one.equals(two)
        assert one.num_rows == 3 * 1440
        times = one.column("ts").to_numpy()
        assert (times[1:] >= times[:-1]).all()
        assert len(one.column("machine").unique()) == 3


def test_its_rule_file_is_right(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(backtest.RULES)
    assert [rule.alert for rule in load_file(tmp_path / "rules.yaml").rules] == ["Condensation"]


def test_memory_and_time_of_processes_are_found() -> None:
    family = backtest.children(os.getpid())
    assert os.getpid() in family
    assert backtest.memory(os.getpid()) > 1 << 20
    assert backtest.cpu_seconds(os.getpid()) > 0
    assert backtest.memory(2**30) == backtest.cpu_seconds(2**30) == 0
