from __future__ import annotations

import json
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delivery.alerts import ManualClock, changes, row, write_log
from tocsin.delivery import AlertLog, AlertWriter, Position
from tocsin.delivery.alert_json import alert_from_row, decode_alert

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
def test_alert_log_returns_the_written_alerts_in_each_format(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]], form: str
) -> None:
    folder = tmp_path_factory.mktemp("log")
    AlertWriter(folder, form).write(3, rows)
    read = list(AlertLog(folder).read())
    assert [position for position, _ in read] == [Position(3, line) for line in range(len(rows))]
    assert [alert for _, alert in read] == [alert_from_row(each) for each in rows]


@given(rows=st.lists(ROWS, min_size=1, max_size=3))
def test_alert_writer_writes_strict_json_lines(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]]
) -> None:
    path = AlertWriter(tmp_path_factory.mktemp("log")).write(0, rows)
    assert path is not None

    def reject(constant: str) -> None:
        pytest.fail(f"{constant} is not JSON")

    lines = path.read_bytes().split(b"\n")
    assert lines[-1] == b""
    parsed = [json.loads(line, parse_constant=reject) for line in lines[:-1]]
    assert [each["alert"] for each in parsed] == [each["alert"] for each in rows]


def test_alert_from_row_replaces_non_finite_numbers_and_clamps_times() -> None:
    alert = alert_from_row(row(value=float("nan"), margin=float("-inf"), startsAt=10**18, endsAt=-(10**18)))
    assert (alert["value"], alert["margin"]) == (None, None)
    assert alert["startsAt"] == "9999-12-31T23:59:59.999999Z"
    assert alert["endsAt"] == "0001-01-01T00:00:00.000000Z"


def test_alert_from_row_accepts_microseconds_and_aware_datetimes() -> None:
    noon = datetime(2026, 1, 1, 12, 0, 0, 5, tzinfo=UTC)
    assert alert_from_row(row(startsAt=noon))["startsAt"] == "2026-01-01T12:00:00.000005Z"
    assert alert_from_row(row(startsAt=int(noon.timestamp()) * 10**6 + 5))["startsAt"] == "2026-01-01T12:00:00.000005Z"


def test_alert_from_row_raises_an_error_when_a_datetime_has_no_time_zone() -> None:
    with pytest.raises(ValueError, match=r"'Condensation': `startsAt` must be .* with a time zone"):
        alert_from_row(row(startsAt=datetime(2026, 1, 1)))  # noqa: DTZ001


@pytest.mark.parametrize("form", ["json", "parquet"])
def test_alert_writer_replaces_the_file_when_a_batch_is_repeated(tmp_path: Path, form: str) -> None:
    writer = AlertWriter(tmp_path, form)
    rows = [row(), row("resolved", end=3)]
    first = writer.write(7, rows)
    assert first is not None
    content = first.read_bytes()
    assert writer.write(7, rows) == first
    assert first.read_bytes() == content
    assert [path.name for path in tmp_path.iterdir()] == [f"000000000007.{'jsonl' if form == 'json' else 'parquet'}"]
    assert len(changes(AlertLog(tmp_path))) == 2


def test_alert_writer_writes_no_file_when_a_batch_has_no_alerts(tmp_path: Path) -> None:
    assert AlertWriter(tmp_path / "alerts").write(1, []) is None
    assert list(AlertLog(tmp_path / "alerts").read()) == []


@pytest.mark.parametrize("form", ["json", "parquet"])
def test_alert_writer_empties_the_file_when_the_repeated_batch_has_no_alerts(tmp_path: Path, form: str) -> None:
    writer, log = AlertWriter(tmp_path, form), AlertLog(tmp_path)
    path = writer.write(1, [row(), row("resolved", end=3)])
    assert path is not None
    assert writer.write(1, []) == path
    writer.write(2, [row()])
    assert [position for position, _ in log.read()] == [(2, 0)]
    assert (log.count(path), log.corrupt) == (0, 0)


def test_alert_log_ignores_temporary_files_and_other_names(tmp_path: Path) -> None:
    log = write_log(tmp_path, [[row()]])
    for name in (".000000000001.jsonl.tmp", "1.jsonl", "000000000002.csv", "notes", "0000000000003.jsonl"):
        (log.folder / name).write_text("{")
    assert len(changes(log)) == 1
    assert log.corrupt == 0


def test_alert_log_reads_a_batch_once_when_it_exists_in_both_formats(tmp_path: Path) -> None:
    write_log(tmp_path, [[row()]], form="parquet")
    assert len(changes(write_log(tmp_path, [[row()]], form="json"))) == 1


@given(sizes=st.lists(st.integers(0, 4), max_size=5), stop=st.integers(0, 20))
def test_alert_log_continues_after_any_position(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], stop: int
) -> None:
    log = write_log(tmp_path_factory.mktemp("run"), [[row(start=i) for i in range(size)] for size in sizes])
    all_lines = list(log.read())
    positions = [position for position, _ in all_lines]
    assert positions == sorted(set(positions))
    after = positions[stop - 1] if 0 < stop <= len(positions) else None
    assert list(log.read(after)) == (all_lines[stop:] if after else all_lines)


