"""ALLOC: divide memory between joins so that the worst off does as well as possible.

Idea: give all joins the same quality by weight, and as much of it as memory allows: the least memory for a quality only
grows with it, so the largest one is found by bisection.
Guarantee: the least q_i / w_i is as large as any division can make it (theorem 5.1), within the last bit of q; the
shares add up to no more than the memory.
Cost: O(joins log pieces) for each of some 60 steps.
Source: Srivastava, Widom, VLDB 2004, section 5.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

# The least memory that a join needs for a quality from 0 (nothing) to 1 (all results, or no error).
MemoryFor = Callable[[float], float]
_STEPS = 60


def alloc(
    joins: Sequence[MemoryFor], memory: float, weights: Sequence[float] | None = None
) -> tuple[list[float], float]:
    """Give the memory of each join, and the least quality by weight that all reach.

    A join that needs less than its share for all of its results leaves the rest to others.
    """
    weight = [1.0] * len(joins) if weights is None else list(weights)

    def needed(quality: float) -> list[float]:
        return [need(min(w * quality, 1.0)) for need, w in zip(joins, weight, strict=True)]

    low, high = 0.0, 1.0 / min(weight, default=1.0)
    if sum(needed(high)) <= memory:
        return needed(high), high
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if sum(needed(middle)) <= memory:
            low = middle
        else:
            high = middle
    return needed(low), low


def proportional(joins: Sequence[MemoryFor], memory: float) -> list[float]:
    """PROP: the same share of what each join would need for everything."""
    whole = [need(1.0) for need in joins]
    share = min(1.0, memory / sum(whole)) if sum(whole) > 0 else 1.0
    return [share * need for need in whole]
