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

import numpy as np

from tocsin.interim.cpu.cpu_recall import Totals, block_ends
from tocsin.interim.cpu.limited_pipeline import AGAIN_US, LimitedPipeline, Work
from tocsin.interim.cpu.new_rows import NewRows
from tocsin.interim.cpu.row_rules import RowRules
from tocsin.plan.steps import Watch
from tocsin.runtime.contract import Int, Out, Pages
from tocsin.runtime.metrics import RowOutcome
from tocsin.runtime.state_codec import unpack
from tocsin.runtime.state_registry import readable
from tocsin.stages.promising.elapsed import ELAPSED
from tocsin.stages.promising.layout import Layout
from tocsin.stages.promising.rule_selection import Candidates, RuleSelection
from tocsin.stages.promising.selecting import Terms
from tocsin.stages.promising.selection import SELECTION_COSTS, Query

# Rules have their turn so often, and at least so often before a deadline passes.
_ZONE_US, _ZONES = 1_000_000, 8
# In units of a join (`anytime.py`): a tuple that is scanned here, to take a row in, to evaluate a rule on one, to write
# down a result; a bin of a rule in a turn, and when it is priced anew (`python -m benchmarks cpu --only row-costs`).
_SCAN, ROW, EVALUATE, WRITE, TURN, PRICE = 2.5, 160.0, 20.0, 3_000.0, 0.12, 1.0
# Cells that promise as much as others but for this share come in an order that is drawn.
SPREAD = 0.25


class OneStreamPipeline(LimitedPipeline):
    """The selection of a watch in one bucket, its rows, and what its units bought."""

    part = "cells"

    def __init__(self, number: int, watch: Watch, pages: Pages) -> None:
        assert watch.anytime is not None
        assert watch.anytime.guided is not None
        self.guided, self.scheme = watch.anytime.guided, watch.anytime.guided.scheme
        self.rules = RowRules(watch, self.guided)
        super().__init__(number, watch, self.rules.hits)
        # Of each side, where the number stands that its rows are found by.
        guides = zip(self.guided.columns, self.columns, strict=True)
        self.guide = np.array([columns.index(one) for one, columns in guides])
        # Rows that are counted as gone; units of results that are to be paid with the block.
        self.counted, self.owed = 0, 0.0
        self.candidates: list[Candidates] = []
        mine = self._mine(pages)
        if mine:
            self._load(mine)
        else:
            self.selection = self._selection()

    @property
    def work(self) -> Work:
        """The selection."""
        return self.selection

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
        self._count_outcomes(np.bincount(rows.side, minlength=len(went)), went, out)

    def _bins(self, rows: NewRows) -> Int:
        return self.scheme.bins_of(rows.values[np.arange(len(rows)), self.guide[rows.side]], rows.side)

    def _piece(self, rows: NewRows, bins: Int) -> None:
        """Let the selection take some rows."""
        self.bought.note_order(rows.time, rows.elapsed)
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
        results = self.rules.judge(self.log, both, bins, self.bought.loss)
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
        self._count(out, {RowOutcome.RETAINED: -unprocessed, RowOutcome.UNPROCESSED: unprocessed})

    def on_time(self, now_us: int, out: Out) -> None:
        """Work on while no rows come, until the deadline of each row."""
        passed = now_us - self.seen_us
        if passed < AGAIN_US or not self._goes_on:
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
        self._count_outcomes(np.zeros(len(went), np.int64), went, out)
        self.advance, self.seen_us = self.advance + units, now_us

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
        kept = np.bincount(self.log.rows.side, minlength=len(self.columns))
        state = self._state(kept, [self.rules.found], [self.owed])
        return self._pages(state, self.selection.changing(), lambda begin, end: np.zeros((end - begin, 0)))

    def _load(self, pages: dict[str, bytes]) -> None:
        numbers, units, _ = self._load_rows(pages)
        with readable(f"{self.place}/state"):
            (self.rules.found,), (self.owed,) = numbers, units
        with readable(f"{self.place}/{self.part}"):
            self.selection, known, self.counted = self._selection(), self.log.rows, self.log.begin
            values = known.values[np.arange(len(known)), self.guide[known.side]]
            self.selection.restore(unpack(pages[self.part])[0], known.elapsed, values, self._bins(known))
