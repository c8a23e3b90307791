"""Signals: SIGTERM, SIGINT and SIGHUP request a stop, SIGUSR1 requests a report. Each of them ends a `select`."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any

_STOP = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class SignalMonitor:
    """Context manager that records signals. On exit it restores the earlier handlers.

    Attributes
    ----------
    fd
        File descriptor that becomes readable when a signal arrives.
    count, name
        Number of stop signals, and the name of the last stop signal.
    """

    def __init__(self) -> None:
        self.count = 0
        self.name = ""
        self._is_report_requested = False
        self._handlers: dict[int, Any] = {}

    @property
    def is_stopping(self) -> bool:
        """Whether a stop was requested."""
        return self.count > 0

    def __enter__(self) -> SignalMonitor:
        self.fd, self._writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._wakeup = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        for number in (*_STOP, signal.SIGUSR1):
            self._handlers[number] = signal.signal(number, self._record)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        signal.set_wakeup_fd(self._wakeup)
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        os.close(self.fd)
        os.close(self._writer)

    def take_report_request(self) -> bool:
        """Clear the pipe, and return whether a report was requested since the last call."""
        with suppress(BlockingIOError):
            os.read(self.fd, 512)
        is_requested, self._is_report_requested = self._is_report_requested, False
        return is_requested

    def _record(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGUSR1:
            self._is_report_requested = True
        else:
            self.count += 1
            self.name = signal.Signals(number).name
