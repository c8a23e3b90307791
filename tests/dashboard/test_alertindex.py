"""The lives of an alert log: each change of state is taken once, whatever becomes of files and disks."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import pytest

from dashboard.plant import change
from tocsin.dashboard.alertindex import AlertIndex
from tocsin.dashboard.store import Asked, Store
from tocsin.delivery import AlertWriter

SECOND = 1_000_000


def test_a_log_that_grows_is_read_on_and_a_batch_that_was_run_again_changes_nothing(tmp_path: Path) -> None:
    writer, index = AlertWriter(tmp_path), AlertIndex(tmp_path)

    def read() -> list[tuple[str, str]]:
        list(index.read())
        return [(one.id, one.state) for one in index.all]

    assert read() == []
    first = change("Hot", "firing", 5 * SECOND, id="a")
    writer.write(1, [first])
    assert read() == [("a", "firing")]
    writer.write(1, [first])
    assert read() == [("a", "firing")]
    writer.write(2, [change("Hot", "resolved", 5 * SECOND, id="a", ends_us=9 * SECOND)])
    assert read() == [("a", "resolved")]
    assert index.open == []
    # Run again with another result, as never should be: all is read anew.
    writer.write(2, [change("Hot", "firing", 7 * SECOND, id="b", labels={"machine": "m2"})])
    assert read() == [("a", "firing"), ("b", "firing")]
    (tmp_path / "000000000002.jsonl").unlink()
    assert read() == [("a", "firing")]


def _fails_after(lines: int) -> Callable[[Path], Iterator[tuple[bytes, None]]]:
    """A disk that fails inside a file, which cannot be had otherwise."""

    def failing(path: Path) -> Iterator[tuple[bytes, None]]:
        with path.open("rb") as file:
            yield from ((raw, None) for raw in islice(file, lines))
        raise OSError(5, "the disk failed")

    return failing


def test_a_disk_that_fails_inside_a_file_makes_no_change_of_state_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = AlertIndex(tmp_path)
    rows = [change("Hot", "firing", n * SECOND, id=f"{n}", labels={"m": str(n)}) for n in range(5)]
    ended = change("Hot", "resolved", 0, id="0", labels={"m": "0"}, ends_us=9 * SECOND)
    path = AlertWriter(tmp_path).write(0, [*rows, ended])
    assert path is not None
    os.utime(tmp_path, (1, 1))
    for lines in (3, 2, 6, 4):
        with monkeypatch.context() as patched:
            patched.setattr("tocsin.dashboard.alertfile.lines_of", _fails_after(lines))
            list(index.read())
        assert index.unreadable == 1
        assert "the disk failed" in index.fault
    list(index.read())
    assert [one.id for one in index.all] == ["0", "1", "2", "3", "4"]
    assert (index.changes, index.rules["Hot"].fired, index.unreadable) == (6, 5, 0)


def test_a_file_that_was_replaced_after_its_disk_failed_is_read_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = AlertIndex(tmp_path)
    AlertWriter(tmp_path).write(0, [change("Hot", "firing", n * SECOND, id=f"a{n}") for n in range(3)])
    with monkeypatch.context() as patched:
        patched.setattr("tocsin.dashboard.alertfile.lines_of", _fails_after(2))
        list(index.read())
    AlertWriter(tmp_path).write(0, [change("Hot", "firing", 7 * SECOND, id="b")])
    for _ in range(2):
        list(index.read())
    assert [one.id for one in index.all] == ["b"]
    assert index.unreadable == 0


def test_files_behind_one_that_was_replaced_do_not_come_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index, writer = AlertIndex(tmp_path), AlertWriter(tmp_path)
    writer.write(0, [change("Hot", "firing", n * SECOND, id=f"a{n}") for n in range(3)])
    with monkeypatch.context() as patched:
        patched.setattr("tocsin.dashboard.alertfile.lines_of", _fails_after(2))
        list(index.read())
    writer.write(0, [change("Hot", "firing", 7 * SECOND, id="b")])
    writer.write(1, [change("Hot", "resolved", 7 * SECOND, id="b", ends_us=9 * SECOND)])
    for _ in range(2):
        list(index.read())
    assert [(one.id, one.state) for one in index.all] == [("b", "resolved")]
    assert index.open == []


def test_an_alert_that_another_replaces_before_its_end_fires_no_more(tmp_path: Path) -> None:
    writer = AlertWriter(tmp_path / "run" / "alerts")
    writer.write(0, [change("Hot", "firing", 1 * SECOND, id="a"), change("Cold", "pending", 1 * SECOND, id="c")])
    writer.write(1, [change("Hot", "firing", 5 * SECOND, id="b"), change("Cold", "pending", 6 * SECOND, id="d")])
    writer.write(2, [change("Hot", "resolved", 5 * SECOND, id="b", ends_us=9 * SECOND)])
    store = Store([tmp_path / "run"])
    store.look()
    run = store.runs["run"]
    rows = {row.alert: row for row in store.rules(run)}
    assert (rows["Hot"].firing, rows["Hot"].fired, rows["Cold"].pending) == (0, 2, 1)
    assert store.alerts(run, Asked(state="firing")).alerts == []
    found = {one.id: (one.state, one.end_us) for one in run.index.all}
    assert found == {
        "a": ("resolved", 5 * SECOND),
        "b": ("resolved", 9 * SECOND),
        "c": ("inactive", 6 * SECOND),
        "d": ("pending", None),
    }


@pytest.mark.parametrize("folder_too", [False, True])
def test_a_log_whose_files_have_all_gone_has_no_alerts(tmp_path: Path, *, folder_too: bool) -> None:
    index = AlertIndex(tmp_path / "alerts")
    AlertWriter(tmp_path / "alerts").write(0, [change("Hot", "firing", SECOND, id="a")])
    list(index.read())
    shutil.rmtree(tmp_path / "alerts")
    if not folder_too:
        (tmp_path / "alerts").mkdir()
    list(index.read())
    assert (index.all, index.open, index.rules) == ([], [], {})


def test_of_labels_that_are_forgotten_nothing_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tocsin.dashboard.alertindex.MOST", 20)
    index = AlertIndex(tmp_path)
    rows = [change("Hot", "match", n * SECOND, id=f"{n}", labels={"m": str(n)}, ends_us=n * SECOND) for n in range(200)]
    for batch in range(20):
        AlertWriter(tmp_path).write(batch, rows[10 * batch : 10 * batch + 10])
        list(index.read())
        assert all(index.words(one.labels) == f"m={one.id}" for one in index.all)
    assert len(index.all) <= 25
    assert index.forgotten + len(index.all) == 200
    assert len(index._labels) <= 25
    assert len(index._words) <= 25
    assert all(one.labels is index._labels[one.labels] for one in index.all)


def test_where_most_alerts_go_on_the_oldest_are_not_looked_for_with_each_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tocsin.dashboard.alertindex.MOST", 40)
    looked: list[int] = []
    whole = AlertIndex._drop_oldest

    def counted(index: AlertIndex) -> None:
        looked.append(len(index.all))
        whole(index)

    monkeypatch.setattr(AlertIndex, "_drop_oldest", counted)
    rows = [change("Hot", "firing", n * SECOND, id=f"{n}", labels={"m": str(n)}) for n in range(90)]
    ended = [
        change("Hot", "resolved", n * SECOND, id=f"{n}", labels={"m": str(n)}, ends_us=99 * SECOND) for n in range(85)
    ]
    AlertWriter(tmp_path).write(0, rows)
    index = AlertIndex(tmp_path)
    list(index.read())
    assert looked == [51, 62, 73, 84]
    # Once those have ended, what is too much is forgotten as ever.
    AlertWriter(tmp_path).write(
        1, [*ended, *(change("Cold", "firing", n, id=f"c{n}", labels={"m": str(n)}) for n in range(5))]
    )
    list(index.read())
    assert len(looked) == 5
    assert len(index.all) == 40
    assert index.forgotten == 55
