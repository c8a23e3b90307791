"""Row counters: the driver sees the rows of a running task, and the sums equal the rows of the input."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from tocsin import Rule
from tocsin.plan import make_plan
from tocsin.runtime.alert_batch import AlertBatch
from tocsin.spark import row_counter
from tocsin.spark.blobs import TIME
from tocsin.spark.history import rows_of_plans
from tocsin.spark.quiet import RowProgress, measure_rows
from tocsin.spark.row_counter import EVALUATED, FOLDED, RowCounter, sum_counters

ROWS = 3_000


class Task(NamedTuple):
    """What a counter reads of Spark's task context."""

    folder: str | None
    stage: int = 3
    partition: int = 0

    def getLocalProperty(self, name: str) -> str | None:
        assert name == row_counter.PROPERTY
        return self.folder

    def stageId(self) -> int:
        return self.stage

    def partitionId(self) -> int:
        return self.partition


def run_in(monkeypatch: pytest.MonkeyPatch, task: Task | None) -> None:
    monkeypatch.setattr(row_counter, "TaskContext", type("Context", (), {"get": staticmethod(lambda: task)}))


def test_counter_is_visible_when_its_task_still_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_in(monkeypatch, Task(str(tmp_path)))
    with RowCounter(FOLDED) as counter:
        assert sum_counters(tmp_path, FOLDED) == 0
        counter.add(7)
        counter.add(1_000_000)
        assert sum_counters(tmp_path, FOLDED) == 1_000_007
        assert sum_counters(tmp_path, EVALUATED) == 0
    assert sum_counters(tmp_path, FOLDED) == 1_000_007


def test_counters_are_summed_over_tasks_and_restart_when_a_task_is_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for partition, rows in ((0, 5), (1, 70), (0, 2)):
        run_in(monkeypatch, Task(str(tmp_path), partition=partition))
        with RowCounter(FOLDED) as counter:
            counter.add(rows)
    assert sum_counters(tmp_path, FOLDED) == 72
    (tmp_path / f"{FOLDED}-9-9").write_bytes(b"")
    assert sum_counters(tmp_path, FOLDED) == 72


@pytest.mark.parametrize("folder", [None, "", "/does/not/exist"])
def test_counter_counts_nothing_when_its_folder_is_missing(folder: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    for task in (Task(folder), None):
        run_in(monkeypatch, task)
        with RowCounter(FOLDED) as counter:
            counter.add(5)


@pytest.mark.spark
def test_progress_covers_all_rows_of_bounded_plans(spark: Any, tmp_path: Path) -> None:
    import pandas as pd

    path = str(tmp_path / "rows.parquet")
    numbers = np.arange(ROWS)
    table = pd.DataFrame({"machine": numbers % 7, "site": numbers % 3, TIME: numbers * 1_000, "v": numbers * 1.0})
    table.astype({"machine": str, "site": str}).to_parquet(path)
    # Two key sets read the stream, so each row reaches the operator twice.
    plans = [
        make_plan([Rule("High", "a.v > 5", on=[key])], {"a": [key, TIME, "v"]}, time=TIME)
        for key in ("machine", "site")
    ]
    seen: list[RowProgress] = []
    with measure_rows(spark) as measured:
        ended = threading.Event()

        def watch() -> None:
            while not ended.wait(0.05):
                seen.append(measured())

        thread = threading.Thread(target=watch)
        thread.start()
        with rows_of_plans({"a": spark.read.parquet(path)}, plans) as rows:
            after = measured()
            assert any(isinstance(one, AlertBatch) for one in rows.told())
        ended.set()
        thread.join()
    assert after == RowProgress(ROWS, ROWS, ROWS)
    assert seen
    assert all(one.evaluated <= one.folded <= one.read for one in seen)
    assert not spark.sparkContext.getLocalProperty(row_counter.PROPERTY)
    # A later measure begins at 0, and jobs outside a measure are not counted.
    spark.read.parquet(path).count()
    with measure_rows(spark) as measured:
        assert measured() == RowProgress(0, 0, 0)
        assert spark.read.parquet(path).filter("v >= 0").collect()
        assert measured().read == ROWS
