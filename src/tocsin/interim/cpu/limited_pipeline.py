"""Limited pipeline: what the pipelines of joins and of selections with a CPU budget have in common.

Rows are numbered as they come, kept in a log, and taken with the time of the bucket, by which units accrue. While no
rows come, what waits is worked on by the clock; rows to come pay for that. Rows are written once, under their numbers;
the rest of the state is a page of facts (`state`), and one of what the work itself keeps (`part`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from tocsin.errors import RunError
from tocsin.interim.cpu.cpu_recall import Bought
from tocsin.interim.cpu.new_rows import NewRows, new_rows
from tocsin.interim.cpu.page_names import PROMISING, parts_of
from tocsin.interim.cpu.row_log import RowLog
from tocsin.operators.reorder.wait_agreement import NewWait
from tocsin.plan.steps import Watch
from tocsin.runtime.context import Context
from tocsin.runtime.contract import NEVER_SEEN, Batch, Float, Int, Out, Pages
from tocsin.runtime.memory_pool import Share
from tocsin.runtime.metrics import RowOutcome
from tocsin.runtime.received_rows import count_received, read_streams, read_views
from tocsin.runtime.state_codec import pack, unpack
from tocsin.runtime.state_registry import readable
from tocsin.stages.promising.books import Pace
from tocsin.stages.promising.elapsed import Elapsed, elapse, new_elapsed
from tocsin.stages.promising.hits import Hits

# While work waits and no rows come, it goes on once a second.
AGAIN_US = 1_000_000


class Work(Protocol):
    """What is done within units: a join, or a selection."""

    @property
    def pace(self) -> Pace:
        """How units accrue."""

    @property
    def waits(self) -> bool:
        """Whether something is left to be worked on."""

    def owe(self, units: float) -> None:
        """Pay for work that was done outside, or before."""


class LimitedPipeline(ABC):
    """The rows of a watch in one bucket, the time that they are taken at, and what units bought."""

    # The page of what the work itself keeps.
    part: ClassVar[str]

    def __init__(self, number: int, watch: Watch, hits: Hits) -> None:
        assert watch.anytime is not None
        self.number, self.watch, self.anytime, self.hits = number, watch, watch.anytime, hits
        self.reads = watch.inputs(number)
        self.inputs = self.reads.columns_read
        self.columns = [columns for _, columns in watch.lanes]
        self.log = RowLog(max(map(len, self.columns)), self.anytime.window_us)
        self.clock = new_elapsed()
        self.bought = Bought(self.anytime.window_us, limited=self.anytime.is_limited)
        self.unit_ns, self.seen_us, self.dirty = self.anytime.unit_ns, NEVER_SEEN, False
        # The elapsed time of the last row; rows that went so far, of each side: in all, unprocessed.
        self.last_us, self.went = NEVER_SEEN, np.zeros((len(self.columns), 2), np.int64)
        # Units spent in silence, which rows to come pay for.
        self.advance = 0.0
        self.place = f"{PROMISING}{watch.apart}"

    @property
    @abstractmethod
    def work(self) -> Work:
        """The join or the selection."""

    def on_data(self, batches: Sequence[Batch], now_us: int | None, out: Out) -> None:
        """Process the rows of one call in order of arrival."""
        if not batches:
            self.say(out)
            return
        streams = read_streams(self.reads, batches, lambda batch: self.log.places(batch.keys))
        rows, arrival_order = read_views(self.reads, streams)
        context = Context(self.watch.name, self.watch.on, self.reads.views, out, now_us)
        count_received(self.reads, streams, rows, batches, context)
        if len(rows):
            self.dirty, self.seen_us = True, self.seen_us if now_us is None else now_us
            self._take(self._at_their_time(new_rows(rows, arrival_order), out), out)
        self.say(out)

    @abstractmethod
    def _take(self, rows: NewRows, out: Out) -> None:
        """Process rows in order of arrival."""

    def say(self, out: Out) -> None:
        """Say what the units have bought."""
        for rule in self.watch.rules:
            rows, results = self.bought.shares
            out.metrics.record("cpu_rows", rows, rule.alert)
            out.metrics.record("cpu_results", results, rule.alert)

    def on_control(self, message: NewWait | Share, out: Out) -> None:  # noqa: B027
        """Ignore control rows: a limit of processor time does not move between buckets."""

    def next_timer(self) -> int | None:
        """When to work on if no rows come."""
        return self.seen_us + AGAIN_US if self._goes_on else None

    @property
    def _goes_on(self) -> bool:
        """Whether something waits, and units for it come with time, not with rows alone."""
        return self.seen_us != NEVER_SEEN and self.work.waits and self.work.pace.per_us > 0

    def _at_their_time(self, rows: NewRows, out: Out) -> NewRows:
        """Let the clock of the bucket take rows."""
        elapsed, behind = elapse(self.clock, rows.time, self.anytime.allowed_lateness_us, self.anytime.leap_us)
        out_of_order = np.bincount(rows.side, behind, len(self.columns)).astype(np.int64)
        for side, name in self._stores():
            out.metrics.record("behind", int(out_of_order[side]), name)
        return rows.taken_at(elapsed)

    def _repay(self, new: NewRows) -> None:
        """Pay for work that was done in silence from the units of that time."""
        if self.advance:
            gap = int(new.elapsed[0]) - self.last_us
            self.work.owe(min(self.advance, self.work.pace.per_us * gap))
            self.advance = 0.0

    def _count(self, out: Out, outcomes: Mapping[RowOutcome, Int]) -> None:
        """Count changes of row outcomes by side in all input views of a side."""
        for side, name in self._stores():
            out.metrics.count_rows(name, {outcome: int(rows[side]) for outcome, rows in outcomes.items()})

    def _count_outcomes(self, came: Int, went: Int, out: Out) -> None:
        """Count, by side, the rows that arrived, and the rows that were removed since `went` had been removed."""
        gone, unprocessed = (self.went - went).T
        expired = {RowOutcome.EXPIRED: gone - unprocessed, RowOutcome.UNPROCESSED: unprocessed}
        self._count(out, {RowOutcome.RETAINED: came - gone, **expired})

    def _stores(self) -> list[tuple[int, str]]:
        """The side whose rows each store has, and the name under which they are counted."""
        stores = zip(self.watch.stores, self.watch.store_names, strict=True)
        return [(self.watch.lanes.index(store.lane), name) for store, name in stores]

    def _mine(self, pages: Pages) -> dict[str, bytes]:
        """The pages of this watch, by part; none, or all that must be there."""
        mine = {part: data for page, data in pages.items() for of, part in [parts_of(page)] if of == self.watch.apart}
        for part in ("state", self.part) if mine else ():
            if part not in mine:
                message = f"state page `{self.place}/{part}` is missing"
                raise RunError(message)
        return mine

    def _pages(
        self, state: bytes, work: Mapping[str, NDArray[Any]], attributes: Callable[[int, int], Float]
    ) -> dict[str, bytes | None]:
        """The pages that changed since the last call; attributes of rows are written with them."""
        pages: dict[str, bytes | None] = {"state": state, self.part: pack(dict(work))}
        pages |= {f"rows/{name}": data for name, data in self.log.changed_pages(attributes).items()}
        self.dirty = False
        return {f"{self.place}/{name}": data for name, data in pages.items()}

    def _state(self, kept: Int, numbers: list[int], units: list[float]) -> bytes:
        """The page of facts: what rows of each side are kept, and what the kind of logic has of its own."""
        arrays = {"clock.facts": self.clock.facts, "clock.recent": self.clock.recent, "went": self.went}
        arrays |= self.hits.arrays() | self.bought.arrays()
        arrays["numbers"] = np.array([self.seen_us, self.last_us, *numbers])
        retained = {name: int(kept[side]) for side, name in self._stores()}
        reach = [self.log.begin, self.log.end, len(self.log)]
        return pack(arrays, retained=retained, rows=reach, unit_ns=self.unit_ns, units=[self.advance, *units])

    def _load_rows(self, pages: Mapping[str, bytes]) -> tuple[list[int], list[float], Float]:
        """Read facts and rows; gives what the kind of logic has of its own, and attributes of rows.

        Units last as long as they did when they were first measured.
        """
        with readable(f"{self.place}/state"):
            arrays, facts = unpack(pages["state"])
            self.clock = Elapsed(arrays["clock.facts"], arrays["clock.recent"])
            self.hits.load(arrays)
            self.bought.load(arrays)
            self.went = arrays["went"]
            self.seen_us, self.last_us, *numbers = arrays["numbers"].tolist()
            self.unit_ns, (self.advance, *units) = float(facts["unit_ns"]), facts["units"]
            begin, end, count = facts["rows"]
        rows = {int(part.removeprefix("rows/")): data for part, data in pages.items() if part.startswith("rows/")}
        with readable(f"{self.place}/rows"):
            return numbers, units, self.log.load(rows, begin, end, count)
