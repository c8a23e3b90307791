"""The logic of a watch of one stream whose processor time is limited: a standing selection for all its rules.

Idea: rows are numbered as they come, and handed to a selection with the time of the bucket (`elapsed.py`). When a zone
of time ends, each rule has its turn: the bins that its range meets go into the queue, and are worked on by promise as
far as units go. What comes out are candidates; each is evaluated by its rule, which alone decides. How many results
candidates of a rule and a bin give is learnt, and weighs in what promises most from the next block of rows on. Work
that is not done when a row is older than the deadline goes with it.
Guarantee: every result is one of the rule without a budget and comes once; with units enough all come, however late
their rows are. Units depend on rows alone, but for those spent while no rows come: neither the cut into calls nor a
page shows. A row that goes before all rules have worked on it is counted as unprocessed.
Cost: that of `StandingSelection`, an evaluation per candidate; rows are written once, cells that wait anew.
Source: Ali, Aref, ElTabakh, section 4.2; candidates, learnt hits, deadlines, and rows in any order are ours.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tocsin.errors import RunError
from tocsin.logic import NEVER_SEEN, Batch, Int, Out, Pages
from tocsin.pages import pack, unpack
from tocsin.plan.bought import Bought, Totals, block_ends
from tocsin.plan.lanes import count_received, lane_of, stream_rows
from tocsin.plan.new_rows import NewRows, in_order
from tocsin.plan.promising_pages import PROMISING, parts_of
from tocsin.plan.remember import StreamRows
from tocsin.plan.row_log import RowLog
from tocsin.plan.row_rules import RowRules
from tocsin.plan.steps import Watch
from tocsin.plan.watch import readable
from tocsin.stages.promising.elapsed import ELAPSED, Elapsed, elapse, new_elapsed
from tocsin.stages.promising.layout import Layout
from tocsin.stages.promising.rule_selection import Candidates, RuleSelection
from tocsin.stages.promising.selecting import Terms
from tocsin.stages.promising.selection import SELECTION_COSTS, Query

# While work waits and no rows come, it goes on once a second.
_AGAIN_US = 1_000_000
# Rules have their turn so often, and at least so often before a deadline passes.
_ZONE_US, _ZONES = 1_000_000, 8
# In units of a join (`anytime.py`): a tuple that is scanned here, to take a row in, to evaluate a rule on one, to write
# down a result; a bin of a rule in a turn, and when it is priced anew (`python -m benchmarks cpu --only row-costs`).
_SCAN, ROW, EVALUATE, WRITE, TURN, PRICE = 2.5, 160.0, 20.0, 3_000.0, 0.12, 1.0
# Cells that promise as much as others but for this share come in an order that is drawn.
SPREAD = 0.25


class OneStreamLogic:
    """The selection of a watch in one bucket, its rows, and what its units bought."""

    def __init__(self, number: int, watch: Watch, pages: Pages) -> None:
        assert watch.anytime is not None
        assert watch.anytime.guided is not None
        self.number, self.watch, self.anytime, self.guided = number, watch, watch.anytime, watch.anytime.guided
        self.rules, self.columns = RowRules(watch, self.guided), [columns for _, columns in watch.lanes]
        # Of each side, where the number stands that its rows are found by.
        guides = zip(self.guided.columns, self.columns, strict=True)
        self.guide = np.array([columns.index(one) for one, columns in guides])
        self.log = RowLog(max(map(len, self.columns)), self.anytime.window_us)
        self.clock, self.hits, self.scheme = new_elapsed(), self.rules.hits, self.guided.scheme
        self.bought = Bought(self.anytime.window_us, limited=self.anytime.is_limited)
        self.unit_ns, self.seen_us, self.last_us, self.dirty = self.anytime.unit_ns, NEVER_SEEN, NEVER_SEEN, False
        # Rows that went so far, of each side: in all, unprocessed; units spent in silence, which rows to come pay for.
        self.went, self.counted, self.advance = np.zeros((len(self.columns), 2), np.int64), 0, 0.0
        # Units of results that are to be paid with the block.
        self.owed = 0.0
        self.candidates: list[Candidates] = []
        self.place = f"{PROMISING}{watch.apart}"
        mine = {part: data for page, data in pages.items() for of, part in [parts_of(page)] if of == watch.apart}
        if mine:
            self._load(mine)
        else:
            self.selection = self._selection()

    def _selection(self) -> RuleSelection:
        anytime, guided = self.anytime, self.guided
        zone_us = max(1, min(_ZONE_US, anytime.window_us // _ZONES))
        layout = Layout("T3", 2 * zone_us, 1, 1, anytime.window_us, zones=2, max_length_us=zone_us, scheme=self.scheme)
        queries = [Query(one.low, one.high) for one in guided.ranges]
        costs = SELECTION_COSTS._replace(**{name: _SCAN * unit for name, unit in SELECTION_COSTS._asdict().items()})
        costs = costs._replace(insert=costs.insert + ROW, emit=costs.emit + EVALUATE)
        terms = Terms(WRITE, TURN * len(queries) * self.scheme.width, 0, SPREAD)
        pace = anytime.pace(self.unit_ns)
        selection = RuleSelection(layout, queries, guided.lanes, pace, costs=costs, terms=terms)
        selection.price(self.rules.asks, self.rules.hit_ratios())
        return selection

    def on_data(self, batches: Sequence[Batch], now_us: int | None, out: Out) -> None:
        """Take the rows of one call in order of arrival."""
        (stream,) = self.watch.streams
        rows, arrival = stream_rows(self.watch, stream, batches, lambda batch: self.log.places(batch.keys))
        lanes = [lane_of(rows, arrival, columns) for columns in self.columns]
        count_received(self.watch, {stream: len(rows.time)}, lanes, batches, out)
        arrived = _arrived(lanes)
        if len(arrived):
            self.dirty, self.seen_us = True, self.seen_us if now_us is None else now_us
            self._take(self._at_their_time(in_order([mine for mine, _ in lanes], self.columns, arrived), out), out)
        self.say(out)

    def say(self, out: Out) -> None:
        """Say what the units have bought."""
        for rule in self.watch.rules:
            out.spend(rule.alert, self.bought.shares)

    def _at_their_time(self, rows: NewRows, out: Out) -> NewRows:
        """Let the clock of the bucket take rows."""
        elapsed, behind = elapse(self.clock, rows.time, self.anytime.outage_us, self.anytime.leap_us)
        late = np.bincount(rows.side, behind, len(self.columns)).astype(np.int64)
        self._count(out, behind=late)
        return rows.taken_at(elapsed)

    def _count(self, out: Out, **counts: Int) -> None:
        """Count rows of each side under all stores that have its rows."""
        for store, name in zip(self.watch.stores, self.watch.store_names, strict=True):
            side = self.watch.lanes.index(store.lane)
            out.count(name, {what: int(numbers[side]) for what, numbers in counts.items()})

    def _take(self, rows: NewRows, out: Out) -> None:
        """Hand rows to the selection in pieces that end with blocks, and count what became of rows."""
        begin, went = self.log.end, self.went.copy()
        self._repay(rows)
        self.log.add(rows)
        bins, ends = self._bins(rows), (block_ends(begin, self.log.end) - begin).tolist()
        at = 0
        for stop in sorted({*ends, len(rows)}):
            self._piece(rows.pick(slice(at, stop)), bins[at:stop])
            if stop in ends:
                self._judge()
                self._end_block(int(rows.elapsed[stop - 1]))
            at = stop
        self.last_us = int(rows.elapsed[-1])
        if not self.anytime.is_limited:
            self._work(np.inf)
        self._finish(out)
        self._count_fates(np.bincount(rows.side, minlength=len(went)), went, out)

    def _count_fates(self, came: Int, went: Int, out: Out) -> None:
        gone, unprocessed = (self.went - went).T
        self._count(out, retained=came - gone, expired=gone - unprocessed, unprocessed=unprocessed)

    def _bins(self, rows: NewRows) -> Int:
        return self.scheme.bins_of(rows.values[np.arange(len(rows)), self.guide[rows.side]], rows.side)

    def _repay(self, new: NewRows) -> None:
        """Pay for work that was done in silence from the units of that time."""
        if self.advance:
            gap = int(new.elapsed[0]) - self.last_us
            self.selection.owe(min(self.advance, self.selection.pace.per_us * gap))
            self.advance = 0.0

    def _piece(self, rows: NewRows, bins: Int) -> None:
        """Let the selection take some rows."""
        values = rows.values[np.arange(len(rows)), self.guide[rows.side]]
        self.candidates.append(self.selection.take_rows(rows.elapsed, values, bins))
        self._count_gone()

    def _count_gone(self) -> None:
        """Count the rows that the selection has let go since the last time; the log still has them."""
        begin, end = self.counted, self.selection.oldest
        side, left = self.log.rows.side[self.log.at(np.arange(begin, end))], self.selection.left(begin, end)
        sides = len(self.went)
        self.went += np.stack([np.bincount(side, minlength=sides), np.bincount(side[left], minlength=sides)], axis=1)
        self.counted = end

    def _judge(self) -> None:
        """Evaluate the candidates that were found: before what is learnt takes effect, and before rows go."""
        found, self.candidates = self.candidates, []
        both = Candidates(*(np.concatenate(columns) for columns in zip(*found, strict=True))) if found else None
        if both is None or not len(both.row):
            return
        rows, at = self.log.rows, self.log.at(both.row)
        bins = self.scheme.bins_of(rows.values[at, self.guide[rows.side[at]]], rows.side[at])
        charged = float(self.selection.standing.hit[both.query, bins].sum())
        results = self.rules.judge(self.log, both, bins, self.bought.promise)
        # Candidates were charged by what those before gave; now it is known what these gave. It is paid with the block.
        self.owed += WRITE * (results - charged)

    def _end_block(self, elapsed_us: int) -> None:
        """Let what was learnt in a block take effect, let rows go that are done, judge what was bought."""
        cells = len(self.rules.asks) * self.scheme.width
        self.selection.owe(self.owed + PRICE * cells)
        self.owed = 0.0
        self.hits.settle()
        self.selection.price(self.rules.asks, self.rules.hit_ratios())
        self.selection.let_go(self.selection.done())
        self._count_gone()
        self.log.drop(self.selection.oldest)
        gone, unprocessed = self.went.sum(axis=0).tolist()
        totals = Totals(gone, unprocessed, self.selection.expected, self.rules.found, self.selection.idle, unprocessed)
        self.bought.judge(totals, elapsed_us)

    def _finish(self, out: Out) -> None:
        """Write down what was found, and forget what has gone."""
        self._judge()
        self.rules.write(self.log, out)
        self.log.drop(self.selection.oldest)
        keys = len(self.log.keys)
        self.log.forget_keys()
        if len(self.log.keys) < keys:
            self.rules.forget_keys()

    def _work(self, units: float) -> None:
        self.dirty = True
        self.candidates.append(self.selection.work(units))

    def on_end(self, out: Out) -> None:
        """Work on until the deadline of the last row; what is then left is unprocessed."""
        # With the units of a row to come: those of the first had nothing to do.
        pace = self.selection.pace
        self._work(pace.per_arrival + pace.per_us * self.anytime.window_us)
        self._finish(out)
        left = self.selection.left(self.selection.oldest, self.selection.came)
        unprocessed = np.bincount(self.log.rows.side[left], minlength=len(self.went))
        self._count(out, retained=-unprocessed, unprocessed=unprocessed)

    def on_time(self, now_us: int, out: Out) -> None:
        """Work on while no rows come, until the deadline of each row."""
        passed = now_us - self.seen_us
        if passed < _AGAIN_US or not self._goes_on:
            return
        went, units = self.went.copy(), self.selection.pace.per_us * passed
        silent_us = int((self.advance + units) / self.selection.pace.per_us)
        self._work(0.0)
        before_us = int(self.clock.facts[ELAPSED]) + silent_us - self.anytime.window_us
        old = int(np.searchsorted(self.log.rows.elapsed, before_us)) + self.log.begin - self.selection.oldest
        self.selection.let_go(max(0, old))
        self.selection.forget_gone()
        self._count_gone()
        self._work(units)
        self._finish(out)
        self._count_fates(np.zeros(len(went), np.int64), went, out)
        self.advance, self.seen_us = self.advance + units, now_us

    def next_timer(self) -> int | None:
        """When to work on if no rows come."""
        return self.seen_us + _AGAIN_US if self._goes_on else None

    @property
    def _goes_on(self) -> bool:
        """Whether something waits, and units for it come with time, not with rows alone."""
        return self.seen_us != NEVER_SEEN and self.selection.waits and self.selection.pace.per_us > 0

    def check(self) -> None:
        """Assert what always holds; for tests."""
        assert (np.diff(self.log.rows.elapsed) >= 0).all()
        assert self.selection.came == self.log.end
        assert self.selection.oldest == self.log.begin == self.counted
        assert len(self.log.numbers) == len(self.log.keys)
        assert not self.candidates
        assert not self.rules.ready
        self.selection.stream.check()

    def changed_pages(self) -> dict[str, bytes | None]:
        """Give the pages that changed since the last call."""
        if not self.dirty:
            return {}
        self.dirty = False
        pages: dict[str, bytes | None] = {"state": self._state(), "cells": pack(self.selection.changing())}
        none = self.log.changed_pages(lambda begin, end: np.zeros((end - begin, 0)))
        pages |= {f"rows/{name}": data for name, data in none.items()}
        return {f"{self.place}/{name}": data for name, data in pages.items()}

    def _state(self) -> bytes:
        arrays = {"clock.facts": self.clock.facts, "clock.recent": self.clock.recent, "went": self.went}
        arrays |= self.hits.arrays() | self.bought.arrays()
        arrays["numbers"] = np.array([self.seen_us, self.last_us, self.rules.found])
        kept = np.bincount(self.log.rows.side, minlength=len(self.columns))
        stores = zip(self.watch.stores, self.watch.store_names, strict=True)
        retained = {name: int(kept[self.watch.lanes.index(store.lane)]) for store, name in stores}
        reach = [self.log.begin, self.log.end, len(self.log)]
        return pack(arrays, retained=retained, rows=reach, unit_ns=self.unit_ns, units=[self.advance, self.owed])

    def _load(self, pages: dict[str, bytes]) -> None:
        """State that was written; units last as long as they did when they were first measured."""
        for part in ("state", "cells"):
            if part not in pages:
                message = f"state page `{self.place}/{part}` must be there; it is not"
                raise RunError(message)
        with readable(f"{self.place}/state"):
            arrays, facts = unpack(pages["state"])
            self.clock = Elapsed(arrays["clock.facts"], arrays["clock.recent"])
            self.hits.load(arrays)
            self.bought.load(arrays)
            self.went = arrays["went"]
            self.seen_us, self.last_us, self.rules.found = arrays["numbers"].tolist()
            self.unit_ns, (self.advance, self.owed) = float(facts["unit_ns"]), facts["units"]
            begin, end, count = facts["rows"]
        rows = {int(part.removeprefix("rows/")): data for part, data in pages.items() if part.startswith("rows/")}
        with readable(f"{self.place}/rows"):
            self.log.load(rows, begin, end, count)
        with readable(f"{self.place}/cells"):
            self.selection, known, self.counted = self._selection(), self.log.rows, begin
            values = known.values[np.arange(len(known)), self.guide[known.side]]
            self.selection.restore(unpack(pages["cells"])[0], known.elapsed, values, self._bins(known))


def _arrived(lanes: Sequence[tuple[StreamRows, Int]]) -> Int:
    """The rows of all lanes by arrival; those that came together as they stand in the stream, then by lane."""
    place = [np.arange(len(rows.time)) if rows.picked is None else rows.picked for rows, _ in lanes]
    lane = np.repeat(np.arange(len(lanes)), [len(arrival) for _, arrival in lanes])
    return np.lexsort((lane, np.concatenate(place), np.concatenate([arrival for _, arrival in lanes])))
