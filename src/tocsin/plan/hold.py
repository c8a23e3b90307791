"""Hold: the rows of a page's keys that wait to be taken in order; `stages/order` says which go when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.jit import kernel
from tocsin.plan.identity import Lane
from tocsin.plan.order import Order
from tocsin.plan.pace import Noted
from tocsin.runtime.contract import NEVER_SEEN, Bools, Int
from tocsin.runtime.row_batch import Cells, JoinedPayload, RowBatch, Texts
from tocsin.stages.order.arrange import Clocks, arrange, drain, new_clocks
from tocsin.stages.order.slack import IN_SLACK, IN_SYNCHRONIZER

_COLUMNS = ("lane", "key", "time", "stage", "delay")


class Taken(NamedTuple):
    """Released rows in the order of their release, by key.

    Attributes
    ----------
        rows: Released rows. Their serial numbers are their positions.
        delay: Delay of each row behind the newest row of its stream at its arrival.
        behind: Rows that were released after a later row of their key.
        noted: Delays of the rows that arrived with this call.
        gained: Change of the number of buffered rows by view.
    """

    rows: RowBatch
    delay: Int
    behind: Bools
    noted: Noted
    gained: Int


@kernel
def mark_out_of_order_releases(key: Int, time: Int, released: Int) -> Bools:
    """Mark the rows released after a later row of their key, and update the released time of each key."""
    behind = np.empty(key.shape[0], np.bool_)
    for i in range(key.shape[0]):
        behind[i] = time[i] < released[key[i]]
        released[key[i]] = max(released[key[i]], time[i])
    return behind


class Hold:
    """Clocks of the keys of a page, and the rows that wait, by key and arrival.

    `moved_us` is when, by the engine's clock, the newest clock of a key last rose or a row of it was last taken: a key
    whose clocks stand still while rows go on coming must not hold them for ever.
    """

    def __init__(self, order: Order, lanes: Sequence[Lane], keys: int = 0) -> None:
        self.order, self.lanes, self.columns = order, lanes, [columns for _, columns in lanes]
        self.clocks, self.moved_us = new_clocks(keys, len(lanes)), np.zeros(keys, np.int64)
        self.lane, self.key, self.time, self.stage, self.delay = (np.zeros(0, np.int64) for _ in _COLUMNS)
        self.values = np.zeros((0, max(len(columns) for columns in self.columns)))
        self.payload: Texts | None = None
        # Positions of the buffered rows in their streams while a trace is recorded.
        self.ids: Int | None = None

    def add_keys(self, count: int) -> None:
        """Make room for new keys."""
        fresh = new_clocks(count, len(self.columns))
        self.clocks = Clocks._make(np.concatenate(pair) for pair in zip(self.clocks, fresh, strict=True))
        self.moved_us = np.concatenate([self.moved_us, np.zeros(count, np.int64)])

    def stuck(self, now_us: int) -> Bools:
        """Keys whose rows wait though nothing has moved for `idle_timeout`."""
        return self.holding() & (now_us - self.moved_us >= self.order.idle_timeout_us)

    def next_timer(self) -> int | None:
        """When rows that wait should be looked at; None: there are none."""
        return (
            int(self.moved_us[self.key].min()) + max(self.order.idle_timeout_us, 1_000_000) if len(self.key) else None
        )

    def holding(self) -> Bools:
        """Keys that have rows which wait."""
        holding = np.zeros(len(self.clocks.released), np.bool_)
        holding[self.key] = True
        return holding

    def take(self, rows: RowBatch, slack_us: int, now_us: int | None = None) -> Taken:
        """Buffer new rows, which are ordered by key and arrival, and return the rows that are due."""
        count, nothing = len(self.time), np.zeros(len(rows), np.int64)
        new_columns = (rows.view, rows.key, rows.time, nothing, nothing)
        merged = [np.concatenate(pair) for pair in zip(self._columns(), new_columns, strict=True)]
        order = np.argsort(merged[1], kind="stable")
        view, key, time, stage, delay = (column[order] for column in merged)
        before, front = self.clocks.released.copy(), self.clocks.newest.max(axis=1, initial=NEVER_SEEN)
        released, _, stage, late, skew = arrange(
            self.clocks, key, view, time, stage, slack_us, self.order.idle_timeout_us, prompt=True
        )
        if now_us is not None:
            self.moved_us[self.clocks.newest.max(axis=1, initial=NEVER_SEEN) > front] = now_us
            self.moved_us[key[released]] = now_us
        new = np.flatnonzero(order >= count)
        delay[new] = late[new]
        noted = Noted(rows.serial[order[new] - count], view[new], delay[new], skew[new])
        both = RowBatch(view, key, time, np.arange(len(time)), order, self._join_cells(rows))
        taken = self._release(both, delay, released, before, noted)
        self._store(both, stage, delay, np.flatnonzero(stage))
        return taken

    def end(self, ends: Bools) -> Taken:
        """Release all buffered rows of the marked keys."""
        before = self.clocks.released.copy()
        released = drain(self.clocks, self.key, self.time, ends)
        stay = np.ones(len(self.time), np.bool_)
        stay[released] = False
        none, number = np.zeros(0, np.int64), np.arange(len(self.time))
        rows = RowBatch(self.lane, self.key, self.time, number, number, self._join_cells(None))
        taken = self._release(rows, self.delay, released, before, Noted(none, none, none, none))
        self._store(rows, self.stage, self.delay, np.flatnonzero(stay))
        return taken

    def _columns(self) -> tuple[Int, ...]:
        return self.lane, self.key, self.time, self.stage, self.delay

    def _join_cells(self, rows: RowBatch | None) -> Cells:
        """Return the values, positions and payload of the buffered rows and then of the new rows."""
        count = len(self.time)
        position = np.zeros(count, np.int64) if self.ids is None else self.ids
        if rows is None:
            return Cells(self.values.T, position, self.payload)
        values = np.concatenate([self.values.T, rows.cells.values[:, rows.cell]], axis=1)
        payload = None
        if self.payload is not None or rows.has_payload:
            payload = JoinedPayload([(count, self.payload, None), (len(rows), rows.cells.payload, rows.cell)])
        return Cells(values, np.concatenate([position, rows.cells.position[rows.cell]]), payload)

    def _release(self, rows: RowBatch, delay: Int, released: Int, before: Int, noted: Noted) -> Taken:
        """Return the released rows; `before` has the released time of each key before this call."""
        taken = replace(rows.take(released), serial=np.arange(len(released)))
        behind = mark_out_of_order_releases(taken.key, taken.time, before)
        views = len(self.columns)
        gained = np.bincount(noted.lane, minlength=views) - np.bincount(taken.view, minlength=views)
        return Taken(taken, delay[released], behind, noted, gained)

    def _store(self, rows: RowBatch, stage: Int, delay: Int, at: Int) -> None:
        """Store the rows that stay in the buffer."""
        stay = rows.take(at)
        self.payload = stay.texts(np.arange(len(stay))) if stay.has_payload else None
        self.values = np.ascontiguousarray(stay.cells.values[:, stay.cell].T)
        self.lane, self.key, self.time, self.stage, self.delay = stay.view, stay.key, stay.time, stage[at], delay[at]
        if self.ids is not None:
            self.ids = stay.cells.position[stay.cell]

    def drop_keys(self, gone: Bools) -> None:
        """Forget keys of which nothing waits."""
        self.clocks, self.moved_us = Clocks._make(column[~gone] for column in self.clocks), self.moved_us[~gone]
        self.key = (np.cumsum(~gone) - 1)[self.key]

    def check(self, keys: int) -> None:
        """Assert what always holds; for tests."""
        assert self.clocks.newest.shape == (keys, len(self.columns))
        assert len(self.clocks.released) == len(self.moved_us) == keys
        assert len({len(column) for column in (*self._columns(), self.values)}) == 1
        assert (np.diff(self.key) >= 0).all()
        assert np.isin(self.stage, (IN_SLACK, IN_SYNCHRONIZER)).all()
        assert (self.time <= self.clocks.newest[self.key, self.lane]).all()
        waits = self.stage == IN_SYNCHRONIZER
        assert (self.time[waits] > self.clocks.released[self.key[waits]]).all()

    def arrays(self) -> dict[str, NDArray[Any]]:
        """State to be written."""
        named: dict[str, NDArray[Any]] = {
            f"hold.{name}": column for name, column in zip(_COLUMNS, self._columns(), strict=True)
        }
        named |= {"hold.newest": self.clocks.newest, "hold.released": self.clocks.released, "hold.values": self.values}
        named |= {"hold.moved": self.moved_us}
        return named if self.payload is None else named | {"hold.payload": self.payload}

    def load(self, arrays: dict[str, NDArray[Any]], lanes: Sequence[Lane], keys: int) -> None:
        """State that was written for these lanes; rows of others are left behind, and `last_words` counts them."""
        mine = list(self.lanes)
        self.clocks = new_clocks(keys, len(mine))._replace(released=arrays["hold.released"])
        self.moved_us = arrays["hold.moved"]
        place = np.full(len(lanes) + 1, -1)
        for old, lane in enumerate(lanes):
            if lane in mine:
                place[old] = mine.index(lane)
                self.clocks.newest[:, place[old]] = arrays["hold.newest"][:, old]
        stay = np.flatnonzero(place[arrays["hold.lane"]] >= 0)
        self.lane, self.key, self.time, self.stage, self.delay = (arrays[f"hold.{name}"][stay] for name in _COLUMNS)
        self.lane, width = place[self.lane], self.values.shape[1]
        values = arrays["hold.values"][stay]
        self.values = np.full((len(stay), width), np.nan)
        self.values[:, : min(width, values.shape[1])] = values[:, :width]
        payload = arrays.get("hold.payload")
        self.payload = None if payload is None else payload[stay]
