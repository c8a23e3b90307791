"""Select: a query of one stream as a step: the rows whose column lies in a range, or aggregates of them by windows.

The work is that of `stages/promising`: rows are summarised as they come, and cells that promise most are looked at
first, as far as units go. A row's payload is kept until it can be selected no more, and is what is given out.
State is found by what is asked, whatever it may cost: of an edited query nothing goes on, and its rows have expired.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tocsin.errors import RunError
from tocsin.hashing import stable_hash
from tocsin.plan.anytime import pace_of
from tocsin.runtime.contract import NEVER_SEEN, Batch, Float, Int, Listener, Out, Pages, Pipeline
from tocsin.runtime.metrics import RowOutcome
from tocsin.runtime.row_batch import join_payload
from tocsin.runtime.session import Session
from tocsin.runtime.state_codec import pack, unpack
from tocsin.runtime.state_registry import readable
from tocsin.stages.promising.books import Costs
from tocsin.stages.promising.layout import Layout
from tocsin.stages.promising.preference import Preference
from tocsin.stages.promising.selection import PROMISES, SELECTION_COSTS, Query, StandingSelection
from tocsin.stages.promising.stored import COUNT, OLDEST
from tocsin.stages.promising.windows import OfWindow, WindowedAggregates

KINDS = ("count", "sum", "avg", "median")
# Nanoseconds that a unit takes, a tuple scanned, where nothing was measured (`calibrate.py`).
UNIT_NS = 20.0
# In units, besides what a selection itself does: to take a row in, to write down one that is selected, and to keep its
# number for aggregates. By hand: 45 ns, 2.4 us and 0.1 us, where a unit took 19 ns.
ROW, WRITE, GATHER = 2.5, 120.0, 5.0
# How pages begin; then comes what a step is found by.
_SELECT = "select/"
_NOTHING: Mapping[str, int] = {"retained": 0, "expired": 0, "unprocessed": 0}


@dataclass(frozen=True)
class Select:
    """Which rows of a stream, by which column; `aggregates`: told by window, of the column `of`, instead of rows.

    A window of aggregates begins every `slide_us`; None: where the last one ends.
    It may spend `units` with each row, or so many `cores` in the time of the stream, of which a unit takes `unit_ns`;
    neither: no limit.
    An answer is a dict: `row`, the payload of a selected row, and `query`, which of the queries it is for; or
    `start_us` and `end_us` of a window (not there: the whole stream), and for each of `KINDS` its value and its error.
    `rows` says which rows come and what their payload holds: a step in which that differs is another one.
    """

    stream: str
    column: str
    layout: Layout
    queries: tuple[Query, ...]
    preference: Preference = PROMISES["tuples"]
    cores: float | None = None
    units: float | None = None
    unit_ns: float = UNIT_NS
    aggregates: bool = False
    of: str | None = None
    slide_us: int | None = None
    rows: str = ""

    @property
    def page(self) -> str:
        """The name of its state; a step that differs in what it may spend alone goes on with it."""
        return _SELECT + stable_hash(repr(replace(self, cores=None, units=None, unit_ns=UNIT_NS)))

    @property
    def costs(self) -> Costs:
        """What work costs here."""
        emit = SELECTION_COSTS.emit + (GATHER if self.aggregates else WRITE)
        return SELECTION_COSTS._replace(insert=SELECTION_COSTS.insert + ROW, emit=emit)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are read as numbers."""
        return tuple(dict.fromkeys([self.column, self.of or self.column]))

    def build_pipelines(self, pages: Pages, listener: Listener | None = None) -> Sequence[Pipeline]:
        """Build the only pipeline. It reports nothing to a listener."""
        return [_SelectPipeline(self, pages)]

    def read_control(self, row: Mapping[str, Any]) -> None:
        """Raise an error: a query of one stream has no control rows."""
        message = f"a query of one stream accepts no control rows; got {dict(row)!r}"
        raise RunError(message)

    def warm_up(self) -> None:
        """Compile the kernels by running a few rows."""
        number = np.arange(3)
        columns = {column: number.astype(np.float64) for column in self.columns}
        session = Session(self)
        session.push([Batch(0, self.stream, [()], number * 0, number, number, columns)])
        session.end()


