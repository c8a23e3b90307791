"""Signals: SIGTERM, SIGINT and SIGHUP ask to stop, SIGUSR1 asks for counts; `select` wakes up for them."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any

_STOP = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Signals:
    """Notes what has been asked, while it is entered; afterwards all is as before."""

    def __init__(self) -> None:
        self.count = 0
        self.name = ""
        self._report = False
        self._before: dict[int, Any] = {}

    @property
    def stop(self) -> bool:
        """Whether it was asked to stop."""
        return self.count > 0

    def __enter__(self) -> Signals:
        self.fd, self._writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._wakeup = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        for number in (*_STOP, signal.SIGUSR1):
            self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        signal.set_wakeup_fd(self._wakeup)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        os.close(self.fd)
        os.close(self._writer)

    def take_report(self) -> bool:
        """Forget what woke us; tell whether counts were asked for."""
        with suppress(BlockingIOError):
            os.read(self.fd, 512)
        asked, self._report = self._report, False
        return asked

    def _note(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGUSR1:
            self._report = True
        else:
            self.count += 1
            self.name = signal.Signals(number).name
