"""The m-way sliding window join, from its definition and as the paper's Algorithm 2, on plain lists.

Slow and obvious on purpose: it decides what the product must answer, so it shares no code with it.
A tuple is (number, stream, time, values). Times are whole microseconds.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

Tuple = tuple[int, int, int, tuple[float, ...]]
Result = tuple[int, tuple[int, ...]]
Predicate = Callable[..., bool]


def true_results(tuples: Sequence[Tuple], windows: Sequence[int], predicate: Predicate) -> set[Result]:
    """Every choice of one tuple per stream in which each lies within its window of the newest: (time, numbers).

    >>> true_results([(0, 0, 1, (7,)), (1, 1, 4, (7,)), (2, 1, 2, (7,))], [2, 2], lambda a, b: a == b)
    {(2, (0, 2))}
    """
    by_stream = [[t for t in tuples if t[1] == stream] for stream in range(len(windows))]
    found = set()
    for chosen in itertools.product(*by_stream):
        newest = max(time for _, _, time, _ in chosen)
        near = all(time >= newest - windows[stream] for _, stream, time, _ in chosen)
        if near and predicate(*(values for *_, values in chosen)):
            found.add((newest, tuple(number for number, *_ in chosen)))
    return found


@dataclass
class Join:
    """Algorithm 2; the clock is None for minus infinity."""

    windows: Sequence[int]
    predicate: Predicate
    clock: int | None = None
    stored: list[list[Tuple]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Begin with empty windows."""
        self.stored = [[] for _ in self.windows]

    def would_find(self, new: Tuple) -> tuple[int, int]:
        """The size of the cross join of a tuple with what the windows reach back to now, and the results in it."""
        sides = [
            [t for t in stored if self.clock is None or t[2] >= self.clock - window]
            for stored, window in zip(self.stored, self.windows, strict=True)
        ]
        sides[new[1]] = [new]
        chosen = [c for c in itertools.product(*sides) if self.predicate(*(values for *_, values in c))]
        return math.prod(len(side) for side in sides), len(chosen)

    def arrive(self, new: Tuple) -> tuple[int, bool, list[Result]]:
        """Take a tuple; give the size of the cross join, whether it came in order, and the results."""
        _, stream, time, _ = new
        cross, found = 0, []
        in_order = self.clock is None or time >= self.clock
        if in_order:
            self.clock = time
            for other in range(len(self.windows)):
                if other != stream:
                    self.stored[other] = [t for t in self.stored[other] if t[2] >= time - self.windows[other]]
            sides = [[new] if other == stream else self.stored[other] for other in range(len(self.windows))]
            cross = math.prod(len(side) for side in sides)
            for chosen in itertools.product(*sides):
                if self.predicate(*(values for *_, values in chosen)):
                    found.append((time, tuple(t[0] for t in chosen)))
            self.stored[stream].append(new)
        elif time >= self.clock - self.windows[stream]:
            self.stored[stream].append(new)
        return cross, in_order, found
