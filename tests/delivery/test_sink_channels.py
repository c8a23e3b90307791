"""Webhook, CloudEvents, console and log sinks: their output, and their behaviour when a receiver fails."""

from __future__ import annotations

import hashlib
import io
import json
import re
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delivery.alerts import ManualClock, changes, quick_backoff, row, write_log
from delivery.receivers import Behaviour, Receiver, cut_off, drop, ok, receiver, slow, status
from servers import free_port
from tocsin.delivery import AlertLog, CloudEventsSink, ConsoleSink, LogSink, Position, Sink, WebhookSink
from tocsin.delivery.alert_json import STATES, alert_from_row, with_link
from tocsin.delivery.cloudevents import build_event, event_id
from tocsin.delivery.console import ConsoleChannel, format_console_line
from tocsin.delivery.delivery import open_channel, run_worker
from tocsin.delivery.log_copy import LogCopyChannel
from tocsin.delivery.sink_channel import DeliveryStatus, LogEntry, SinkChannel
from tocsin.delivery.sink_cursor import SinkCursor
from tocsin.delivery.sink_worker import SinkWorker
from tocsin.errors import RunError
from tocsin.local import run_local
from tocsin.rules import Rule

BATCHES = [
    [row("pending", key="a"), row(key="a"), row(key="b"), row(key="a", alert="Frost")],
    [row("resolved", key="a", end=5), row("match", key="c", end=1), row("inactive", key="d", end=2)],
    [row(key="a", start=9)],
]
SENT_STATES = {"firing", "resolved", "match"}


def run_sink(run: Path, sink: Sink, clock: ManualClock | None = None, channel: SinkChannel | None = None) -> SinkCursor:
    clock = clock or ManualClock()
    log = AlertLog(run / "alerts")
    cursor = SinkCursor(run / "delivery", "test", sink.kind, clock)
    worker = SinkWorker(log, channel or open_channel(sink, log, clock), cursor, clock, quick_backoff())
    try:
        run_worker(worker, threading.Event(), clock, drain=True)
        worker.close()
    finally:
        cursor.close()
    return cursor


def webhook_alerts(server: Receiver) -> list[tuple[str, str]]:
    """Return id and status of the received alerts, without repeats."""
    seen = [(alert["id"], alert["status"]) for body in server.bodies() for alert in body["alerts"]]
    return list(dict.fromkeys(seen))


def test_events_of_all_sinks_have_the_link_to_the_dashboard() -> None:
    alert = alert_from_row(row(id="1f"))
    page = "http://board:8484/tocsin/alerts/1f"
    assert build_event(alert, "/x", "http://board:8484/tocsin/")["data"] == {**alert, "generatorURL": page}
    assert build_event(alert, "/x")["data"] == alert
    assert format_console_line(alert, "http://board:8484/tocsin").endswith(f" {page}")
    assert with_link(alert, "http://board:8484/tocsin/")["generatorURL"] == page
    assert with_link(alert, "") is alert


def test_webhook_body_is_the_alertmanager_body_with_values(tmp_path: Path) -> None:
    write_log(tmp_path, [[row(key="a"), row("resolved", key="b", start=1, end=4)]])
    with receiver() as server:
        run_sink(tmp_path, WebhookSink(f"{server.url}/hook", headers={"X-Team": "hvac"}, dashboard="http://board/"))
        (path, headers, _), (body,) = server.requests[0], server.bodies()
    assert (path, headers["Content-Type"], headers["X-Team"]) == ("/hook", "application/json", "hvac")
    alerts = body.pop("alerts")
    assert body == {
        "version": "4",
        "groupKey": '{}:{alertname="Condensation"}',
        "truncatedAlerts": 0,
        "status": "firing",
        "receiver": "tocsin",
        "groupLabels": {"alertname": "Condensation"},
        "commonLabels": {"alertname": "Condensation", "severity": "critical"},
        "commonAnnotations": {},
        "externalURL": "http://board",
    }
    assert alerts[0] == {
        "status": "firing",
        "labels": {"alertname": "Condensation", "machine": "a", "severity": "critical"},
        "annotations": {"summary": "damp at a"},
        "startsAt": "2026-01-01T00:00:00.000000Z",
        "firesAt": "2026-01-01T00:00:00.000000Z",
        "endsAt": "0001-01-01T00:00:00Z",
        "generatorURL": "http://board/alerts/Condensation-a-0",
        "fingerprint": alerts[0]["fingerprint"],
        "id": "Condensation-a-0",
        "values": {"dew_point": 16.0, "surface": 14.0, "surface.probe": 3.0},
    }
    assert (alerts[1]["status"], alerts[1]["endsAt"]) == ("resolved", "2026-01-01T00:04:00.000000Z")


