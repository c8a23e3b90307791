"""What is read of run directories that grow, are half written or damaged: what is right is shown, the rest is told."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dashboard.asked import served
from dashboard.plant import all_alerts, change, copied
from tests.example_counts import examples
from tocsin.dashboard import alert_records, microbatch, rundata
from tocsin.dashboard.alert_index import AlertFilter
from tocsin.dashboard.store import Store
from tocsin.dashboard.tail import Tail
from tocsin.delivery import AlertLog, AlertWriter
from tocsin.delivery.alert_json import format_time
from tocsin.run_directory import read_progress
from tocsin.trace.model import lives_of

SECOND = 1_000_000


def _store(*folders: Path) -> Store:
    store = Store(folders)
    store.look()
    return store


def _tree(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.read_bytes())
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_the_lives_of_a_run_are_those_that_its_log_tells(plant: Path) -> None:
    store = _store(plant / "run")
    run = store.runs["run"]
    assert run.faults == []
    changes = [alert for _, alert in AlertLog(plant / "run" / "alerts").read()]
    lives = lives_of(changes)
    assert len(all_alerts(run.index)) == len(lives) > 25
    told = sorted((life.alert, sorted(life.labels.items()), life.startsAt, life.state) for life in map(_as_told, lives))
    found = sorted((one.alert, sorted(one.labels), _text(one.start_us), one.state) for one in all_alerts(run.index))
    assert found == told
    assert sum(one.changed for one in all_alerts(run.index)) == len(changes)
    total = read_progress(plant / "run")[-1].total
    rows = {row.alert: row for row in store.rules(run)}
    assert {name: rows[name].firing for name in total.alerts} == total.firing()


class _Told:
    def __init__(self, life: Any) -> None:
        self.alert, self.labels, self.startsAt, self.state = life.alert, life.labels, life.start_us, life.state


def _as_told(life: Any) -> _Told:
    return _Told(life)


def _text(time_us: int) -> str:
    from tocsin.rules.durations import event_text

    return event_text(time_us)


def test_nothing_is_written_into_a_run_directory(plant: Path, tmp_path: Path) -> None:
    folder = copied(plant / "run", tmp_path / "run")
    before = _tree(folder)
    store = _store(folder)
    run = store.runs["run"]
    delivery = store.delivery(run)
    for one in store.alerts(run, AlertFilter()).alerts:
        store.change(run, store.changes(run, one)[0].position)
        delivery.of(*store.changes(run, one)[0])
    store.dead(run)
    assert _tree(folder) == before


def test_alerts_are_found_by_state_rule_text_and_id_some_at_a_time(plant: Path) -> None:
    store = _store(plant / "run")
    run = store.runs["run"]
    every = store.alerts(run, AlertFilter(), 10_000).alerts
    assert [one.rank for one in every] == sorted((one.rank for one in every), reverse=True)
    pieces, before = [], None
    while True:
        part = store.alerts(run, AlertFilter(before=before), 7)
        pieces += part.alerts
        before = part.before
        if before is None:
            break
    assert [one.place for one in pieces] == [one.place for one in every]
    damp = store.alerts(run, AlertFilter(alert="TooDamp"), 10_000).alerts
    assert {one.alert for one in damp} == {"TooDamp"}
    assert len(damp) == sum(one.alert == "TooDamp" for one in every)
    one = every[3]
    assert one.id in {found.id for found in store.alerts(run, AlertFilter(text=one.id)).alerts}
    machine = dict(one.labels)["machine"]
    found = store.alerts(run, AlertFilter(text=f"MACHINE={machine}"), 10_000).alerts
    assert {known.place for known in found} == {k.place for k in every if ("machine", machine) in k.labels}
    late = store.alerts(run, AlertFilter(state="late"), 10_000).alerts
    assert late
    assert all(known.is_late for known in late)
    assert store.alerts(run, AlertFilter(text="no such thing")).alerts == []


def test_lines_that_cannot_be_read_are_counted_and_hide_no_others(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    writer = AlertWriter(folder / "alerts")
    path = writer.write(0, [change("Hot", "firing", n * SECOND, id=f"{n}", labels={"m": str(n)}) for n in range(4)])
    assert path is not None
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(
        lines[0] + b'{"alert": 5}\n' + lines[1] + b"\x00\xff\n" + lines[2] + b"[" * 100_000 + lines[3][:40]
    )
    store = _store(folder)
    run = store.runs["run"]
    assert [one.id for one in all_alerts(run.index)] == ["0", "1", "2"]
    assert run.index.unreadable == 3
    assert "cannot read 3 lines of the alert log" in run.faults[0]
    # The last line is written to its end: all of the file is taken once.
    path.write_bytes(b"".join(lines))
    store.look()
    assert [one.id for one in all_alerts(run.index)] == ["0", "1", "2", "3"]
    assert run.faults == []


def test_a_torn_line_waits_for_its_end_and_a_file_that_shrank_is_read_anew(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    tail = Tail(path, 1000)
    assert tail.news().lines == []
    path.write_bytes(b"one\ntw")
    assert tail.news() == ([b"one"], True, False)
    assert tail.news().lines == []
    with path.open("ab") as file:
        file.write(b"o\n\nthree\n")
    assert tail.news() == ([b"two", b"", b"three"], False, False)
    path.write_bytes(b"new\n")
    assert tail.news() == ([b"new"], True, False)
    # Longer than it was, and in the same inode.
    path.write_bytes(b"other\nlines\n")
    assert tail.news() == ([b"other", b"lines"], True, False)
    path.unlink()
    assert tail.news().lines == []


@settings(examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.binary(max_size=12), max_size=12), st.lists(st.integers(0, 60), max_size=8))
def test_however_a_file_grows_each_line_comes_once(tmp_path: Path, lines: list[bytes], cuts: list[int]) -> None:
    path = tmp_path / "lines"
    path.unlink(missing_ok=True)
    whole = b"".join(line.replace(b"\n", b"") + b"\n" for line in lines)
    tail, found, place = Tail(path, 10_000), list[bytes](), 0
    path.touch()
    for cut in [*sorted(cuts), len(whole)]:
        with path.open("ab") as file:
            file.write(whole[place : max(cut, place)])
        place = max(cut, place)
        found += tail.news().lines
    assert found == whole.split(b"\n")[:-1]


@pytest.mark.parametrize("name", ["manifest.json", "progress.jsonl", "summary.json", "delivery/webhook.json"])
@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"null", b'{"version": 99}', b"\xff\xfe\x00", b"[" * 50_000, b'{"batch":1}\n{"a"']
)
def test_a_file_that_is_damaged_breaks_nothing_and_is_told(
    plant: Path, tmp_path: Path, name: str, content: bytes
) -> None:
    folder = copied(plant / "run", tmp_path / "run")
    (folder / name).write_bytes(content)
    store = _store(folder)
    run = store.runs["run"]
    assert len(all_alerts(run.index)) > 25
    assert store.rules(run)
    store.stores(run)
    if name == "manifest.json":
        assert any("manifest" in fault for fault in run.faults)


WILD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


@settings(examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_line_of_progress_with_anything_in_it_is_taken_or_passed_over(
    plant: Path, tmp_path: Path, data: st.DataObject
) -> None:
    line = json.loads((plant / "run" / "progress.jsonl").read_text().splitlines()[-1])
    place: Any = line
    while isinstance(place, dict) and place:
        name = data.draw(st.sampled_from(sorted(place)))
        if not isinstance(place[name], dict) or data.draw(st.booleans()):
            place[name] = data.draw(WILD)
            break
        place = place[name]
    folder = tmp_path / "run"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / "progress.jsonl").write_text(json.dumps(line) + "\n")
    store = _store(folder)
    run = store.runs["run"]
    assert (run.last is None) == (run.torn > 0)
    store.stores(run)


def test_a_run_that_is_written_while_it_is_read_is_known_in_the_end(plant: Path, tmp_path: Path) -> None:
    source, folder = plant / "run", tmp_path / "run"
    folder.mkdir()
    store = Store([folder])
    stop = threading.Event()

    def look() -> None:
        while not stop.is_set():
            store.look()

    reader = threading.Thread(target=look)
    reader.start()
    try:
        for path in sorted(source.rglob("*")):
            target = folder / path.relative_to(source)
            if path.is_dir():
                target.mkdir(exist_ok=True)
                continue
            data = path.read_bytes()
            with target.open("wb") as file:  # Not whole at once, as a copy by other means would be.
                for start in range(0, len(data), 997):
                    file.write(data[start : start + 997])
                    file.flush()
    finally:
        stop.set()
        reader.join()
    store.look()
    wanted, run = _store(source).runs["run"], store.runs["run"]
    assert run.faults == []
    assert [(one.id, one.state) for one in all_alerts(run.index)] == [
        (one.id, one.state) for one in all_alerts(wanted.index)
    ]
    assert run.last == wanted.last


def test_rows_that_could_not_be_used_are_told_by_reason(plant: Path) -> None:
    dead = _store(plant / "run").dead(Store([plant / "run"]).runs["run"], "air")
    assert {one.reason: one.rows for one in dead.reasons} == {
        "value `value` is missing": 2,
        "the line is no JSON object": 2,
    }
    assert dead.is_all
    assert "<script>" in dead.reasons[1].samples[0]


def test_two_backtests_are_compared_as_reports_compare_them(tmp_path: Path) -> None:
    run = tmp_path / "january"
    for folder, shift in (("alerts", 0), ("against/alerts", 10)):
        writer = AlertWriter(run / folder)
        rows = [
            change("Hot", "firing", n * 100 * SECOND, id=f"{n}", labels={"m": str(n)}) for n in range(3 + (shift > 0))
        ]
        ends = [
            {**row, "state": "resolved", "endsAt": change("", "", (50 + shift) * SECOND)["startsAt"]}
            for row in rows[:1]
        ]
        writer.write(0, [*rows, *ends])
    (run / "summary.json").write_text(
        json.dumps({"ok": True, "streams": {"air": {"received": 4, "retained": 4, "kept": 4}}})
    )
    store = _store(run)
    assert list(store.runs) == ["january", "january~against"]
    difference = store.difference(store.runs["january"], store.runs["january~against"])
    assert [len(part) for part in (difference.only_first, difference.only_second, difference.both)] == [0, 1, 3]
    assert [one.id for one, _ in difference.moved] == ["0"]
    assert [(one.name, one.received, one.now) for one in store.stores(store.runs["january"])] == [("air", 4, 4)]


def test_nothing_is_parsed_while_pages_wait(plant: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = copied(plant / "run", tmp_path / "run")
    (folder / "summary.json").write_text("{}")
    store = Store([folder])
    parsed: list[bool] = []

    def watched(module: ModuleType, name: str) -> None:
        whole = getattr(module, name)

        def parse(*given: Any) -> Any:
            parsed.append(store.lock.locked())
            return whole(*given)

        monkeypatch.setattr(module, name, parse)

    watched(rundata, "read_manifest")
    watched(rundata, "_read_summary")
    watched(microbatch, "parse_progress")
    watched(microbatch, "numbers_of")
    watched(alert_records, "decode_alert")
    store.look()
    assert len(parsed) >= 2 + 2 * 7 + 25
    assert not any(parsed)
    assert store.runs["run"].is_backtest


def test_of_numbers_by_alert_fewer_are_kept(plant: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tocsin.dashboard.rundata.MOST_OF_ALERT", 4)
    history = _store(plant / "run").runs["run"].history
    assert len(history["state bytes"]) == 7
    assert 0 < len(history["wait_us TooDamp"]) <= 4
    assert 0 < len(history["wait_recall TooDamp"]) <= 4


def test_runs_of_the_same_name_are_told_apart(tmp_path: Path) -> None:
    for side in ("one", "two"):
        (tmp_path / side / "run").mkdir(parents=True)
    assert list(Store([tmp_path / "one" / "run", tmp_path / "two" / "run"]).runs) == ["run", "run-2"]


def test_the_command_imports_neither_spark_nor_numba_nor_pandas() -> None:
    code = (
        "import sys; import tocsin.cli.main, tocsin.dashboard.app, tocsin.dashboard.serve; "
        "print(*[n for n in ('pyspark', 'numba', 'pandas', 'pyarrow', 'z3') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env={**os.environ})
    assert done.stdout.strip() == ""


def test_a_change_of_state_that_lacks_what_a_reader_lets_be_missing_is_shown(tmp_path: Path) -> None:
    rows = [change("Hot", "firing", SECOND, id="a", witness=[{"stream": "air", "time": "2026-01-01T00:00:00.000000Z"}])]
    for name in ("endsAt", "value", "margin"):
        del rows[0][name]
    rows[0]["witness"][0]["values"] = {}
    (tmp_path / "run" / "alerts").mkdir(parents=True)
    (tmp_path / "run" / "alerts" / "000000000000.jsonl").write_text(json.dumps(rows[0]) + "\n")
    with served(tmp_path / "run") as server:
        page = server.get("/run/run/alert/a")
    assert page.code == 200
    assert "not finite" in page.text


def test_a_look_that_fails_is_followed_by_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "run").mkdir()
    store = Store([tmp_path / "run"])
    monkeypatch.setattr("tocsin.dashboard.store.LOOK_S", 0.01)
    looks: list[int] = []

    def look(*_: Any) -> None:
        looks.append(1)
        if len(looks) < 3:
            raise RuntimeError

    monkeypatch.setattr(store.runs["run"], "look", look)
    store.start()
    until = threading.Event()
    while len(looks) < 5:
        until.wait(0.01)
    store.close()
    assert len(looks) >= 5
    assert not store._thread.is_alive()


def test_whether_a_run_goes_on_is_told_by_its_lock_and_its_last_line(plant: Path, tmp_path: Path) -> None:
    folder = copied(plant / "run", tmp_path / "run")
    store = _store(folder)
    assert store.runs["run"].holder == ""
    (folder / "lock").write_text(f"{os.getpid()}\n")
    assert store.runs["run"].holder == str(os.getpid())
    (folder / "lock").write_text("999999999\n")
    assert store.runs["run"].holder == ""
    line = json.loads((folder / "progress.jsonl").read_text().splitlines()[-1])
    with (folder / "progress.jsonl").open("a") as file:
        file.write(json.dumps({**line, "batch": 99, "time": format_time(time.time())}) + "\n")
    store.look()
    assert store.runs["run"].holder == "999999999"


def test_what_is_no_file_holds_up_nothing(plant: Path, tmp_path: Path) -> None:
    folder = copied(plant / "run", tmp_path / "run")
    for name in ("alerts/000000000001.jsonl", "manifest.json", "summary.json", "progress.jsonl"):
        (folder / name).unlink(missing_ok=True)
        os.mkfifo(folder / name)
    os.mkfifo(folder / "dead" / "999999999999.jsonl")
    os.mkfifo(folder / "delivery" / "pipe.json")
    (folder / "alerts" / "000000000002.jsonl").unlink()
    (folder / "alerts" / "000000000002.jsonl").mkdir()
    store = _store(folder)
    run = store.runs["run"]
    assert "`manifest.json` is not a file" in run.faults
    assert len(all_alerts(run.index)) > 5
    assert store.dead(run).looked_at > 0
    assert "pipe" not in run.sinks()
