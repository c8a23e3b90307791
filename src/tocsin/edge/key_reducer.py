"""Key reducer: the retained rows of one key, and the decision which rows are sent.

Algorithm: rows enter monotone queues (`operators.retention.monotone_queues`) in arrival order. The queues determine
for each row the later arrival that covers it: from then on, other rows represent it in every window. A row is due
when the newest event time of its key reaches its own time plus the maximum delay. A due row that is covered is
omitted. Any other due row is sent, and stays in the state because it can cover other rows. A row that is covered
later was already sent, and is only removed from the state.

    t ------- maximum delay -------> due: sent, still covers other rows
         ^ covered here: omitted        ^ covered here: only removed from the state

Guarantee: for each window of the interval, the state contains the extreme values that the shapes require (see
`operators.retention.bracketing`). Each row of the state is sent or delayed. So each window keeps its extremes among
the sent rows, for any maximum delay and any arrival order. If the rows are in order and the maximum delay equals the
interval, the sent rows are the rows that `tocsin.retained` keeps, the smallest possible set. The result does not
depend on batch boundaries. With several values, a row is covered when it is covered for each value.
Complexity: amortised constant time per row and value if the row is in order. An out-of-order row costs time linear in
the state. The state has the uncovered rows of the last two intervals, at most doubled, and 64 more. Rows of the last
interval can cover a new row; rows of the interval before decide which of those can still be removed.
Reference: Cai et al., PVLDB 14(6), section 3.5 (push-down to the emitter). The paper has no maximum delay.

The queues run uncompiled on lists. For single elements this is faster than arrays, and Numba is never imported.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tocsin.edge.line_buffer import DueLine, LineBuffer
from tocsin.operators.retention.bracketing import Reach
from tocsin.operators.retention.monotone_queues import (
    OWN,
    REPLAY,
    MonotoneQueues,
    advance_queues,
    clear_queues,
    new_queues,
)
from tocsin.runtime.contract import NEVER

_advance_queues: Callable[..., None] = advance_queues.function
_SPARE_ROWS = 64
# A row that an out-of-order row covers is covered before any later row arrives.
_COVERED = 0


def _empty_ends() -> list[int]:
    queues = new_queues.function(np.array([0, 1]))[1]
    clear_queues.function(queues)
    return [int(end) for end in queues.ends]


_ENDS = _empty_ends()


def _build_queues(size: int) -> Any:
    """Return empty queues, as lists, for `size` rows."""
    above, below, last, held, sides = ([0] * size for _ in range(5))
    return MonotoneQueues(*[above, below, list(_ENDS), last, held, sides, []])  # type: ignore[arg-type]


class ValueQueues:
    """State of one value field of a key.

    Attributes
    ----------
    reach
        How far windows reach on each side of a row.
    v
        Value of each retained row.
    covered_at
        For each retained row, the index of the row whose arrival covered it, or `NEVER`.
    queues
        The monotone queues.
    """

    __slots__ = ("covered_at", "queues", "reach", "v")

    def __init__(self, reach: Reach) -> None:
        self.reach = reach
        self.v: list[float] = []
        self.covered_at: list[int] = []
        self.queues = _build_queues(_SPARE_ROWS)

    def enter_rows(self, t: list[int], first: int) -> None:
        """Enter the rows from index `first` into the queues. They are in order, and their values are in `v` already."""
        self.covered_at += [NEVER] * (len(t) - first)
        above, below, _, last, held, sides, _ = self.queues
        lacking = len(t) - len(above)
        if lacking > 0:
            for column in (above, below, last, held, sides):
                column.extend([0] * (lacking + _SPARE_ROWS))
        columns = (t, t, self.v, range(len(t)))
        _advance_queues(range(first, len(t)), columns, self.reach, self.queues, (self.covered_at, OWN))

    def insert(self, at: int, v: float, t: list[int]) -> None:
        """Insert an out-of-order row whose time is in `t` already. A row that equals a retained row is covered."""
        same_time = range(bisect_left(t, t[at]), at)
        is_repeated = any(self.v[i] == v and self.covered_at[i] == NEVER for i in same_time)
        self.v.insert(at, v)
        self.covered_at.insert(at, _COVERED if is_repeated else NEVER)
        self.rebuild(t, REPLAY if is_repeated else _COVERED)

    def keep(self, rows: list[int]) -> None:
        """Remove all rows except these. The caller must rebuild the queues."""
        self.v = [self.v[i] for i in rows]
        self.covered_at = [NEVER if self.covered_at[i] == NEVER else _COVERED for i in rows]

    def rebuild(self, t: list[int], mark: int) -> None:
        """Rebuild the queues from the uncovered rows. Rows that become covered get `mark`; REPLAY covers no row."""
        self.queues = _build_queues(2 * len(t) + _SPARE_ROWS)
        uncovered = [i for i, covered_at in enumerate(self.covered_at) if covered_at == NEVER]
        _advance_queues(uncovered, (t, t, self.v, range(len(t))), self.reach, self.queues, (self.covered_at, mark))


class HoldConfig(NamedTuple):
    """Settings of a key reducer: interval, maximum delay, and the window reach of each value."""

    interval_us: int
    max_delay_us: int
    reaches: tuple[Reach, ...]


class KeyReducer:
    """State of one key: its retained rows in time order.

    Attributes
    ----------
    config, buffer
        Settings, and the buffer that has the lines.
    t, serial, values
        Event times, serial numbers and values of the retained rows.
    newest
        Newest event time.
    due
        Index of the first delayed row. The rows before it were due.
    limit
        Number of rows at which the state is compacted.
    last_seen
        Processing time of the last row.
    """

    __slots__ = ("buffer", "config", "due", "last_seen", "limit", "newest", "serial", "t", "values")

    def __init__(self, config: HoldConfig, buffer: LineBuffer) -> None:
        self.config, self.buffer = config, buffer
        self.t: list[int] = []
        self.serial: list[int] = []
        self.values = [ValueQueues(reach) for reach in config.reaches]
        self.newest = 0
        self.due, self.limit = 0, _SPARE_ROWS
        self.last_seen = 0.0

    @property
    def has_delayed_rows(self) -> bool:
        """Whether a row is not due yet."""
        return self.due < len(self.t)

    def process(
        self, t: list[int], values: Sequence[list[float]], serial: list[int], out: list[DueLine], *, blocked: bool
    ) -> None:
        """Process rows in arrival order, whose lines are buffered already; append the due lines to `out`.

        If the output is `blocked`, a due row is not sent at once, so any row of the state may still cover it.
        """
        at = 0
        while at < len(t):
            stop = self._ordered_end(t, at)
            if stop == len(t) and at == 0:
                self._append(t, values, serial, out, blocked=blocked)
            elif stop > at:
                parts = [column[at:stop] for column in values]
                self._append(t[at:stop], parts, serial[at:stop], out, blocked=blocked)
            else:
                stop = at + 1
                self._insert(t[at], [column[at] for column in values], serial[at], out, blocked=blocked)
            at = stop

    def release(self, due_by: int, out: list[DueLine]) -> None:
        """Send or omit all delayed rows. `due_by` is the serial number of the row that causes this."""
        for index, covered_at in enumerate(self._covered_at(self.due, len(self.t)), self.due):
            self._send_or_omit(index, due_by, out, is_covered=covered_at != NEVER)
        self.due = len(self.t)

    def omit_covered(self, first: int = 0) -> None:
        """Omit the covered rows from index `first` that are still buffered."""
        for number, covered_at in zip(self.serial[first:], self._covered_at(first, len(self.t)), strict=True):
            if covered_at != NEVER:
                self.buffer.omit(number)

    def compact(self, *, blocked: bool = True) -> None:
        """Remove covered rows and rows older than two intervals from the state. Omit covered rows that are buffered."""
        self._remove_covered(blocked=blocked)
        for value in self.values:
            value.rebuild(self.t, REPLAY)

    def _ordered_end(self, t: list[int], at: int) -> int:
        """Return the end of the in-order rows from index `at`."""
        if at == 0 and (not self.t or t[0] >= self.newest) and t == sorted(t):
            return len(t)
        newest = self.newest if self.t else t[at]
        while at < len(t) and t[at] >= newest:
            newest = t[at]
            at += 1
        return at

    def _append(
        self, t: list[int], values: Sequence[list[float]], serial: list[int], out: list[DueLine], *, blocked: bool
    ) -> None:
        """Append in-order rows, then process the rows that became due."""
        first = len(self.t)
        self.t += t
        self.serial += serial
        self.newest = t[-1]
        for value, column in zip(self.values, values, strict=True):
            value.v += column
            value.enter_rows(self.t, first)
        self._process_due(first, out, blocked=blocked)
        if len(self.t) > self.limit:
            self.compact(blocked=blocked)

    def _process_due(self, first: int, out: list[DueLine], *, blocked: bool) -> None:
        """Send or omit the rows that became due with a row from index `first`."""
        t, serial, max_delay_us = self.t, self.serial, self.config.max_delay_us
        stop = bisect_right(t, self.newest - max_delay_us, self.due)
        by = first
        for index, covered_at in enumerate(self._covered_at(self.due, stop), self.due):
            by = max(by, index)
            due_at = t[index] + max_delay_us
            while t[by] < due_at:
                by += 1
            is_covered = covered_at <= by or (blocked and covered_at != NEVER)
            self._send_or_omit(index, serial[by], out, is_covered=is_covered)
        self.due = stop

    def _send_or_omit(self, index: int, due_by: int, out: list[DueLine], *, is_covered: bool) -> None:
        """Omit a due row if it is covered, otherwise append it to `out`."""
        number = self.serial[index]
        if is_covered:
            self.buffer.omit(number)
        else:
            out.append(DueLine(due_by, number, self.buffer.lines.pop(number)))

    def _covered_at(self, start: int, stop: int) -> list[int]:
        """Return, for each row, the index of the first arrival after which it is covered in all values, or `NEVER`.

        `NEVER` is larger than every index.
        """
        first, *others = [value.covered_at[start:stop] for value in self.values]
        return list(map(max, first, *others)) if others else first

    def _insert(self, t: int, values: list[float], serial: int, out: list[DueLine], *, blocked: bool) -> None:
        """Insert one out-of-order row."""
        if t < self.newest - 2 * self.config.interval_us:
            self._reset(serial, out)
            self._append([t], [[v] for v in values], [serial], out, blocked=blocked)
            return
        self._remove_covered(blocked=blocked)
        at = bisect_right(self.t, t)
        is_due = at < self.due or t <= self.newest - self.config.max_delay_us
        self.t.insert(at, t)
        self.serial.insert(at, serial)
        for value, v in zip(self.values, values, strict=True):
            value.insert(at, v, self.t)
        self.limit = 2 * len(self.t) + _SPARE_ROWS
        is_covered = self._covered_at(at, at + 1) != [NEVER]
        if is_due:
            self.due += 1
        if is_due or is_covered:
            self._send_or_omit(at, serial, out, is_covered=is_covered)

    def _reset(self, due_by: int, out: list[DueLine]) -> None:
        """Send the delayed rows and clear the state, because a row is too old to share a window with them.

        For a single old row this costs a few rows. After a clock was set back, it prevents that all rows are
        out of order.
        """
        self.release(due_by, out)
        self.t, self.serial, self.due = [], [], 0
        self.values = [ValueQueues(value.reach) for value in self.values]

    def _remove_covered(self, *, blocked: bool) -> None:
        """Remove the rows that `compact` removes. The caller must rebuild the queues."""
        # Unless the output is blocked, rows that were due are no longer buffered.
        self.omit_covered(0 if blocked else self.due)
        oldest = min(bisect_left(self.t, self.newest - 2 * self.config.interval_us), self.due)
        covered_at = self._covered_at(oldest, len(self.t))
        keep = [index for index, at in enumerate(covered_at, oldest) if at == NEVER]
        self.due = bisect_left(keep, self.due)
        self.t = [self.t[index] for index in keep]
        self.serial = [self.serial[index] for index in keep]
        for value in self.values:
            value.keep(keep)
        self.limit = 2 * len(self.t) + _SPARE_ROWS

    def _check_invariants(self) -> None:
        """Assert the invariants between two calls. Only tests call it."""
        n, lines = len(self.t), self.buffer.lines
        assert self.t == sorted(self.t)
        assert 0 <= self.due <= n
        assert len(self.serial) == n
        assert all(len(value.v) == len(value.covered_at) == n for value in self.values)
        for index, covered_at in enumerate(self._covered_at(self.due, n), self.due):
            assert self.serial[index] in lines or covered_at != NEVER, "an uncovered delayed row must have its line"
            assert self.t[index] > self.newest - self.config.max_delay_us, "a row must not be delayed too long"
