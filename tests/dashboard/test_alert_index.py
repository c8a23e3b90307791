"""The lives of an alert log: each change of state is taken once, whatever becomes of files and disks."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboard.plant import all_alerts, change
from tests.example_counts import examples
from tocsin.dashboard import alert_records
from tocsin.dashboard.alert_index import AlertFilter, AlertIndex
from tocsin.dashboard.store import Store
from tocsin.delivery import AlertWriter

SECOND = 1_000_000


def test_a_log_that_grows_is_read_on_and_a_batch_that_was_run_again_changes_nothing(tmp_path: Path) -> None:
    writer, index = AlertWriter(tmp_path), AlertIndex(tmp_path)

    def read() -> list[tuple[str, str]]:
        list(index.read())
        return [(one.id, one.state) for one in all_alerts(index)]

    assert read() == []
    first = change("Hot", "firing", 5 * SECOND, id="a")
    writer.write(1, [first])
    assert read() == [("a", "firing")]
    writer.write(1, [first])
    assert read() == [("a", "firing")]
    writer.write(2, [change("Hot", "resolved", 5 * SECOND, id="a", ends_us=9 * SECOND)])
    assert read() == [("a", "resolved")]
    assert index.open_alerts(10) == []
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
            patched.setattr("tocsin.dashboard.alert_records.lines_of", _fails_after(lines))
            list(index.read())
        assert index.unreadable == 1
        assert "the disk failed" in index.fault
    list(index.read())
    assert [one.id for one in all_alerts(index)] == ["0", "1", "2", "3", "4"]
    assert (index.events, index.rules["Hot"].fired, index.unreadable) == (6, 5, 0)


def test_a_file_that_was_replaced_after_its_disk_failed_is_read_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = AlertIndex(tmp_path)
    AlertWriter(tmp_path).write(0, [change("Hot", "firing", n * SECOND, id=f"a{n}") for n in range(3)])
    with monkeypatch.context() as patched:
        patched.setattr("tocsin.dashboard.alert_records.lines_of", _fails_after(2))
        list(index.read())
    AlertWriter(tmp_path).write(0, [change("Hot", "firing", 7 * SECOND, id="b")])
    for _ in range(2):
        list(index.read())
    assert [one.id for one in all_alerts(index)] == ["b"]
    assert index.unreadable == 0


def test_files_behind_one_that_was_replaced_do_not_come_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index, writer = AlertIndex(tmp_path), AlertWriter(tmp_path)
    writer.write(0, [change("Hot", "firing", n * SECOND, id=f"a{n}") for n in range(3)])
    with monkeypatch.context() as patched:
        patched.setattr("tocsin.dashboard.alert_records.lines_of", _fails_after(2))
        list(index.read())
    writer.write(0, [change("Hot", "firing", 7 * SECOND, id="b")])
    writer.write(1, [change("Hot", "resolved", 7 * SECOND, id="b", ends_us=9 * SECOND)])
    for _ in range(2):
        list(index.read())
    assert [(one.id, one.state) for one in all_alerts(index)] == [("b", "resolved")]
    assert index.open_alerts(10) == []


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
    assert store.alerts(run, AlertFilter(state="firing")).alerts == []
    found = {one.id: (one.state, one.end_us) for one in all_alerts(run.index)}
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
    assert (all_alerts(index), index.open_alerts(10), index.rules) == ([], [], {})


def _snapshot(index: AlertIndex) -> Any:
    counts = {name: (one.fired, one.matched, one.firing, one.pending) for name, one in index.rules.items()}
    steps = [index.changes_of(one) for one in all_alerts(index)]
    return all_alerts(index), steps, counts, index.events, index.unreadable, index.fault


STATES = st.sampled_from(["pending", "firing", "resolved", "inactive", "match"])
EVENTS = st.lists(
    st.builds(
        lambda alert, state, start, name, m: change(
            alert,
            state,
            start * SECOND,
            id=name,
            labels={"m": m},
            ends_us=None if state in {"pending", "firing"} else (start + 3) * SECOND,
        ),
        alert=st.sampled_from(["Hot", "Cold"]),
        state=STATES,
        start=st.integers(0, 5),
        name=st.sampled_from("abc"),
        m=st.sampled_from(["1", "\ud800", "é"]),
    ),
    max_size=12,
)


@given(st.lists(EVENTS, min_size=1, max_size=5), st.data())
@examples(40)
def test_an_index_that_is_opened_again_at_any_point_equals_one_that_read_the_log_at_once(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[dict[str, Any]]], data: st.DataObject
) -> None:
    folder, stored = tmp_path_factory.mktemp("alerts"), tmp_path_factory.mktemp("index")
    writer, index = AlertWriter(folder), AlertIndex(folder, stored)
    for batch, rows in enumerate(batches):
        writer.write(batch, rows)
        steps = index.read()
        # A process can stop after any step of a look.
        for _ in islice(steps, data.draw(st.integers(0, 3))):
            pass
        steps.close()
        if data.draw(st.booleans()):
            index.close()
            index = AlertIndex(folder, stored)
    list(index.read())
    whole = AlertIndex(folder)
    list(whole.read())
    assert _snapshot(index) == _snapshot(whole)
    rows = [row for each in batches for row in each]
    assert index.events == len(rows)
    for name, counts in whole.rules.items():
        found = [one for one in all_alerts(whole) if one.alert == name]
        assert counts.firing == sum(one.is_open and one.state == "firing" for one in found)
        assert counts.fired + counts.matched == sum(one.has_fired for one in found)
    index.close()
    whole.close()


def test_a_restart_reads_no_line_of_the_log_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer, folder = AlertWriter(tmp_path / "alerts"), tmp_path / "alerts"
    for batch in range(5):
        rows = [change("Hot", "firing", n * SECOND, id=f"{batch}-{n}", labels={"m": f"{n}"}) for n in range(300)]
        writer.write(batch, rows)
    index = AlertIndex(folder, tmp_path / "index")
    list(index.read())
    before = _snapshot(index)
    index.close()
    read: list[str] = []
    whole = alert_records.lines_of

    def watched(path: Path) -> Iterator[Any]:
        read.append(path.name)
        return whole(path)

    monkeypatch.setattr(alert_records, "lines_of", watched)
    again = AlertIndex(folder, tmp_path / "index")
    list(again.read())
    assert (_snapshot(again), read) == (before, [])
    writer.write(5, [change("Hot", "firing", SECOND, id="new")])
    list(again.read())
    assert read == ["000000000005.jsonl"]
    # An old file that was replaced while no dashboard ran is found at the start.
    again.close()
    writer.write(0, [change("Cold", "firing", SECOND, id="other")])
    last = AlertIndex(folder, tmp_path / "index")
    list(last.read())
    assert all_alerts(last)[0].id == "other"
    assert last.rebuilt == 1
    last.close()


@pytest.mark.parametrize("damage", ["text", "cut", "version"])
def test_a_damaged_index_is_rebuilt(tmp_path: Path, damage: str) -> None:
    folder = tmp_path / "alerts"
    AlertWriter(folder).write(
        0, [change("Hot", "firing", n * SECOND, id=f"{n}", labels={"m": f"{n}"}) for n in range(99)]
    )
    index = AlertIndex(folder, tmp_path / "index")
    list(index.read())
    before = _snapshot(index)
    path = index.path
    index.close()
    if damage == "version":
        with closing(sqlite3.connect(path)) as database:
            database.execute("PRAGMA user_version = 77")
    else:
        path.write_bytes(b"no database" if damage == "text" else path.read_bytes()[:9_000])
    again = AlertIndex(folder, tmp_path / "index")
    for _ in range(2):
        list(again.read())
    assert _snapshot(again) == before
    again.close()


def test_a_second_process_uses_an_index_of_its_own(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "tocsin.dashboard")
    AlertWriter(tmp_path / "alerts").write(0, [change("Hot", "firing", SECOND, id="a")])
    first, second = (AlertIndex(tmp_path / "alerts", tmp_path / "index") for _ in range(2))
    for index in (first, second):
        list(index.read())
    assert first.path.parent == tmp_path / "index"
    assert second.path.parent != first.path.parent
    assert _snapshot(first) == _snapshot(second)
    assert "using a temporary index" in caplog.text
    temporary = second.path
    for index in (first, second):
        index.close()
    assert not temporary.exists()


def test_an_index_directory_that_cannot_be_used_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    AlertWriter(tmp_path / "alerts").write(0, [change("Hot", "firing", SECOND, id="a")])
    (tmp_path / "file").write_text("not a directory")
    index = AlertIndex(tmp_path / "alerts", tmp_path / "file" / "index")
    list(index.read())
    assert [one.id for one in all_alerts(index)] == ["a"]
    assert f"cannot store the index in {tmp_path / 'file' / 'index'}" in caplog.text
    index.close()


def test_an_index_that_cannot_be_written_is_a_fault_and_loses_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "alerts"
    AlertWriter(folder).write(0, [change("Hot", "firing", SECOND, id="a")])
    index = AlertIndex(folder, tmp_path / "index")
    list(index.read())
    with closing(sqlite3.connect(index.path)) as other:
        other.execute("PRAGMA busy_timeout = 0")
        assert index._database is not None
        index._database.execute("PRAGMA busy_timeout = 1")
        other.execute("BEGIN IMMEDIATE")
        AlertWriter(folder).write(1, [change("Hot", "resolved", SECOND, id="a", ends_us=9 * SECOND)])
        list(index.read())
        assert "cannot write the alert index" in index.problem
        assert index.rules["Hot"].firing == 1
    list(index.read())
    assert index.problem == ""
    assert [(one.id, one.state, one.changed) for one in all_alerts(index)] == [("a", "resolved", 2)]
    index.close()


def test_indexes_that_were_not_used_for_long_are_deleted(tmp_path: Path) -> None:
    old, recent = AlertIndex(tmp_path / "old", tmp_path / "index"), AlertIndex(tmp_path / "new", tmp_path / "index")
    for index in (old, recent):
        index.close()
    os.utime(old.path.with_suffix(".lock"), (1, 1))
    third = AlertIndex(tmp_path / "third", tmp_path / "index")
    assert sorted(path.name for path in (tmp_path / "index").glob("*.db")) == sorted(
        [recent.path.name, third.path.name]
    )
    third.close()
