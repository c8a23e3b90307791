"""What a reduced stream must keep, by definition: every window is looked at, nothing is clever.

A *side* is a length and a sign: +1 asks for the maximum of every window, -1 for the minimum. Times are integers or
fractions, so nothing is rounded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import pairwise
from math import ceil, floor
from typing import Any

Side = tuple[Any, int]
Window = Callable[[Any], bool]
Tuple = tuple[Any, Any, int]


def windows(times: Sequence[Any], length: Any, closed: str, hop: Any = None) -> list[tuple[Fraction, Window]]:
    """Give windows with all distinct contents of these times: the start of each, and a test of membership."""
    if not times:
        return []
    exact = [Fraction(t) for t in times]
    length = Fraction(length)
    if hop is not None:
        first, last = floor((min(exact) - length) / Fraction(hop)) - 1, ceil(max(exact) / Fraction(hop)) + 1
        starts = [k * Fraction(hop) for k in range(first, last + 1)]
    else:
        corners = sorted({t for t in exact} | {t - length for t in exact})
        between = [(a + b) / 2 for a, b in pairwise(corners)]
        starts = sorted([corners[0] - 1, *corners, *between, corners[-1] + 1])
    return [(start, _window(start, length, closed)) for start in starts]


def _window(start: Fraction, length: Fraction, closed: str) -> Window:
    def holds(t: Any) -> bool:
        after = t >= start if closed in ("both", "left") else t > start
        before = t <= start + length if closed in ("both", "right") else t < start + length
        return after and before

    return holds


def demands(
    t: Sequence[Any], v: Sequence[Any], sides: Sequence[Side], closed: str = "both", hop: Any = None
) -> set[frozenset[int]]:
    """Give the sets of tuples of which one each must stay: the extreme ones of every window that holds a tuple."""
    asked = set()
    for length, sign in sides:
        for _, holds in windows(t, length, closed, hop):
            members = [i for i in range(len(t)) if holds(t[i])]
            if members:
                best = max(sign * v[i] for i in members)
                asked.add(frozenset(i for i in members if sign * v[i] == best))
    return asked


def met(kept: set[int], asked: set[frozenset[int]]) -> bool:
    """Tell whether the kept tuples meet all demands."""
    return all(kept & demand for demand in asked)


def minimum(asked: set[frozenset[int]], n: int) -> int:
    """Find by trying all sets how few of n tuples meet the demands."""
    masks = [sum(1 << i for i in demand) for demand in asked]
    return min(chosen.bit_count() for chosen in range(1 << n) if all(chosen & mask for mask in masks))


class OneAtATime:
    """The remembered tuples of one stream, as each arrival changes them; a tuple is (time, value, number).

    With `hop`, out of order, other tuples may stay that meet the same demands.
    """

    def __init__(self, sides: Sequence[Side], closed: str = "both", hop: Any = None) -> None:
        self.sides, self.closed, self.hop = sides, closed, hop
        self.state: list[Tuple] = []

    def arrive(self, t: Any, v: Any, number: int) -> set[int]:
        """Take one tuple; give the numbers that go, its own if it is refused."""
        new = (t, v, number)
        if any(old[:2] == new[:2] for old in self.state):
            return {number}
        if self.state and t < max(old[0] for old in self.state):
            gone = self._late(new)
        else:
            gone = self._next(new)
        self.state = sorted((x for x in [*self.state, new] if x[2] not in gone), key=lambda x: x[0])
        return gone

    def _next(self, new: Tuple) -> set[int]:
        """In order, what goes was the last of its value, is it no longer, and is needed by no window that ended."""
        before, after = self._last_extremes(self.state), self._last_extremes([*self.state, new])
        gone = {x[2] for x in before if x not in after and not self._needed_alone(x, new)}
        return gone if new in after else gone | {new[2]}

    def _last_extremes(self, tuples: list[Tuple]) -> list[Tuple]:
        """Those of the extreme value that stay longest, in all windows that end at or after the newest time."""
        found = []
        for length, sign in self.sides:
            for start, holds in windows([x[0] for x in tuples], length, self.closed, self.hop):
                inside = [x for x in tuples if holds(x[0])]
                if inside and (start > max(x[0] for x in tuples) - length or holds(max(x[0] for x in tuples))):
                    best = max(sign * x[1] for x in inside)
                    found.append(max((x for x in inside if sign * x[1] == best), key=lambda x: self._stays(x, length)))
        return found

    def _stays(self, x: Tuple, length: Any) -> Any:
        """Give how long a tuple stays: its time, or the start of the last window that holds it."""
        if self.hop is None:
            return x[0]
        return max(start for start, holds in windows([x[0]], length, self.closed, self.hop) if holds(x[0]))

    def _needed_alone(self, x: Tuple, new: Tuple) -> bool:
        for length, sign in self.sides:
            for start, holds in windows([y[0] for y in [*self.state, new]], length, self.closed, self.hop):
                inside = [y for y in self.state if holds(y[0])]
                ended = start + length <= new[0] and not holds(new[0])
                if ended and x in inside and [y for y in inside if sign * y[1] >= sign * x[1]] == [x]:
                    return True
        return False

    def _late(self, new: Tuple) -> set[int]:
        """Out of order, the tuples around the new one are reduced from scratch."""
        reach = 2 * max(length for length, _ in self.sides) + (self.hop or 0)
        zone = sorted([x for x in self.state if abs(x[0] - new[0]) <= reach] + [new], key=lambda x: x[0])
        kept = greedy([x[0] for x in zone], [x[1] for x in zone], self.sides, self.closed, self.hop)
        return {x[2] for i, x in enumerate(zone) if i not in kept}


def greedy(t: Sequence[Any], v: Sequence[Any], sides: Sequence[Side], closed: str, hop: Any = None) -> set[int]:
    """Meet the demands of sorted tuples, those that end first first, each by its last tuple unless it is met."""
    kept: set[int] = set()
    for demand in sorted(demands(t, v, sides, closed, hop), key=max):
        if not kept & demand:
            kept.add(max(demand))
    return kept