def test_webhook_receives_only_the_states_of_version_4(tmp_path: Path) -> None:
    log = write_log(tmp_path, BATCHES)
    with receiver() as server:
        cursor = run_sink(tmp_path, WebhookSink(server.url))
        sent = [alert for body in server.bodies() for alert in body["alerts"]]
    states = [state for _, state in changes(log)]
    assert len(sent) == sum(state in SENT_STATES for state in states) == cursor.counts["delivered"]
    assert cursor.counts["skipped"] == sum(state not in SENT_STATES for state in states)
    match = [alert for alert in sent if alert["labels"]["machine"] == "c"]
    assert [(alert["status"], alert["endsAt"]) for alert in match] == [("firing", "2026-01-01T00:01:00.000000Z")]


@pytest.mark.parametrize("make", [WebhookSink, CloudEventsSink])
def test_receiver_can_identify_every_event_of_alerts_with_equal_starts(
    tmp_path: Path, make: type[WebhookSink] | type[CloudEventsSink]
) -> None:
    columns = {"b": {"ts": [0], "value": [0.0]}, "a": {"ts": [0, 0, 0], "value": [9.0, 1.0, 8.0]}}
    found = run_local(columns, Rule("Apart", "a - b > 5", within="1us", shapes={"a": None}))
    write_log(tmp_path, [found])
    with receiver() as server:
        run_sink(tmp_path, make(server.url))
        bodies = server.bodies()
    alerts = [alert for body in bodies for alert in body.get("alerts", [])]
    seen = {(alert["id"], alert["status"]) for alert in alerts} or {(event["source"], event["id"]) for event in bodies}
    assert len(found) == len(seen) == 3


def test_webhook_body_has_one_alert_name_and_at_most_64_alerts(tmp_path: Path) -> None:
    rows = [row(key=f"k{i}", alert="Frost" if i % 3 else "Heat") for i in range(300)]
    write_log(tmp_path, [rows])
    with receiver() as server:
        run_sink(tmp_path, WebhookSink(server.url))
        bodies = server.bodies()
    assert all(len({alert["labels"]["alertname"] for alert in body["alerts"]}) == 1 for body in bodies)
    assert max(len(body["alerts"]) for body in bodies) == 64
    assert sum(len(body["alerts"]) for body in bodies) == 300


@pytest.mark.parametrize(
    "script",
    [
        [status(500), status(503, Retry_After="3"), ok],
        [drop, drop],
        [cut_off(500), cut_off(200)],
        [slow(0.5)],
        [status(429), drop, status(502), cut_off(500), ok, status(500)],
        [status(302, Location="http://127.0.0.1:1/"), ok],
    ],
)
def test_webhook_receives_everything_in_order_when_requests_fail(tmp_path: Path, script: list[Behaviour]) -> None:
    write_log(tmp_path, BATCHES)
    with receiver() as working:
        run_sink(tmp_path, WebhookSink(working.url))
        expected = webhook_alerts(working)
    write_log(tmp_path / "again", BATCHES)
    with receiver(*script) as server:
        cursor = run_sink(tmp_path / "again", WebhookSink(server.url, timeout="200ms"))
        assert webhook_alerts(server) == expected
    assert cursor.counts["pending"] == 0
    assert cursor.counts["rejected"] == 0


def test_webhook_receives_everything_when_it_starts_late(tmp_path: Path) -> None:
    log, port = write_log(tmp_path, BATCHES), free_port()
    with receiver(port=port) as server:
        server.shutdown()

    class StartingClock(ManualClock):
        def wait(self, stop: threading.Event, seconds: float) -> None:
            super().wait(stop, seconds)
            if len(self.waits) == 3:
                self.context = receiver(port=port)
                self.receiver = self.context.__enter__()

    clock = StartingClock()
    cursor = run_sink(tmp_path, WebhookSink(f"http://127.0.0.1:{port}"), clock)
    received = webhook_alerts(clock.receiver)
    clock.context.__exit__(None, None, None)
    assert len(received) == sum(state in SENT_STATES for _, state in changes(log))
    assert cursor.counts["retries"] == 3


