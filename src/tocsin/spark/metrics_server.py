"""Metrics server: an HTTP server for Prometheus with a bounded number of connections and threads.

Guarantees:
    - At most `MOST_CONNECTIONS` connections are open, each with one thread. If a further client connects, the server
      closes the oldest connection, so idle connections cannot keep a scrape out.
    - A connection is closed after `LONGEST_S`, also if its client sends or receives slowly. It serves one request.
    - The server answers only under known host names (`tocsin.hosts`).
"""

from __future__ import annotations

import logging
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, make_wsgi_app

from tocsin.errors import RunError
from tocsin.hosts import KnownHosts

MOST_CONNECTIONS, LONGEST_S = 16, 10.0
# Longest wait for the thread of a connection that was closed to make room.
_ROOM_S = 1.0
# Time between two checks for connections that are open for too long.
_CHECK_S = 0.5
_UNKNOWN_HOST = b"unknown host name; allow it with `--metrics-name`\n"

log = logging.getLogger(__name__)


class _Server(ThreadingMixIn, WSGIServer):
    """A server that closes its oldest connection for a new one."""

    daemon_threads = True
    # Connections that the system holds until the server accepts them.
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], family: socket.AddressFamily) -> None:
        self.address_family = family
        self._room = threading.BoundedSemaphore(MOST_CONNECTIONS)
        # Start time of each connection, the oldest connection first.
        self._open: dict[Any, float] = {}
        self._lock = threading.Lock()
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in a thread of its own; without room, close it."""
        if not self._room.acquire(blocking=False):
            self._close_older_than(time.monotonic(), most=1)
            if not self._room.acquire(timeout=_ROOM_S):
                self.shutdown_request(request)
                return
        with self._lock:
            self._open[request] = time.monotonic()
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # No thread could be started.
            self._leave(request)
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve a connection, then make room for another."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._leave(request)

    def service_actions(self) -> None:
        """Close the connections that are open for too long."""
        self._close_older_than(time.monotonic() - LONGEST_S)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log an error, unless the connection was closed."""
        if not isinstance(sys.exception(), OSError):
            log.exception("a request for metrics failed")

    def _close_older_than(self, time_s: float, most: int = MOST_CONNECTIONS) -> None:
        with self._lock:
            old = [request for request, begun_s in self._open.items() if begun_s <= time_s]
            for request in old[:most]:
                # The thread of the connection reads its end, or fails to write, and closes it.
                with suppress(OSError):
                    request.shutdown(socket.SHUT_RDWR)

    def _leave(self, request: Any) -> None:
        with self._lock:
            del self._open[request]
        self._room.release()


class _Handler(WSGIRequestHandler):
    """A handler without a log line per request."""

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is that of the base class
        """Log nothing."""


@contextmanager
def serve_metrics(registry: CollectorRegistry, address: str, port: int, names: Iterable[str] = ()) -> Iterator[None]:
    """Serve a registry at `http://address:port/metrics`, also under the host names `names`; port 0 serves nothing."""
    if not port:
        yield
        return
    try:
        family, _, _, _, place = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0]
        server = _Server((str(place[0]), port), family)
    except (OSError, OverflowError) as error:
        what = (getattr(error, "strerror", None) or str(error)).lower()
        message = f"`--metrics-port` {port} cannot be opened on {address}; {what}"
        raise RunError(message) from None
    server.set_app(_with_host_check(make_wsgi_app(registry), KnownHosts([address, *names])))
    thread = threading.Thread(target=server.serve_forever, args=(_CHECK_S,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _with_host_check(app: Callable[..., Any], hosts: KnownHosts) -> Callable[..., Any]:
    """Return an application that answers 421 if the Host header is not of a known host."""

    def checked(environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
        if hosts.accept(environ.get("HTTP_HOST", "")):
            return app(environ, start_response)
        start_response("421 Misdirected Request", [("Content-Type", "text/plain; charset=utf-8")])
        return [_UNKNOWN_HOST]

    return checked
