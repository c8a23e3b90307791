"""Sink worker: delivers the alert log to one receiver, in order, until each alert event is delivered or rejected.

Algorithm: the worker reads a chunk of the log, sends its requests and then saves the position. It repeats a failed
request with growing delays before it sends the next request.

Guarantees:
    - At least once, with the same identity each time. A kill repeats at most one chunk.
    - The events of one alert keep their order.
    - A rejected event is recorded with the response of the receiver and counted. It does not block later events.

Complexity: memory for one chunk. A receiver that is down costs about one attempt per minute and delays no other sink.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tocsin.delivery.alert_json import Alert
from tocsin.delivery.alert_log import AlertLog, Position
from tocsin.delivery.backoff import Backoff, Clock
from tocsin.delivery.sink_channel import DeliveryStatus, LogEntry, SinkChannel, SinkResponse
from tocsin.delivery.sink_cursor import SinkCursor
from tocsin.runtime.alert_batch import STATES

COUNT_INTERVAL_S = 1.0


@dataclass
class LogChunk:
    """Consecutive lines of the log.

    Attributes
    ----------
    entries
        Lines to send.
    skipped
        Number of lines whose state the receiver does not get.
    end
        Position of the last line; None at the end of the log.
    """

    entries: list[LogEntry] = field(default_factory=list)
    skipped: int = 0
    end: Position | None = None


class SinkWorker:
    """Worker that sends the alert events of a log to one receiver, one by one (all sinks except Alertmanager)."""

    def __init__(self, log: AlertLog, channel: SinkChannel, cursor: SinkCursor, clock: Clock, backoff: Backoff) -> None:
        self.log, self.channel, self.cursor, self.clock, self.backoff = log, channel, cursor, clock, backoff
        backoff.max_delay_s = min(backoff.max_delay_s, channel.max_delay_s)
        self.backlog = Backlog(log, cursor)
        self._entries: Iterator[tuple[Position, Alert]] | None = None
        self._pushed_back: LogEntry | None = None
        self._rejected = 0
        cursor.accepted_states = [state for state in STATES if channel.wants({"state": state})]

    def process_next(self, stop: threading.Event) -> bool:
        """Deliver one chunk of the log; return False at the end of the log."""
        chunk = self._next_chunk()
        if chunk.end is None:
            self.backlog.reset_at_end(self.cursor.position)
            self.cursor.save_if_changed()
            return False
        self.backlog.refresh()
        self._rejected = 0
        for request in self.channel.split_requests(chunk.entries):
            if not self._deliver_request(request, stop):
                return True
        self.cursor.position = chunk.end
        delivered = len(chunk.entries) - self._rejected
        self.cursor.add(delivered=delivered, rejected=self._rejected, skipped=chunk.skipped)
        self.backlog.subtract(len(chunk.entries) + chunk.skipped)
        self.cursor.save()
        return True

    def idle_delay_s(self, poll_s: float) -> float:
        """Return how many seconds to wait after a call that found no work."""
        return poll_s

    def is_done(self) -> bool:
        """Return True, because `process_next` returns False only when everything has been delivered."""
        return True

    def close(self) -> None:
        """Save the cursor and close the channel."""
        self.cursor.save(sync=True)
        self.channel.close()

    def _deliver_request(self, request: Sequence[LogEntry], stop: threading.Event) -> bool:
        """Send a request until it is delivered or rejected; return False if `stop` was set before."""
        while not stop.is_set():
            response = self.channel.send(request)
            if response.status is DeliveryStatus.DELIVERED:
                self.backoff.reset()
                self.cursor.record_success()
                return True
            if response.status is DeliveryStatus.REJECTED:
                self.backoff.reset()
                return self._split_or_record(request, response, stop)
            self._wait_before_retry(response, stop)
        return False

    def _split_or_record(self, request: Sequence[LogEntry], response: SinkResponse, stop: threading.Event) -> bool:
        if response.split and len(request) > 1:
            middle = len(request) // 2
            return self._deliver_request(request[:middle], stop) and self._deliver_request(request[middle:], stop)
        for entry in request:
            self.cursor.record_rejection(entry.position, entry.alert, response)
        self._rejected += len(request)
        return True

    def _wait_before_retry(self, response: SinkResponse, stop: threading.Event) -> None:
        self.cursor.record_failure(response.text)
        self.cursor.add(retries=1)
        self.backlog.refresh()
        self.cursor.save()
        self.clock.wait(stop, self.backoff.next_delay_s(response.retry_after_s))

    def _next_chunk(self) -> LogChunk:
        """Read the next chunk of the log."""
        chunk = LogChunk()
        while len(chunk.entries) < self.channel.limit:
            entry = self._next_entry()
            if entry is None:
                break
            if self._must_end_before(chunk, entry):
                self._pushed_back = entry
                break
            chunk.end = entry.position
            if self.channel.wants(entry.alert):
                chunk.entries.append(entry)
            else:
                chunk.skipped += 1
        return chunk

    def _must_end_before(self, chunk: LogChunk, entry: LogEntry) -> bool:
        """Return whether the chunk must end because the entry belongs to another micro-batch."""
        return self.channel.takes_whole_batches and chunk.end is not None and chunk.end.batch != entry.position.batch

    def _next_entry(self) -> LogEntry | None:
        if self._pushed_back is not None:
            entry, self._pushed_back = self._pushed_back, None
            return entry
        if self._entries is None:
            self._entries = self.log.read(self.cursor.position)
        item = next(self._entries, None)
        if item is None:
            self._entries = None
            return None
        return LogEntry(*item)


class Backlog:
    """Number of log lines after the position of a sink (`pending` of the cursor).

    Each new file is counted once. New files are searched at most once per second.
    """

    def __init__(self, log: AlertLog, cursor: SinkCursor) -> None:
        self.log, self.cursor = log, cursor
        self._corrupt = 0
        position = cursor.position
        self._next_batch = position.batch if position else 0
        self._counted_at = float("-inf")
        # The file of the position is counted completely, so its processed lines are subtracted.
        cursor.counts["pending"] = -(position.line + 1) if position else 0
        self.refresh()

    def refresh(self) -> None:
        """Count the lines of new files, and the unreadable lines."""
        self.cursor.add(corrupt=self.log.corrupt - self._corrupt)
        if self.log.corrupt > self._corrupt:
            self.cursor.record_failure(self.log.fault)
        self._corrupt = self.log.corrupt
        now = self.cursor.clock.now()
        if now - self._counted_at < COUNT_INTERVAL_S:
            return
        self._counted_at = now
        for batch, path in self.log.batches(self._next_batch):
            self._next_batch = batch + 1
            self.cursor.add(pending=self.log.count(path))

    def subtract(self, lines: int) -> None:
        """Subtract processed lines."""
        self.cursor.counts["pending"] = max(0, self.cursor.counts["pending"] - lines)

    def reset_at_end(self, position: Position | None) -> None:
        """Reset the count at the end of the log, so that unreadable lines do not accumulate in it."""
        self._next_batch = position.batch + 1 if position else 0
        self.cursor.counts["pending"] = 0
        self.refresh()
