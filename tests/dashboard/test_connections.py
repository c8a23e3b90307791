"""Connections that are opened and not used: none keeps others out."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dashboard.asked import Server, served
from tocsin.dashboard import connections

# Time limit of a request and of its answer, in seconds.
LIMIT_S = 0.5
HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A server with few places and little patience."""
    monkeypatch.setattr(connections, "MOST_CONNECTIONS", 4)
    monkeypatch.setattr(connections, "REQUEST_S", LIMIT_S)
    monkeypatch.setattr(connections, "TAKE_S", LIMIT_S)
    with served(tmp_path) as running:
        yield running


def _opened(server: Server, said: bytes = b"") -> socket.socket:
    one = socket.create_connection(("127.0.0.1", server.port), timeout=20)
    one.sendall(said)
    return one


def _rest(one: socket.socket) -> bytes:
    """What comes until the other end closes it; one that stays open is a timeout."""
    found = b""
    try:
        while part := one.recv(1 << 16):
            found += part
    except ConnectionResetError:
        pass
    return found


@pytest.mark.parametrize(
    "said", [b"", b"GET /hea", HEALTH[:-2], b"POST /login HTTP/1.1\r\nHost: a\r\nContent-Length: 9"]
)
def test_a_connection_without_a_whole_request_is_closed(server: Server, said: bytes) -> None:
    with _opened(server, said) as one:
        assert _rest(one) == b""


def test_one_that_begins_its_next_request_and_never_ends_it_is_closed(server: Server) -> None:
    with _opened(server, HEALTH + b"GET /") as one:
        assert _rest(one).count(b"ok\n") == 1


def test_a_body_that_does_not_come_is_not_waited_for(server: Server) -> None:
    with _opened(server, b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nto") as one:
        assert _rest(one) == b""


def test_a_page_that_listens_stays_connected(server: Server) -> None:
    with _opened(server, b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n") as one:
        assert one.recv(1 << 16).startswith(b"HTTP/1.1 200")
        time.sleep(1.5 * LIMIT_S)
        one.settimeout(0.3)
        with pytest.raises(TimeoutError):
            _rest(one)


def test_more_connections_than_may_be_open_are_closed_at_once_and_leave_room_for_others_soon(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "REQUEST_S", 3.0)
    many = [_opened(server) for _ in range(40)]
    closed = [one for one in many if not _is_open(one)]
    assert len(closed) == 36
    for one in many:
        assert _rest(one) == b""
        one.close()
    assert server.get("/health").text == "ok\n"


def _is_open(one: socket.socket) -> bool:
    one.settimeout(0.02)
    try:
        return bool(one.recv(1))
    except TimeoutError:
        return True
    except ConnectionResetError:
        return False
    finally:
        one.settimeout(20)


def test_one_that_does_not_take_its_answers_is_closed(server: Server) -> None:
    asks = b"GET /static/dashboard.css HTTP/1.1\r\nHost: localhost\r\n\r\n"
    one = socket.socket()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    one.connect(("127.0.0.1", server.port))
    one.settimeout(20)
    with one:
        one.sendall(asks * 1000)
        time.sleep(3.5 * LIMIT_S)
        assert len(_rest(one)) < 900 * (Path(connections.__file__).parent / "static" / "dashboard.css").stat().st_size
