"""Serve the pages of some run directories until told to stop."""

from __future__ import annotations

import errno
import gc
import signal
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import uvicorn
from starlette.applications import Starlette

from tocsin.dashboard import PORT
from tocsin.dashboard.app import make_app
from tocsin.dashboard.connections import BACKLOG, Connection
from tocsin.dashboard.store import Store
from tocsin.errors import RunError
from tocsin.hosts import is_loopback

LEAST_TOKEN = 16


@dataclass(frozen=True)
class Where:
    """Where to listen, under which names, and the token that is asked for; port 0 takes one that is free."""

    address: str = "127.0.0.1"
    port: int = PORT
    token: str | None = None
    names: tuple[str, ...] = ()

    def check(self) -> None:
        """Refuse to show runs to others without a token."""
        if self.token is None and not is_loopback(self.address):
            message = f"`--address` {self.address} can be reached by others, and so needs `--token-file`"
            raise RunError(message)
        if self.token is not None and len(self.token) < LEAST_TOKEN:
            message = f"the token must have at least {LEAST_TOKEN} characters; it has {len(self.token)}"
            raise RunError(message)


def serve(
    folders: Iterable[Path], where: Where, ready: Callable[[str, Store], None], index_dir: Path | None = None
) -> None:
    """Serve until a signal. Call `ready` with the address and the store, which begins to read then.

    `index_dir` has the indexes of the alert logs; without it, each start reads the logs again.
    """
    where.check()
    store = Store(folders, index_dir)
    listening = _listen(where)
    host = f"[{where.address}]" if ":" in where.address else where.address
    ready(f"http://{host}:{listening.getsockname()[1]}/", store)
    config = config_of(make_app(store, where.token, where.names))
    # What is known of a large log is many small things without a cycle: to look through them often is of no use.
    gc.set_threshold(50_000, 20, 100)
    _Server(config).run([listening])


def config_of(app: Starlette) -> uvicorn.Config:
    """How an application is served."""
    return uvicorn.Config(
        app,
        log_level="critical",
        access_log=False,
        # An open page listens for news for ever: it is not waited for.
        timeout_graceful_shutdown=1,
        server_header=False,
        http=Connection,
        ws="none",
        backlog=BACKLOG,
    )


class _Server(uvicorn.Server):
    """A server that a signal ends without being raised again: to be asked to stop is no failure."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        before = {number: signal.signal(number, self._stop) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self.force_exit = self.should_exit  # The second one waits for nothing.
        self.should_exit = True


def _listen(where: Where) -> socket.socket:
    family = socket.AF_INET6 if ":" in where.address else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((where.address, where.port))
    except (OSError, OverflowError) as error:
        listening.close()
        raise RunError(_unbound(where, error)) from None
    listening.listen(BACKLOG)
    return listening


def _unbound(where: Where, error: OSError | OverflowError) -> str:
    what = (getattr(error, "strerror", None) or str(error)).lower()
    if isinstance(error, OverflowError) or error.errno in {errno.EADDRINUSE, errno.EACCES}:
        return f"`--port` {where.port} must be free on {where.address}; {what}"
    return f"`--address` {where.address} must be one of this machine; {what}"
