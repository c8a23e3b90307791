"""Source probe: a broker that is down is reported with its address at once, and a run waits for it."""

from __future__ import annotations

import json
import logging
import signal
import socket
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs pyspark: install tocsin[spark]")

from spark.child import free_port, kill, start, tail, wait_until
from tocsin.cli.main import main
from tocsin.errors import RunError
from tocsin.rules.rulefile import Source, Stream
from tocsin.spark import source_probe
from tocsin.spark.run import _query_until_end
from tocsin.spark.source_probe import SourceProbe, brokers_of, check_brokers, connection_failure

RULES = """
streams:
  air: {{source: {{kafka: {{servers: "127.0.0.1:{port}", topic: air}}}}, keys: [m], values: {{temp: {{}}}}}}
groups:
  - name: all
    rules: [{{alert: Hot, expr: air.temp > 40, on: [m]}}]
"""


def kafka(name: str, servers: str, **more: Any) -> Stream:
    return Stream(name, Source("kafka", {"servers": servers, "topic": "t", **more}))


def mqtt(name: str, port: int) -> Stream:
    return Stream(name, Source("mqtt", {"host": "127.0.0.1", "topic": "t", "port": port}))


@contextmanager
def listening(port: int = 0) -> Iterator[int]:
    with socket.create_server(("127.0.0.1", port)) as server:
        yield server.getsockname()[1]


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_UP_S", "_DOWN_S", "_LOOK_S"):
        monkeypatch.setattr(source_probe, name, 0.01)


def test_brokers_have_the_addresses_and_streams_of_the_rule_file() -> None:
    override = {"options": {"kafka.bootstrap.servers": "SASL_SSL://[::1]:9093"}}
    streams = [
        kafka("a", "one:9092, two:9093"),
        Stream("files", Source("json", {"path": "in"})),
        kafka("b", "one:9092, two:9093"),
        Stream("c", Source("mqtt", {"host": "three", "topic": "t"})),
        kafka("d", "one:9092", **override),
        kafka("e", "nonsense"),
    ]
    assert [(one.kind, one.servers, one.streams) for one in brokers_of(streams)] == [
        ("kafka", (("one", 9092), ("two", 9093)), ("a", "b")),
        ("mqtt", (("three", 1883),), ("c",)),
        ("kafka", (("::1", 9093),), ("d",)),
    ]


def test_connection_fails_only_when_no_server_accepts() -> None:
    dead = ("127.0.0.1", free_port())
    assert "refused" in connection_failure([dead])
    assert connection_failure([("127.0.0.1", 70_000)]) != ""
    assert connection_failure([("no host.invalid", 1)]) != ""
    assert connection_failure([("x" * 70, 1)]) != ""
    with listening() as port:
        assert connection_failure([dead, ("127.0.0.1", port)]) == ""


def test_connection_fails_with_the_time_limit_when_a_server_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_probe, "TIMEOUT_S", 0.05)
    answered = threading.Event()
    monkeypatch.setattr(source_probe, "_connect", lambda *_: answered.wait(10))
    assert connection_failure([("silent", 1)]) == "no answer within 0.05 s"
    answered.set()


def test_check_of_history_fails_with_the_address_when_a_kafka_broker_is_down() -> None:
    port = free_port()
    with pytest.raises(RunError, match=f"streams `a`, `b`: the kafka broker 127.0.0.1:{port} is not reachable"):
        check_brokers([kafka("a", f"127.0.0.1:{port}"), kafka("b", f"127.0.0.1:{port}")])
    check_brokers([mqtt("spooled", port)])


