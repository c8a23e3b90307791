"""The archive: a task that is tried again, a micro-batch that is cut otherwise, and runs that share a folder."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs pyspark: install tocsin[spark]")

import pyarrow as pa
import pyarrow.parquet as pq

from tocsin.errors import RunError
from tocsin.spark import archive as module
from tocsin.spark.archive import Archive, _written
from tocsin.spark.blobs import ARRIVAL, PAYLOAD, REASON, TIME

NAMES = {TIME: "ts"}


SCHEMA = pa.schema({"machine": pa.string(), TIME: pa.int64(), ARRIVAL: pa.int64(), "value": pa.float64()})


def rows(*numbers: int) -> pa.RecordBatch:
    columns = {"machine": ["m"] * len(numbers), TIME: numbers, ARRIVAL: numbers, "value": [float(n) for n in numbers]}
    return pa.RecordBatch.from_pydict(columns, SCHEMA)


def task(archive: Archive, batch: int, partition: int, *batches: pa.RecordBatch, attempt: int = 0) -> None:
    """Do what a task does, and see that it hands on what it was given."""
    path = archive.staging / f"{batch:012}" / "air" / f"{partition:05}.parquet"
    handed = list(_written(batches, path, f".{path.stem}.{attempt}", NAMES))
    assert handed == list(batches)


def kept(folder: Path) -> list[float]:
    return sorted(pq.read_table(folder / "air")["value"].to_pylist())


def test_a_batch_that_is_run_again_and_cut_otherwise_replaces_its_files(tmp_path: Path) -> None:
    archive = Archive(str(tmp_path), "7")
    for partition, number in ((0, 1), (1, 2), (2, 3)):
        task(archive, 4, partition, rows(number))
    archive.commit(4)
    assert kept(tmp_path) == [1, 2, 3]
    archive.clear(4)
    task(archive, 4, 0, rows(1, 2, 3))
    task(archive, 4, 0, rows(1, 2, 3), attempt=1)
    archive.commit(4)
    assert kept(tmp_path) == [1, 2, 3]
    archive.commit(5)
    assert [path.name for path in (tmp_path / "air").iterdir()] == ["7-000000000004-00000.parquet"]


def test_archive_keeps_earlier_files_when_a_repair_moved_the_numbers(tmp_path: Path) -> None:
    for first_batch, number in ((0, 1), (6, 2)):
        archive = Archive(str(tmp_path), "7", first_batch)
        task(archive, 4, 0, rows(number))
        archive.commit(4)
    assert kept(tmp_path) == [1, 2]
    names = ["7-000000000004-00000.parquet", "7-000000000010-00000.parquet"]
    assert sorted(path.name for path in (tmp_path / "air").iterdir()) == names


def test_files_of_an_earlier_try_are_replaced_wherever_it_was_cut_off(tmp_path: Path) -> None:
    for step in range(4):
        folder = tmp_path / str(step)
        archive = Archive(str(folder), "7")
        task(archive, 3, 0, rows(30))
        archive.commit(3)
        for partition, number in ((0, 1), (1, 2), (2, 3)):
            task(archive, 4, partition, rows(number))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Path, "replace", dies_after(step))
            with suppress(KeyboardInterrupt):
                archive.commit(4)
        again = Archive(str(folder), "7")
        again.clear(4)
        task(again, 4, 0, rows(1, 2, 3))
        again.commit(4)
        assert kept(folder) == [1, 2, 3, 30]


def dies_after(calls: int) -> Callable[[Path, Path], Path]:
    left, real = [calls], Path.replace

    def replace(path: Path, target: Path) -> Path:
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        return real(path, target)

    return replace


def test_only_the_first_batch_of_a_run_looks_at_the_files_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked, real = list[Path](), Path.glob
    monkeypatch.setattr(Path, "glob", lambda path, pattern: (looked.append(path), real(path, pattern))[1])
    archive = Archive(str(tmp_path), "7")
    for batch in range(5):
        task(archive, batch, 0, rows(batch))
        archive.commit(batch)
    assert looked.count(tmp_path) == 1
    assert kept(tmp_path) == [0, 1, 2, 3, 4]


def test_runs_that_share_a_folder_keep_their_own_files(tmp_path: Path) -> None:
    for run, number in (("1", 10), ("2", 20)):
        archive = Archive(str(tmp_path), run)
        task(archive, 0, 0, rows(number))
        archive.commit(0)
    assert kept(tmp_path) == [10, 20]


def test_a_task_that_fails_leaves_nothing_behind_for_readers(tmp_path: Path) -> None:
    archive = Archive(str(tmp_path), "1")
    path = archive.staging / f"{0:012}" / "air" / "00000.parquet"

    def broken() -> object:
        yield rows(1)
        raise ValueError("gone")

    with pytest.raises(ValueError, match="gone"):
        list(_written(broken(), path, ".00000.0", NAMES))  # type: ignore[arg-type]
    archive.commit(0)
    assert list(tmp_path.rglob("*.parquet")) == []


def test_rows_are_written_in_groups_and_empty_pieces_make_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_ROWS", 3)
    archive = Archive(str(tmp_path), "1")
    task(archive, 0, 0, rows(1, 2), rows(3), rows(), rows(4))
    task(archive, 0, 1, rows())
    task(archive, 0, 2)
    archive.commit(0)
    (file,) = (tmp_path / "air").iterdir()
    assert pq.ParquetFile(file).num_row_groups == 2
    assert kept(tmp_path) == [1, 2, 3, 4]


def test_times_are_timestamps_under_the_names_of_the_rule_file() -> None:
    table = pa.Table.from_batches([rows(1)]).append_column(REASON, pa.array([None], pa.string()))
    table = table.append_column(PAYLOAD, pa.array(["{}"]))
    found = module.as_archived(table, NAMES | {ARRIVAL: "received_at"})
    assert found.column_names == ["machine", "ts", "received_at", "value", "tocsin_reason", "tocsin_payload"]
    assert found.schema.field("ts").type == found.schema.field("received_at").type == pa.timestamp("us", "UTC")


def test_a_column_keeps_the_name_that_the_user_gave_it() -> None:
    table = pa.table({"_machine": ["m"], "machine": ["n"], TIME: [1]})
    assert module.as_archived(table, NAMES).column_names == ["_machine", "machine", "ts"]


def test_an_address_is_refused() -> None:
    with pytest.raises(RunError, match="archive: `path` must be a directory that driver and workers share; got"):
        Archive("s3a://bucket/x", "1")
