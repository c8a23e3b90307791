"""Receivers for tests: real HTTP servers on loopback that answer as a script says."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Behaviour = Callable[["Handler"], None]


class Handler(BaseHTTPRequestHandler):
    """Takes a POST, remembers it and does what is next in the script; then it says 200."""

    protocol_version = "HTTP/1.1"
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with self.server.lock:
            self.server.requests.append((self.path, dict(self.headers), body))
            behave = self.server.script.pop(0) if self.server.script else self.server.then
        behave(self)

    def answer(self, status: int, text: str = "", **headers: str) -> None:
        data = text.encode()
        if 200 <= status < 300:
            self.server.taken.append(self.server.requests[-1][2])
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


class Receiver(ThreadingHTTPServer):
    """A server with a script; `taken` holds the bodies that it answered with success."""

    daemon_threads = True

    def __init__(self, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.lock = threading.Lock()
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        self.taken: list[bytes] = []
        self.script: list[Behaviour] = []
        self.then: Behaviour = ok
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, *_: Any) -> None:
        """A connection that we broke on purpose is no news."""

    def bodies(self) -> list[Any]:
        return [json.loads(body) for body in self.taken]


@contextmanager
def receiver(*script: Behaviour, port: int = 0) -> Iterator[Receiver]:
    server = Receiver(port)
    server.script = list(script)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def ok(handler: Handler) -> None:
    handler.answer(200, "{}")


def status(code: int, text: str = "", **headers: str) -> Behaviour:
    return lambda handler: handler.answer(code, text, **headers)


def drop(handler: Handler) -> None:
    """Take the request and hang up without an answer."""
    handler.connection.shutdown(socket.SHUT_RDWR)
    handler.close_connection = True


def half(code: int) -> Behaviour:
    """Begin an answer and hang up in the middle of its body."""

    def behave(handler: Handler) -> None:
        if code < 300:
            handler.server.taken.append(handler.server.requests[-1][2])
        handler.send_response(code)
        handler.send_header("Content-Length", "1000")
        handler.end_headers()
        handler.wfile.write(b"only this")
        handler.wfile.flush()
        drop(handler)

    return behave


def slow(seconds: float) -> Behaviour:
    """Think for longer than anybody waits."""

    def behave(handler: Handler) -> None:
        time.sleep(seconds)
        handler.close_connection = True

    return behave


def drip(handler: Handler) -> None:
    """Refuse, and send a body that does not end before the other side hangs up."""
    handler.send_response(500)
    handler.send_header("Content-Length", str(1 << 40))
    handler.end_headers()
    with suppress(OSError):
        while True:
            handler.wfile.write(b".")
            handler.wfile.flush()
            time.sleep(0.05)
