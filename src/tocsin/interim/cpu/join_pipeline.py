"""The logic of a watch whose processor time is limited: one anytime join for all keys of a bucket.

Idea: rows of both streams are numbered as they come and handed to the join with the time of the bucket
(`elapsed.py`), by which units of work accrue and rows grow old; the join finds pairs of equal keys, the most
promising first, as far as the units go, and each rule is evaluated on them. So rows need not wait to be in order, and
keys not for each other. What a pair costs is what all rules cost on it, and what writing down the results that are to
be expected costs; how many those are is learnt by key (`hits.py`), and weighs in what promises most.
Guarantee: every result is one of the exact join and comes once, whatever was cut off; with units enough all come that
an ordinary join finds, whatever clocks say: no row goes that its key still needs (`row_log.py`), unless that had none
for `key_ttl`. Units depend on rows alone, but for those spent while no rows come: neither the cut into calls nor a
page shows. A row that goes before it was worked on is counted as unprocessed. Where memory is limited too, rows are
those that it holds.
Cost: that of `AnytimeJoin`, a look at each pair per rule; summaries and what waits are written anew, rows only once.
Source: Ali, Aref, ElTabakh, section 4.1; evaluating rules on pairs, hits by key and deadlines are ours.
"""

from __future__ import annotations

import numpy as np

from tocsin.interim.cpu.cpu_recall import Totals, block_ends
from tocsin.interim.cpu.limited_pipeline import AGAIN_US, LimitedPipeline, Work
from tocsin.interim.cpu.new_rows import NewRows
from tocsin.interim.cpu.pair_rules import PairRules
from tocsin.plan.anytime import RENEW, RENEW_EACH, judging
from tocsin.plan.steps import Watch
from tocsin.runtime.contract import NEVER_SEEN, Bools, Float, Int, Out, Pages
from tocsin.runtime.metrics import RowOutcome
from tocsin.runtime.state_codec import unpack
from tocsin.runtime.state_registry import readable
from tocsin.stages.promising.anytime_join import AnytimeJoin
from tocsin.stages.promising.books import Costs
from tocsin.stages.promising.elapsed import ELAPSED
from tocsin.stages.promising.join_state import Tuples
from tocsin.stages.promising.preference import Preference

# So many rows are looked at together to find those that came before.
_AHEAD = 4096
# Where nothing else is preferred: the most results, by the pairs of a key and by how many of them are results.
MOST = Preference("desc", "count(s1.key) * count(s2.key) * s1.hit * s2.hit")


