"""Metrics server: idle, slow and many clients take few threads, and keep no scrape out; unknown hosts get nothing."""

from __future__ import annotations

import http.client
import socket
import threading
import time
from collections.abc import Iterator

import pytest

pytest.importorskip("pyspark", reason="needs pyspark: install tocsin[spark]")

from prometheus_client import CollectorRegistry, Gauge

from spark.child import free_port
from tocsin.spark import metrics_server
from tocsin.spark.metrics_server import MOST_CONNECTIONS, serve_metrics

# Time limit of connections in tests that wait for its end.
LIMIT_S = 0.3


@pytest.fixture
def port() -> Iterator[int]:
    number = free_port()
    with serve_metrics(registry(), "127.0.0.1", number, ("prometheus.example.org",)):
        yield number


def registry() -> CollectorRegistry:
    made = CollectorRegistry()
    Gauge("answer", "a number", registry=made).set(42)
    return made


def scrape(port: int, host: str = "localhost") -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", "/metrics", headers={"Host": host})
    answer = connection.getresponse()
    found = answer.status, answer.read()
    connection.close()
    return found


def connect(port: int, sent: bytes = b"") -> socket.socket:
    made = socket.create_connection(("127.0.0.1", port), timeout=30)
    made.sendall(sent)
    return made


def rest_of(made: socket.socket) -> bytes:
    """Return the bytes until the server closes the connection; an open connection is a timeout."""
    found = b""
    try:
        while part := made.recv(1 << 16):
            found += part
    except ConnectionResetError:
        pass
    return found


@pytest.mark.parametrize("sent", [b"", b"GET /metr", b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n"])
def test_server_answers_with_few_threads_when_300_clients_are_idle(port: int, sent: bytes) -> None:
    before = threading.active_count()
    idle = []
    for number in range(300):
        idle.append(connect(port, sent))
        assert threading.active_count() - before <= MOST_CONNECTIONS
        if number % 50 == 49:
            assert b"answer 42.0" in scrape(port)[1]
    for made in idle[: 300 - MOST_CONNECTIONS]:
        rest_of(made)
        made.close()
    assert b"answer 42.0" in scrape(port)[1]
    for made in idle:
        made.close()


def test_server_answers_when_many_clients_scrape_at_once(port: int) -> None:
    found = []
    threads = [threading.Thread(target=lambda: found.append(scrape(port))) for _ in range(MOST_CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [status for status, _ in found] == [200] * MOST_CONNECTIONS


@pytest.mark.parametrize("sent", [b"", b"GET /metrics HTTP/1.1\r\n", b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n"])
def test_server_closes_a_connection_when_its_request_does_not_end(
    monkeypatch: pytest.MonkeyPatch, port: int, sent: bytes
) -> None:
    monkeypatch.setattr(metrics_server, "LONGEST_S", LIMIT_S)
    with connect(port, sent) as made:
        assert rest_of(made) == b""


def test_server_closes_a_connection_when_its_request_comes_byte_by_byte(
    monkeypatch: pytest.MonkeyPatch, port: int
) -> None:
    monkeypatch.setattr(metrics_server, "LONGEST_S", LIMIT_S)
    with connect(port, b"GET /") as made:
        closed = False
        for _ in range(600):
            try:
                made.sendall(b"x")
            except OSError:
                closed = True
                break
            time.sleep(0.05)
        assert closed


def test_server_closes_a_connection_when_its_answer_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_server, "LONGEST_S", LIMIT_S)
    large, number = CollectorRegistry(), free_port()
    gauge = Gauge("large", "many samples", ["label"], registry=large)
    for label in range(20_000):
        gauge.labels(f"{label:0500}").set(label)
    before = threading.active_count()
    with serve_metrics(large, "127.0.0.1", number):
        slow = socket.socket()
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect(("127.0.0.1", number))
        slow.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        until = time.monotonic() + 60
        while threading.active_count() > before + 1 and time.monotonic() < until:
            time.sleep(0.1)
        assert threading.active_count() == before + 1
        slow.close()


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("127.0.0.1:9464", 200),
        ("[::1]:9464", 200),
        ("Prometheus.example.org:9464", 200),
        ("evil.example.org", 421),
        ("127.0.0.1.evil.org", 421),
        ("", 421),
        ("evil.org@127.0.0.1", 421),
    ],
)
def test_server_answers_only_when_the_host_is_known(port: int, host: str, status: int) -> None:
    found, body = scrape(port, host)
    assert found == status
    assert (b"answer 42.0" in body) == (status == 200)


def test_server_frees_all_threads_when_it_ends() -> None:
    before, number = threading.active_count(), free_port()
    with serve_metrics(registry(), "127.0.0.1", number):
        assert scrape(number)[0] == 200
    with pytest.raises(ConnectionRefusedError):
        connect(number)
    until = time.monotonic() + 30
    while threading.active_count() > before and time.monotonic() < until:
        time.sleep(0.05)
    assert threading.active_count() == before
