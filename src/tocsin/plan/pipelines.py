"""Pipelines of a plan: one for each key set, and one for the state of removed rules."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tocsin.plan.agree import Control, read_control
from tocsin.plan.allot import Share, read_share
from tocsin.plan.budgeted import BudgetedPipeline
from tocsin.plan.identity import Bequest, bequests, heirs
from tocsin.plan.one_stream import OneStreamPipeline
from tocsin.plan.promising import PromisingPipeline
from tocsin.plan.promising_pages import PROMISING, forgotten_rows
from tocsin.plan.ranged import RANGES, RangePipeline, forgotten
from tocsin.plan.report import last_words
from tocsin.plan.watch import APART, KeyedPipeline, named, readable, stored_watches
from tocsin.runtime.contract import Batch, Listener, Out, Pages, Pipeline
from tocsin.runtime.state_codec import unpack

if TYPE_CHECKING:
    from tocsin.plan.plan import Plan


def build_pipelines(plan: Plan, pages: Pages, listener: Listener | None = None) -> list[Pipeline]:
    """Build the pipelines of a plan. Each pipeline receives the pages of its own kind."""
    of_ranges = {name: page for name, page in pages.items() if name.startswith(RANGES)}
    of_promising = {name: page for name, page in pages.items() if name.startswith(PROMISING)}
    of_watches = {name: page for name, page in pages.items() if name not in of_ranges | of_promising}
    plain = {i: watch for i, watch in enumerate(plan.watches) if watch.anytime is None}
    planned = {watch.name: watch.rules_found_again for watch in plain.values()}
    taken = heirs(stored_watches(of_watches, planned), planned)
    given = bequests(taken, planned)
    watches: list[KeyedPipeline] = []
    for i, watch in plain.items():
        kind = KeyedPipeline if watch.budget is None else BudgetedPipeline
        watches.append(kind(i, watch, of_watches, given.get(watch.name, Bequest()), listener))
    limited = {i: watch for i, watch in enumerate(plan.watches) if i not in plain}
    promising: list[PromisingPipeline | OneStreamPipeline] = []
    for i, watch in limited.items():
        is_of_pairs = watch.anytime is None or watch.anytime.guided is None
        promising.append((PromisingPipeline if is_of_pairs else OneStreamPipeline)(i, watch, of_promising))
    ranges = [RangePipeline(i, watch, of_ranges) for i, watch in enumerate(plan.ranges, len(plan.watches))]
    watch_of = {name: named(name)[0] for name in of_watches}
    orphans = {name: page for name, page in of_watches.items() if watch_of[name] not in taken.values()}
    gone, expired = forgotten(of_ranges, plan.ranges)
    names, counted = forgotten_rows(of_promising, limited.values())
    gone += names
    expired.add(counted)
    # A watch writes its inherited state under its own name, which can be a name in this list.
    gone += [name for name, of in watch_of.items() if of in taken.values() and taken.get(of) != of]
    # The state of removed rules is first, because pages of the other pipelines replace the pages that it removes.
    return [RemovedState(watches, orphans, gone, expired), *watches, *promising, *ranges]


def read_message(row: Mapping[str, Any]) -> Control | Share:
    """Read a control row: a share of memory, or a wait that all buckets agreed on."""
    return read_share(row) if "share" in row else read_control(row)


class RemovedState:
    """State of rules and key sets that a plan no longer has.

    Its first call ends the alerts of these rules and counts their rows as expired. Then the pages are removed.
    """

    inputs: Mapping[tuple[int, str], Collection[str]] = {}

    def __init__(self, watches: Sequence[KeyedPipeline], orphans: Pages, gone: list[str], expired: Out) -> None:
        """Store the removed pages of each kind: pages that end alerts, other pages, and the counts of their rows."""
        self.watches, self.orphans, self.gone, self.expired = watches, orphans, gone, expired

    def on_data(self, batches: Sequence[Batch], now_us: int | None, out: Out) -> None:
        """Report the removed state."""
        self._report(out)

    def on_control(self, message: Control | Share, out: Out) -> None:
        """Ignore control rows."""

    def on_time(self, now_us: int, out: Out) -> None:
        """Report the removed state."""
        self._report(out)

    def on_end(self, out: Out) -> None:
        """Report the removed state."""
        self._report(out)

    def _report(self, out: Out) -> None:
        for logic in self.watches:
            for page in logic.pages:
                page.say_last_words(out)
        for name, data in self.orphans.items():
            _, keys, number = named(name)
            with readable(name):
                if number not in APART:
                    out.add(last_words(*unpack(data), [key for key in keys.split(",") if key]))
        self.gone, self.orphans = [*self.gone, *self.orphans], {}
        out.add(self.expired)
        self.expired = Out()

    def next_timer(self) -> int | None:
        """Return None: removed state has no timer."""
        return None

    def changed_pages(self) -> dict[str, bytes | None]:
        """Return the removed pages once."""
        changed: dict[str, bytes | None] = dict.fromkeys(self.gone)
        self.gone = []
        return changed