class _SelectPipeline:
    """The selection or the aggregates of one bucket, and the payload of rows that may still be selected."""

    def __init__(self, step: Select, pages: Pages) -> None:
        self.step, self.newest_us, self.dirty = step, NEVER_SEEN, False
        self.inputs = {(0, step.stream): step.columns}
        self.gone, self._forgotten = _forgotten(pages, step.page)
        with readable(step.page):
            written = unpack(pages[step.page]) if step.page in pages else None
            # Units last as long as they did when they were first measured.
            self.unit_ns = step.unit_ns if written is None else float(written[1]["unit_ns"])
        self.pace = pace_of(step.cores, step.units, self.unit_ns)
        guided = step.preference, self.pace
        self.windows: WindowedAggregates | None = None
        if step.aggregates:
            query, window_us = step.queries[0], step.layout.window_us
            self.windows = WindowedAggregates(
                step.layout,
                query,
                window_us,
                *guided,
                slide_us=step.slide_us,
                costs=step.costs,
                other=step.of not in (None, step.column),
            )
            self.selection = self.windows.selection
        else:
            self.selection = StandingSelection(step.layout, step.queries, *guided, costs=step.costs)
        # The texts of rows by number of arrival, from `first` on; what became of rows so far.
        self.first, self.texts = 0, np.zeros(0, object)
        self.fates = dict(_NOTHING)
        if written is not None:
            with readable(step.page):
                self._load(*written)

    def on_data(self, batches: Sequence[Batch], now_us: int | None, out: Out) -> None:
        """Take rows in order of time; what comes behind is late, and is counted."""
        self._say_last_words(out)
        mine = [batch for batch in batches if len(batch.time) or batch.quarantined]
        if not mine:
            return
        self.dirty = True
        time, values, texts = self._rows(mine)
        finite = np.logical_and.reduce([np.isfinite(column) for column in values])
        # The newest time of those before each row.
        newest = np.maximum.accumulate(np.concatenate([[self.newest_us], np.where(finite, time, NEVER_SEEN)]))
        late = finite & (time < newest[:-1])
        at = np.flatnonzero(finite & ~late)
        quarantined = sum(batch.quarantined for batch in mine) + int(len(time) - finite.sum())
        self.newest_us = int(newest[-1])
        outcomes = {RowOutcome.QUARANTINED: quarantined, RowOutcome.LATE: int(late.sum())}
        out.metrics.count_rows(self.step.stream, outcomes)
        if len(at):
            out.metrics.record("newest_us", self.newest_us, self.step.stream)
            self._take(time[at], [column[at] for column in values], None if texts is None else texts[at], out)
        self._count(out)

    def _rows(self, batches: Sequence[Batch]) -> tuple[Int, list[Float], NDArray[Any] | None]:
        """Times, columns and texts of all rows, in order of arrival."""
        order = np.argsort(np.concatenate([batch.arrival for batch in batches]), kind="stable")
        time = np.concatenate([batch.time for batch in batches])[order]
        values = [np.concatenate([batch.values[name] for batch in batches])[order] for name in self.step.columns]
        payload = None if self.windows is not None else join_payload(batches)
        return time, values, None if payload is None else np.array(payload.take(order), object)

    def _take(self, time: Int, values: Sequence[Float], texts: NDArray[Any] | None, out: Out) -> None:
        if self.windows is not None:
            self._tell(self.windows.take(time, values[0], values[-1]), out)
            return
        oldest = int(self.selection.stream.stored.facts[OLDEST]) - self.first
        new = np.full(len(time), None, object) if texts is None else texts
        self.texts = np.concatenate([self.texts[oldest:], new])
        self.first += oldest
        self._give(self.selection.take(time, values[0]), out)
        self.selection.expired()

    def _give(self, results: Int, out: Out) -> None:
        texts = self.texts[results[:, 1] - self.first]
        both = zip(results[:, 0].tolist(), texts, strict=True)
        out.answers += [{"query": query, "row": text} for query, text in both]

    def _tell(self, told: Sequence[OfWindow], out: Out) -> None:
        for one in told:
            ends = {"start_us": one.start_us, "end_us": one.end_us} if self.step.layout.window_us is not None else {}
            out.answers.append(ends | {kind: list(getattr(one, kind)) for kind in KINDS})

    def _count(self, out: Out, left: int = 0) -> None:
        """Say what became of rows since the last time: those that went before they were worked on are unprocessed.

        So are, at the end, those that are left.
        """
        facts = self.selection.stream.stored.facts
        gone, unprocessed = int(facts[OLDEST]), self.selection.rows_unprocessed
        retained = int(facts[COUNT]) - gone - left
        now = {"retained": retained, "expired": gone - unprocessed, "unprocessed": unprocessed + left}
        outcomes = RowOutcome.RETAINED, RowOutcome.EXPIRED, RowOutcome.UNPROCESSED
        changes = {one: now[one.label] - self.fates[one.label] for one in outcomes}
        out.metrics.count_rows(self.step.stream, changes)
        self.fates = now

    def on_control(self, message: None, out: Out) -> None:
        """Ignore control rows: `Select.read_control` accepts no row."""

    def on_time(self, now_us: int, out: Out) -> None:
        """Report the rows of other queries. Processing time changes nothing else."""
        self._say_last_words(out)

    def _say_last_words(self, out: Out) -> None:
        """Count the rows of other queries once."""
        out.add(self._forgotten)
        self._forgotten = Out()

    def on_end(self, out: Out) -> None:
        """Tell what is open, or work on for as long as the window of the last row would last; count what is left."""
        self._say_last_words(out)
        pace, self.dirty = self.pace, True
        if self.windows is not None:
            self._tell(self.windows.end(), out)
        else:
            # With the units of a row to come: those of the first had nothing to do.
            units = pace.per_arrival + pace.per_us * (self.step.layout.window_us or 0)
            self._give(self.selection.rest(units), out)
        self._count(out, self.selection.rows_waiting)

    def next_timer(self) -> int | None:
        """Never: nothing is due by the clock."""
        return None

    def changed_pages(self) -> dict[str, bytes | None]:
        """The whole state, if there were rows; those of other queries go."""
        gone: dict[str, bytes | None] = dict.fromkeys(self.gone)
        self.gone = []
        if not self.dirty:
            return gone
        self.dirty = False
        state = self.selection if self.windows is None else self.windows
        facts = {"stream": self.step.stream, "first": self.first, "newest_us": self.newest_us, "fates": self.fates}
        facts["unit_ns"] = self.unit_ns
        arrays = {"texts": self.texts, **{f"of.{name}": array for name, array in state.arrays().items()}}
        return gone | {self.step.page: pack(arrays, **facts)}

    def _load(self, arrays: dict[str, NDArray[Any]], facts: Mapping[str, Any]) -> None:
        self.texts, self.first, self.newest_us = arrays.pop("texts"), facts["first"], facts["newest_us"]
        self.fates = facts["fates"]
        state = self.selection if self.windows is None else self.windows
        state.load({name.removeprefix("of."): array for name, array in arrays.items()})


def _forgotten(pages: Pages, mine: str) -> tuple[list[str], Out]:
    """Name the pages of other queries, and count the rows that they held as expired."""
    names, out = [name for name in pages if name != mine], Out()
    for name in names:
        if not name.startswith(_SELECT):
            message = f"state page `{name}` must belong to a query of one stream; it belongs to another kind of query"
            raise RunError(message)
        with readable(name):
            facts = unpack(pages[name])[1]
            stream, rows = facts["stream"], facts["fates"]["retained"]
        out.metrics.count_rows(stream, {RowOutcome.RETAINED: -rows, RowOutcome.EXPIRED: rows})
    return names, out