def test_webhook_receives_the_other_alerts_when_it_rejects_one(tmp_path: Path) -> None:
    write_log(tmp_path, [[row(key=f"k{i}") for i in range(10)]])

    def reject_k7(handler: Any) -> None:
        body = handler.server.requests[-1][2]
        handler.respond(400, "invalid k7") if b'"k7"' in body else handler.respond(200)

    with receiver() as server:
        server.default = reject_k7
        cursor = run_sink(tmp_path, WebhookSink(server.url))
        machines = [alert["labels"]["machine"] for body in server.bodies() for alert in body["alerts"]]
    assert machines == [f"k{i}" for i in range(10) if i != 7]
    (line,) = cursor.rejected_path.read_text().splitlines()
    rejected = json.loads(line)
    assert (rejected["position"], rejected["status"]) == ([0, 7], 400)
    assert rejected["response"].endswith("400 invalid k7")
    assert rejected["alert"]["id"] == "Condensation-k7-0"


def test_webhook_request_is_rejected_without_split_when_the_login_is_invalid(tmp_path: Path) -> None:
    write_log(tmp_path, [[row(key=f"k{i}") for i in range(10)]])
    with receiver() as server:
        server.default = status(401, "login required")
        cursor = run_sink(tmp_path, WebhookSink(server.url))
        assert len(server.requests) == 1
    assert cursor.counts["rejected"] == 10


def test_cloudevents_sink_sends_valid_events(tmp_path: Path) -> None:
    log = write_log(tmp_path, BATCHES)
    with receiver(status(500), drop, ok, cut_off(500)) as server:
        run_sink(tmp_path, CloudEventsSink(f"{server.url}/events", source="/plant/7", headers={"X-Key": "k"}))
        events, (path, headers, _) = server.bodies(), server.requests[0]
    assert (path, headers["Content-Type"], headers["X-Key"]) == (
        "/events",
        "application/cloudevents+json; charset=utf-8",
        "k",
    )
    assert [event["data"] for event in events] == [alert for _, alert in log.read()]
    for event in events:
        alert = event["data"]
        identity = json.dumps([alert["id"], alert["startsAt"], alert["state"]])
        assert event["id"] == hashlib.sha256(identity.encode()).hexdigest()[:32]
        assert (event["specversion"], event["source"]) == ("1.0", "/plant/7")
        assert event["type"] == f"io.tocsin.alert.{alert['state']}"
        assert event["time"] == (alert["endsAt"] or alert["startsAt"])
        assert re.fullmatch("[0-9a-f]{16}", event["subject"])
        assert event["datacontenttype"] == "application/json"
    assert len({event["id"] for event in events}) == len(events)


def test_event_id_depends_only_on_alert_id_start_and_state() -> None:
    alert = alert_from_row(row())
    assert event_id(alert) == event_id(alert_from_row(row(value=3.0, annotations={"a": "b"})))
    others = [row("resolved", end=1), row(start=1), row(key="q")]
    assert len({event_id(alert), *(event_id(alert_from_row(other)) for other in others)}) == 4
    assert build_event(alert, "/x")["subject"] == build_event(alert_from_row(row(start=7)), "/x")["subject"]


def test_console_prints_one_line_per_event(tmp_path: Path) -> None:
    write_log(tmp_path, [[row(), row("resolved", end=31, quality="exact late out-of-domain", annotations={})]])
    stream = io.StringIO()
    channel = ConsoleChannel(ConsoleSink(), stream)
    run_sink(tmp_path, WebhookSink("http://unused"), channel=channel)
    name = 'Condensation{machine="p1", severity="critical"} value 16'
    assert stream.getvalue().splitlines() == [
        f'2026-01-01T00:00:00.000000Z FIRING   {name} summary="damp at p1"',
        f"2026-01-01T00:31:00.000000Z RESOLVED {name} since 2026-01-01T00:00:00.000000Z late out-of-domain",
    ]


@pytest.mark.parametrize(
    ("sink", "shown"),
    [
        (ConsoleSink(), ["firing", "resolved", "match"]),
        (ConsoleSink("pending"), ["pending"]),
        (ConsoleSink(STATES), list(STATES)),
    ],
)
def test_console_prints_only_the_configured_states(tmp_path: Path, sink: ConsoleSink, shown: list[str]) -> None:
    write_log(tmp_path, [[row(state, start=i, end=9) for i, state in enumerate(STATES)]])
    stream = io.StringIO()
    cursor = run_sink(tmp_path, sink, channel=ConsoleChannel(sink, stream))
    assert sorted(line.split()[1].lower() for line in stream.getvalue().splitlines()) == sorted(shown)
    assert cursor.counts["skipped"] == len(STATES) - len(shown)


