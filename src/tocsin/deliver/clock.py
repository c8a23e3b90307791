"""Time as an argument: the clock of the world, and how long to wait before the next try."""

from __future__ import annotations

import random
import threading
import time
from dataclasses import dataclass, field
from typing import Protocol

FIRST_S, CAP_S = 0.5, 60.0
LONGEST_S = 3600.0


class Clock(Protocol):
    """What delivery knows of time."""

    def now(self) -> float:
        """Seconds since 1970."""

    def wait(self, stop: threading.Event, seconds: float) -> None:
        """Wait, but no longer than until `stop`."""


class WallClock:
    """The clock of this machine."""

    def now(self) -> float:
        """Seconds since 1970."""
        return time.time()

    def wait(self, stop: threading.Event, seconds: float) -> None:
        """Wait, but no longer than until `stop`."""
        stop.wait(seconds)


CLOCK = WallClock()


@dataclass
class Backoff:
    """Waits that double from half a second to a cap of one minute, each shortened at random by up to a half.

    A receiver's `Retry-After` is waited for in full, up to one hour.
    """

    first_s: float = FIRST_S
    cap_s: float = CAP_S
    chance: random.Random = field(default_factory=random.Random)
    tries: int = 0

    def next_s(self, asked_s: float = 0.0) -> float:
        """How long to wait after one more failure."""
        whole = min(self.cap_s, self.first_s * 2.0 ** min(self.tries, 30))
        self.tries += 1
        return max(whole * self.chance.uniform(0.5, 1.0), min(asked_s, LONGEST_S))

    def reset(self) -> None:
        """Begin anew after a success."""
        self.tries = 0
