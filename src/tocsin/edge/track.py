"""Track: the rows of one key at the edge, which of them are held, and which may be left out.

Idea. Rows enter the queues of `stages.reduce` as they arrive; those say of each row at which later arrival it goes. A
row is *due* with the first arrival that lets the newest time of its key reach its own time plus `hold`. What goes no
later than it is due was held all the while and is left out; what goes afterwards has been sent, and is only forgotten.

    held until    t ------ hold ------> due: sent, remembered as a bracket
    a row goes         ^ in time: left out                ^ too late: it was sent

*Guarantee*: what is remembered meets the demand of every window of the interval, as `bracket` says; each remembered
row is sent or still here, and so every window keeps its extremes among what has been and will be sent, for any hold
and any order. Rows in order and hold = interval: what is sent is what `retained` keeps, the fewest rows possible. The
cut of the input into pieces does not show. With several values, a row goes when all of them let it go.
*Cost*: in order, amortised constant per row and value. A row that comes behind costs the rows of its track. A track has
the rows of the last two intervals that still stay (one interval may excuse a row; another decides which of those are
free to go), at most doubled, and 64 more.
*Source*: Cai et al., PVLDB 14(6), section 3.5 (push-down to the emitter), which names no hold; that part is ours.

The queues run uncompiled, on lists: element by element that is faster than arrays, and Numba is never imported.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tocsin.edge.ledger import Due, Ledger
from tocsin.stages.reduce.bracket import NEVER, Reach
from tocsin.stages.reduce.queues import OWN, REPLAY, Stacks, clear, feed, stacks_for

_feed: Callable[..., None] = feed.function
_SPARE = 64
# What goes because of a row that came behind has gone before any later row arrives.
_AT_ONCE = 0


def _empty_ends() -> list[int]:
    stacks = stacks_for.function(np.array([0, 1]))[1]
    clear.function(stacks)
    return [int(end) for end in stacks.ends]


_ENDS = _empty_ends()


def _stacks(size: int) -> Any:
    """Make queues, on lists, with room for so many rows."""
    above, below, last, held, sides = ([0] * size for _ in range(5))
    return Stacks(*[above, below, list(_ENDS), last, held, sides, []])  # type: ignore[arg-type]


class Value:
    """One watched value of a track: its queues, and the arrival at which each row goes."""

    __slots__ = ("gone", "reach", "stacks", "v")

    def __init__(self, reach: Reach) -> None:
        self.reach = reach
        self.v: list[float] = []
        self.gone: list[int] = []
        self.stacks = _stacks(_SPARE)

    def enter(self, t: list[int], first: int) -> None:
        """Take the rows from `first` on, which come in order; their values are in place."""
        self.gone += [NEVER] * (len(t) - first)
        above, below, _, last, held, sides, _ = self.stacks
        lacking = len(t) - len(above)
        if lacking > 0:
            for room in (above, below, last, held, sides):
                room.extend([0] * (lacking + _SPARE))
        columns = (t, t, self.v, range(len(t)))
        _feed(range(first, len(t)), columns, self.reach, self.stacks, (self.gone, OWN))

    def insert(self, at: int, v: float, t: list[int]) -> None:
        """Take one row that came behind, and whose time is in place; of two equal rows the first one stays."""
        twins = range(bisect_left(t, t[at]), at)
        equal = any(self.v[i] == v and self.gone[i] == NEVER for i in twins)
        self.v.insert(at, v)
        self.gone.insert(at, _AT_ONCE if equal else NEVER)
        self.again(t, REPLAY if equal else _AT_ONCE)

    def keep(self, rows: list[int]) -> None:
        """Strike all rows but these; the queues have to be made again."""
        self.v = [self.v[i] for i in rows]
        self.gone = [NEVER if self.gone[i] == NEVER else _AT_ONCE for i in rows]

    def again(self, t: list[int], mark: int) -> None:
        """Make the queues from the rows that have not gone."""
        self.stacks = _stacks(2 * len(t) + _SPARE)
        alive = [i for i, gone in enumerate(self.gone) if gone == NEVER]
        _feed(alive, (t, t, self.v, range(len(t))), self.reach, self.stacks, (self.gone, mark))


class Policy(NamedTuple):
    """How far windows reach, for each watched value, and how long a row may be held."""

    interval_us: int
    hold_us: int
    reaches: tuple[Reach, ...]


class Track:
    """The remembered rows of one key, by time; those from `due` on are held, the others have been handed out."""

    __slots__ = ("due", "ledger", "limit", "newest", "policy", "seen", "serial", "t", "values")

    def __init__(self, policy: Policy, ledger: Ledger) -> None:
        self.policy, self.ledger = policy, ledger
        self.t: list[int] = []
        self.serial: list[int] = []
        self.values = [Value(reach) for reach in policy.reaches]
        self.newest = 0
        self.due, self.limit = 0, _SPARE
        self.seen = 0.0

    @property
    def holds(self) -> bool:
        """Whether a row waits for a bracket."""
        return self.due < len(self.t)

    def take(
        self, t: list[int], values: Sequence[list[float]], serial: list[int], out: list[Due], *, blocked: bool
    ) -> None:
        """Take rows as they arrived, whose lines are in the ledger; add to `out` what is due.

        While the output is `blocked` a row that is due is not sent at once, so it may go by any row that is here.
        """
        at = 0
        while at < len(t):
            stop = self._run(t, at)
            if stop == len(t) and at == 0:
                self._follow(t, values, serial, out, blocked=blocked)
            elif stop > at:
                parts = [column[at:stop] for column in values]
                self._follow(t[at:stop], parts, serial[at:stop], out, blocked=blocked)
            else:
                stop = at + 1
                self._behind(t[at], [column[at] for column in values], serial[at], out, blocked=blocked)
            at = stop

    def release(self, by: int, out: list[Due]) -> None:
        """Hand out what is held."""
        for p, gone in enumerate(self._gone(self.due, len(self.t)), self.due):
            self._settle(p, by, out, in_time=gone != NEVER)
        self.due = len(self.t)

    def omit_gone(self, first: int = 0) -> None:
        """Leave out the rows, from the first on, that are still here and have gone."""
        for number, gone in zip(self.serial[first:], self._gone(first, len(self.t)), strict=True):
            if gone != NEVER:
                self.ledger.omit(number)

    def compact(self, *, blocked: bool = True) -> None:
        """Forget what has gone and what is older than two intervals; what is still here of the former is left out."""
        self._strike(blocked=blocked)
        for value in self.values:
            value.again(self.t, REPLAY)

    def _run(self, t: list[int], at: int) -> int:
        """Find the end of the rows from `at` on that come in order."""
        if at == 0 and (not self.t or t[0] >= self.newest) and t == sorted(t):
            return len(t)
        newest = self.newest if self.t else t[at]
        while at < len(t) and t[at] >= newest:
            newest = t[at]
            at += 1
        return at

    def _follow(
        self, t: list[int], values: Sequence[list[float]], serial: list[int], out: list[Due], *, blocked: bool
    ) -> None:
        """Take rows in order, then see what has become due."""
        first = len(self.t)
        self.t += t
        self.serial += serial
        self.newest = t[-1]
        for value, column in zip(self.values, values, strict=True):
            value.v += column
            value.enter(self.t, first)
        self._hand_out(first, out, blocked=blocked)
        if len(self.t) > self.limit:
            self.compact(blocked=blocked)

    def _hand_out(self, first: int, out: list[Due], *, blocked: bool) -> None:
        """Decide the rows that became due with one of those from `first` on."""
        t, serial, hold, until = self.t, self.serial, self.policy.hold_us, self.newest - self.policy.hold_us
        stop = bisect_right(t, until, self.due)
        by = first
        for p, gone in enumerate(self._gone(self.due, stop), self.due):
            by = max(by, p)
            at = t[p] + hold
            while t[by] < at:
                by += 1
            self._settle(p, serial[by], out, in_time=gone <= by or (blocked and gone != NEVER))
        self.due = stop

    def _settle(self, p: int, by: int, out: list[Due], *, in_time: bool) -> None:
        """Leave a row out if it went in time, else hand it out."""
        number = self.serial[p]
        if in_time:
            self.ledger.omit(number)
        else:
            out.append(Due(by, number, self.ledger.lines.pop(number)))

    def _gone(self, start: int, stop: int) -> list[int]:
        """Give the arrivals at which rows go: of each row, the last one of its values."""
        first, *others = [value.gone[start:stop] for value in self.values]
        return list(map(max, first, *others)) if others else first

    def _behind(self, t: int, values: list[float], serial: int, out: list[Due], *, blocked: bool) -> None:
        """Take one row that comes behind the newest."""
        if t < self.newest - 2 * self.policy.interval_us:
            self._start_anew(serial, out)
            self._follow([t], [[v] for v in values], [serial], out, blocked=blocked)
            return
        self._strike(blocked=blocked)
        at = bisect_right(self.t, t)
        due = at < self.due or t <= self.newest - self.policy.hold_us
        self.t.insert(at, t)
        self.serial.insert(at, serial)
        for value, v in zip(self.values, values, strict=True):
            value.insert(at, v, self.t)
        self.limit = 2 * len(self.t) + _SPARE
        gone = self._gone(at, at + 1) != [NEVER]
        if due:
            self.due += 1
        if due or gone:
            self._settle(at, serial, out, in_time=gone)

    def _start_anew(self, by: int, out: list[Due]) -> None:
        """Hand out what is held and forget the rest: a row this far behind shares no window with what is held.

        Either a straggler, which costs a few rows, or a clock that was set back, which would make all rows late.
        """
        self.release(by, out)
        self.t, self.serial, self.due = [], [], 0
        self.values = [Value(value.reach) for value in self.values]

    def _strike(self, *, blocked: bool) -> None:
        """Do the same, but for the queues, which have to be made again."""
        # Unless the output is blocked, what was handed out is no longer here.
        self.omit_gone(0 if blocked else self.due)
        oldest = min(bisect_left(self.t, self.newest - 2 * self.policy.interval_us), self.due)
        gone = self._gone(oldest, len(self.t))
        keep = [p for p, goes in enumerate(gone, oldest) if goes == NEVER]
        self.due = bisect_left(keep, self.due)
        self.t = [self.t[p] for p in keep]
        self.serial = [self.serial[p] for p in keep]
        for value in self.values:
            value.keep(keep)
        self.limit = 2 * len(self.t) + _SPARE

    def _check(self) -> None:
        """Assert what must hold between two calls."""
        n, lines = len(self.t), self.ledger.lines
        assert self.t == sorted(self.t)
        assert 0 <= self.due <= n
        assert len(self.serial) == n
        assert all(len(value.v) == len(value.gone) == n for value in self.values)
        for p, gone in enumerate(self._gone(self.due, n), self.due):
            assert self.serial[p] in lines or gone != NEVER, "a held row that stays has its line"
            assert self.t[p] > self.newest - self.policy.hold_us, "no row is held longer than it may be"
