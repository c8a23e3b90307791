"""The model of recall, written out: Eq. 1 to 7 and Alg. 3 of "Quality-Driven Disorder Handling" in exact fractions.

Each function is its equation, sum by sum and product by product, with the answers that `docs` and the modules state
where the paper divides by zero. Delays in histograms and maps are coarse: 0, or the number of grains, rounded up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import ceil, floor, prod

Histogram = Mapping[int, int]


def coarse(delay_us: int, grain_us: int) -> int:
    """Section IV-A: 0 if in order, 1 up to one grain, 2 up to two, and so forth."""
    return 0 if delay_us <= 0 else ceil(Fraction(delay_us, grain_us))


def density(histogram: Histogram) -> dict[int, Fraction]:
    """f_D by a histogram; of a stream that delivered nothing no delay is known: all its rows count as in order."""
    total = sum(histogram.values())
    return {d: Fraction(n, total) for d, n in histogram.items() if n} if total else {0: Fraction(1)}


def sync_estimates(skews_us: Sequence[Sequence[int]]) -> list[int]:
    """K_i^sync: mean of a stream less the smallest mean, in whole microseconds; 0 for a stream without measurements."""
    means = [floor(Fraction(sum(skews), len(skews))) if skews else None for skews in skews_us]
    least = min((mean for mean in means if mean is not None), default=0)
    return [0 if mean is None else mean - least for mean in means]


def true_size(sel: Fraction, rates: Sequence[Fraction], windows: Sequence[int], every: int) -> Fraction:
    """Eq. 1."""
    m = len(rates)
    return sel * sum(rates[i] * every * prod(rates[j] * windows[j] for j in range(m) if j != i) for i in range(m))


def density_after(f: Mapping[int, Fraction], wait: int, sync: int, grain: int) -> dict[int, Fraction]:
    """Eq. 2: the delays that are left behind a wait K, with the division rounded down."""
    shift = (wait + sync) // grain
    most = max(f)
    after = {0: sum((f.get(d, Fraction(0)) for d in range(shift + 1)), Fraction(0))}
    for d in range(1, max(most - shift, 0) + 1):
        after[d] = f.get(d + shift, Fraction(0))
    return after


def basic_windows(rate: Fraction, window: int, basic: int, grain: int, after: Mapping[int, Fraction]) -> list[Fraction]:
    """Eq. 3: |w^l| for l = 1 to n."""
    n = ceil(Fraction(window, basic))
    sizes = []
    for l in range(1, n + 1):  # noqa: E741
        length = basic if l < n else window - (n - 1) * basic
        arrived = sum(share for d, share in after.items() if d <= floor(Fraction((l - 1) * basic, grain)))
        sizes.append(rate * length * arrived)
    return sizes


def produced_size(
    sel: Fraction, rates: Sequence[Fraction], every: int, after: Sequence[Mapping[int, Fraction]], contents: Sequence
) -> Fraction:
    """Eq. 4, first line: `contents` has the list of |w^l| of each stream, with its rate in it."""
    m = len(rates)
    return sel * sum(
        rates[i] * every * after[i][0] * prod(sum(contents[j]) for j in range(m) if j != i) for i in range(m)
    )


def recall(
    histograms: Sequence[Histogram], windows: Sequence[int], syncs: Sequence[int], wait: int, basic: int, grain: int
) -> Fraction:
    """Eq. 5 without the selectivities: |w| has no rate in it. A window of 0 is one microsecond long."""
    m, windows = len(windows), [max(window, 1) for window in windows]
    after = [density_after(density(h), wait, sync, grain) for h, sync in zip(histograms, syncs, strict=True)]
    contents = [sum(basic_windows(Fraction(1), windows[j], basic, grain, after[j])) for j in range(m)]
    above = sum(after[i][0] * prod(contents[j] for j in range(m) if j != i) for i in range(m))
    return above / Fraction(sum(prod(windows[j] for j in range(m) if j != i) for i in range(m)))


def selectivity_ratio(cross: Mapping[int, int], results: Mapping[int, int], wait: int, grain: int) -> Fraction:
    """Eq. 6, with the sum running to K/g; 1 where a division by zero leaves it open."""
    up_to = wait // grain
    some_cross = sum(n for d, n in cross.items() if d <= up_to)
    some_results = sum(n for d, n in results.items() if d <= up_to)
    if some_cross == 0 or sum(results.values()) == 0:
        return Fraction(1)
    return Fraction(some_results, some_cross) * Fraction(sum(cross.values()), sum(results.values()))


def instant_requirement(wanted: Fraction, produced: Fraction, true: Fraction, true_next: Fraction) -> Fraction:
    """Eq. 7 solved for Gamma', in [0, 1]; without true results in the interval it is Gamma."""
    if true_next == 0:
        return min(max(wanted, Fraction(0)), Fraction(1))
    return min(max((wanted * (true + true_next) - produced) / true_next, Fraction(0)), Fraction(1))


def productivity(rows: Sequence[tuple[int, int, int, bool]], grain: int) -> tuple[dict[int, int], dict[int, int]]:
    """M-cross and M-join of an interval, of rows (delay, n_cross, n_join, whether in order)."""
    most_cross = max((row[1] for row in rows if row[3]), default=0)
    most_results = max((row[2] for row in rows if row[3]), default=0)
    cross: dict[int, int] = {}
    results: dict[int, int] = {}
    for delay, n_cross, n_join, in_order in rows:
        d = coarse(delay, grain)
        cross[d] = cross.get(d, 0) + (n_cross if in_order else most_cross)
        results[d] = results.get(d, 0) + (n_join if in_order else most_results)
    return cross, results


def next_wait(
    histograms: Sequence[Histogram], windows: Sequence[int], syncs: Sequence[int], basic: int, grain: int,
    required: Fraction, maps: tuple[Mapping[int, int], Mapping[int, int]] | None = None,
) -> tuple[int, list[Fraction]]:  # fmt: skip
    """Alg. 3: k* in microseconds, and the recall of each K tried. Without maps EqSel, with them NonEqSel."""
    longest = max((d for h in histograms for d, n in h.items() if n), default=0) * grain
    wait, tried = 0, []
    while wait <= longest:
        estimated = recall(histograms, windows, syncs, wait, basic, grain)
        if maps is not None:
            estimated *= selectivity_ratio(*maps, wait, grain)
        tried.append(estimated)
        if estimated >= required:
            break
        wait += grain
    return wait, tried
