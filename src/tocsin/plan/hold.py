"""Hold: the rows of a page's keys that wait to be taken in order; `stages/order` says which go when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.jit import kernel
from tocsin.operators.join.batch_slice import ArrivalOrder
from tocsin.operators.retention.operator import RowBatch, Texts
from tocsin.plan.identity import Lane
from tocsin.plan.order import Order
from tocsin.plan.pace import Noted
from tocsin.runtime.contract import NEVER_SEEN, Bools, Float, Int
from tocsin.stages.order.arrange import Clocks, arrange, drain, new_clocks
from tocsin.stages.order.slack import IN_SLACK, IN_SYNCHRONIZER

_COLUMNS = ("lane", "key", "time", "stage", "delay")


class Taken(NamedTuple):
    """Rows that wait no longer, in the order in which they are taken: by key; `behind`: after a later one was."""

    arrivals: ArrivalOrder
    rows: list[RowBatch]
    delay: Int
    behind: Bools
    noted: Noted
    gained: Int


class Sources:
    """Where rows come from, by their place among those held and those that came: `held` texts, or new rows by lane."""

    def __init__(
        self, held: Texts | None, count: int, order: Int, arrivals: ArrivalOrder, rows: Sequence[RowBatch]
    ) -> None:
        self.held, self.count, self.order, self.arrivals, self.rows = held, count, order, arrivals, rows
        self.has_payload = held is not None or any(mine.payload is not None for mine in rows)

    def of(self, at: Int) -> Sources:
        """Those of some rows."""
        return Sources(self.held, self.count, self.order[at], self.arrivals, self.rows)

    def new(self, at: Int) -> tuple[Int, Int, Int]:
        """Which of the rows at these places came with this call, and their lane and row there."""
        came = np.flatnonzero(self.order[at] >= self.count)
        number = self.order[at[came]] - self.count
        return came, self.arrivals.lane[number], self.arrivals.row[number]

    def take(self, positions: Int, /) -> Texts:
        """Give the payload of some rows."""
        texts = np.full(len(positions), None, dtype=object)
        if self.held is not None:
            old = np.flatnonzero(self.order[positions] < self.count)
            texts[old] = self.held[self.order[positions[old]]]
        came, lane, row = self.new(positions)
        for i, mine in enumerate(self.rows):
            texts[came[lane == i]] = mine.texts(row[lane == i])
        return texts


@kernel
def come_behind(key: Int, time: Int, front: Int) -> Bools:
    """Tell which rows are taken after a later one of their key; `front` is what was taken of each key, and moves."""
    behind = np.empty(key.shape[0], np.bool_)
    for i in range(key.shape[0]):
        behind[i] = time[i] < front[key[i]]
        front[key[i]] = max(front[key[i]], time[i])
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
        # Row numbers of the buffered rows while a trace is recorded. Its rows then have no payload.
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

    def take(self, arrivals: ArrivalOrder, rows: Sequence[RowBatch], slack_us: int, now_us: int | None = None) -> Taken:
        """Let new rows wait, and give those that wait no longer; `rows[i]` are those of lane i."""
        count = len(self.time)
        merged = [np.concatenate(pair) for pair in zip(self._held(), _fresh(arrivals), strict=True)]
        order = np.argsort(merged[1], kind="stable")
        lane, key, time, stage, delay = (column[order] for column in merged)
        before, front = self.clocks.released.copy(), self.clocks.newest.max(axis=1, initial=NEVER_SEEN)
        released, _, stage, late, skew = arrange(
            self.clocks, key, lane, time, stage, slack_us, self.order.idle_timeout_us, prompt=True
        )
        if now_us is not None:
            self.moved_us[self.clocks.newest.max(axis=1, initial=NEVER_SEEN) > front] = now_us
            self.moved_us[key[released]] = now_us
        new = np.flatnonzero(order >= count)
        delay[new] = late[new]
        number = _numbers(arrivals, rows)[order[new] - count]
        noted = Noted(number, lane[new], delay[new], skew[new])
        values = np.concatenate([self.values, self._new_values(arrivals, rows)])[order]
        sources = Sources(self.payload, count, order, arrivals, rows)
        taken = self._taken((lane, key, time, delay), values, sources, released, before, noted)
        self._keep((lane, key, time, stage, delay), values, sources, np.flatnonzero(stage))
        return taken

    def end(self, ends: Bools) -> Taken:
        """Give all that waits of some keys."""
        before = self.clocks.released.copy()
        released = drain(self.clocks, self.key, self.time, ends)
        nothing = np.zeros(0, np.int64)
        stay = np.ones(len(self.time), np.bool_)
        stay[released] = False
        none = ArrivalOrder(nothing, nothing, nothing, nothing)
        sources = Sources(self.payload, len(self.time), np.arange(len(self.time)), none, ())
        columns = (self.lane, self.key, self.time, self.delay)
        nobody = Noted(nothing, nothing, nothing, nothing)
        taken = self._taken(columns, self.values, sources, released, before, nobody)
        self._keep(self._held(), self.values, sources, np.flatnonzero(stay))
        return taken

    def _held(self) -> tuple[Int, ...]:
        return self.lane, self.key, self.time, self.stage, self.delay

    def _new_values(self, arrivals: ArrivalOrder, rows: Sequence[RowBatch]) -> Float:
        values = np.full((len(arrivals.time), self.values.shape[1]), np.nan)
        for i, (mine, columns) in enumerate(zip(rows, self.columns, strict=True)):
            at = np.flatnonzero(arrivals.lane == i)
            for c, column in enumerate(columns):
                values[at, c] = mine.values[column][arrivals.row[at]]
        return values

    def _taken(
        self,
        columns: tuple[Int, Int, Int, Int],
        values: Float,
        sources: Sources,
        released: Int,
        before: Int,
        noted: Noted,
    ) -> Taken:
        """Make rows of those released; their rank is their place among them."""
        lane, key, time, delay = (column[released] for column in columns)
        row, rows = np.empty(len(released), np.int64), []
        for i, names in enumerate(self.columns):
            at = np.flatnonzero(lane == i)
            row[at] = np.arange(len(at))
            mine = {name: values[released[at], c] for c, name in enumerate(names)}
            rows.append(self._rows(RowBatch(key[at], time[at], at, mine, None), sources.of(released[at])))
        behind = come_behind(key, time, before)
        gained = np.bincount(noted.lane, minlength=len(rows)) - np.bincount(lane, minlength=len(rows))
        return Taken(ArrivalOrder(lane, key, time, row), rows, delay, behind, noted, gained)

    def _rows(self, rows: RowBatch, sources: Sources) -> RowBatch:
        """Rows of one lane with their payload, or with their row numbers if a trace is recorded."""
        if self.ids is not None:
            return replace(rows, picked=_row_numbers(self.ids, sources), payload=None)
        return replace(rows, payload=sources) if sources.has_payload else rows

    def _keep(self, columns: Sequence[Int], values: Float, sources: Sources, stay: Int) -> None:
        self.lane, self.key, self.time, self.stage, self.delay = (column[stay] for column in columns)
        self.values = values[stay]
        self.payload = sources.take(stay) if sources.has_payload else None
        if self.ids is not None:
            self.ids = _row_numbers(self.ids, sources.of(stay))

    def drop_keys(self, gone: Bools) -> None:
        """Forget keys of which nothing waits."""
        self.clocks, self.moved_us = Clocks._make(column[~gone] for column in self.clocks), self.moved_us[~gone]
        self.key = (np.cumsum(~gone) - 1)[self.key]

    def check(self, keys: int) -> None:
        """Assert what always holds; for tests."""
        assert self.clocks.newest.shape == (keys, len(self.columns))
        assert len(self.clocks.released) == len(self.moved_us) == keys
        assert len({len(column) for column in (*self._held(), self.values)}) == 1
        assert (np.diff(self.key) >= 0).all()
        assert np.isin(self.stage, (IN_SLACK, IN_SYNCHRONIZER)).all()
        assert (self.time <= self.clocks.newest[self.key, self.lane]).all()
        waits = self.stage == IN_SYNCHRONIZER
        assert (self.time[waits] > self.clocks.released[self.key[waits]]).all()

    def arrays(self) -> dict[str, NDArray[Any]]:
        """State to be written."""
        named: dict[str, NDArray[Any]] = {
            f"hold.{name}": column for name, column in zip(_COLUMNS, self._held(), strict=True)
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


def _fresh(arrivals: ArrivalOrder) -> tuple[Int, ...]:
    nothing = np.zeros(len(arrivals.time), np.int64)
    return arrivals.lane, arrivals.key, arrivals.time, nothing, nothing


def _numbers(arrivals: ArrivalOrder, rows: Sequence[RowBatch]) -> Int:
    """The number of each new row in order of arrival over all keys of the call."""
    number = np.empty(len(arrivals.time), np.int64)
    for i, mine in enumerate(rows):
        at = np.flatnonzero(arrivals.lane == i)
        number[at] = mine.rank[arrivals.row[at]]
    return number


def _row_numbers(held: Int, sources: Sources) -> Int:
    """Return the row numbers of some rows; `held` has the row numbers of the rows that were buffered before."""
    at = np.arange(len(sources.order))
    numbers, old = np.empty(len(at), np.int64), sources.order < sources.count
    numbers[old] = held[sources.order[old]]
    came, lane, row = sources.new(at)
    for i, mine in enumerate(sources.rows):
        rows = row[lane == i]
        numbers[came[lane == i]] = rows if mine.picked is None else mine.picked[rows]
    return numbers
