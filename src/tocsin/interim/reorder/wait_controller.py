"""Pace: how long the rows of a bucket wait now, and when that is chosen anew.

Idea: the wait changes at moments that depend on nothing but the rows that came: whenever the time of the bucket has
moved by L. That time is the median event time of each `BLOCK` rows in order of arrival, so a clock in the future moves
it no more than one that stands still, a gap in all streams passes at once, and after a burst from the future it goes
back.
Where buckets agree on a wait (`wait_agreement.py`), a bucket goes by its own statistics until one was agreed on. That
one says
from which stream time on it holds; from the first such moment at or after it the wait moves there, as fast as to one of
its own. Of several the one for the latest time holds; of those for the same time, the one that came last.
Guarantee: any cut into calls gives the same waits for the same rows, and for waits that came before their time.
Cost: one median per block.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import deque
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.plan.order import Order
from tocsin.rules.quality import FIXED, MAX, OBSERVED
from tocsin.runtime.bucket_clock import BLOCK, block_medians
from tocsin.runtime.context import Context
from tocsin.runtime.contract import NEVER_SEEN, Bools, Float, Int
from tocsin.runtime.row_batch import RowBatch
from tocsin.runtime.state_codec import pack
from tocsin.stages.order.adaptive import AdaptiveWait
from tocsin.stages.order.observed import ObservedWait
from tocsin.stages.order.pooled import tell
from tocsin.stages.order.wait import FixedWait, MaxWait, Wait

# Name of the page of a shard group with the state of the wait.
PACE = "pace"
# A bucket that lies behind keeps so many waits for later; the last of them gives way to a newer one.
MOST_PENDING = 64


class Control(NamedTuple):
    """A wait that the buckets of a watch agreed on, and the stream time from which on it holds."""

    watch: str
    wait_us: int
    from_us: int


class Noted(NamedTuple):
    """What is known of new rows before they wait: their number in order of arrival, lane, delay, and skew of clocks."""

    number: Int
    lane: Int
    delay: Int
    skew: Int


class Gave(NamedTuple):
    """Of rows that were taken: lane, delay, time, the results that they gave, and whether they came in order."""

    lane: Int
    delay: Int
    time: Int
    results: Float
    in_order: Bools


class Learnt(NamedTuple):
    """What a wait is chosen by: rows that came, and rows that were taken."""

    noted: Noted
    gave: Gave


def together(parts: Sequence[Learnt]) -> Learnt:
    """Put together what several pages learnt."""
    noted, gave = ([np.concatenate(column) for column in zip(*side, strict=True)] for side in zip(*parts, strict=True))
    return Learnt(Noted(*noted), Gave(*gave))


class Cut(NamedTuple):
    """After how many rows the wait is chosen anew, the time of the bucket then, and how many L have passed."""

    rows: int
    time_us: int
    intervals: int


def wait_of(order: Order) -> Wait:
    """What decides how long rows wait."""
    asked = order.waiting
    if asked.kind == FIXED:
        return FixedWait(asked.wait_us)
    if asked.kind == MAX:
        return MaxWait(order.allowed_lateness_us)
    if asked.strategy == OBSERVED:
        return ObservedWait(order.quality, order.windows_us)
    return AdaptiveWait(order.quality, order.windows_us, asked.strategy)


class WaitController:
    """Choice of the reorder wait of one bucket: an adaptive part of a keyed pipeline.

    Attributes
    ----------
        watch: Name of the pipeline.
        alerts: Names of the rules that wait.
        order, wait: Planned wait, and the current wait with its statistics.
    """

    def __init__(self, watch: str, alerts: Sequence[str], order: Order) -> None:
        self.watch, self.alerts = watch, alerts
        self.order, self.wait = order, wait_of(order)
        # Decisions in the rows of this call, the first of them at a position after the begin of the next slice.
        self._decisions: deque[Cut] = deque()
        self._rows: RowBatch | None = None
        self.recent = np.zeros(0, np.int64)
        self.time_us = self.last_us = NEVER_SEEN
        self.dirty = False
        # By the time from which they hold, waits that were agreed on; and the one that holds, if any does.
        self.pending: list[tuple[int, int]] = []
        self.agreed_us: int | None = None

    @property
    def recall(self) -> float | None:
        """The recall that the wait is estimated to give; None: nothing is known."""
        return None if math.isnan(self.wait.estimated) else self.wait.estimated

    def rows_before_decision(self, rows: RowBatch, begin: int) -> int | None:
        """Return the number of rows from `begin` on before the next decision, or None if none is due in this batch."""
        if begin == 0 and not self._decisions and rows is not self._rows:
            self._rows, self._decisions = rows, deque(self.cuts(rows.time))
        return self._decisions[0].rows - begin if self._decisions else None

    def decide(self, context: Context) -> None:
        """Choose the wait. After the last decision of a call, publish the statistics for a common wait."""
        decision = self._decisions.popleft()
        self.adapt(decision)
        if self.order.shared and not self._decisions:
            context.publish(self.tell(decision.time_us))

    def observe(self, results: Sequence[Learnt], context: Context) -> None:
        """Learn from the delays and results of the shards, and count the results by period."""
        merged = together(results)
        self.learn(merged)
        for alert in self.alerts:
            for start_us, in_order, count in self.found(merged):
                context.set_metric("results_in_order", in_order, alert, str(start_us))
                context.set_metric("results", count, alert, str(start_us))

    def report(self, context: Context) -> None:
        """Set the metrics of a call."""
        self._rows = None
        for alert in self.alerts:
            context.set_metric("wait_us", self.wait.wait_us, alert)
            context.set_metric("wait_recall", self.recall, alert)

    def apply_control(self, message: Any, context: Context) -> None:
        """Apply a wait that all buckets of this pipeline share."""
        if isinstance(message, Control) and message.watch == self.watch and self.order.shared:
            self.agree(message.wait_us, message.from_us)

    def state_page(self) -> tuple[str, bytes | None]:
        """Return the name of the page of the wait, and its bytes if they changed."""
        page = pack(self.arrays()) if self.dirty else None
        self.dirty = False
        return PACE, page

    def cuts(self, time: Int) -> list[Cut]:
        """Where in these rows, in order of arrival, the wait is to be chosen anew."""
        if not self.order.adapts:
            return []
        before, every_us, cuts = len(self.recent), self.order.waiting.adapt_every_us, []
        medians, self.recent = block_medians(np.concatenate([self.recent, time]))
        for i, self.time_us in enumerate(medians):
            if self.last_us == NEVER_SEEN:
                self.last_us = self.time_us
            # Either way: after a burst of rows from the future time goes back, and goes on from there.
            elif (intervals := abs(self.time_us - self.last_us) // every_us) > 0:
                intervals = min(intervals, self.order.waiting.period_us // every_us)
                cuts.append(Cut((i + 1) * BLOCK - before, self.time_us, intervals))
                self.last_us = self.time_us
        return cuts

    def agree(self, wait_us: int, from_us: int) -> None:
        """Take a wait that buckets agreed on."""
        if len(self.pending) == MOST_PENDING:
            self.pending.pop()
        self.pending = sorted([*self.pending, (from_us, wait_us)], key=itemgetter(0))
        self.dirty = True

    def adapt(self, cut: Cut) -> None:
        """Choose the wait anew, or go on to the one that was agreed on."""
        holds = bisect_right(self.pending, cut.time_us, key=itemgetter(0))
        if holds:
            self.agreed_us = self.pending[holds - 1][1]
            del self.pending[:holds]
        self.wait.adapt(cut.intervals, self.agreed_us)

    def tell(self, time_us: int) -> dict[str, Any]:
        """What other buckets need to know for a wait to agree on, right after it was chosen anew."""
        known = self.wait.statistics()
        assert known is not None, "buckets share only waits whose statistics can be merged"
        return {"time_us": time_us, **tell(known)}

    def learn(self, learnt: Learnt) -> None:
        """Learn of rows that came, and of rows that were taken.

        Each of these counts as one of the cross join: of what is remembered it met the best, whatever was left out.
        """
        if self.order.adapts:
            self.dirty = True
            noted, (lane, waited, _, results, in_order) = learnt
            arrived = np.argsort(noted.number, kind="stable")
            self.wait.note_arrivals(noted.lane[arrived], noted.delay[arrived], noted.skew[arrived])
            self.wait.note_results(lane, waited, np.ones(len(lane)), results, in_order)

    def found(self, learnt: Learnt) -> list[tuple[int, int, int]]:
        """The periods in which there are results: their first microsecond, results in order, and all."""
        _, _, time, results, in_order = learnt.gave
        gave = np.flatnonzero(results)
        period, place = np.unique(time[gave] // self.order.waiting.period_us, return_inverse=True)
        whole = np.bincount(place, results[gave], len(period))
        ordered = np.bincount(place, results[gave] * in_order[gave], len(period))
        starts = period * self.order.waiting.period_us
        return list(zip(starts.tolist(), ordered.astype(int).tolist(), whole.astype(int).tolist(), strict=True))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """State to be written."""
        times = np.array([self.time_us, self.last_us])
        mine: dict[str, NDArray[Any]] = {"times": times, "recent": self.recent}
        if self.order.shared:
            mine["pending"] = np.array(self.pending, np.int64).reshape(-1, 2)
            mine["agreed"] = np.array([] if self.agreed_us is None else [self.agreed_us], np.int64)
        return mine | {f"wait.{name}": array for name, array in self.wait.arrays().items()}

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """State that was written; that of a wait of another kind is left, and so is what nobody agrees on any more."""
        self.time_us, self.last_us = (int(time) for time in arrays["times"])
        self.recent = arrays["recent"]
        mine = {name.removeprefix("wait."): array for name, array in arrays.items() if name.startswith("wait.")}
        if mine.keys() >= self.wait.arrays().keys():
            self.wait.load(mine)
        if self.order.shared and "agreed" in arrays:
            self.pending = [(from_us, wait_us) for from_us, wait_us in arrays["pending"].tolist()]
            self.agreed_us = next(iter(arrays["agreed"].tolist()), None)
