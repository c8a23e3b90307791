"""Comparison of two versions of rules over the same history: alerts of one version, of both, and at other times.

Two alerts match if they have the same name and labels and overlap in time. Each alert matches at most once; if several
overlap, they match in the order of their starts. Complexity: O(n log n).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tocsin.formatting import format_duration
from tocsin.report.result import Result
from tocsin.trace.model import Life

Pair = tuple[Life, Life]


@dataclass(frozen=True)
class Difference:
    """Difference of two versions. `both` has all pairs of matching alerts."""

    only_first: tuple[Life, ...]
    only_second: tuple[Life, ...]
    both: tuple[Pair, ...]

    @property
    def moved(self) -> tuple[Pair, ...]:
        """Pairs with different starts or ends."""
        return tuple(pair for pair in self.both if _ends(pair[0]) != _ends(pair[1]))


def _ends(life: Life) -> tuple[int, int | None]:
    return life.start_us, life.end_us


def compare(first: Result, second: Result) -> Difference:
    """Match the alerts of two versions. Alerts that have not fired are ignored."""
    whose: dict[tuple[object, ...], tuple[list[Life], list[Life]]] = {}
    for number, result in enumerate((first, second)):
        for life in result.lives:
            if life.has_fired:
                name = (life.alert, tuple(sorted(life.labels.items())), life.is_late)
                whose.setdefault(name, ([], []))[number].append(life)
    only_first, only_second, both = list[Life](), list[Life](), list[Pair]()
    for mine, theirs in whose.values():
        pairs = _match(mine, theirs)
        both += pairs
        only_first += _rest(mine, [pair[0] for pair in pairs])
        only_second += _rest(theirs, [pair[1] for pair in pairs])
    for lives in (only_first, only_second):
        lives.sort(key=lambda life: (life.start_us, life.alert))
    both.sort(key=lambda pair: (pair[0].start_us, pair[0].alert))
    return Difference(tuple(only_first), tuple(only_second), tuple(both))


def moved_text(one: int | None, other: int | None) -> str:
    """Return the change of a start or an end time as text. An open alert has the end None.

    >>> moved_text(5, 5), moved_text(0, 2_000_000), moved_text(None, 5), moved_text(None, None)
    ('same time', '2 s later', 'one is open', 'both open')
    """
    if one is None or other is None:
        return "both open" if one == other else "one is open"
    return (
        "same time" if one == other else f"{format_duration(abs(other - one))} {'later' if other > one else 'earlier'}"
    )


def _match(mine: Sequence[Life], theirs: Sequence[Life]) -> list[Pair]:
    """Merge both lists by start. Two overlapping alerts are a pair; otherwise skip the one that ends first."""
    first, second = (sorted(lives, key=lambda life: life.start_us) for lives in (mine, theirs))
    pairs, i, j = list[Pair](), 0, 0
    while i < len(first) and j < len(second):
        one, other = first[i], second[j]
        if one.end_us is not None and one.end_us < other.start_us:
            i += 1
        elif other.end_us is not None and other.end_us < one.start_us:
            j += 1
        else:
            pairs.append((one, other))
            i, j = i + 1, j + 1
    return pairs


def _rest(lives: Sequence[Life], taken: Sequence[Life]) -> list[Life]:
    names = {id(life) for life in taken}
    return [life for life in lives if id(life) not in names]
