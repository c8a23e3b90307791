"""The logic of a whole plan: each watch, and each rule with ranges, takes the rows of its key set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tocsin.logic import Batch, Out, Pages
from tocsin.pages import pack, unpack
from tocsin.plan.agree import read_control
from tocsin.plan.allot import Share, read_share
from tocsin.plan.budgeted import BudgetedLogic
from tocsin.plan.identity import Bequest, bequests, heirs
from tocsin.plan.ranged import RANGES, RangesLogic, forgotten
from tocsin.plan.report import last_words
from tocsin.plan.watch import APART, MEMORY, PACE, WatchLogic, named, readable, stored_watches

if TYPE_CHECKING:
    from tocsin.plan.plan import Plan
    from tocsin.plan.steps import Watch


def _logic(number: int, watch: Watch, pages: Pages, given: Bequest) -> WatchLogic:
    kind = WatchLogic if watch.budget is None else BudgetedLogic
    return kind(number, watch, pages, given)


class PlanLogic:
    """The logic of a whole plan: each watch takes the rows of its key set."""

    def __init__(self, plan: Plan, pages: Pages) -> None:
        of_ranges = {name: page for name, page in pages.items() if name.startswith(RANGES)}
        of_watches = {name: page for name, page in pages.items() if name not in of_ranges}
        planned = {watch.name: watch.rules_found_again for watch in plan.watches}
        taken = heirs(stored_watches(of_watches, planned), planned)
        given = bequests(taken, planned)
        self.watches = [
            _logic(i, watch, of_watches, given.get(watch.name, Bequest())) for i, watch in enumerate(plan.watches)
        ]
        begin = len(plan.watches)
        self.ranges = [RangesLogic(i, watch, of_ranges) for i, watch in enumerate(plan.ranges, begin)]
        watch_of = {name: named(name)[0] for name in of_watches}
        self.orphans = {name: page for name, page in of_watches.items() if watch_of[name] not in taken.values()}
        self.gone, self._forgotten = forgotten(of_ranges, plan.ranges)
        # What goes on under another name; where one of that name goes on, it writes over them.
        self.gone += [name for name, of in watch_of.items() if of in taken.values() and taken.get(of) != of]

    def _say_last_words(self, out: Out) -> None:
        """End the lives of rules that are gone, and forget the pages of key sets that no rule has any more."""
        for logic in self.watches:
            for page in logic.pages:
                page.say_last_words(out)
        for name, data in self.orphans.items():
            _, keys, number = named(name)
            with readable(name):
                if number not in APART:
                    out.add(last_words(*unpack(data), [key for key in keys.split(",") if key]))
        self.gone, self.orphans = [*self.gone, *self.orphans], {}
        out.add(self._forgotten)
        self._forgotten = Out()

    def on_data(self, batches: Sequence[Batch], now_us: int | None = None) -> Out:
        """Take the rows of one call."""
        out = Out()
        self._say_last_words(out)
        for logic in self.watches:
            mine = [batch for batch in batches if batch.key_set == logic.number]
            if mine:
                logic.on_data(mine, now_us, out)
            elif isinstance(logic, BudgetedLogic):
                logic.on_nothing(out)
        for ranges in self.ranges:
            mine = [batch for batch in batches if batch.key_set == ranges.number]
            if mine:
                ranges.on_data(mine, out)
        return out

    def on_control(self, rows: Sequence[Mapping[str, Any]]) -> Out:
        """Take waits that all buckets agreed on, and shares of memory.

        Those of watches that are gone, wait otherwise now, or are not limited any more, say nothing.
        """
        out = Out()
        for row in rows:
            if "share" in row:
                self._give(read_share(row), out)
                continue
            control = read_control(row)
            for logic in self.watches:
                if logic.watch.name == control.watch and logic.pace is not None and logic.pace.order.shared:
                    logic.pace.agree(control.wait_us, control.from_us)
        return out

    def _give(self, given: Share, out: Out) -> None:
        for logic in self.watches:
            if logic.watch.name == given.watch and isinstance(logic, BudgetedLogic) and logic.budget.told:
                # A share that was told before the budget became another is one of what nobody has.
                if logic.budget.terms == given.terms:
                    logic.give(given.share, out)

    def on_time(self, now_us: int) -> Out:
        """Let quiet keys go on."""
        out = Out()
        self._say_last_words(out)
        for logic in self.watches:
            logic.on_time(now_us, out)
        return out

    def on_end(self) -> Out:
        """Wait for nothing any more."""
        out = Out()
        self._say_last_words(out)
        for logic in self.watches:
            logic.on_end(out)
        return out

    def next_timer(self) -> int | None:
        """The next time at which a quiet key should be looked at."""
        timers = [page.next_timer() for logic in self.watches for page in logic.pages]
        return min((timer for timer in timers if timer is not None), default=None)

    def changed_pages(self) -> dict[str, bytes | None]:
        """Pages touched since the last call."""
        changed: dict[str, bytes | None] = dict.fromkeys(self.gone)
        self.gone = []
        for logic in self.watches:
            for p, page in enumerate(logic.pages):
                if page.dirty:
                    changed[f"{logic.watch.name}/{p}"] = page.to_bytes()
                    page.dirty = False
            if logic.pace is not None and logic.pace.dirty:
                changed[f"{logic.watch.name}/{PACE}"] = pack(logic.pace.arrays())
                logic.pace.dirty = False
            if isinstance(logic, BudgetedLogic) and logic.dirty:
                changed[f"{logic.watch.name}/{MEMORY}"] = logic.to_bytes()
                logic.dirty = False
        for ranges in self.ranges:
            changed |= ranges.changed_pages()
        return changed