@pytest.mark.parametrize(
    ("annotations", "end"),
    [
        ({"summary": "wet", "description": "very"}, ' summary="wet"'),
        ({"summary": " ", "description": 'a "b"\nc\x1b[2J', "runbook": "x"}, r' description="a \"b\"\nc\x1b[2J"'),
        ({"runbook": "x"}, " value 16"),
    ],
)
def test_console_line_ends_with_the_summary_or_the_description(annotations: dict[str, str], end: str) -> None:
    assert format_console_line(alert_from_row(row(annotations=annotations))).endswith(end)


def test_console_line_has_colour_on_a_terminal_and_omits_a_missing_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    line = format_console_line(alert_from_row(row(value=None)), in_colour=True)
    assert "\x1b[31;1mFIRING  \x1b[0m" in line
    assert "value" not in line


@given(text=st.text(max_size=20))
def test_console_line_is_printable_for_any_label(text: str) -> None:
    line = format_console_line(
        alert_from_row(row(labels={text: text}, alert=text, quality=text, annotations={"summary": text}))
    )
    assert line.isprintable()
    forged = format_console_line(alert_from_row(row(labels={"machine": f'x", room="{text}'})))
    assert forged.count('room=\\"') >= 1


def test_console_escapes_characters_that_the_stream_cannot_encode() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    alert = alert_from_row(row(labels={"room": "Kühlraum"}))
    ConsoleChannel(ConsoleSink(), stream).send([LogEntry(Position(0, 0), alert)])
    assert rb"K\xfchlraum" in raw.getvalue()


def test_console_retries_when_the_stream_is_closed(tmp_path: Path) -> None:
    stream = io.StringIO()
    channel = ConsoleChannel(ConsoleSink(), stream)
    stream.close()
    assert channel.send([LogEntry(Position(0, 0), alert_from_row(row()))]).status is DeliveryStatus.RETRY


@pytest.mark.parametrize("form", ["json", "parquet"])
def test_log_copy_contains_every_alert_once_when_it_is_repeated(tmp_path: Path, form: str) -> None:
    log, sink = write_log(tmp_path, BATCHES), LogSink(tmp_path / "copy", form)
    for _ in range(2):
        run_sink(tmp_path, sink)
        (tmp_path / "delivery" / "test.json").unlink()
    assert list(AlertLog(tmp_path / "copy").read()) == list(log.read())


def test_log_copy_is_complete_when_the_source_file_is_completed_later(tmp_path: Path) -> None:
    log, sink = write_log(tmp_path, [[row(start=i) for i in range(4)]]), LogSink(tmp_path / "copy", "json")
    path = log.folder / "000000000000.jsonl"
    content = path.read_bytes()
    path.write_bytes(content[:-30])
    run_sink(tmp_path, sink)
    assert len(changes(AlertLog(tmp_path / "copy"))) == 3
    path.write_bytes(content)
    run_sink(tmp_path, sink)
    assert (tmp_path / "copy" / path.name).read_bytes() == content


def test_log_copy_retries_until_the_directory_is_writable(tmp_path: Path) -> None:
    write_log(tmp_path, BATCHES)
    (tmp_path / "copy").write_text("a file instead of a directory")

    class UnblockingClock(ManualClock):
        def wait(self, stop: threading.Event, seconds: float) -> None:
            super().wait(stop, seconds)
            if len(self.waits) == 2:
                (tmp_path / "copy").unlink()

    cursor = run_sink(tmp_path, LogSink(tmp_path / "copy"), UnblockingClock())
    assert cursor.counts["retries"] == 2
    assert changes(AlertLog(tmp_path / "copy")) == changes(AlertLog(tmp_path / "alerts"))


def test_log_copy_raises_an_error_when_the_target_is_the_alert_log(tmp_path: Path) -> None:
    log = write_log(tmp_path, BATCHES)
    with pytest.raises(RunError, match=r"`path` must not be the directory of the alert log; got '.*alerts'"):
        LogCopyChannel(LogSink(tmp_path / "x" / ".." / "alerts"), log)
