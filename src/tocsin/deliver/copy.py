"""Log: a copy of the alert log in another folder or form.

A file of the copy bears the name of its batch and is replaced whole, so the copy holds every alert exactly once,
however often it is made.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile

from tocsin.deliver.alertlog import AlertLog, AlertWriter, Position
from tocsin.deliver.channel import DELIVERED, Answer, Entry, Verdict
from tocsin.deliver.clock import CAP_S
from tocsin.deliver.encode import Alert
from tocsin.deliver.sinks import LogSink
from tocsin.errors import RunError


class CopyChannel:
    """A folder."""

    limit = 10**9
    whole_batches = True
    cap_s = CAP_S

    def __init__(self, sink: LogSink, log: AlertLog) -> None:
        self._log, self._writer = AlertLog(log.folder), AlertWriter(sink.path, sink.format)
        if self._writer.folder.resolve() == log.folder.resolve():
            message = "sink `log`: `path` must not be the folder of the alert log itself; it is"
            raise RunError(message)

    def wants(self, alert: Alert) -> bool:
        """Every state is kept."""
        return True

    def parcels(self, step: Sequence[Entry]) -> Iterator[Sequence[Entry]]:
        """A step is one batch."""
        return iter([step])

    def send(self, parcel: Sequence[Entry]) -> Answer:
        """Write the batch anew from all that can be read of it, for the step may hold only its end."""
        batch = parcel[0].position.batch
        found = self._log.read(Position(batch, -1))
        try:
            self._writer.write(batch, (alert for _, alert in takewhile(lambda item: item[0].batch == batch, found)))
        except OSError as error:
            return Answer(Verdict.RETRY, f"the folder must take files; {error.strerror}")
        return DELIVERED

    def close(self) -> None:
        """Nothing is open."""
