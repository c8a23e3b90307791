"""Sink worker and sink cursor with receivers that fail at random and processes that are killed at random."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delivery.alerts import ManualClock, changes, histories, quick_backoff, row, write_log
from tocsin.delivery import AlertLog, Position
from tocsin.delivery.alert_json import Alert, alert_from_row, format_time
from tocsin.delivery.delivery import run_worker
from tocsin.delivery.sink_channel import DELIVERED, DeliveryStatus, LogEntry, SinkResponse, split_repeated
from tocsin.delivery.sink_cursor import SinkCursor, read_status
from tocsin.delivery.sink_worker import SinkWorker
from tocsin.errors import RunError

RETRY = SinkResponse(DeliveryStatus.RETRY, "busy", 500)


class Killed(BaseException):
    """Simulated end of the process."""


class RandomChannel:
    """Channel that splits requests, fails and kills at random, and stores the accepted alert events.

    A failure can follow after a request was accepted. Requests with the key `poison` are rejected.
    """

    takes_whole_batches = False
    max_delay_s = 60.0

    def __init__(self, seed: int, *, limit: int = 5, failure_rate: float = 0.3) -> None:
        self.random_source, self.limit, self.failure_rate = random.Random(seed), limit, failure_rate
        self.accepted: list[Alert] = []

    def wants(self, alert: Alert) -> bool:
        return True

    def split_requests(self, chunk: Sequence[LogEntry]) -> Iterator[Sequence[LogEntry]]:
        size = self.random_source.randint(1, self.limit)
        for distinct in split_repeated(chunk, lambda alert: alert["labels"]["machine"]):
            self.random_source.shuffle(distinct)
            yield from (distinct[i : i + size] for i in range(0, len(distinct), size))

    def send(self, request: Sequence[LogEntry]) -> SinkResponse:
        draw = self.random_source.random()
        if draw < self.failure_rate / 3:
            raise Killed
        if draw < self.failure_rate * 2 / 3:
            return RETRY
        if any(entry.alert["labels"]["machine"] == "poison" for entry in request):
            return SinkResponse(DeliveryStatus.REJECTED, "bad", 400, split=True)
        self.accepted += [entry.alert for entry in request]
        if draw < self.failure_rate:
            raise Killed if draw < self.failure_rate * 5 / 6 else OSError
        return DELIVERED

    def close(self) -> None:
        pass


def worker_of(run: Path, channel: Any, clock: ManualClock) -> tuple[SinkWorker, SinkCursor]:
    cursor = SinkCursor(run / "delivery", "test", "test", clock)
    return SinkWorker(AlertLog(run / "alerts"), channel, cursor, clock, quick_backoff()), cursor


def deliver_through_kills(run: Path, channel: Any, clock: ManualClock) -> SinkCursor:
    """Deliver the log; after each kill, restart as a new process."""
    for _ in range(2000):
        worker, cursor = worker_of(run, channel, clock)
        try:
            run_worker(worker, threading.Event(), clock, drain=True)
        except (Killed, OSError):
            continue
        finally:
            cursor.close()
        return cursor
    pytest.fail("delivery must end")


def without_repeats(accepted: Sequence[Alert]) -> list[tuple[str, str]]:
    return list(dict.fromkeys((alert["id"], alert["state"]) for alert in accepted))


@given(batches=histories(), seed=st.integers(0, 10**6), limit=st.integers(1, 7))
def test_all_events_arrive_in_order_per_alert_after_random_failures_and_kills(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[dict[str, Any]]], seed: int, limit: int
) -> None:
    run = tmp_path_factory.mktemp("run")
    log, channel = write_log(run, batches), RandomChannel(seed, limit=limit)
    cursor = deliver_through_kills(run, channel, ManualClock())
    logged, arrived = changes(log), without_repeats(channel.accepted)
    assert sorted(arrived) == sorted(logged)
    for key in "abcd":
        # Even different alerts with the same labels keep their order.
        of_key = [change for change in logged if f"-{key}-" in change[0]]
        assert [change for change in arrived if change in of_key] == of_key
    assert cursor.counts["delivered"] == len(logged)
    assert cursor.counts["pending"] == 0


@given(batches=histories(), seed=st.integers(0, 10**6))
def test_rejected_events_are_recorded_and_all_others_arrive(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[dict[str, Any]]], seed: int
) -> None:
    run = tmp_path_factory.mktemp("run")
    poison = row(key="poison")
    log = write_log(run, [[poison, *batch] for batch in batches])
    channel = RandomChannel(seed, failure_rate=0.1)
    cursor = deliver_through_kills(run, channel, ManualClock())
    good = [change for change in changes(log) if "poison" not in change[0]]
    assert sorted(without_repeats(channel.accepted)) == sorted(good)
    rejected = [json.loads(line) for line in cursor.rejected_path.read_bytes().splitlines()]
    assert {tuple(each["position"]) for each in rejected} == {(number, 0) for number in range(len(batches))}
    assert all((each["response"], each["status"]) == ("bad", 400) for each in rejected)
    assert all(each["alert"]["labels"]["machine"] == "poison" for each in rejected)
    assert (cursor.counts["rejected"], cursor.counts["delivered"]) == (len(batches), len(good))


class ScriptedChannel(RandomChannel):
    """Channel that returns scripted responses first and then accepts every request."""

    def __init__(self, *responses: SinkResponse, limit: int = 100) -> None:
        super().__init__(0, limit=limit, failure_rate=0)
        self.responses = list(responses)
        self.request_sizes: list[int] = []

    def split_requests(self, chunk: Sequence[LogEntry]) -> Iterator[Sequence[LogEntry]]:
        return iter([chunk])

    def send(self, request: Sequence[LogEntry]) -> SinkResponse:
        self.request_sizes.append(len(request))
        if self.responses:
            return self.responses.pop(0)
        return super().send(request)


def test_worker_waits_with_backoff_and_honours_retry_after(tmp_path: Path) -> None:
    write_log(tmp_path, [[row()]])
    clock = ManualClock()
    later = SinkResponse(DeliveryStatus.RETRY, "later", 503, retry_after_s=500.0)
    worker, cursor = worker_of(tmp_path, ScriptedChannel(*[RETRY] * 10, later), clock)
    worker.process_next(threading.Event())
    assert all(
        0.5 * limit <= wait <= limit for wait, limit in zip(clock.waits, [0.5 * 2**i for i in range(7)], strict=False)
    )
    assert max(clock.waits[:-1]) <= 60
    assert clock.waits[-1] == 500
    assert (cursor.counts["retries"], cursor.counts["delivered"], cursor.failing) == (11, 1, False)
    assert cursor.last_error == "later"
    cursor.close()


def test_saved_status_contains_the_error_while_requests_fail(tmp_path: Path) -> None:
    write_log(tmp_path, [[row(start=i) for i in range(3)], [row(start=5)]])
    stop = threading.Event()

    class StoppingClock(ManualClock):
        def wait(self, stop: threading.Event, seconds: float) -> None:
            stop.set()

    worker, cursor = worker_of(tmp_path, ScriptedChannel(RETRY, limit=1), StoppingClock())
    worker.process_next(stop)
    found = read_status(tmp_path / "delivery")["test"]
    assert found == cursor.status()
    assert (found["pending"], found["retries"], found["lastError"], found["failing"]) == (4, 1, "busy", True)
    assert found["position"] is None
    cursor.close()


@given(keys=st.lists(st.sampled_from("abc"), max_size=12))
def test_split_repeated_separates_equal_keys_and_keeps_their_order(keys: list[str]) -> None:
    chunk = [LogEntry(Position(0, line), alert_from_row(row(key=key, start=line))) for line, key in enumerate(keys)]
    lists = split_repeated(chunk, lambda alert: alert["labels"]["machine"])
    for distinct in lists:
        machines = [entry.alert["labels"]["machine"] for entry in distinct]
        assert len(set(machines)) == len(machines) > 0
    for key in "abc":
        lines = [
            entry.position.line for distinct in lists for entry in distinct if entry.alert["labels"]["machine"] == key
        ]
        assert lines == [line for line, each in enumerate(keys) if each == key]


def test_chunk_is_at_most_as_long_as_the_limit_of_the_channel(tmp_path: Path) -> None:
    write_log(tmp_path, [[row(start=i) for i in range(5)], [row(start=i) for i in range(5, 8)]])
    channel = ScriptedChannel(limit=3)
    deliver_through_kills(tmp_path, channel, ManualClock())
    assert channel.request_sizes == [3, 3, 2]


def test_damaged_line_is_counted_reported_and_skipped(tmp_path: Path) -> None:
    log = write_log(tmp_path, [[row(start=i) for i in range(3)], [row(start=5)]])
    path = log.folder / "000000000000.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + b"?\n" + lines[2])
    cursor = deliver_through_kills(tmp_path, ScriptedChannel(), ManualClock())
    assert (cursor.counts["delivered"], cursor.counts["corrupt"], cursor.counts["pending"]) == (3, 1, 0)
    assert "000000000000.jsonl:2: cannot read alerts" in (cursor.last_error or "")


def test_worker_delivers_alerts_of_later_files(tmp_path: Path) -> None:
    channel, clock = ScriptedChannel(), ManualClock()
    for start in range(3):
        write_log(tmp_path, [[row(start=start)]], first=start)
        deliver_through_kills(tmp_path, channel, clock)
    assert [alert["id"] for alert in channel.accepted] == [f"Condensation-p1-{start}" for start in range(3)]


def test_damaged_cursor_repeats_events_with_the_same_identities(tmp_path: Path) -> None:
    log, channel, clock = write_log(tmp_path, [[row(), row("resolved", end=1)]]), ScriptedChannel(), ManualClock()
    deliver_through_kills(tmp_path, channel, clock)
    (tmp_path / "delivery" / "test.json").write_text('{"version": 2, "posit')
    cursor = deliver_through_kills(tmp_path, channel, clock)
    assert without_repeats(channel.accepted) == changes(log)
    assert len(channel.accepted) == 4
    assert (tmp_path / "delivery" / "test.json.damaged").exists()
    assert "test.json was damaged (kept as test.json.damaged)" in (cursor.last_error or "")


@pytest.mark.parametrize("content", ["[]", "null", '{"version": 2}', '{"version": 2, "position": 3}', ""])
def test_invalid_cursor_file_is_kept_under_another_name(tmp_path: Path, content: str) -> None:
    (tmp_path / "test.json").write_text(content)
    cursor = SinkCursor(tmp_path, "test", "test", ManualClock())
    assert cursor.position is None
    assert (tmp_path / "test.json.damaged").read_text() == content
    cursor.close()


def test_cursor_records_the_time_of_each_position_and_keeps_the_newest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tocsin.delivery.sink_cursor._MAX_POSITIONS_BYTES", 400)
    clock = ManualClock()
    recorded = []
    # A restart must not record the position of the first run again.
    for begin in (0, 25):
        cursor = SinkCursor(tmp_path, "test", "test", clock)
        cursor.save()
        for line in range(begin, begin + 25):
            clock.wait(threading.Event(), 1.0)
            cursor.position = Position(3, line)
            cursor.save()
            cursor.save()
            recorded.append([3, line, format_time(clock.now())])
        cursor.close()
    found = [json.loads(line) for line in cursor.positions_path.read_bytes().splitlines()]
    assert 4 <= len(found) <= 12
    assert found == recorded[-len(found) :]


def test_cursor_raises_an_error_when_the_file_has_another_version(tmp_path: Path) -> None:
    (tmp_path / "test.json").write_text('{"version": 3}')
    with pytest.raises(RunError, match=r"test\.json: `version` must be 2; got 3: use the Tocsin version that wrote it"):
        SinkCursor(tmp_path, "test", "test", ManualClock())


def test_cursor_raises_an_error_when_another_process_has_it(tmp_path: Path) -> None:
    first = SinkCursor(tmp_path, "test", "test", ManualClock())
    with pytest.raises(RunError, match=r"sink `test` is in use by another process, which holds test\.lock"):
        SinkCursor(tmp_path, "test", "test", ManualClock())
    first.close()
    SinkCursor(tmp_path, "test", "test", ManualClock()).close()


@pytest.mark.parametrize("name", ["", "../up", "a/b", ".hidden", "x" * 101])
def test_cursor_raises_an_error_when_the_sink_name_is_invalid(tmp_path: Path, name: str) -> None:
    with pytest.raises(RunError, match="the name of a sink must start with a letter or digit"):
        SinkCursor(tmp_path, name, "test", ManualClock())


def test_positions_are_ordered() -> None:
    assert Position(1, 9) < Position(2, 0) < Position(2, 1)
