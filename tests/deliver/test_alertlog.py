from __future__ import annotations

import json
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deliver.alerts import ManualClock, changes, row, write_log
from tocsin.deliver import AlertLog, AlertWriter, Position
from tocsin.deliver.encode import alert_of, decode

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
NUMBERS = st.none() | st.floats()
TIMES = st.integers(-(10**17), 10**18)
ROWS = st.fixed_dictionaries(
    {
        "alert": TEXTS,
        "id": TEXTS,
        "state": st.sampled_from(["pending", "firing"]),
        "labels": st.dictionaries(TEXTS, TEXTS, max_size=3),
        "startsAt": TIMES,
        "firesAt": st.none() | TIMES,
        "endsAt": st.none() | TIMES,
        "value": NUMBERS,
        "margin": NUMBERS,
        "quality": TEXTS,
        "annotations": st.dictionaries(TEXTS, TEXTS, max_size=2),
        "witness": st.lists(
            st.fixed_dictionaries(
                {
                    "stream": TEXTS,
                    "time": TIMES,
                    "values": st.dictionaries(TEXTS, NUMBERS, max_size=2),
                    "payload": st.none() | st.dictionaries(TEXTS, st.none() | TEXTS, max_size=2),
                }
            ),
            max_size=2,
        ),
    }
)


@given(rows=st.lists(ROWS, min_size=1, max_size=4), form=st.sampled_from(["json", "parquet"]))
def test_what_is_written_is_read_back_in_either_form(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]], form: str
) -> None:
    folder = tmp_path_factory.mktemp("log")
    AlertWriter(folder, form).write(3, rows)
    read = list(AlertLog(folder).read())
    assert [position for position, _ in read] == [Position(3, line) for line in range(len(rows))]
    assert [alert for _, alert in read] == [alert_of(each) for each in rows]


@given(rows=st.lists(ROWS, min_size=1, max_size=3))
def test_a_line_is_strict_json(tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]]) -> None:
    path = AlertWriter(tmp_path_factory.mktemp("log")).write(0, rows)
    assert path is not None

    def refuse(word: str) -> None:
        pytest.fail(f"{word} is not JSON")

    lines = path.read_bytes().split(b"\n")
    assert lines[-1] == b""
    parsed = [json.loads(line, parse_constant=refuse) for line in lines[:-1]]
    assert [each["alert"] for each in parsed] == [each["alert"] for each in rows]


def test_a_number_that_is_not_finite_is_null_and_a_wild_time_is_moved_inside() -> None:
    alert = alert_of(row(value=float("nan"), margin=float("-inf"), startsAt=10**18, endsAt=-(10**18)))
    assert (alert["value"], alert["margin"]) == (None, None)
    assert alert["startsAt"] == "9999-12-31T23:59:59.999999Z"
    assert alert["endsAt"] == "0001-01-01T00:00:00.000000Z"


def test_times_may_be_microseconds_or_aware_datetimes() -> None:
    moment = datetime(2026, 1, 1, 12, 0, 0, 5, tzinfo=UTC)
    assert alert_of(row(startsAt=moment))["startsAt"] == "2026-01-01T12:00:00.000005Z"
    assert alert_of(row(startsAt=int(moment.timestamp()) * 10**6 + 5))["startsAt"] == "2026-01-01T12:00:00.000005Z"


def test_a_datetime_without_a_time_zone_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'Condensation': `startsAt` must be .* with a time zone"):
        alert_of(row(startsAt=datetime(2026, 1, 1)))  # noqa: DTZ001


@pytest.mark.parametrize("form", ["json", "parquet"])
def test_a_batch_that_is_written_again_doubles_nothing(tmp_path: Path, form: str) -> None:
    writer = AlertWriter(tmp_path, form)
    rows = [row(), row("resolved", end=3)]
    first = writer.write(7, rows)
    assert first is not None
    content = first.read_bytes()
    assert writer.write(7, rows) == first
    assert first.read_bytes() == content
    assert [path.name for path in tmp_path.iterdir()] == [f"000000000007.{'jsonl' if form == 'json' else 'parquet'}"]
    assert len(changes(AlertLog(tmp_path))) == 2


def test_a_batch_without_alerts_makes_no_file(tmp_path: Path) -> None:
    assert AlertWriter(tmp_path / "alerts").write(1, []) is None
    assert list(AlertLog(tmp_path / "alerts").read()) == []


