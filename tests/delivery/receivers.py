"""HTTP receivers for tests: real servers on the loopback interface whose responses follow a script."""

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
    """Handler that stores a POST request and runs the next behaviour of the script; after the script, the default."""

    protocol_version = "HTTP/1.1"
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with self.server.lock:
            self.server.requests.append((self.path, dict(self.headers), body))
            behave = self.server.script.pop(0) if self.server.script else self.server.default
        behave(self)

    def respond(self, status: int, text: str = "", **headers: str) -> None:
        data = text.encode()
        if 200 <= status < 300:
            self.server.accepted.append(self.server.requests[-1][2])
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        """Suppress the log."""


class Receiver(ThreadingHTTPServer):
    """Server with a script. `accepted` contains the bodies that received a 2xx response."""

    daemon_threads = True

    def __init__(self, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.lock = threading.Lock()
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        self.accepted: list[bytes] = []
        self.script: list[Behaviour] = []
        self.default: Behaviour = ok
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, *_: Any) -> None:
        """Suppress errors: some behaviours break the connection on purpose."""

    def bodies(self) -> list[Any]:
        return [json.loads(body) for body in self.accepted]


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
    handler.respond(200, "{}")


def status(code: int, text: str = "", **headers: str) -> Behaviour:
    return lambda handler: handler.respond(code, text, **headers)


def drop(handler: Handler) -> None:
    """Close the connection without a response."""
    handler.connection.shutdown(socket.SHUT_RDWR)
    handler.close_connection = True


def cut_off(code: int) -> Behaviour:
    """Close the connection in the middle of the response body."""

    def behave(handler: Handler) -> None:
        if code < 300:
            handler.server.accepted.append(handler.server.requests[-1][2])
        handler.send_response(code)
        handler.send_header("Content-Length", "1000")
        handler.end_headers()
        handler.wfile.write(b"only this")
        handler.wfile.flush()
        drop(handler)

    return behave


def slow(seconds: float) -> Behaviour:
    """Send no response for some seconds."""

    def behave(handler: Handler) -> None:
        time.sleep(seconds)
        handler.close_connection = True

    return behave


def drip(handler: Handler) -> None:
    """Respond with 500 and a body that ends only when the client closes the connection."""
    handler.send_response(500)
    handler.send_header("Content-Length", str(1 << 40))
    handler.end_headers()
    with suppress(OSError):
        while True:
            handler.wfile.write(b".")
            handler.wfile.flush()
            time.sleep(0.05)
