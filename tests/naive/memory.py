"""Memory-limited joins from their definitions: slow and obvious, and shares no code with the product."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist


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
    return next(
        q
        for q in reversed(grid)
        if sum(need(min(w * q, 1.0)) for need, w in zip(needs, weights, strict=True)) <= memory + 1e-9
    )


def best_largest(errors: Sequence[Callable[[int], float]], memory: int, weights: Sequence[float]) -> float:
    """The smallest that the largest weighted error can be, over all divisions of memory into whole units."""
    if not errors:
        return 0.0
    (first, *others), (weight, *rest) = errors, weights
    return min(
        max(weight * first(own), best_largest(others, memory - own, rest))
        for own in (range(memory + 1) if others else [memory])
    )


# The shedding join.


@dataclass(frozen=True)
class Row:
    """A row of one stream: its number among all arrivals, its time on the clock of its window, its key or value."""

    number: int
    time: int
    key: int


# Who goes, of the rows held and the new one, which is last, at a time.
Choose = Callable[[list[Row], int], Row]


def _number(row: Row) -> int:
    return row.number


def drop_by_age(priority: Sequence[float], granule: int) -> Choose:
    """The lowest priority of its age; then the oldest granule; in it the newest where priority rises, or the oldest."""

    def of(age: int) -> float:
        return priority[age] if age < len(priority) else 0.0

    def choose(rows: list[Row], now: int) -> Row:
        def age_of(row: Row) -> int:
            return now // granule - row.time // granule

        age = min((age_of(row) for row in rows), key=lambda age: (of(age), -age))
        same = sorted((row for row in rows if age_of(row) == age), key=_number)
        return same[-1] if of(age + 1) > of(age) else same[0]

    return choose


def drop_rarest(f_other: Sequence[float]) -> Choose:
    """PROB: the rarest in the other stream; of equally rare ones the oldest."""

    def choose(rows: list[Row], now: int) -> Row:
        return min(rows, key=lambda row: (f_other[row.key] if row.key < len(f_other) else 0.0, row.number))

    return choose


def drop_oldest(rows: list[Row], now: int) -> Row:
    """RECENT."""
    return min(rows, key=_number)


def drop_newest(rows: list[Row], now: int) -> Row:
    """UNTIL-EXPIRY."""
    return max(rows, key=_number)


def drop_any(seed: int) -> Choose:
    """RANDOM: any, by the draw of the new row."""

    def choose(rows: list[Row], now: int) -> Row:
        return rows[int(random_number(seed, rows[-1].number, 0) * len(rows))]

    return choose


def _leave(rows: list[Row], row: Row) -> None:
    """Take a row out; the last one takes its place. Only RANDOM can see this."""
    rows[rows.index(row)] = rows[-1]
    rows.pop()


def offer(rows: list[Row], new: Row, budget: int, choose: Choose) -> Row | None:
    """Let a row come to those held, and give who goes for it."""
    if len(rows) < budget:
        rows.append(new)
        return None
    gone = choose([*rows, new], new.time) if budget else new
    if gone != new:
        _leave(rows, gone)
        rows.append(new)
    return gone


def expire(rows: list[Row], length: int, now: int) -> None:
    """Let rows go that are older than the window is long, in order of age."""
    for row in sorted((row for row in rows if now - row.time > length), key=_number):
        _leave(rows, row)


def shedding_join(
    arrivals: Sequence[tuple[int, tuple[int, int], int]],
    windows: Sequence[tuple[int, int, Choose]],
    matches: Callable[[int, int], bool],
) -> tuple[list[tuple[int, int]], list[tuple[list[int], list[int]]]]:
    """Results as pairs of numbers, and the rows of each window, by number, that are held after each arrival.

    An arrival is its stream, the time on both clocks, and its key or value; a window its length, its budget, and who
    goes.
    """
    held: tuple[list[Row], list[Row]] = ([], [])
    pairs: list[tuple[int, int]] = []
    history = []
    for number, (stream, clock, key) in enumerate(arrivals):
        for window in (0, 1):
            expire(held[window], windows[window][0], clock[window])
        for row in held[1 - stream]:
            keys, numbers = (key, row.key), (number, row.number)
            if matches(*(keys if stream == 0 else keys[::-1])):
                pairs.append(numbers if stream == 0 else numbers[::-1])
        _, budget, choose = windows[stream]
        offer(held[stream], Row(number, clock[stream], key), budget, choose)
        history.append((sorted(map(_number, held[0])), sorted(map(_number, held[1]))))
    return sorted(pairs), history


# Sampling: the exact join, and what a sample of it needs.

_BITS = (1 << 64) - 1


def splitmix64(state: int) -> int:
    """The output function of splitmix64, on numbers from 0 to 2^64 - 1."""
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _BITS
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _BITS
    return state ^ (state >> 31)


def random_number(seed: int, row: int, draw: int) -> float:
    """A number from [0, 1) that belongs to a draw of a row."""
    gamma = 0x9E3779B97F4A7C15
    own = splitmix64((seed + gamma * (row + 1)) & _BITS)
    return (splitmix64((own + gamma * (draw + 1)) & _BITS) >> 11) / 2**53


# A row: stream 0 (S1) or 1 (S2), time, key. A result: time, direction (whose row was there before), both rows.
Arrival = tuple[int, int, int]
Joined = tuple[int, int, int, int]


def join_results(
    rows: Sequence[Arrival], windows: Sequence[int | None], low: int = 0, high: int = 0, *, by_tuples: bool = False
) -> list[Joined]:
    """All results: pairs of a row and a later one of the other stream, low <= S2.key - S1.key <= high."""
    found = []
    for probe, (stream, now, key) in enumerate(rows):
        for held, (of, _, other) in enumerate(rows[:probe]):
            apart = key - other if stream == 1 else other - key
            if of != stream and low <= apart <= high and is_in_window(rows, windows, held, probe, by_tuples=by_tuples):
                found.append((now, of, held, probe))
    return found


def is_in_window(
    rows: Sequence[Arrival], windows: Sequence[int | None], row: int, after: int, *, by_tuples: bool = False
) -> bool:
    """Tell whether a row is in its window when row `after` has come: by age, or by later rows of its own stream."""
    stream, time, _ = rows[row]
    window = windows[stream]
    later = sum(of == stream for of, _, _ in rows[row + 1 : after + 1])
    return window is not None and (later if by_tuples else rows[after][1] - time) <= window


def rows_needed(sample: Sequence[Joined], after: int) -> set[int]:
    """The rows that must be in memory after the arrival of a row: those with a sampled result still to come."""
    return {held for _, _, held, probe in sample if held <= after < probe}


def expected_stay(ages: Sequence[float], p: float) -> float:
    """How long a row with results at these ages is needed on average: over all sets of results."""
    total = 0.0
    for chosen in itertools.product([False, True], repeat=len(ages)):
        chance = p ** sum(chosen) * (1 - p) ** (len(ages) - sum(chosen))
        total += chance * max((age for age, one in zip(ages, chosen, strict=True) if one), default=0.0)
    return total


def squared_error(cluster: Sequence[int], probability: Sequence[float], x: Sequence[float]) -> float:
    """The estimated variance of the sum of x / probability, over all pairs of sampled results.

    Two results of a cluster are both chosen with the smaller of their probabilities, others independently.
    """
    total = 0.0
    for i, j in itertools.product(range(len(x)), repeat=2):
        if cluster[i] == cluster[j]:
            both = min(probability[i], probability[j])
            product = probability[i] * probability[j]
            total += x[i] * x[j] / product * (both - product) / both
    return total


def chi_square_limit(freedom: int, alpha: float) -> float:
    """What a chi-square number exceeds with probability alpha (Wilson and Hilferty)."""
    part = 2 / (9 * freedom)
    return freedom * (1 - part + NormalDist().inv_cdf(1 - alpha) * part**0.5) ** 3


# What is learnt from a stream.


def counts_by_halves(keys: Sequence[int], half_life: int) -> dict[int, float]:
    """What the rows of each key count for where all rows are halved after each `half_life` of them."""
    counts: dict[int, float] = {}
    for number, key in enumerate(keys, 1):
        counts[key] = counts.get(key, 0.0) + 1.0
        if half_life and number % half_life == 0:
            counts = {key: count / 2 for key, count in counts.items()}
    return counts


def meetings(
    rows: Sequence[Arrival],
    windows: Sequence[int | None],
    stream: int,
    band: tuple[int, int] = (0, 0),
    *,
    by_tuples: bool = False,
) -> dict[int, list[tuple[int, int]]]:
    """Per row of a stream whose life is over at the end: the age at each result, and how many rows came since."""
    number = [sum(of == stream for of, _, _ in rows[:at]) for at in range(len(rows) + 1)]
    last = len(rows) - 1
    lives: dict[int, list[tuple[int, int]]] = {
        at: []
        for at, (of, _, _) in enumerate(rows)
        if of == stream and not is_in_window(rows, windows, at, last, by_tuples=by_tuples)
    }
    for now, of, held, probe in join_results(rows, windows, *band, by_tuples=by_tuples):
        if of == stream and held in lives:
            since = number[probe] - number[held]
            age = since - 1 if by_tuples else now - rows[held][1]
            lives[held].append((age, since))
    return lives


def best_error_of_sum(samples: Sequence[tuple[Sequence[tuple[int, float]], float]], memory: int) -> float:
    """The least relative error of a sum of estimates, over all ways to choose one point (memory, error) of each.

    Samples are independent, so the variances of the estimates add up; `samples` have points and a number of results.
    """
    found = float("inf")
    for chosen in itertools.product(*(points for points, _ in samples)):
        if sum(amount for amount, _ in chosen) <= memory:
            variance = sum((error * n) ** 2 for (_, error), (_, n) in zip(chosen, samples, strict=True))
            found = min(found, variance**0.5 / sum(n for _, n in samples))
    return found
