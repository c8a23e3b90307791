"""Backoff: the delay before a failed request is retried, and a clock interface for times and waits."""

from __future__ import annotations

import random
import threading
import time
from dataclasses import dataclass, field
from typing import Protocol

FIRST_DELAY_S, MAX_DELAY_S = 0.5, 60.0
MAX_RETRY_AFTER_S = 3600.0


class Clock(Protocol):
    """Clock of delivery. Tests replace it."""

    def now(self) -> float:
        """Return the Unix time in seconds."""

    def wait(self, stop: threading.Event, seconds: float) -> None:
        """Wait for some seconds, or until `stop` is set."""


class WallClock:
    """Clock of this machine."""

    def now(self) -> float:
        """Return the Unix time in seconds."""
        return time.time()

    def wait(self, stop: threading.Event, seconds: float) -> None:
        """Wait for some seconds, or until `stop` is set."""
        stop.wait(seconds)


CLOCK = WallClock()


@dataclass
class Backoff:
    """Exponential backoff with jitter.

    The delay doubles from 0.5 s to a limit of one minute. Each delay is shortened at random by up to a half. It is
    never shorter than the `Retry-After` of the receiver, up to one hour.
    """

    first_delay_s: float = FIRST_DELAY_S
    max_delay_s: float = MAX_DELAY_S
    random_source: random.Random = field(default_factory=random.Random)
    tries: int = 0

    def next_delay_s(self, retry_after_s: float = 0.0) -> float:
        """Return the delay in seconds after one more failure."""
        longest = min(self.max_delay_s, self.first_delay_s * 2.0 ** min(self.tries, 30))
        self.tries += 1
        return max(longest * self.random_source.uniform(0.5, 1.0), min(retry_after_s, MAX_RETRY_AFTER_S))

    def reset(self) -> None:
        """Return to the first delay after a success."""
        self.tries = 0
