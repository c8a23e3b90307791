"""Sinks side by side, each in a thread of its own, with the clock of the world."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deliver.alerts import changes, row, write_log
from deliver.receivers import receiver, status
from servers import free_port
from tocsin.deliver import (
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
from tocsin.deliver.webhook import WebhookChannel
from tocsin.errors import RunError


def wait_until(holds: Callable[[], bool], seconds: float = 120.0) -> None:
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_a_log_is_drained_to_all_sinks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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


def test_a_dead_sink_stops_neither_the_writer_nor_the_others(tmp_path: Path) -> None:
    dead = f"http://127.0.0.1:{free_port()}"
    with receiver() as alive, receiver() as ill:
        ill.then = status(500, "ill")
        sinks = {"dead": WebhookSink(dead), "ill": CloudEventsSink(ill.url), "am": AlertmanagerSink(dead)}
        delivery = Delivery(tmp_path, {**sinks, "alive": WebhookSink(alive.url)}, poll_s=0.01)
        delivery.start()
        for batch in range(20):
            write_log(tmp_path, [[row(key="a", start=batch)]], first=batch)
        wait_until(lambda: delivery.status()["alive"]["delivered"] == 20)
        wait_until(lambda: all(delivery.status()[name]["retries"] > 0 for name in sinks))
        delivery.stop()
    found = read_status(tmp_path / "delivery")
    assert found == delivery.status()
    assert found["ill"]["lastError"].endswith("500 ill")
    assert "Connection refused" in found["dead"]["lastError"]
    assert [found[name]["delivered"] for name in sinks] == [0, 0, 0]
    assert all(found[name]["failing"] for name in sinks)


def test_delivery_goes_on_where_it_stopped(tmp_path: Path) -> None:
    with receiver() as server:
        for batch in range(3):
            write_log(tmp_path, [[row(key="a", start=batch)]], first=batch)
            deliver(tmp_path, [WebhookSink(server.url)], drain=True)
        assert [body["alerts"][0]["startsAt"][14:16] for body in server.bodies()] == ["00", "01", "02"]


def test_an_error_of_ours_is_noted_and_the_work_taken_up_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_log(tmp_path, [[row()]])
    real, calls = WebhookChannel.send, list[int]()

    def broken(self: Any, parcel: Any) -> Any:
        calls.append(1)
        if len(calls) < 3:
            raise LookupError("a secret: hunter2")
        return real(self, parcel)

    monkeypatch.setattr(WebhookChannel, "send", broken)
    with receiver() as server:
        found = deliver(tmp_path, {"hook": WebhookSink(server.url)}, drain=True)
        assert len(server.taken) == 1
    assert found["hook"]["lastError"].startswith("LookupError in test_run.py:")
    assert "hunter2" not in json.dumps(found)


def test_a_sink_that_cannot_be_served_is_told_at_once_and_frees_what_it_held(tmp_path: Path) -> None:
    write_log(tmp_path, [[row()]])
    sinks = {"console": ConsoleSink(), "loop": LogSink(tmp_path / "alerts")}
    for _ in range(2):
        with pytest.raises(RunError, match="must not be the folder of the alert log itself"):
            deliver(tmp_path, sinks, drain=True)


def test_stopping_ends_a_wait(tmp_path: Path) -> None:
    write_log(tmp_path, [[row()]])
    stop = threading.Event()
    threading.Timer(0.2, stop.set).start()
    # An hour is longer than a test may take.
    with receiver(status(503, **{"Retry-After": "3600"})) as server:
        deliver(tmp_path, [WebhookSink(server.url)], stop)


def test_status_of_a_folder_that_is_not_there_is_empty(tmp_path: Path) -> None:
    assert read_status(tmp_path / "nowhere") == {}
    (tmp_path / "odd.json").write_text("[]")
    (tmp_path / "bad.json").write_text("{")
    assert read_status(tmp_path) == {}


def test_the_end_of_a_run_delivers_what_was_written_and_waits_for_a_dead_sink_no_longer_than_asked(
    tmp_path: Path,
) -> None:
    with receiver() as hook, receiver() as dead:
        dead.then = status(500)
        delivery = Delivery(tmp_path, {"hook": WebhookSink(hook.url), "dead": WebhookSink(dead.url)}, poll_s=0.05)
        delivery.start()
        wait_until(lambda: all(each["pending"] == 0 for each in delivery.status().values()))
        # Written at the last moment: the sinks have just looked, and found nothing.
        write_log(tmp_path, [[row(key="a"), row(key="b")]])
        assert not delivery.finish(6.0)
        found = delivery.status()
        assert sum(len(body["alerts"]) for body in hook.bodies()) == 2
    assert (found["hook"]["delivered"], found["dead"]["delivered"], found["dead"]["pending"]) == (2, 0, 2)
    again = Delivery(tmp_path, {"hook": WebhookSink(hook.url)})
    again.start()
    assert again.finish(20.0)
