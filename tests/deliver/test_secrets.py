"""What is secret appears nowhere: each secret is looked for in all that delivery says or leaves behind."""

from __future__ import annotations

import base64
import logging
import threading
import traceback
from pathlib import Path
from typing import Any

import pytest

from deliver.alerts import row, write_log
from deliver.receivers import Handler, drop, half, receiver, status
from deliver.test_run import wait_until
from servers import free_port
from tocsin.deliver import AlertmanagerSink, CloudEventsSink, Delivery, KafkaSink, Sink, WebhookSink
from tocsin.deliver.clock import CLOCK
from tocsin.deliver.post import Post

USER, PASSWORD, TOKEN, PATH, QUERY = "bell-ringer", "hunter2/äé", "tok-3b1c9f", "T0K3N/in/the/path", "sig=0xfeedbeef"
LOGIN = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
SECRETS = (USER, "hunter2", TOKEN, "T0K3N", "0xfeedbeef", LOGIN)


def address(url: str) -> str:
    return f"{url.replace('://', f'://{USER}:hunter2%2F%C3%A4%C3%A9@')}/{PATH}?{QUERY}"


def echo(code: int) -> Any:
    """A receiver that sends back all that it was sent."""

    def behave(handler: Handler) -> None:
        heads = " ".join(f"{name}: {value}" for name, value in handler.headers.items())
        handler.answer(code, f"{handler.path} {heads} {base64.b64decode(LOGIN).decode()}")

    return behave


@pytest.mark.parametrize("kind", [WebhookSink, CloudEventsSink, AlertmanagerSink])
def test_no_secret_of_an_address_or_header_is_ever_said(
    tmp_path: Path, kind: Any, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    write_log(tmp_path, [[row(key="a")], [row(key="b")], [row(key="c")]])
    script = [echo(500), drop, half(500), status(307, Location="http://127.0.0.1:1/"), echo(302), echo(400), echo(401)]
    with receiver(*script) as server:
        sink = kind(address(server.url), headers={"Authorization": f"Bearer {TOKEN}", "X-Key": TOKEN})
        said = _run_fast(tmp_path, sink)
        sent = server.requests[0]
    assert sent[0].startswith(f"/{PATH}")
    assert sent[1]["X-Key"] == TOKEN
    said += _run_fast(tmp_path / "down", kind(address(f"http://127.0.0.1:{free_port()}")), rounds=2)
    left = b"".join(path.read_bytes() for path in tmp_path.rglob("delivery/*")).decode()
    output = capfd.readouterr()
    everything = "\n".join([said, left, caplog.text, output.out, output.err, *map(str, tmp_path.rglob("*"))])
    assert "***" in left
    for secret in SECRETS:
        assert secret not in everything


def _run_fast(run: Path, sink: Sink, rounds: int = 300) -> str:
    """Serve a sink with pauses that take no time, and give all that is said of it."""

    class Hasty:
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
    delivery = Delivery(run, {"sink": sink}, clock=Hasty())
    delivery.start()
    delivery.join()
    return repr([delivery.status(), sink, str(sink), vars(sink)])


def test_the_login_of_user_info_is_sent_and_a_header_of_ours_takes_its_place() -> None:
    with receiver() as server:
        for headers in ({}, {"authorization": "Bearer x"}):
            post = Post(address(server.url), "", headers, 5.0, CLOCK)
            post.send(b"{}", "application/json")
            post.close()
            assert TOKEN not in repr(post)
        sent = [{name.lower(): value for name, value in heads.items()} for _, heads, _ in server.requests]
    assert [heads["authorization"] for heads in sent] == [f"Basic {LOGIN}", "Bearer x"]


def test_no_secret_of_a_kafka_login_is_ever_said(
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
    left = b"".join(path.read_bytes() for path in tmp_path.rglob("delivery/*")).decode()
    output = capfd.readouterr()
    everything = repr([delivery.status(), sink]) + left + caplog.text + output.out + output.err
    assert "no acknowledgement" in left
    assert USER not in everything
    assert "hunter2" not in everything


def test_a_traceback_of_a_wrong_sink_shows_no_secret() -> None:
    try:
        WebhookSink(address("http://h"), headers={"X": f"{TOKEN}\n"})
    except Exception:
        text = traceback.format_exc()
    assert not any(secret in text for secret in SECRETS)
