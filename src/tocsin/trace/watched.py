"""The plan's own page, watched while it works: nothing is computed twice, so a trace cannot say other than the engine.

Rows are known by their place in their stream. `Remembered` gives the numbers of rows as they lie beside each other,
so it is enough to know which row stands behind each number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tocsin.logic import Float, Int
from tocsin.plan.follow import Followed
from tocsin.plan.hold import Hold, Sources
from tocsin.plan.identity import Lane
from tocsin.plan.order import Order
from tocsin.plan.page import Page
from tocsin.plan.remember import Remembered, Segments, StreamRows
from tocsin.plan.steps import Store, Watch
from tocsin.plan.witness import Show
from tocsin.stages.alert import TRUE
from tocsin.stages.join import Evaluations, Probes
from tocsin.stages.reduce.bracket import NEVER
from tocsin.trace.model import Evaluation, KeyRows

_NOTHING = np.zeros(0, np.int64)


class WatchedRemembered(Remembered):
    """What a store remembers, and what became of every row that came in."""

    def __init__(self, store: Store, rows: int) -> None:
        super().__init__(store)
        self.ids = _NOTHING
        self.numbers = _NOTHING
        self.came, self.left = np.full(rows, -1), np.full(rows, NEVER)
        self.silent, self.repeated = np.zeros(rows, np.bool_), np.zeros(rows, np.bool_)
        self._new = _NOTHING

    def merge(self, rows: StreamRows) -> Segments:
        """Merge, and note which row stands behind each number."""
        self._new = (
            _NOTHING if not len(rows.time) else np.arange(len(rows.time)) if rows.picked is None else rows.picked
        )
        self.numbers = np.concatenate([self.ids, self._new])
        segments = super().merge(rows)
        self.came[self._new] = rows.rank
        self.silent[self._new], self.repeated[self._new] = segments.silent, segments.repeated
        return segments

    def keep(self, rows: StreamRows, segments: Segments, floor: Int) -> dict[str, int]:
        """Keep, and note which rows went, and which stay."""
        named = self.numbers[segments.source]
        if self.store.remember:
            self.left[named] = np.minimum(self.left[named], segments.gone)
            key = np.repeat(np.arange(len(segments.offsets) - 1), np.diff(segments.offsets))
            self.ids = named[(segments.gone == NEVER) & (segments.time >= floor[key])]
        return super().keep(rows, segments, floor)


class WatchedHold(Hold):
    """Rows that wait, and which rows of their streams they are."""

    def __init__(self, order: Order, lanes: Sequence[Lane]) -> None:
        super().__init__(order, lanes)
        self.ids = _NOTHING

    def _rows(self, rows: StreamRows, sources: Sources) -> StreamRows:
        return replace(rows, picked=self._ids(sources), payload=None)

    def _keep(self, columns: Sequence[Int], values: Float, sources: Sources, stay: Int) -> None:
        self.ids = self._ids(sources.of(stay))
        super()._keep(columns, values, sources, stay)

    def _ids(self, sources: Sources) -> Int:
        at = np.arange(len(sources.order))
        ids, old = np.empty(len(at), np.int64), sources.order < sources.count
        ids[old] = self.ids[sources.order[old]]
        came, lane, row = sources.new(at)
        for i, mine in enumerate(sources.rows):
            numbers = row[lane == i]
            ids[came[lane == i]] = numbers if mine.picked is None else mine.picked[numbers]
        return ids


class WatchedFollowed(Followed):
    """One rule, and all its evaluations in the order in which they were made."""

    def __init__(self, page: WatchedPage, number: int) -> None:
        watch = page.watch
        super().__init__(watch.rules[number], watch.stores, watch.lanes)
        self.memories = [page.memories[i] for i in watch.rules[number].stores]
        self.rows = [page.rows[memory.store.stream] for memory in self.memories]
        self.found: list[Evaluation] = []
        self.corners.known = False  # Evaluations that change nothing are wanted here too.
        self._probes: Probes | None = None

    def _judge(self, probes: Probes, late: NDArray[np.bool_], segments: Sequence[Segments]) -> Any:
        self._probes = probes
        return super()._judge(probes, late, segments)

    def _live(self, evaluations: Evaluations, time: Int, key: Int, late: NDArray[np.bool_], show: Show) -> Any:
        assert self._probes is not None
        for p in np.flatnonzero(evaluations.found == 1).tolist():
            self.found.append(self._evaluation(evaluations, p, self._probes, bool(late[p]), show))
        return super()._live(evaluations, time, key, late, show)

    def _evaluation(self, evaluations: Evaluations, p: int, probes: Probes, late: bool, show: Show) -> Evaluation:
        def named(stream: int, tuple_number: int) -> int:
            source = show.segments[stream].source[tuple_number - show.bases[stream]]
            return int(self.memories[stream].numbers[source])

        stream, is_true = int(probes.stream[p]), bool(evaluations.truth[p] == TRUE)
        row = named(stream, int(probes.row[p]))
        names = [store.stream for store in self.stores]
        partners = tuple((names[i], named(i, int(chosen))) for i, chosen in enumerate(evaluations.witness[p]))
        return Evaluation(
            int(self.rows[stream].time[row]),
            int(self.rows[stream].arrival[row]),
            float(evaluations.margin[p]),
            is_true,
            float(evaluations.value[p]),
            late,
            not is_true and bool(self.rule.holds(evaluations.value[p : p + 1])[0]),
            names[stream],
            row,
            partners,
        )


class WatchedPage(Page):
    """A page for one key."""

    def __init__(self, watch: Watch, rows: Mapping[str, KeyRows]) -> None:
        super().__init__(watch)
        self.rows = rows
        self.memories = [WatchedRemembered(store, len(rows[store.stream])) for store in watch.stores]
        self.rules = [WatchedFollowed(self, number) for number in range(len(watch.rules))]
        self.remembered, self.followed = list(self.memories), list(self.rules)
        if watch.order is not None:
            self.hold = WatchedHold(watch.order, watch.lanes)
