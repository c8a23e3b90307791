"""Agree: one wait for all buckets of a watch, found where the statistics of all of them come together.

    bucket → Out.reports → Agreement (in the engine, between calls) → control rows → on_control of every bucket

Idea: between the calls of buckets the engine keeps the newest statistics of each, and adds them up (`pooled.py`). When
the wait that follows from them is another than the last one, every bucket is told, with the stream time from which on
it holds: that of the bucket that is furthest on, so that none has passed it yet.
Guarantee: rows for the control of a bucket follow from the statistics told alone. Nothing is agreed on before these
reach over P of stream time: after a start buckets choose for themselves, and after a restart, when all statistics have
to be told anew, they stay with what was agreed on before. What a bucket told counts until P of stream time have passed
without its telling anything new, or twice as long as it was silent before, if that is more: keys that are gone do not
decide for ever, and buckets that seldom have rows are not forgotten.
Cost: per watch and bucket one set of statistics; the search of `observed` per watch that had news.
Source: Ji et al., ICDE 2016, section V.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from statistics import median_low
from typing import Any, NamedTuple

import numpy as np

from tocsin.errors import RunError
from tocsin.interim.reorder.wait_controller import Control
from tocsin.plan.order import Order
from tocsin.plan.steps import Watch
from tocsin.stages.order.pooled import agreed_wait, hear
from tocsin.stages.order.recall import new_shape
from tocsin.stages.order.wait import Statistics

# By which share a wait must be longer than the last one, or shorter, to be worth telling: each costs a file and a call.
# And how many grains it must be shorter.
LONGER, SHORTER, GRAINS = 1 / 16, 1 / 8, 5


def read_control(row: Mapping[str, Any]) -> Control:
    """Read a control row, or refuse it."""
    numbers = [row.get(name) for name in ("wait_us", "from_us")]
    whole = all(isinstance(number, int) and not isinstance(number, bool) for number in numbers)
    if row.keys() != set(Control._fields) or not isinstance(row["watch"], str) or not whole or row["wait_us"] < 0:
        message = f"control rows must address a pipeline of the plan; no pipeline accepts {row!r}"
        raise RunError(message)
    return Control(**row)


class Agreement:
    """What the buckets of a plan have told, and what was agreed on."""

    def __init__(self, watches: Iterable[Watch]) -> None:
        orders = {watch.name: watch.order for watch in watches}
        self.places = {name: _Place(order) for name, order in orders.items() if order is not None and order.shared}

    def hear(self, bucket: int, told: Mapping[str, Any]) -> None:
        """Take what a bucket told."""
        if told["watch"] in self.places:
            self.places[told["watch"]].hear(bucket, told)

    def rows(self) -> list[dict[str, Any]]:
        """Control rows for every bucket: the waits that changed since the last call."""
        found = ((name, place.agree()) for name, place in self.places.items())
        return [Control(name, *agreed)._asdict() for name, agreed in found if agreed is not None]


class _Heard(NamedTuple):
    """When a bucket was last heard, and how long it had been silent before, by the clock of the place."""

    at_us: int
    silent_us: int


class _Place:
    """The statistics of one watch by bucket, each with the time of the bucket."""

    def __init__(self, order: Order) -> None:
        self.quality = order.quality
        self.shape = new_shape(np.array(order.windows_us), self.quality.basic_us, self.quality.grain_us)
        self.known: dict[int, tuple[int, Statistics]] = {}
        self.heard: dict[int, _Heard] = {}
        # By bucket that was heard since the last look, how far its time has moved.
        self.news: dict[int, int] = {}
        # How far most of the buckets that were heard have moved, look by look. One look counts for no more than P, so
        # that a clock which leaps makes nobody silent.
        self.clock_us = 0
        self.first_us: int | None = None
        self.last_us: int | None = None

    def hear(self, bucket: int, told: Mapping[str, Any]) -> None:
        before_us, _ = self.known.get(bucket, (told["time_us"], None))
        self.known[bucket] = told["time_us"], hear(told, self.quality.bins)
        self.news[bucket] = max(told["time_us"] - before_us, 0)

    def agree(self) -> tuple[int, int] | None:
        """The wait and from when on it holds, if it is worth telling."""
        if not self.news:
            return None
        self._forget()
        from_us = self._from_us()
        self.first_us = from_us if self.first_us is None else self.first_us
        if len(self.known) < 2 or from_us < self.first_us + self.quality.over_us:
            return None
        wait_us = agreed_wait(self.quality, self.shape, [self.known[bucket][1] for bucket in sorted(self.known)])
        if self.last_us is not None and not self._is_worth_telling(wait_us - self.last_us, self.last_us):
            return None
        self.last_us = wait_us
        return wait_us, from_us

    def _forget(self) -> None:
        """Let go what buckets told that have been silent for too long."""
        over_us = self.quality.over_us
        self.clock_us += min(median_low(self.news.values()), over_us)
        for bucket in self.news:
            before = self.heard.get(bucket, _Heard(self.clock_us, 0))
            self.heard[bucket] = _Heard(self.clock_us, self.clock_us - before.at_us)
        self.news.clear()
        for bucket, (at_us, silent_us) in self.heard.items():
            if self.clock_us - at_us > max(over_us, 2 * silent_us):
                self.known.pop(bucket, None)

    def _is_worth_telling(self, longer_us: int, last_us: int) -> bool:
        least_us = max(SHORTER * last_us, GRAINS * self.quality.grain_us)
        return longer_us > LONGER * last_us or longer_us < -least_us

    def _from_us(self) -> int:
        """The largest time of a bucket; one that is more than P ahead of most has clocks in the future."""
        times = [time_us for time_us, _ in self.known.values()]
        most_us = median_low(times) + self.quality.over_us
        return max(time_us for time_us in times if time_us <= most_us)
