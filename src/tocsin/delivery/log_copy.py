"""Log sink: copies the alert log to another directory, as JSON or Parquet.

The copy has one file per micro-batch, with the name of the batch. A repeated delivery replaces the file, so the copy
contains each alert event exactly once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile

from tocsin.delivery.alert_json import Alert
from tocsin.delivery.alert_log import AlertLog, AlertWriter, Position
from tocsin.delivery.backoff import MAX_DELAY_S
from tocsin.delivery.sink_channel import DELIVERED, DeliveryStatus, LogEntry, SinkResponse
from tocsin.delivery.sinks import LogSink
from tocsin.errors import RunError


class LogCopyChannel:
    """Channel to the directory of the copy."""

    limit = 10**9
    takes_whole_batches = True
    max_delay_s = MAX_DELAY_S

    def __init__(self, sink: LogSink, log: AlertLog) -> None:
        self._log, self._writer = AlertLog(log.folder), AlertWriter(sink.path, sink.format)
        if self._writer.folder.resolve() == log.folder.resolve():
            message = f"sink `log`: `path` must not be the directory of the alert log; got {str(sink.path)!r}"
            raise RunError(message)

    def wants(self, alert: Alert) -> bool:
        """Return True: every state is copied."""
        return True

    def split_requests(self, chunk: Sequence[LogEntry]) -> Iterator[Sequence[LogEntry]]:
        """Yield the chunk as one request; it belongs to one batch."""
        return iter([chunk])

    def send(self, request: Sequence[LogEntry]) -> SinkResponse:
        """Write the file of the batch from all its readable lines; the request may contain only the last lines."""
        batch = request[0].position.batch
        entries = takewhile(lambda entry: entry[0].batch == batch, self._log.read(Position(batch, -1)))
        try:
            self._writer.write(batch, (alert for _, alert in entries))
        except OSError as error:
            return SinkResponse(DeliveryStatus.RETRY, f"cannot write to {self._writer.folder}: {error.strerror}")
        return DELIVERED

    def close(self) -> None:
        """Do nothing. The channel holds no open file."""
