"""Delivery: each sink has a worker thread and uses the real clock."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from delivery.alerts import changes, row, write_log
from delivery.receivers import receiver, status
from servers import free_port
from tocsin.delivery import (
    AlertLog,
    AlertmanagerSink,
    CloudEventsSink,
    ConsoleSink,
    Delivery,
    LogSink,
    WebhookSink,
    deliver,
    read_status,
)
from tocsin.delivery.webhook import WebhookChannel
from tocsin.errors import RunError


def wait_until(condition: Callable[[], bool], seconds: float = 120.0) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_delivery_drains_the_log_to_all_sinks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = write_log(tmp_path, [[row(key="a"), row(key="b")], [row("resolved", key="a", end=2)]])
    with receiver() as hook, receiver() as events, receiver() as manager:
        sinks = {
            "console": ConsoleSink(),
            "copy": LogSink(tmp_path / "copy"),
            "hook": WebhookSink(hook.url),
            "events": CloudEventsSink(events.url),
            "manager": AlertmanagerSink(manager.url, resend="100ms"),
        }
        found = deliver(tmp_path, sinks, drain=True)
        assert len(events.bodies()) == 3
        assert sum(len(body["alerts"]) for body in hook.bodies()) == 3
        assert {path for path, _, _ in manager.requests} == {"/api/v2/alerts"}
    assert changes(AlertLog(tmp_path / "copy")) == changes(log)
    assert len(capsys.readouterr().out.splitlines()) == 3
    assert {name: each["delivered"] for name, each in found.items()} == dict.fromkeys(sinks, 3)
    assert read_status(tmp_path / "delivery") == found
    assert all(each["pending"] == 0 and each["lastSuccess"] for each in found.values())


def test_failing_sink_blocks_neither_the_writer_nor_other_sinks(tmp_path: Path) -> None:
    dead = f"http://127.0.0.1:{free_port()}"
    with receiver() as working, receiver() as failing:
        failing.default = status(500, "overloaded")
        sinks = {"dead": WebhookSink(dead), "failing": CloudEventsSink(failing.url), "am": AlertmanagerSink(dead)}
        delivery = Delivery(tmp_path, {**sinks, "working": WebhookSink(working.url)}, poll_s=0.01)
        delivery.start()
        for batch in range(20):
            write_log(tmp_path, [[row(key="a", start=batch)]], first=batch)
        wait_until(lambda: delivery.status()["working"]["delivered"] == 20)
        wait_until(lambda: all(delivery.status()[name]["retries"] > 0 for name in sinks))
        delivery.stop()
    found = read_status(tmp_path / "delivery")
    assert found == delivery.status()
    assert found["failing"]["lastError"].endswith("500 overloaded")
    assert "Connection refused" in found["dead"]["lastError"]
    assert [found[name]["delivered"] for name in sinks] == [0, 0, 0]
    assert all(found[name]["failing"] for name in sinks)


def test_delivery_continues_from_the_saved_position(tmp_path: Path) -> None:
    with receiver() as server:
        for batch in range(3):
            write_log(tmp_path, [[row(key="a", start=batch)]], first=batch)
            deliver(tmp_path, [WebhookSink(server.url)], drain=True)
        assert [body["alerts"][0]["startsAt"][14:16] for body in server.bodies()] == ["00", "01", "02"]


def test_sink_restarts_and_records_the_error_when_the_worker_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_log(tmp_path, [[row()]])
    real, calls = WebhookChannel.send, list[int]()

    def broken(self: Any, request: Any) -> Any:
        calls.append(1)
        if len(calls) < 3:
            raise LookupError("a secret: hunter2")
        return real(self, request)

    monkeypatch.setattr(WebhookChannel, "send", broken)
    with receiver() as server:
        found = deliver(tmp_path, {"hook": WebhookSink(server.url)}, drain=True)
        assert len(server.accepted) == 1
    assert found["hook"]["lastError"].startswith("internal error: LookupError in test_delivery.py:")
    assert "hunter2" not in json.dumps(found)


def test_start_raises_an_error_and_releases_locks_when_a_sink_cannot_work(tmp_path: Path) -> None:
    write_log(tmp_path, [[row()]])
    sinks = {"console": ConsoleSink(), "loop": LogSink(tmp_path / "alerts")}
    for _ in range(2):
        with pytest.raises(RunError, match="must not be the directory of the alert log"):
            deliver(tmp_path, sinks, drain=True)


def test_stop_interrupts_a_retry_delay(tmp_path: Path) -> None:
    write_log(tmp_path, [[row()]])
    stop = threading.Event()
    threading.Timer(0.2, stop.set).start()
    # The test would exceed its time limit if it waited for one hour.
    with receiver(status(503, **{"Retry-After": "3600"})) as server:
        deliver(tmp_path, [WebhookSink(server.url)], stop)


def test_read_status_is_empty_when_the_directory_is_missing_or_unreadable(tmp_path: Path) -> None:
    assert read_status(tmp_path / "nowhere") == {}
    (tmp_path / "odd.json").write_text("[]")
    (tmp_path / "bad.json").write_text("{")
    assert read_status(tmp_path) == {}


def test_finish_delivers_the_rest_and_stops_at_the_timeout_when_a_sink_fails(
    tmp_path: Path,
) -> None:
    with receiver() as hook, receiver() as dead:
        dead.default = status(500)
        delivery = Delivery(tmp_path, {"hook": WebhookSink(hook.url), "dead": WebhookSink(dead.url)}, poll_s=0.05)
        delivery.start()
        wait_until(lambda: all(each["pending"] == 0 for each in delivery.status().values()))
        # Written after the sinks found no new lines.
        write_log(tmp_path, [[row(key="a"), row(key="b")]])
        assert not delivery.finish(6.0)
        found = delivery.status()
        assert sum(len(body["alerts"]) for body in hook.bodies()) == 2
    assert (found["hook"]["delivered"], found["dead"]["delivered"], found["dead"]["pending"]) == (2, 0, 2)
    again = Delivery(tmp_path, {"hook": WebhookSink(hook.url)})
    again.start()
    assert again.finish(20.0)
