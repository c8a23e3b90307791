"""Memory-limited joins from their definitions: slow and obvious, and shares no code with the product."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import cache


def best_average(p: Sequence[float], cells: int, steps: int = 120) -> float:
    """The most results per unit of time that any strategy gets, one row coming per unit: all strategies are tried.

    A state is the ages of the rows held. Of the rows held and the new one, some are kept; each then gives what its next
    age gives. The average is taken between two late moments, when the beginning no longer shows.
    """
    window = len(p)

    @cache
    def best(held: tuple[int, ...], left: int) -> float:
        if not left:
            return 0.0
        ages = [age for age in (*held, 0) if age < window]
        found = 0.0
        for size in range(min(cells, len(ages)) + 1):
            for kept in itertools.combinations(sorted(ages), size):
                gained = sum(p[age] for age in kept)
                found = max(found, gained + best(tuple(age + 1 for age in kept), left - 1))
        return found

    half = steps // 2
    return (best((), steps) - best((), half)) / (steps - half)


def priority(p: Sequence[float], age: int) -> float:
    """The fastest rate at which a row of an age can still give results."""
    return max(sum(p[age:j]) / (j - age) for j in range(age + 1, len(p) + 1))


def k_opt(p: Sequence[float]) -> int:
    """The least age at which results per unit of time are most."""
    return max(range(1, len(p) + 1), key=lambda k: (sum(p[:k]) / k, -k))


def equation_3(p: Sequence[float], memory: float, r: float) -> float:
    """The paper's rate for a curve without minima; C between whole ages is a straight line."""
    best = k_opt(p)
    if memory / r <= best:
        return memory * sum(p[:best]) / best
    age = min(memory / r, len(p))
    whole = int(age)
    rest = (age - whole) * p[whole] if whole < len(p) else 0.0
    return r * (sum(p[:whole]) + rest)


def prob(f1: Sequence[float], f2: Sequence[float], r1: float, r2: float, window: float, memory: float) -> float:
    """PROB's rate: values by their frequency in the other stream, the last one in part."""
    rate, left = 0.0, memory
    for own, other in sorted(zip(f1, f2, strict=True), key=lambda pair: -pair[1]):
        rows = r1 * window * own
        kept = min(rows, left)
        rate += kept * r2 * other
        left -= kept
    return rate


def best_split(rates: Sequence[Callable[[float], float]], memory: int) -> float:
    """The largest sum of rates over all divisions of memory into whole rows."""
    if len(rates) == 1:
        return rates[0](memory)
    first, *others = rates
    return max(first(own) + best_split(others, memory - own) for own in range(memory + 1))


def best_least(needs: Sequence[Callable[[float], float]], memory: float, weights: Sequence[float]) -> float:
    """The largest quality by weight that all joins can have at once, on a fine grid."""
    top = 1.0 / min(weights)
    grid = [top * step / 20_000 for step in range(20_001)]
    fits = [
        q for q in grid if sum(need(min(w * q, 1.0)) for need, w in zip(needs, weights, strict=True)) <= memory + 1e-9
    ]
    return max(fits)