@pytest.mark.parametrize("form", ["json", "parquet"])
def test_file_of_a_batch_becomes_empty_when_the_repeated_batch_has_no_alerts(tmp_path: Path, form: str) -> None:
    writer, log = AlertWriter(tmp_path, form), AlertLog(tmp_path)
    path = writer.write(1, [row(), row("resolved", end=3)])
    assert path is not None
    assert writer.write(1, []) == path
    writer.write(2, [row()])
    assert [position for position, _ in log.read()] == [(2, 0)]
    assert (log.count(path), log.corrupt) == (0, 0)


def test_other_names_and_files_that_are_being_written_are_not_seen(tmp_path: Path) -> None:
    log = write_log(tmp_path, [[row()]])
    for name in (".000000000001.jsonl.tmp", "1.jsonl", "000000000002.csv", "notes", "0000000000003.jsonl"):
        (log.folder / name).write_text("{")
    assert len(changes(log)) == 1
    assert log.corrupt == 0


def test_a_batch_in_both_forms_is_read_once(tmp_path: Path) -> None:
    write_log(tmp_path, [[row()]], form="parquet")
    assert len(changes(write_log(tmp_path, [[row()]], form="json"))) == 1


@given(sizes=st.lists(st.integers(0, 4), max_size=5), stop=st.integers(0, 20))
def test_reading_goes_on_behind_any_position(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], stop: int
) -> None:
    log = write_log(tmp_path_factory.mktemp("run"), [[row(start=i) for i in range(size)] for size in sizes])
    whole = list(log.read())
    positions = [position for position, _ in whole]
    assert positions == sorted(set(positions))
    after = positions[stop - 1] if 0 < stop <= len(positions) else None
    assert list(log.read(after)) == (whole[stop:] if after else whole)


@pytest.mark.parametrize(
    "damage", [b'{"alert": "Con', b"\x00\xff\xfe garbage", b"[1, 2]", b'{"value": NaN}', b"{" * 9999]
)
def test_a_damaged_line_stops_the_reader_at_the_newest_file_and_is_passed_over_later(
    tmp_path: Path, damage: bytes
) -> None:
    log = write_log(tmp_path, [[row(start=0)], [row(start=1), row(start=2), row(start=3)]])
    newest = log.folder / "000000000001.jsonl"
    lines = newest.read_bytes().splitlines(keepends=True)
    newest.write_bytes(lines[0] + damage + b"\n" + lines[2])
    for _ in range(3):
        assert [position for position, _ in log.read()] == [(0, 0), (1, 0)]
    assert log.corrupt == 1
    assert log.fault.startswith("000000000001.jsonl:2: an alert must be readable; ")
    write_log(tmp_path, [[row(start=4)]], first=2)
    assert [position for position, _ in log.read()] == [(0, 0), (1, 0), (1, 2), (2, 0)]
    assert log.corrupt == 1


def test_a_line_that_is_far_too_long_is_one_line_and_is_not_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = write_log(tmp_path, [[row(start=0), row(start=1)], [row(start=2)]])
    path = log.folder / "000000000000.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    monkeypatch.setattr("tocsin.deliver.alertlog._MOST_LINE", 2_000)
    path.write_bytes(lines[0] + b" " * 7_500 + lines[0] + lines[1])
    assert [position for position, _ in log.read()] == [(0, 0), (0, 2), (1, 0)]
    assert log.corrupt == 1


def test_a_damaged_newest_file_that_is_written_anew_is_read_whole(tmp_path: Path) -> None:
    batch = [row(start=1), row(start=2)]
    log = write_log(tmp_path, [batch])
    path = log.folder / "000000000000.jsonl"
    path.write_bytes(path.read_bytes()[:-20])
    seen = list(log.read())
    assert len(seen) == 1
    AlertWriter(log.folder).write(0, batch)
    assert [position for position, _ in log.read(seen[-1][0])] == [(0, 1)]


@pytest.mark.parametrize("cut", [0, 3, 200, -9])
def test_a_damaged_parquet_file_is_counted_and_never_raises(tmp_path: Path, cut: int) -> None:
    log = write_log(tmp_path, [[row(start=0)], [row(start=1)]], form="parquet")
    path = log.folder / "000000000000.parquet"
    path.write_bytes(path.read_bytes()[:cut])
    assert [position for position, _ in log.read()] == [(1, 0)]
    assert log.corrupt == 1
    assert log.count(path) == 0


