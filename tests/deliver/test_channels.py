"""Webhook, CloudEvents, console and copy: what they say, and how they stand a receiver in trouble."""

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

from deliver.alerts import ManualClock, changes, quick_backoff, row, write_log
from deliver.receivers import Behaviour, Receiver, drop, half, ok, receiver, slow, status
from servers import free_port
from tocsin.deliver import AlertLog, CloudEventsSink, ConsoleSink, LogSink, Position, Sink, WebhookSink
from tocsin.deliver.channel import Channel, Entry, Verdict
from tocsin.deliver.cloudevents import event_id, event_of
from tocsin.deliver.console import ConsoleChannel, console_line
from tocsin.deliver.copy import CopyChannel
from tocsin.deliver.courier import Courier
from tocsin.deliver.encode import STATES, alert_of
from tocsin.deliver.ledger import Ledger
from tocsin.deliver.run import open_channel, pump
from tocsin.errors import RunError
from tocsin.local import run_local
from tocsin.rules import Rule

BATCHES = [
    [row("pending", key="a"), row(key="a"), row(key="b"), row(key="a", alert="Frost")],
    [row("resolved", key="a", end=5), row("match", key="c", end=1), row("inactive", key="d", end=2)],
    [row(key="a", start=9)],
]
TOLD = {"firing", "resolved", "match"}


def run_sink(run: Path, sink: Sink, clock: ManualClock | None = None, channel: Channel | None = None) -> Ledger:
    clock = clock or ManualClock()
    log = AlertLog(run / "alerts")
    ledger = Ledger(run / "delivery", "test", sink.kind, clock)
    courier = Courier(log, channel or open_channel(sink, log, clock), ledger, clock, quick_backoff())
    try:
        pump(courier, threading.Event(), clock, drain=True)
        courier.close()
    finally:
        ledger.close()
    return ledger


def hooked(server: Receiver) -> list[tuple[str, str]]:
    """Return id and status of the received alerts, without repeats."""
    seen = [(alert["id"], alert["status"]) for body in server.bodies() for alert in body["alerts"]]
    return list(dict.fromkeys(seen))


def test_the_webhook_body_is_that_of_alertmanager_with_values(tmp_path: Path) -> None:
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


def test_a_webhook_is_told_what_version_4_has_words_for(tmp_path: Path) -> None:
    log = write_log(tmp_path, BATCHES)
    with receiver() as server:
        ledger = run_sink(tmp_path, WebhookSink(server.url))
        told = [alert for body in server.bodies() for alert in body["alerts"]]
    states = [state for _, state in changes(log)]
    assert len(told) == sum(state in TOLD for state in states) == ledger.counts["delivered"]
    assert ledger.counts["skipped"] == sum(state not in TOLD for state in states)
    match = [alert for alert in told if alert["labels"]["machine"] == "c"]
    assert [(alert["status"], alert["endsAt"]) for alert in match] == [("firing", "2026-01-01T00:01:00.000000Z")]


@pytest.mark.parametrize("make", [WebhookSink, CloudEventsSink])
def test_a_receiver_that_drops_repeats_keeps_all_changes_of_alerts_with_equal_starts(
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


def test_a_webhook_body_holds_one_name_and_at_most_64_alerts(tmp_path: Path) -> None:
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
        [half(500), half(200)],
        [slow(0.5)],
        [status(429), drop, status(502), half(500), ok, status(500)],
        [status(302, Location="http://127.0.0.1:1/"), ok],
    ],
)
def test_a_webhook_in_trouble_gets_everything_in_order(tmp_path: Path, script: list[Behaviour]) -> None:
    write_log(tmp_path, BATCHES)
    with receiver() as calm:
        run_sink(tmp_path, WebhookSink(calm.url))
        expected = hooked(calm)
    write_log(tmp_path / "again", BATCHES)
    with receiver(*script) as server:
        ledger = run_sink(tmp_path / "again", WebhookSink(server.url, timeout="200ms"))
        assert hooked(server) == expected
    assert ledger.counts["pending"] == 0
    assert ledger.counts["rejected"] == 0


def test_a_webhook_that_was_down_gets_everything_when_it_is_back(tmp_path: Path) -> None:
    log, port = write_log(tmp_path, BATCHES), free_port()
    with receiver(port=port) as server:
        server.shutdown()

    class Rising(ManualClock):
        def wait(self, stop: threading.Event, seconds: float) -> None:
            super().wait(stop, seconds)
            if len(self.waits) == 3:
                self.server = receiver(port=port)
                self.up = self.server.__enter__()

    clock = Rising()
    ledger = run_sink(tmp_path, WebhookSink(f"http://127.0.0.1:{port}"), clock)
    taken = hooked(clock.up)
    clock.server.__exit__(None, None, None)
    assert len(taken) == sum(state in TOLD for _, state in changes(log))
    assert ledger.counts["retries"] == 3


def test_a_webhook_that_refuses_one_alert_gets_the_others(tmp_path: Path) -> None:
    write_log(tmp_path, [[row(key=f"k{i}") for i in range(10)]])

    def picky(handler: Any) -> None:
        body = handler.server.requests[-1][2]
        handler.answer(400, "no k7 here") if b'"k7"' in body else handler.answer(200)

    with receiver() as server:
        server.then = picky
        ledger = run_sink(tmp_path, WebhookSink(server.url))
        machines = [alert["labels"]["machine"] for body in server.bodies() for alert in body["alerts"]]
    assert machines == [f"k{i}" for i in range(10) if i != 7]
    (line,) = ledger.rejected_path.read_text().splitlines()
    refused = json.loads(line)
    assert (refused["position"], refused["status"]) == ([0, 7], 400)
    assert refused["answer"].endswith("400 no k7 here")
    assert refused["alert"]["id"] == "Condensation-k7-0"