class PromisingPipeline(LimitedPipeline):
    """The join of a watch in one bucket, its rows, and what its units bought."""

    part = "join"

    def __init__(self, number: int, watch: Watch, pages: Pages) -> None:
        assert watch.anytime is not None
        self.rules = PairRules(watch, watch.anytime.span_us)
        super().__init__(number, watch, self.rules.hits)
        # Results expected, rows given up so far, and up to when.
        self.expected, self.given_up, self.given_up_us = 0.0, 0, NEVER_SEEN
        # Pairs that the join has found and no rule has seen.
        self.pairs: list[Int] = []
        mine = self._mine(pages)
        if mine:
            self._load(mine)
        else:
            self.join = self._join()

    @property
    def work(self) -> Work:
        """The join."""
        return self.join

    def _join(self) -> AnytimeJoin:
        anytime, own = self.anytime, self.anytime.preference
        names = [("s1", ["key", "hit"]), ("s2", ["key", "hit"])]
        if own is not None:
            key, lanes = self.watch.on[0] if self.watch.on else "key", zip(self.watch.lanes, self.columns, strict=True)
            names = [(lane[0], [key, *columns]) for lane, columns in lanes]
        first, second = names
        pace = anytime.pace(self.unit_ns)
        return AnytimeJoin(anytime.layout, own or MOST, pace, streams=(first, second), costs=self._costs())

    def _costs(self) -> Costs:
        """What work costs, by what is known of pairs so far."""
        return self.anytime.costs(len(self.rules), self.hits.near, self.hits.mean)

    @property
    def _renews(self) -> bool:
        """Whether rows go when their keys do not need them; else memory drives them out of the join."""
        return self.join.layout.exact

    def _take(self, rows: NewRows, out: Out) -> None:
        """Hand rows to the join, between which old ones go, and count what became of rows."""
        came, went, whole = np.zeros(2, np.int64), self.went.copy(), np.bincount(rows.side, minlength=2)
        while len(rows):
            ahead = rows.pick(slice(_AHEAD))
            new = np.flatnonzero(~self._repeats(ahead))
            fresh = self.log.fresh(ahead.elapsed[new]) if self._renews else len(new)
            stop = int(new[fresh]) if fresh < len(new) else len(ahead)
            taken = ahead.pick(slice(fresh) if stop == fresh else new[:fresh])
            self._take_fresh(taken)
            came += np.bincount(taken.side, minlength=2)
            if fresh < len(new):
                self._renew(int(ahead.elapsed[stop]))
            rows = rows.pick(slice(stop, None))
        if not self.anytime.is_limited:
            self.pairs.append(self.join.rest())
        self._evaluate()
        self.rules.write(self.log, out)
        if not self._renews:
            self._follow()
        self.log.forget_keys()
        self._count_outcomes(came, went, out)
        self._count(out, {RowOutcome.DUPLICATE: whole - came})

    def _repeats(self, rows: NewRows) -> Bools:
        """Which rows are there already; where memory drives rows out, each counts."""
        if not self._renews:
            return np.zeros(len(rows), np.bool_)
        return self.log.repeats(rows, [set(columns) for columns in self.columns])

    def _renew(self, now_us: int) -> None:
        """Let rows go that are older than the window, but take those again that their keys still need.

        What is left to probe is probed with the units up to now, before partners go; not what is past its deadline.
        """
        if self._steps(np.array([now_us])):
            self._give_up(now_us)
        self.pairs.append(self.join.until(now_us))
        self._evaluate()
        log = self.log
        old, again, heard = log.stale(now_us, self.watch.key_ttl_us)
        left = self.join.renew(log.begin + old, log.begin + again, now_us, self.anytime.window_us) - log.begin
        self.join.pay(RENEW + RENEW_EACH * len(log))
        log.rows.left[left] = 1
        self.given_up += len(left)
        gone = np.ones(old, np.bool_)
        gone[again] = False
        self._count_gone(log.rows.pick(np.flatnonzero(gone)))
        kept = log.rows.pick(again).taken_again(now_us, heard)
        log.drop(log.begin + old)
        log.add(kept)

    def _count_gone(self, rows: NewRows) -> None:
        unprocessed = np.bincount(rows.side[rows.left > 0], minlength=2)
        self.went += np.stack([np.bincount(rows.side, minlength=2), unprocessed], axis=1)

    def _follow(self) -> None:
        """Let rows go that memory has driven out of the join."""
        self.log.drop_sides(self.join.oldest_rows)
        self.went = np.stack([self.join.gone, self.join.unprocessed], axis=1)

    def _take_fresh(self, new: NewRows) -> None:
        """Hand rows to the join in pieces that end with blocks, and where deadlines pass."""
        if not len(new):
            return
        begin, limits = self.log.end, self.join.sides[0].limits
        self._repay(new)
        self.log.add(new)
        partners = self.log.partners(len(new), limits.window_us, limits.memory)
        ends = set((block_ends(begin, self.log.end) - begin).tolist())
        steps = self._steps(new.elapsed)
        at = 0
        for stop in sorted({*ends, *steps, len(new)} - {0}):
            if at in steps:
                self._give_up(int(new.elapsed[at]))
            self._piece(new.pick(slice(at, stop)), partners[at:stop])
            if stop in ends:
                self._evaluate()
                self._end_block(int(new.elapsed[stop - 1]))
            at = stop
        self.last_us = int(new.elapsed[-1])

    def _steps(self, elapsed: Int) -> set[int]:
        """Before which of new rows it is time to let go what is past its deadline."""
        step = self.anytime.step_us
        if step is None or not len(elapsed):
            return set()
        return set(np.flatnonzero(np.diff(np.concatenate([[self.last_us], elapsed]) // step)).tolist())

    def _give_up(self, now_us: int) -> None:
        """Let go what will have passed its deadline before this is asked again."""
        step, deadline = self.anytime.step_us, self.anytime.deadline_us
        assert step is not None
        assert deadline is not None
        before_us = now_us // step * step + step - deadline
        self.given_up += self.join.give_up(before_us, self.given_up_us)
        # In silence that may lie behind all rows; those to come have not been asked about.
        self.given_up_us = max(min(before_us, int(self.clock.facts[ELAPSED])), self.given_up_us)

    def _piece(self, rows: NewRows, partners: Int) -> None:
        """Join some rows, which find so many partners each."""
        self.bought.note_order(rows.time, rows.elapsed)
        numbers = self.log.numbers[rows.key]
        ratios = self.hits.ratios(numbers)
        self.hits.meet(numbers, partners)
        values: Float = ratios[:, None] if self.anytime.preference is None else np.nan_to_num(rows.values)
        self.pairs.append(self.join.take_in(rows.side, rows.elapsed, numbers, values))

    def _end_block(self, elapsed_us: int) -> None:
        """Let what was learnt in a block take effect, and judge what was bought in it.

        Pairs were charged by what pairs gave before; now it is known what these gave.
        """
        tried, near, given = self.hits.learnt
        rules = len(self.rules)
        self.join.owe(judging(rules, near, given) - tried * judging(rules, self.hits.near, self.hits.mean))
        self.expected += self.hits.settle()
        self.join.costs = self.join.costs._replace(emit=self._costs().emit)
        if not self._renews:
            self._follow()
        gone, unprocessed = self.went.sum(axis=0).tolist()
        totals = Totals(gone, unprocessed, self.expected, self.rules.found, self.join.idle, self.given_up)
        self.bought.judge(totals, elapsed_us)

    def _evaluate(self) -> None:
        """Evaluate all rules on the pairs that were found: before what is learnt takes effect, and before rows go."""
        pairs, self.pairs = [some for some in self.pairs if len(some)], []
        if pairs:
            self.rules.judge(self.log, np.concatenate(pairs), self.bought.loss)

    def on_end(self, out: Out) -> None:
        """Work on as long as the window, or the deadline, of the last row lasts; what is then left is unprocessed."""
        # Where rows of a result are of one time there is no window, and a row to come would bring that of a leap.
        left = max(self.anytime.window_us, self.anytime.leap_us)
        if self.anytime.deadline_us is not None:
            left = min(left, self.anytime.deadline_us)
        # With the units of a row to come: those of the first had nothing to do.
        self._rest(self.join.pace.per_arrival + self.join.pace.per_us * left, out)
        again = np.bincount(self.log.rows.side[self.log.rows.left > 0], minlength=2)
        unprocessed = again + self.join.waiting()
        self._count(out, {RowOutcome.RETAINED: -unprocessed, RowOutcome.UNPROCESSED: unprocessed})

    def _rest(self, units: float, out: Out) -> None:
        self.dirty = True
        self.pairs.append(self.join.rest(units))
        self._evaluate()
        self.rules.write(self.log, out)

    def on_time(self, now_us: int, out: Out) -> None:
        """Work on while no rows come."""
        passed = now_us - self.seen_us
        if passed < AGAIN_US or not self._goes_on:
            return
        if self.anytime.deadline_us is not None:
            silent_us = int(self.advance / self.join.pace.per_us) + passed
            self._give_up(int(self.clock.facts[ELAPSED]) + silent_us)
        units = self.join.pace.per_us * passed
        self._rest(units, out)
        self.advance, self.seen_us = self.advance + units, now_us

    def check(self) -> None:
        """Assert what always holds; for tests."""
        rows = self.log.rows
        assert (np.diff(rows.elapsed) >= 0).all()
        assert not self._renews or self.log.fresh(np.array([self.last_us]))
        assert not self._renews or self.join.oldest_rows.min() == self.log.begin
        assert self.join.report()["rows"] == self.log.end
        assert len(self.log.numbers) == len(self.log.keys)
        for side in self.join.sides:
            side.check()

    def changed_pages(self) -> dict[str, bytes | None]:
        """Give the pages that changed since the last call."""
        if not self.dirty:
            return {}
        numbers = [self.given_up_us, self.rules.found, self.given_up]
        state = self._state(self.join.kept, numbers, [self.expected])
        return self._pages(state, self.join.changing(), self.join.attributes)

    def _load(self, pages: dict[str, bytes]) -> None:
        numbers, units, attributes = self._load_rows(pages)
        with readable(f"{self.place}/state"):
            (self.given_up_us, self.rules.found, self.given_up), (self.expected,) = numbers, units
        with readable(f"{self.place}/{self.part}"):
            self.join, known = self._join(), self.log.rows
            tuples = Tuples(known.side, self.log.numbers[known.key], known.elapsed, self.log.row, attributes)
            self.join.restore(unpack(pages[self.part])[0], tuples)
