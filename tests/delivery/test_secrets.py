"""Secrets must not appear in logs, output, status, files or tracebacks of delivery."""

from __future__ import annotations

import base64
import logging
import threading
import traceback
from pathlib import Path
from typing import Any

import pytest

from delivery.alerts import row, write_log
from delivery.receivers import Handler, cut_off, drop, receiver, status
from delivery.test_delivery import wait_until
from servers import free_port
from tocsin.delivery import AlertmanagerSink, CloudEventsSink, Delivery, KafkaSink, Sink, WebhookSink
from tocsin.delivery.backoff import CLOCK
from tocsin.delivery.http_client import HttpClient

USER, PASSWORD, TOKEN, PATH, QUERY = "bell-ringer", "hunter2/äé", "tok-3b1c9f", "T0K3N/in/the/path", "sig=0xfeedbeef"
LOGIN = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
SECRETS = (USER, "hunter2", TOKEN, "T0K3N", "0xfeedbeef", LOGIN)


def address(url: str) -> str:
    return f"{url.replace('://', f'://{USER}:hunter2%2F%C3%A4%C3%A9@')}/{PATH}?{QUERY}"


def echo(code: int) -> Any:
    """Return a behaviour that sends the request back in the response."""

    def behave(handler: Handler) -> None:
        heads = " ".join(f"{name}: {value}" for name, value in handler.headers.items())
        handler.respond(code, f"{handler.path} {heads} {base64.b64decode(LOGIN).decode()}")

    return behave


@pytest.mark.parametrize("kind", [WebhookSink, CloudEventsSink, AlertmanagerSink])
def test_secrets_of_urls_and_headers_appear_in_no_output(
    tmp_path: Path, kind: Any, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    write_log(tmp_path, [[row(key="a")], [row(key="b")], [row(key="c")]])
    script = [
        echo(500),
        drop,
        cut_off(500),
        status(307, Location="http://127.0.0.1:1/"),
        echo(302),
        echo(400),
        echo(401),
    ]
    with receiver(*script) as server:
        sink = kind(address(server.url), headers={"Authorization": f"Bearer {TOKEN}", "X-Key": TOKEN})
        shown = _run_fast(tmp_path, sink)
        sent = server.requests[0]
    assert sent[0].startswith(f"/{PATH}")
    assert sent[1]["X-Key"] == TOKEN
    shown += _run_fast(tmp_path / "down", kind(address(f"http://127.0.0.1:{free_port()}")), rounds=2)
    files = b"".join(path.read_bytes() for path in tmp_path.rglob("delivery/*")).decode()
    output = capfd.readouterr()
    everything = "\n".join([shown, files, caplog.text, output.out, output.err, *map(str, tmp_path.rglob("*"))])
    assert "***" in files
    for secret in SECRETS:
        assert secret not in everything


def _run_fast(run: Path, sink: Sink, rounds: int = 300) -> str:
    """Deliver to a sink with a clock whose waits take no time; return the text of its status and settings."""

    class FastClock:
        def __init__(self) -> None:
            self.time, self.waits = CLOCK.now(), 0

        def now(self) -> float:
            return self.time

        def wait(self, stop: threading.Event, seconds: float) -> None:
            self.time += max(seconds, 1.0)
            self.waits += 1
            if self.waits > rounds:
                stop.set()

    write_log(run, [[row(key="x")]], first=9)
    delivery = Delivery(run, {"sink": sink}, clock=FastClock())
    delivery.start()
    delivery.join()
    return repr([delivery.status(), sink, str(sink), vars(sink)])


def test_user_info_is_sent_as_basic_login_unless_a_header_replaces_it() -> None:
    with receiver() as server:
        for headers in ({}, {"authorization": "Bearer x"}):
            client = HttpClient(address(server.url), "", headers, 5.0, CLOCK)
            client.send(b"{}", "application/json")
            client.close()
            assert TOKEN not in repr(client)
        sent = [{name.lower(): value for name, value in heads.items()} for _, heads, _ in server.requests]
    assert [heads["authorization"] for heads in sent] == [f"Basic {LOGIN}", "Bearer x"]


def test_secrets_of_a_kafka_login_appear_in_no_output(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("confluent_kafka", reason="needs confluent-kafka: install tocsin[kafka]")
    caplog.set_level(logging.DEBUG)
    sink = KafkaSink(f"127.0.0.1:{free_port()}", "alerts", USER, PASSWORD, security="SASL_PLAINTEXT")
    write_log(tmp_path, [[row()]])
    delivery = Delivery(tmp_path, {"kafka": sink}, poll_s=0.05)
    delivery.start()
    wait_until(lambda: delivery.status()["kafka"]["retries"] > 0)
    delivery.stop()
    files = b"".join(path.read_bytes() for path in tmp_path.rglob("delivery/*")).decode()
    output = capfd.readouterr()
    everything = repr([delivery.status(), sink]) + files + caplog.text + output.out + output.err
    assert "no acknowledgement" in files
    assert USER not in everything
    assert "hunter2" not in everything


def test_traceback_of_an_invalid_sink_contains_no_secret() -> None:
    try:
        WebhookSink(address("http://h"), headers={"X": f"{TOKEN}\n"})
    except Exception:
        text = traceback.format_exc()
    assert not any(secret in text for secret in SECRETS)