@given(noise=st.binary(min_size=1, max_size=30), at=st.floats(0, 1), form=st.sampled_from(["json", "parquet"]))
def test_whatever_stands_in_a_file_the_others_are_read(
    tmp_path_factory: pytest.TempPathFactory, noise: bytes, at: float, form: str
) -> None:
    log = write_log(tmp_path_factory.mktemp("run"), [[row(start=i), row(start=10 + i)] for i in range(3)], form=form)
    path = log.batches()[1][1]
    content = path.read_bytes()
    place = int(at * len(content))
    path.write_bytes(content[:place] + noise + content[place + len(noise) :])
    batches = [position.batch for position, _ in log.read()]
    assert batches.count(0) == batches.count(2) == 2


def test_a_folder_in_the_place_of_a_file_is_passed_over(tmp_path: Path) -> None:
    log = write_log(tmp_path, [[row()], [row(start=1)]])
    (log.folder / "000000000000.jsonl").unlink()
    (log.folder / "000000000000.jsonl").mkdir()
    assert [position for position, _ in log.read()] == [(1, 0)]
    assert log.corrupt == 1


def test_a_disk_that_fails_is_not_damage_and_nothing_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = write_log(tmp_path, [[row()], [row(start=1)]])
    with monkeypatch.context() as patch:

        def fail(*_: Any, **__: Any) -> None:
            raise OSError(5, "Input/output error")

        patch.setattr("tocsin.deliver.alertlog.open_file", fail)
        assert list(log.read()) == []
    assert "Input/output error" in log.fault
    assert len(changes(log)) == 2


def test_following_gives_what_comes(tmp_path: Path) -> None:
    log, stop = write_log(tmp_path, [[row()]]), threading.Event()

    class Writing(ManualClock):
        def wait(self, stop: threading.Event, seconds: float) -> None:
            super().wait(stop, seconds)
            if len(self.waits) == 1:
                write_log(tmp_path, [[row(start=1)], [row(start=2)]], first=1)
            else:
                stop.set()

    followed = log.follow(stop=stop, clock=Writing(), poll_s=1.0)
    assert [position for position, _ in followed] == [(0, 0), (1, 0), (2, 0)]


def test_lines_are_counted_without_being_read(tmp_path: Path) -> None:
    for form in ("json", "parquet"):
        log = write_log(tmp_path / form, [[row(), row(start=1)]], form=form)
        assert [log.count(path) for _, path in log.batches()] == [2]


@pytest.mark.parametrize("batch", [-1, 10**12])
def test_a_batch_number_has_at_most_twelve_digits(tmp_path: Path, batch: int) -> None:
    with pytest.raises(ValueError, match="`batch` must have at most 12 digits"):
        AlertWriter(tmp_path).write(batch, [row()])


def test_a_form_that_is_not_known_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="`format` must be one of json, parquet; got 'csv'"):
        AlertWriter(tmp_path, "csv")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"state": "burning"}, "`state` must be one of pending, firing, resolved, inactive, match; got 'burning'"),
        ({"state": ["firing"]}, "`state` must be one of"),
        ({"state": "resolved"}, "`endsAt` must be a time where the state is resolved; got null"),
        ({"id": 7}, "`id` must be text; got 7"),
        ({"labels": {"a": 1}}, "`labels` must be a mapping of texts"),
        ({"annotations": None}, "`annotations` must be a mapping of texts"),
        ({"startsAt": "2026-02-31T00:00:00.000000Z"}, "`startsAt` must be a time"),
        ({"startsAt": "yesterday"}, "`startsAt` must be a time; got 'yesterday'"),
        ({"endsAt": 5}, "`endsAt` must be a time; got 5"),
        ({"value": "16"}, "`value` must be a number or null; got '16'"),
        ({"margin": True}, "`margin` must be a number or null; got True"),
        ({"witness": {}}, "`witness` must be a list"),
        ({"witness": [{"stream": "a"}]}, "`witness` must hold streams and times"),
    ],
)
def test_a_line_that_is_no_alert_says_why(change: dict[str, Any], message: str) -> None:
    line = json.dumps({**alert_of(row()), **change}).encode()
    with pytest.raises(ValueError, match=message):
        decode(line)


def test_a_row_whose_state_is_not_known_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="alert 'Condensation': `state` must be one of"):
        AlertWriter(tmp_path).write(0, [row("burning")])
    assert list(tmp_path.iterdir()) == []


def test_a_log_that_is_no_folder_is_a_fault_and_not_an_end(tmp_path: Path) -> None:
    (tmp_path / "alerts").write_text("no folder")
    log = AlertLog(tmp_path / "alerts")
    assert list(log.read()) == []
    assert log.corrupt == 1
    assert "alerts" in log.fault
