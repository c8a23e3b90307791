"""Sink channel: interface between a sink worker and the receiver of a sink."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Protocol

from tocsin.delivery.alert_json import Alert
from tocsin.delivery.alert_log import Position


class LogEntry(NamedTuple):
    """Alert event with its position in the log."""

    position: Position
    alert: Alert


class DeliveryStatus(Enum):
    """Result of a request."""

    DELIVERED = "delivered"
    RETRY = "retry"
    REJECTED = "rejected"


@dataclass(frozen=True)
class SinkResponse:
    """Response of a receiver to one request.

    Attributes
    ----------
    status
        Result of the request.
    text
        Message without secrets.
    http_status
        HTTP status or Kafka error code; 0 without a response.
    retry_after_s
        Shortest delay before a retry, as requested by the receiver.
    split
        Whether a smaller part of a rejected request may be accepted.
    """

    status: DeliveryStatus
    text: str = ""
    http_status: int = 0
    retry_after_s: float = 0.0
    split: bool = False


DELIVERED = SinkResponse(DeliveryStatus.DELIVERED)


class SinkChannel(Protocol):
    """Channel to a receiver of alert events. Alertmanager has no channel, because it receives states.

    A sink worker calls it from one thread. It passes a chunk of the log to `split_requests` once, then calls `send` for
    each request in order, until the request is delivered or rejected.

    Attributes
    ----------
    limit
        Largest number of alert events in a chunk.
    takes_whole_batches
        Whether a chunk contains the events of only one micro-batch.
    max_delay_s
        Longest delay between two attempts.
    """

    limit: int
    takes_whole_batches: bool
    max_delay_s: float

    def wants(self, alert: Alert) -> bool:
        """Return whether the receiver gets alert events with the state of this one."""

    def split_requests(self, chunk: Sequence[LogEntry]) -> Iterator[Sequence[LogEntry]]:
        """Yield the requests for a chunk; their order keeps the order of the events of each alert."""

    def send(self, request: Sequence[LogEntry]) -> SinkResponse:
        """Send a request. The worker may repeat it, completely or in part."""

    def close(self) -> None:
        """Close connections; the next channel sends unacknowledged events again."""


def split_repeated(chunk: Sequence[LogEntry], key_of: Callable[[Alert], Hashable]) -> list[list[LogEntry]]:
    """Return lists in which each key occurs at most once.

    The first list contains the first entry of each key, the second list the second entry, and so on. Receivers may
    therefore process the entries of one list in any order.
    """
    counts: dict[Hashable, int] = {}
    lists: list[list[LogEntry]] = []
    for entry in chunk:
        index = counts.get(key := key_of(entry.alert), 0)
        counts[key] = index + 1
        if index == len(lists):
            lists.append([])
        lists[index].append(entry)
    return lists
