"""The queries that are looked at, behind arrays: taken, read, moved together, laid out anew and given up."""

from __future__ import annotations

import numpy as np

from tocsin.runtime.contract import Bools, Int
from tocsin.stages.ranges import line as on_line
from tocsin.stages.ranges import plane as in_plane
from tocsin.stages.ranges.comings import FOUND, TIRED, Work
from tocsin.stages.ranges.cuts import grow_ends, next_number
from tocsin.stages.ranges.line import CHUNK, Line, has_cuts
from tocsin.stages.ranges.looks import (
    DONE,
    NO_ROOM,
    SPARSE,
    STALE,
    WEARY,
    shape_of,
    start_alone_on_line,
    start_on_line,
    work_on,
)
from tocsin.stages.ranges.plane import Plane
from tocsin.stages.ranges.queries import Queries
from tocsin.stages.ranges.requests import Elements, Requests
from tocsin.stages.ranges.shelves import (
    ALIVE,
    HOME,
    ID,
    NUMBER,
    REGISTERED,
    TARGET,
    THRESHOLD,
    VAIN,
    WANTED,
    Rack,
    forget,
    has_slots,
    slots_of,
)
from tocsin.stages.ranges.shelving import Rows, alive_slots, grow_rack, no_rows, squeeze


class Held:
    """Queries of one dimension on a line, of two and more in a plane."""

    def __init__(self, dims: int) -> None:
        self.dims = dims
        self.rack: Rack
        self.line: Line | None = None
        self.plane: Plane | None = None
        if dims == 1:
            self.line, self.rack = on_line.no_line()
        else:
            self.plane, self.rack = in_plane.no_plane(dims)
        self._matured = np.empty((4 * CHUNK, 4), dtype=np.int64)
        self._tired = np.empty(CHUNK, dtype=np.int64)
        self._gone_tired: list[Int] = []

    def __len__(self) -> int:
        """Count alive queries."""
        return int(self.rack.counts[ALIVE])

    @property
    def number(self) -> int:
        """The number that the next registration gets."""
        return int(self.rack.counts[NUMBER])

    def knows(self, ids: Int) -> Bools:
        """Tell which ids are alive."""
        return slots_of(self.rack.table, self.rack.queries, ids) >= 0

    def totals(self, ids: Int) -> Int:
        """Give the total of each id, -1 where it is not alive."""
        slots = slots_of(self.rack.table, self.rack.queries, ids)
        totals, there = np.full(len(ids), -1), np.flatnonzero(slots >= 0)
        totals[there] = self.rack.queries[slots[there], THRESHOLD] - self._lacks(slots[there])
        return totals

    def alive(self) -> Queries:
        """Give all alive queries."""
        return self._at(alive_slots(self.rack))

    def add(self, new: Queries) -> None:
        """Register many queries at once, that may have some total already."""
        queries = np.zeros((len(new.id), self.rack.queries.shape[1]), dtype=np.int64)
        queries[:, ID], queries[:, THRESHOLD], queries[:, REGISTERED] = new.id, new.threshold, new.order
        queries[:, TARGET] = new.threshold - new.total
        self.rack.counts[NUMBER] = max(self.number, int(new.order.max(initial=-1)) + 1)
        self.lay_out(Rows(queries, np.concatenate([new.low, next_number(new.high, np.inf)], axis=1)))

    def take(self, elements: Elements, requests: Requests) -> list[Int]:
        """Take a batch and the requests in it; give rows of what matured: id, index, total, number."""
        work = Work(elements, requests, self._matured, self._tired, np.zeros(5, dtype=np.int64))
        found: list[Int] = []
        while True:
            if self.line is not None:
                held, batch = (*self.line.ends, *self.line[1:], *self.rack), (*elements, *work[2:])
                if len(requests.at):
                    reason = start_on_line(held, (*batch, *requests))
                else:
                    reason = start_alone_on_line(held, batch)
            else:
                reason = work_on(self.rack, None, self.plane, work)
            if work.done[FOUND]:
                found.append(self._matured[: work.done[FOUND]].copy())
                work.done[FOUND] = 0
            if work.done[TIRED]:
                self._gone_tired.append(self._tired[: work.done[TIRED]].copy())
                work.done[TIRED] = 0
            if reason == DONE:
                return found
            self._mend(reason)

    def lay_out(self, more: Rows) -> None:
        """Lay out all queries anew, with some more."""
        if self.line is not None:
            self.line, self.rack = on_line.lay_out_again(self.line, self.rack, more)
        elif self.plane is not None:
            self.plane, self.rack = in_plane.lay_out_again(self.plane, self.rack, more)

    def give_up(self) -> Queries | None:
        """Forget the queries that got tired, and give those of them that are alive."""
        if not self._gone_tired:
            return None
        ids, self._gone_tired = np.unique(np.concatenate(self._gone_tired)), []
        slots = slots_of(self.rack.table, self.rack.queries, ids)
        # One that ended and was registered again is not tired any more.
        slots = slots[(slots >= 0) & (self.rack.queries[slots, HOME] // VAIN > WEARY)]
        given = self._at(slots)
        forget(self.rack, slots)
        return given

    def _mend(self, reason: int) -> None:
        """Do what the kernel stopped for."""
        if reason == NO_ROOM:
            reason = shape_of(self.rack, self.line)
            if reason == DONE:
                self._grow()
        if reason == STALE:
            self.lay_out(no_rows(self.dims))
        elif reason == SPARSE:
            self.rack = squeeze(self.rack)

    def _grow(self) -> None:
        """Make room where one more query might not fit."""
        if not has_slots(self.rack) or self.rack.counts[WANTED]:
            self.rack = grow_rack(self.rack)
        if self.line is not None and not has_cuts(self.line):
            self.line = self.line._replace(ends=grow_ends(self.line.ends))

    def _lacks(self, slots: Int) -> Int:
        """Read what the queries of some slots lack."""
        if self.plane is not None:
            return in_plane.lacks_in_plane(self.plane, self.rack, slots)
        assert self.line is not None
        return on_line.lacks_on_line(self.line, self.rack, slots)

    def _at(self, slots: Int) -> Queries:
        """Give the queries of some slots."""
        queries, spans, dims = self.rack.queries[slots], self.rack.spans[slots], self.dims
        order = np.argsort(queries[:, REGISTERED])
        queries, spans = queries[order], spans[order]
        id_, threshold = queries[:, ID].copy(), queries[:, THRESHOLD].copy()
        low, high = spans[:, :dims].copy(), next_number(spans[:, dims:], -np.inf)
        total, rounds = threshold - self._lacks(slots[order]), np.zeros(len(slots), np.int32)
        return Queries(id_, queries[:, REGISTERED].copy(), low, high, threshold, total, rounds)
