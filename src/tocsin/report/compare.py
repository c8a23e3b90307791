"""Two versions of rules over the same history: which alerts only one of them has, which both, and what moved.

Alerts are the same if they have name and labels in common and their lives overlap. Each is matched once: of several
that overlap, in order of their starts. Cost: sorting.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tocsin.report.result import Result
from tocsin.trace.model import Life
from tocsin.trace.words import rounded

Pair = tuple[Life, Life]


@dataclass(frozen=True)
class Difference:
    """What two versions disagree about; `both` has the pairs, moved or not."""

    only_first: tuple[Life, ...]
    only_second: tuple[Life, ...]
    both: tuple[Pair, ...]

    @property
    def moved(self) -> tuple[Pair, ...]:
        """The pairs whose starts or ends differ."""
        return tuple(pair for pair in self.both if _ends(pair[0]) != _ends(pair[1]))


def _ends(life: Life) -> tuple[int, int | None]:
    return life.start_us, life.end_us


def compare(first: Result, second: Result) -> Difference:
    """Match the alerts of two versions; those that never fired do not count."""
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
    """By how much a start or an end moved, in words; None is an end that has not come.

    >>> moved_text(5, 5), moved_text(0, 2_000_000), moved_text(None, 5), moved_text(None, None)
    ('the same', '2s later', 'one is open', 'both open')
    """
    if one is None or other is None:
        return "both open" if one == other else "one is open"
    return "the same" if one == other else f"{rounded(abs(other - one))} {'later' if other > one else 'earlier'}"


def _match(mine: Sequence[Life], theirs: Sequence[Life]) -> list[Pair]:
    """Walk both in order of start: two that overlap are a pair, else the one that ends first has none."""
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
