"""What a receiver is to the courier: it takes parcels of alerts, and answers."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Protocol

from tocsin.deliver.alertlog import Position
from tocsin.deliver.encode import Alert


class Entry(NamedTuple):
    """An alert with its place in the log."""

    position: Position
    alert: Alert


class Verdict(Enum):
    """What became of a parcel."""

    DELIVERED = "delivered"
    RETRY = "retry"
    REJECTED = "rejected"


@dataclass(frozen=True)
class Answer:
    """A receiver's answer; `text` holds no secret.

    `asked_s` is how long the receiver asked to be left alone, `split` says that a part of the parcel may be welcome.
    """

    verdict: Verdict
    text: str = ""
    status: int = 0
    asked_s: float = 0.0
    split: bool = False


DELIVERED = Answer(Verdict.DELIVERED)


class Channel(Protocol):
    """A way to a receiver that is told every change of state.

    The courier calls from one thread: `parcels` once per step, then `send` until each parcel is delivered or rejected,
    in the order given. A step holds at most `limit` alerts, or one whole batch if `whole_batches`.
    """

    limit: int
    whole_batches: bool
    cap_s: float

    def wants(self, alert: Alert) -> bool:
        """Whether this receiver is told such a change at all."""

    def parcels(self, step: Sequence[Entry]) -> Iterator[Sequence[Entry]]:
        """Cut a step into what is sent together; parcels, in their order, keep the order per alert."""

    def send(self, parcel: Sequence[Entry]) -> Answer:
        """Send a parcel; may be called again with the same one, or with a part of it."""

    def close(self) -> None:
        """Give up connections; what was not acknowledged is sent again by the next channel."""


def waves(step: Sequence[Entry], subject: Callable[[Alert], Hashable]) -> list[list[Entry]]:
    """Put the first entry of each subject into a first wave, the second into a second, and so on.

    Inside a wave any order will do: no subject is there twice.
    """
    counts: dict[Hashable, int] = {}
    found: list[list[Entry]] = []
    for entry in step:
        number = counts.get(key := subject(entry.alert), 0)
        counts[key] = number + 1
        if number == len(found):
            found.append([])
        found[number].append(entry)
    return found
