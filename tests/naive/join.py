"""The join by brute force: every choice of one row per stream is tried, and kept if its key and its times agree.

Slow and obvious on purpose: it decides what the product must answer, so it shares no code with it.
Times are whole microseconds.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Bounds = Mapping[tuple[str, str], tuple[int, int]]


@dataclass(frozen=True)
class Row:
    """One row of a stream. Its place in the order of arrival is not compared, so equal rows are duplicates."""

    stream: str
    key: tuple[Any, ...]
    time: int
    values: tuple[tuple[str, Any], ...]
    place: int = field(default=0, compare=False)

    @property
    def columns(self) -> dict[str, Any]:
        """The values by the name of their column."""
        return dict(self.values)


@dataclass(frozen=True)
class Join:
    """Which rows belong together: streams in the rule's order and l <= t_s - t_r <= u for each bounded pair (r, s).

    With `hop`, the pairs are not looked at: one window [k*hop, k*hop + within], k any integer, must hold all rows.
    """

    streams: tuple[str, ...]
    bounds: Bounds = field(default_factory=dict)
    closed: str = "both"
    hop: int | None = None
    within: int | None = None


def within_bounds(streams: Sequence[str], within: int) -> dict[tuple[str, str], tuple[int, int]]:
    """Give the bounds that `within` stands for: every pair at most that far apart.

    >>> within_bounds(["a", "b"], 5)
    {('a', 'b'): (-5, 5)}
    """
    return {pair: (-within, within) for pair in itertools.combinations(streams, 2)}


def is_inside(value: int, low: int, high: int, closed: str) -> bool:
    """Tell whether a number lies between two ends, of which `closed` says which belong.

    >>> [is_inside(value, 0, 2, "left") for value in (0, 1, 2)]
    [True, True, False]
    """
    above = low <= value if closed in ("both", "left") else low < value
    below = value <= high if closed in ("both", "right") else value < high
    return above and below


def may_join(join: Join, times: Mapping[str, int]) -> bool:
    """Tell whether one row of each stream with these times makes a combination."""
    if join.hop is not None:
        return _share_a_window(join, times.values())
    return all(is_inside(times[s] - times[r], low, high, join.closed) for (r, s), (low, high) in join.bounds.items())


def _share_a_window(join: Join, times: Iterable[int]) -> bool:
    times = list(times)
    hop, within = join.hop, join.within
    assert hop is not None
    assert within is not None
    if max(times) - min(times) > within:
        return False
    candidates = range((min(times) - within) // hop - 1, max(times) // hop + 2)
    return any(all(is_inside(t, k * hop, k * hop + within, join.closed) for t in times) for k in candidates)


def full_join(join: Join, rows: Iterable[Row]) -> Iterator[tuple[Row, ...]]:
    """Give every combination of the rows, each as one row per stream in the rule's order."""
    rows = list(rows)
    for combination in itertools.product(*([row for row in rows if row.stream == name] for name in join.streams)):
        same_key = len({row.key for row in combination}) == 1
        if same_key and may_join(join, {row.stream: row.time for row in combination}):
            yield combination


def completed_by(join: Join, row: Row, partners: Iterable[Row]) -> list[tuple[Row, ...]]:
    """Give the combinations of one row with rows of the other streams."""
    return list(full_join(join, [row, *(partner for partner in partners if partner.stream != row.stream)]))


def furthest_after(join: Join) -> dict[tuple[str, str], int]:
    """Give for each pair (r, s) the most that t_s - t_r can be, by chaining the bounds along every path.

    >>> furthest_after(Join(("a", "b", "c"), {("a", "b"): (1, 5), ("b", "c"): (-2, 3)}))["a", "c"]
    8
    """
    most: dict[tuple[str, str], int] = {}
    for (r, s), (low, high) in join.bounds.items():
        # Times are whole, so an end that does not belong is one microsecond further in.
        later, earlier = high - (join.closed in ("neither", "left")), -low - (join.closed in ("neither", "right"))
        most[r, s] = min(later, most.get((r, s), later))
        most[s, r] = min(earlier, most.get((s, r), earlier))
    for via, r, s in itertools.product(join.streams, repeat=3):
        if (r, via) in most and (via, s) in most and r != s:
            chained = most[r, via] + most[via, s]
            most[r, s] = min(chained, most.get((r, s), chained))
    return most


def span(join: Join) -> int:
    """Give the largest difference of times that one combination can have.

    >>> [span(Join(("a", "b"), closed=closed, hop=3, within=9)) for closed in ("both", "left", "neither")]
    [9, 8, 7]
    """
    if len(join.streams) == 1:
        return 0
    if join.hop is not None:
        assert join.within is not None
        return join.within - {"both": 0, "left": 1, "right": 1, "neither": 2}[join.closed]
    return max(furthest_after(join).values())