def test_a_webhook_that_does_not_know_us_refuses_a_body_as_a_whole(tmp_path: Path) -> None:
    write_log(tmp_path, [[row(key=f"k{i}") for i in range(10)]])
    with receiver() as server:
        server.then = status(401, "who are you")
        ledger = run_sink(tmp_path, WebhookSink(server.url))
        assert len(server.requests) == 1
    assert ledger.counts["rejected"] == 10


def test_an_event_is_one_of_cloudevents(tmp_path: Path) -> None:
    log = write_log(tmp_path, BATCHES)
    with receiver(status(500), drop, ok, half(500)) as server:
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


def test_the_id_of_an_event_depends_on_identity_start_and_state_alone() -> None:
    alert = alert_of(row())
    assert event_id(alert) == event_id(alert_of(row(value=3.0, annotations={"a": "b"})))
    others = [row("resolved", end=1), row(start=1), row(key="q")]
    assert len({event_id(alert), *(event_id(alert_of(other)) for other in others)}) == 4
    assert event_of(alert, "/x")["subject"] == event_of(alert_of(row(start=7)), "/x")["subject"]


def test_the_console_prints_a_line_per_change(tmp_path: Path) -> None:
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
def test_the_console_shows_the_states_that_are_asked_for(tmp_path: Path, sink: ConsoleSink, shown: list[str]) -> None:
    write_log(tmp_path, [[row(state, start=i, end=9) for i, state in enumerate(STATES)]])
    stream = io.StringIO()
    ledger = run_sink(tmp_path, sink, channel=ConsoleChannel(sink, stream))
    assert sorted(line.split()[1].lower() for line in stream.getvalue().splitlines()) == sorted(shown)
    assert ledger.counts["skipped"] == len(STATES) - len(shown)


@pytest.mark.parametrize(
    ("annotations", "end"),
    [
        ({"summary": "wet", "description": "very"}, ' summary="wet"'),
        ({"summary": " ", "description": 'a "b"\nc\x1b[2J', "runbook": "x"}, r' description="a \"b\"\nc\x1b[2J"'),
        ({"runbook": "x"}, " value 16"),
    ],
)
def test_the_summary_or_else_the_description_ends_the_line(annotations: dict[str, str], end: str) -> None:
    assert console_line(alert_of(row(annotations=annotations))).endswith(end)


def test_a_terminal_gets_colour_and_no_value_is_shown_where_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    line = console_line(alert_of(row(value=None)), in_colour=True)
    assert "\x1b[31;1mFIRING  \x1b[0m" in line
    assert "value" not in line


@given(text=st.text(max_size=20))
def test_no_label_can_move_the_cursor_or_forge_a_line(text: str) -> None:
    line = console_line(alert_of(row(labels={text: text}, alert=text, quality=text, annotations={"summary": text})))
    assert line.isprintable()
    forged = console_line(alert_of(row(labels={"machine": f'x", room="{text}'})))
    assert forged.count('room=\\"') >= 1


def test_a_stream_of_few_letters_gets_escapes() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    alert = alert_of(row(labels={"room": "Kühlraum"}))
    ConsoleChannel(ConsoleSink(), stream).send([Entry(Position(0, 0), alert)])
    assert rb"K\xfchlraum" in raw.getvalue()


def test_a_closed_stream_is_tried_again(tmp_path: Path) -> None:
    stream = io.StringIO()
    channel = ConsoleChannel(ConsoleSink(), stream)
    stream.close()
    assert channel.send([Entry(Position(0, 0), alert_of(row()))]).verdict is Verdict.RETRY


@pytest.mark.parametrize("form", ["json", "parquet"])
def test_a_copy_holds_every_alert_once_however_often_it_is_made(tmp_path: Path, form: str) -> None:
    log, sink = write_log(tmp_path, BATCHES), LogSink(tmp_path / "copy", form)
    for _ in range(2):
        run_sink(tmp_path, sink)
        (tmp_path / "delivery" / "test.json").unlink()
    assert list(AlertLog(tmp_path / "copy").read()) == list(log.read())


def test_a_copy_of_a_batch_whose_end_came_later_is_whole(tmp_path: Path) -> None:
    log, sink = write_log(tmp_path, [[row(start=i) for i in range(4)]]), LogSink(tmp_path / "copy", "json")
    path = log.folder / "000000000000.jsonl"
    content = path.read_bytes()
    path.write_bytes(content[:-30])
    run_sink(tmp_path, sink)
    assert len(changes(AlertLog(tmp_path / "copy"))) == 3
    path.write_bytes(content)
    run_sink(tmp_path, sink)
    assert (tmp_path / "copy" / path.name).read_bytes() == content


def test_a_copy_waits_for_a_folder_that_takes_files(tmp_path: Path) -> None:
    write_log(tmp_path, BATCHES)
    (tmp_path / "copy").write_text("in the way")

    class Clearing(ManualClock):
        def wait(self, stop: threading.Event, seconds: float) -> None:
            super().wait(stop, seconds)
            if len(self.waits) == 2:
                (tmp_path / "copy").unlink()

    ledger = run_sink(tmp_path, LogSink(tmp_path / "copy"), Clearing())
    assert ledger.counts["retries"] == 2
    assert changes(AlertLog(tmp_path / "copy")) == changes(AlertLog(tmp_path / "alerts"))


def test_a_log_is_not_copied_onto_itself(tmp_path: Path) -> None:
    log = write_log(tmp_path, BATCHES)
    with pytest.raises(RunError, match="`path` must not be the folder of the alert log itself"):
        CopyChannel(LogSink(tmp_path / "x" / ".." / "alerts"), log)
