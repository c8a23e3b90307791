"""ALLOC: divide memory between joins so that the worst off does as well as possible.

Idea: give all joins the same quality by weight, and as much of it as memory allows: the least memory for a quality only
grows with it, so the largest one is found by bisection. Of joins that are sampled the error takes the place of the
quality, and counts by its weight. Recall and error cannot be weighed against each other: joins of the two kinds have
memories of their own, in proportion to what they would need for everything.
Guarantee: the least q_i / w_i is as large, and the largest e_i w_i as small, as any division can make it (theorem 5.1),
within the last bit; the shares add up to no more than the memory.
Cost: O(joins log pieces) for each of some 60 steps.
Source: Srivastava, Widom, VLDB 2004, section 5, which leaves errors, weighted ones and mixed kinds open.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

# The least memory that a join needs for a recall from 0 to 1; or for an error from infinity, which needs none, to 0.
MemoryFor = Callable[[float], float]
_STEPS = 60


class Allocation(NamedTuple):
    """Memory of the joins that lose results and of those that are sampled, in their order, and of all of either kind.

    `least` is the least recall by weight, `largest` the largest weighted error; None where there is no such join.
    """

    subsets: list[float]
    samples: list[float]
    pools: tuple[float, float]
    least: float | None
    largest: float | None


def alloc(
    joins: Sequence[MemoryFor], memory: float, weights: Sequence[float] | None = None
) -> tuple[list[float], float]:
    """Give the memory of each join, and the least quality by weight that all reach.

    A join that needs less than its share for all of its results leaves the rest to others.
    """
    weight = [1.0] * len(joins) if weights is None else list(weights)

    def needed(quality: float) -> list[float]:
        return [need(min(w * quality, 1.0)) for need, w in zip(joins, weight, strict=True)]

    # One after the other, joins have all of their results; between two such qualities no weight is too small to count.
    low = 0.0
    for high in sorted({1.0 / w for w in weight}):
        if sum(needed(high)) > memory:
            break
        low = high
    else:
        return needed(low), low
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if sum(needed(middle)) <= memory:
            low = middle
        else:
            high = middle
    return needed(low), low


def alloc_errors(
    joins: Sequence[MemoryFor], memory: float, weights: Sequence[float] | None = None
) -> tuple[list[float], float]:
    """Give the memory of each join that is sampled, and the largest error times weight that any has.

    Where there is not enough for any bound of all of them, they share in proportion.
    """
    weight = [1.0] * len(joins) if weights is None else list(weights)

    def needed(t: float) -> list[float]:
        return [need(_error_at(t) / w) for need, w in zip(joins, weight, strict=True)]

    low, high = 0.0, 1.0
    if sum(needed(low)) <= memory:
        return needed(low), 0.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if sum(needed(middle)) <= memory:
            high = middle
        else:
            low = middle
    if high == 1.0:
        return in_proportion([need(0.0) for need in joins], memory), _error_at(high)
    return needed(high), _error_at(high)


def _error_at(t: float) -> float:
    """All errors, for t from 0 to 1, as fine for small ones as for large ones."""
    return t / (1 - t) if t < 1.0 else float("inf")


def alloc_mixed(
    subsets: Sequence[MemoryFor],
    samples: Sequence[MemoryFor],
    memory: float,
    weights: tuple[Sequence[float], Sequence[float]],
) -> Allocation:
    """Divide memory between joins of which some lose results and some are sampled."""
    whole = [sum(need(1.0) for need in subsets), sum(need(0.0) for need in samples)]
    first, second = in_proportion(whole, memory)
    by_recall, least = alloc(subsets, first, weights[0])
    by_error, largest = alloc_errors(samples, second, weights[1])
    return Allocation(by_recall, by_error, (first, second), least if subsets else None, largest if samples else None)


def in_proportion(whole: Sequence[float], memory: float) -> list[float]:
    """The same share of each need, no more than all of it."""
    share = min(1.0, memory / sum(whole)) if sum(whole) > 0 else 1.0
    return [share * need for need in whole]