@pytest.mark.parametrize(
    "damage", [b'{"alert": "Con', b"\x00\xff\xfe garbage", b"[1, 2]", b'{"value": NaN}', b"{" * 9999]
)
def test_alert_log_skips_a_damaged_line_only_when_a_newer_file_exists(tmp_path: Path, damage: bytes) -> None:
    log = write_log(tmp_path, [[row(start=0)], [row(start=1), row(start=2), row(start=3)]])
    newest = log.folder / "000000000001.jsonl"
    lines = newest.read_bytes().splitlines(keepends=True)
    newest.write_bytes(lines[0] + damage + b"\n" + lines[2])
    for _ in range(3):
        assert [position for position, _ in log.read()] == [(0, 0), (1, 0)]
    assert log.corrupt == 1
    assert log.fault.startswith("000000000001.jsonl:2: cannot read alerts: ")
    write_log(tmp_path, [[row(start=4)]], first=2)
    assert [position for position, _ in log.read()] == [(0, 0), (1, 0), (1, 2), (2, 0)]
    assert log.corrupt == 1


def test_alert_log_counts_an_overlong_line_as_one_damaged_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = write_log(tmp_path, [[row(start=0), row(start=1)], [row(start=2)]])
    path = log.folder / "000000000000.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    monkeypatch.setattr("tocsin.delivery.alert_log._MAX_LINE_BYTES", 2_000)
    path.write_bytes(lines[0] + b" " * 7_500 + lines[0] + lines[1])
    assert [position for position, _ in log.read()] == [(0, 0), (0, 2), (1, 0)]
    assert log.corrupt == 1


def test_alert_log_reads_the_rest_when_the_damaged_newest_file_is_rewritten(tmp_path: Path) -> None:
    batch = [row(start=1), row(start=2)]
    log = write_log(tmp_path, [batch])
    path = log.folder / "000000000000.jsonl"
    path.write_bytes(path.read_bytes()[:-20])
    seen = list(log.read())
    assert len(seen) == 1
    AlertWriter(log.folder).write(0, batch)
    assert [position for position, _ in log.read(seen[-1][0])] == [(0, 1)]


@pytest.mark.parametrize("end", [0, 3, 200, -9])
def test_alert_log_counts_a_damaged_parquet_file_and_raises_no_error(tmp_path: Path, end: int) -> None:
    log = write_log(tmp_path, [[row(start=0)], [row(start=1)]], form="parquet")
    path = log.folder / "000000000000.parquet"
    path.write_bytes(path.read_bytes()[:end])
    assert [position for position, _ in log.read()] == [(1, 0)]
    assert log.corrupt == 1
    assert log.count(path) == 0


@given(noise=st.binary(min_size=1, max_size=30), at=st.floats(0, 1), form=st.sampled_from(["json", "parquet"]))
def test_alert_log_reads_the_other_files_when_one_file_has_random_damage(
    tmp_path_factory: pytest.TempPathFactory, noise: bytes, at: float, form: str
) -> None:
    log = write_log(tmp_path_factory.mktemp("run"), [[row(start=i), row(start=10 + i)] for i in range(3)], form=form)
    path = log.batches()[1][1]
    content = path.read_bytes()
    offset = int(at * len(content))
    path.write_bytes(content[:offset] + noise + content[offset + len(noise) :])
    batches = [position.batch for position, _ in log.read()]
    assert batches.count(0) == batches.count(2) == 2


def test_alert_log_skips_a_directory_with_the_name_of_a_file(tmp_path: Path) -> None:
    log = write_log(tmp_path, [[row()], [row(start=1)]])
    (log.folder / "000000000000.jsonl").unlink()
    (log.folder / "000000000000.jsonl").mkdir()
    assert [position for position, _ in log.read()] == [(1, 0)]
    assert log.corrupt == 1


def test_alert_log_skips_nothing_when_the_disk_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = write_log(tmp_path, [[row()], [row(start=1)]])
    with monkeypatch.context() as patch:

        def fail(*_: Any, **__: Any) -> None:
            raise OSError(5, "Input/output error")

        patch.setattr("tocsin.delivery.alert_log.open_file", fail)
        assert list(log.read()) == []
    assert "Input/output error" in log.fault
    assert len(changes(log)) == 2


def test_follow_yields_new_alerts_until_it_is_stopped(tmp_path: Path) -> None:
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


def test_alert_log_counts_the_lines_of_each_format(tmp_path: Path) -> None:
    for form in ("json", "parquet"):
        log = write_log(tmp_path / form, [[row(), row(start=1)]], form=form)
        assert [log.count(path) for _, path in log.batches()] == [2]


@pytest.mark.parametrize("batch", [-1, 10**12])
def test_alert_writer_raises_an_error_when_the_batch_number_does_not_fit(tmp_path: Path, batch: int) -> None:
    with pytest.raises(ValueError, match="`batch` must have at most 12 digits"):
        AlertWriter(tmp_path).write(batch, [row()])


def test_alert_writer_raises_an_error_when_the_format_is_unknown(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="`format` must be one of json, parquet; got 'csv'"):
        AlertWriter(tmp_path, "csv")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"state": "burning"}, "`state` must be one of pending, firing, resolved, inactive, match; got 'burning'"),
        ({"state": ["firing"]}, "`state` must be one of"),
        ({"state": "resolved"}, "`endsAt` must be a time if the state is resolved; got null"),
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
def test_decode_alert_raises_an_error_with_the_reason_when_a_line_is_invalid(
    change: dict[str, Any], message: str
) -> None:
    line = json.dumps({**alert_from_row(row()), **change}).encode()
    with pytest.raises(ValueError, match=message):
        decode_alert(line)


def test_alert_writer_writes_no_file_when_a_state_is_unknown(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="alert 'Condensation': `state` must be one of"):
        AlertWriter(tmp_path).write(0, [row("burning")])
    assert list(tmp_path.iterdir()) == []


def test_alert_log_reports_a_fault_when_its_path_is_not_a_directory(tmp_path: Path) -> None:
    (tmp_path / "alerts").write_text("a file")
    log = AlertLog(tmp_path / "alerts")
    assert list(log.read()) == []
    assert log.corrupt == 1
    assert "alerts" in log.fault
