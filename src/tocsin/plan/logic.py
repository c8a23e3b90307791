"""The logic of a whole plan: each watch, and each rule with ranges, takes the rows of its key set."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tocsin.logic import Batch, Out, Pages
from tocsin.pages import unpack
from tocsin.plan.agree import read_control
from tocsin.plan.allot import Share, read_share
from tocsin.plan.budgeted import BudgetedLogic
from tocsin.plan.identity import Bequest, bequests, heirs
from tocsin.plan.one_stream import OneStreamLogic
from tocsin.plan.promising import PromisingLogic
from tocsin.plan.promising_pages import PROMISING, forgotten_rows
from tocsin.plan.ranged import RANGES, RangesLogic, forgotten
from tocsin.plan.report import last_words
from tocsin.plan.watch import APART, WatchLogic, named, readable, stored_watches

if TYPE_CHECKING:
    from tocsin.plan.plan import Plan
    from tocsin.plan.steps import Watch


def _logic(number: int, watch: Watch, pages: Pages, given: Bequest) -> WatchLogic:
    kind = WatchLogic if watch.budget is None else BudgetedLogic
    return kind(number, watch, pages, given)


def _anytime(number: int, watch: Watch, pages: Pages) -> PromisingLogic | OneStreamLogic:
    """The logic of a watch whose work is limited: of rows, or of pairs of them."""
    kind = PromisingLogic if watch.anytime is None or watch.anytime.guided is None else OneStreamLogic
    return kind(number, watch, pages)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Look for no garbage meanwhile: rows have no cycles, and each look goes through all those of a call again."""
    looked = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if looked:
            gc.enable()


class PlanLogic:
    """The logic of a whole plan: each watch takes the rows of its key set."""

    def __init__(self, plan: Plan, pages: Pages) -> None:
        of_ranges = {name: page for name, page in pages.items() if name.startswith(RANGES)}
        of_promising = {name: page for name, page in pages.items() if name.startswith(PROMISING)}
        of_watches = {name: page for name, page in pages.items() if name not in of_ranges | of_promising}
        plain = {i: watch for i, watch in enumerate(plan.watches) if watch.anytime is None}
        planned = {watch.name: watch.rules_found_again for watch in plain.values()}
        taken = heirs(stored_watches(of_watches, planned), planned)
        given = bequests(taken, planned)
        self.watches = [_logic(i, watch, of_watches, given.get(watch.name, Bequest())) for i, watch in plain.items()]
        apart = {i: watch for i, watch in enumerate(plan.watches) if i not in plain}
        self.promising = [_anytime(i, watch, of_promising) for i, watch in apart.items()]
        begin = len(plan.watches)
        self.ranges = [RangesLogic(i, watch, of_ranges) for i, watch in enumerate(plan.ranges, begin)]
        watch_of = {name: named(name)[0] for name in of_watches}
        self.orphans = {name: page for name, page in of_watches.items() if watch_of[name] not in taken.values()}
        self.gone, self._forgotten = forgotten(of_ranges, plan.ranges)
        names, counted = forgotten_rows(of_promising, apart.values())
        self.gone += names
        self._forgotten.add(counted)
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

    @_uncollected()
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
        for promising in self.promising:
            mine = [batch for batch in batches if batch.key_set == promising.number]
            if mine:
                promising.on_data(mine, now_us, out)
            else:
                promising.say(out)
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
        for logic in self._with_time():
            logic.on_time(now_us, out)
        return out

    def on_end(self) -> Out:
        """Wait for nothing any more."""
        out = Out()
        self._say_last_words(out)
        for logic in self._with_time():
            logic.on_end(out)
        return out

    def _with_time(self) -> list[WatchLogic | PromisingLogic | OneStreamLogic]:
        """All that time, and the end of input, means something to: not ranges."""
        return [*self.watches, *self.promising]

    def next_timer(self) -> int | None:
        """The next time at which a quiet key should be looked at."""
        timers = [page.next_timer() for logic in self.watches for page in logic.pages]
        timers += [logic.next_timer() for logic in self.promising]
        return min((timer for timer in timers if timer is not None), default=None)

    def changed_pages(self) -> dict[str, bytes | None]:
        """Pages touched since the last call."""
        changed: dict[str, bytes | None] = dict.fromkeys(self.gone)
        self.gone = []
        for logic in self._with_time():
            changed |= logic.changed_pages()
        for ranges in self.ranges:
            changed |= ranges.changed_pages()
        return changed