def test_probe_reports_each_change_once_when_brokers_go_down_and_come_back(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tocsin.run")
    down, port = free_port(), free_port()
    with SourceProbe([mqtt("m", down), kafka("k", f"127.0.0.1:{port}")]) as probe:
        assert probe.is_blocked
        assert probe.status() == {"m": False, "k": False}
        for _ in range(3):
            probe.check()
        with listening(port):
            assert probe.wait(threading.Event(), 60)
            assert probe.status() == {"m": False, "k": True}
    said = [message for message in caplog.messages if f":{port}" in message or "kafka" in message]
    assert said[0].startswith(f"stream `k`: the kafka broker 127.0.0.1:{port} is not reachable; ")
    assert said[1] == "the kafka broker of stream k accepts connections"
    assert sum(f"127.0.0.1:{down} is not reachable" in message for message in caplog.messages) == 1


def test_wait_ends_when_a_stop_is_requested_or_the_time_is_over() -> None:
    stop, port = threading.Event(), free_port()
    with SourceProbe([kafka("k", f"127.0.0.1:{port}")]) as probe:
        with pytest.raises(RunError, match=f"stream `k`: the kafka broker 127.0.0.1:{port} is not reachable"):
            probe.wait(stop, 0.0)
        stop.set()
        assert not probe.wait(stop)
    with SourceProbe([mqtt("m", port)]) as probe:
        assert probe.wait(threading.Event(), 0.0)


class Query:
    """A query with the outcome that a test sets."""

    def __init__(self, outcome: Exception | None) -> None:
        self.outcome = outcome

    def awaitTermination(self, seconds: float) -> bool:
        if self.outcome is not None:
            raise self.outcome
        return True


def _run_queries(outcomes: list[Exception | None], port: int, *, once: bool) -> bool:
    recorder: Any = SimpleNamespace(stopping=threading.Event(), error=None)
    queries = iter(outcomes)
    with SourceProbe([kafka("k", f"127.0.0.1:{port}")]) as probe:
        return _query_until_end(
            lambda: Query(next(queries)),  # type: ignore[arg-type,return-value]
            recorder,
            probe,
            threading.Event(),
            once=once,
            secrets=["hunter2"],
        )


def test_query_starts_again_when_it_failed_while_its_broker_was_down(caplog: pytest.LogCaptureFixture) -> None:
    port, opened = free_port(), threading.Event()

    def serve() -> None:
        assert wait_for(lambda: any("the query failed" in message for message in caplog.messages))
        with listening(port):
            opened.wait(60)

    server = threading.Thread(target=serve)
    server.start()
    try:
        assert _run_queries([ValueError("lost hunter2"), None], port, once=False) is False
    finally:
        opened.set()
        server.join()
    assert "the query failed while a Kafka broker is down: lost ***" in caplog.messages


def wait_for(true: Any) -> bool:
    pause = threading.Event()
    return any(true() or pause.wait(0.01) for _ in range(6000))


def test_failure_of_a_query_ends_the_run_when_its_broker_is_up_or_the_run_ends_by_itself() -> None:
    with listening() as port, pytest.raises(ValueError, match="boom"):
        _run_queries([ValueError("boom")], port, once=False)
    port = free_port()
    with pytest.raises(RunError, match=f"127.0.0.1:{port} is not reachable"):
        _run_queries([ValueError("boom")], port, once=True)


def test_run_reports_the_broker_and_serves_metrics_when_kafka_is_down(tmp_path: Path) -> None:
    broker, port, log = free_port(), free_port(), tmp_path / "log"
    (tmp_path / "rules.yaml").write_text(RULES.format(port=broker))
    command = [sys.executable, "-m", "tocsin", "run", "rules.yaml", "--run-dir", "run", "--metrics-port", str(port)]
    process = start(command, log)
    try:
        assert wait_until(lambda: "is not reachable" in tail(log), process), tail(log)
        assert wait_until(lambda: 'tocsin_source_up{stream="air"} 0.0' in _scraped(port), process), tail(log)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        kill(process)
    said = tail(log)
    assert f"stream `air`: the kafka broker 127.0.0.1:{broker} is not reachable; connection refused" in said
    assert "streams are open" not in said
    assert "starting Spark" not in said


def _scraped(port: int) -> str:
    try:
        return str(urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10).read().decode())
    except OSError:
        return ""


@pytest.mark.parametrize("command", [["run", "--once", "--run-dir", "run"], ["backtest"]], ids=lambda one: one[0])
def test_command_that_ends_by_itself_fails_with_the_address_when_kafka_is_down(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    broker = free_port()
    Path("rules.yaml").write_text(RULES.format(port=broker))
    assert main([command[0], "rules.yaml", *command[1:], "--json"]) == 1
    wanted = f"stream `air`: the kafka broker 127.0.0.1:{broker} is not reachable; connection refused"
    assert json.loads(capsys.readouterr().out) == {"ok": False, "error": wanted}
