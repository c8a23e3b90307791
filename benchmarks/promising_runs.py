"""Runs of the promising join: Figures 9 to 14 of Ali, Aref, ElTabakh, and speed. Work is counted in units."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from benchmarks.promising_costs import best
from benchmarks.promising_data import SECOND, Arrivals, Int, workloads, zipf
from tocsin.stages.promising.anytime_join import COSTS, AnytimeJoin
from tocsin.stages.promising.books import Pace
from tocsin.stages.promising.choose import Load, choose
from tocsin.stages.promising.count_sketch import CountSketch
from tocsin.stages.promising.layout import Layout
from tocsin.stages.promising.preference import Preference
from tocsin.stages.promising.representation import Representation
from tocsin.stages.promising.summary import Summary

Row = dict[str, Any]
BUDGETS = (25, 50, 75)
MINUTE = 60 * SECOND
VARIANTS = ("T1", "T2", "T3", "T4")


def minute(variant: str, **settings: Any) -> Layout:
    """A window of one minute; 4 buckets, a sketch that fits some 600 tuples, of one row: each row costs time."""
    given = {"buckets": 4, "zones": 1, "scheme": CountSketch(1, 2048)} | settings
    return Layout(variant, **given)


def whole(variant: str, **settings: Any) -> Layout:
    """The whole stream: six granularities of a minute, 4, 16 minutes and so on."""
    given = {"buckets": 16, "zones": 2, "rate": 4, "depth": 6, "window_us": None, "memory": 10**6}
    return Layout(variant, **(given | {"scheme": CountSketch(1, 8192)} | settings))


def run(layout: Layout, rows: Arrivals, units: float, preference: Preference | None = None) -> tuple[AnytimeJoin, Int]:
    """Join with so many units per arrival; what is left when the input ends is not worked off, unless all is."""
    join = AnytimeJoin(layout, preference, Pace(units, 0.0))
    found = join.take(rows.stream, rows.time, rows.key)
    return join, np.concatenate([found, join.rest()]) if units == np.inf else found


def full(layout: Layout, rows: Arrivals) -> tuple[float, Int]:
    """What the symmetric hash join that scans buckets spends per arrival on all results, and these."""
    join, found = run(Layout(**{**vars(layout), "variant": "SHJ"}), rows, np.inf)
    return join.spent / len(rows.key), found


def by_key(rows: Arrivals, found: Int, units: float) -> int:
    """How many results the engine's own join gives with so many units: it has an index by key, and scans nothing."""
    hits = np.bincount(found.max(axis=1), minlength=len(rows.key))
    credit, results = 0.0, 0
    for number in hits.tolist():
        credit = min(credit, 0.0) + units - COSTS.insert - COSTS.scan
        taken = min(number, max(0, int(credit / COSTS.emit)))
        credit -= taken * COSTS.emit
        results += taken
    return results


def structures(part: str, *, quick: bool) -> list[Row]:
    """Figure 9: t_ins, t_hit and results per tuple of T1 to T4, in units."""
    out = []
    for data, rows in workloads(600 if quick else 6_000).items():
        units, exact = full(minute("SHJ"), rows)
        for variant in VARIANTS:
            for percent in (50, 100, 200):
                join, found = run(minute(variant), rows, units * percent / 100)
                probing = join.spent - join.report()["units_summarising"]
                out.append({
                    "part": part, "data": data, "variant": variant, "budget_percent": percent,
                    "t_ins": join.report()["units_summarising"] / len(rows.key),
                    "t_hit": probing / max(1, len(found)), "output": len(found) / len(rows.key),
                    "exact": len(exact) / len(rows.key),
                })  # fmt: skip
    return out


def intervals(part: str, *, quick: bool) -> list[Row]:
    """Figure 10a: results per tuple with few units between arrivals, and what the planner chooses."""
    out = []
    for data, rows in workloads(600 if quick else 6_000).items():
        _, exact = full(minute("SHJ"), rows)
        results, matching = len(exact) / len(rows.key), len(np.unique(exact.max(axis=1))) / len(rows.key)
        for tau in (20, 40, 60, 80, 120, 160, 240, 320):
            load = Load(tau, 600.0, results, matching, spread(rows, exact))
            chosen = choose(minute("T4"), load).variant
            for variant in ("SHJ", *VARIANTS):
                _, found = run(minute(variant), rows, tau)
                out.append({"part": part, "data": data, "variant": variant, "tau": tau,
                            "output": len(found) / len(rows.key), "chosen": chosen})  # fmt: skip
    return out


def spread(rows: Arrivals, exact: Int) -> float:
    """How many times the mean the results of the more promising half of the results' tuples are."""
    hits = np.sort(np.bincount(exact.max(axis=1), minlength=len(rows.key)))[::-1]
    hits = hits[hits > 0]
    half = int(np.searchsorted(np.cumsum(hits), hits.sum() / 2)) + 1
    return float(hits[:half].mean() / hits.mean())


def windows(part: str, *, quick: bool) -> list[Row]:
    """Figure 10b: results per tuple by the length of the window, with 100 units between arrivals."""
    out = []
    for data, rows in workloads(600 if quick else 6_000).items():
        for seconds in (10, 30, 50, 70, 90, 110, 240):
            for variant in ("SHJ", *VARIANTS):
                layout = minute(variant, window_us=seconds * SECOND, granularity_us=seconds * SECOND)
                _, found = run(layout, rows, 100.0)
                out.append({"part": part, "data": data, "variant": variant, "window_s": seconds,
                            "output": len(found) / len(rows.key)})  # fmt: skip
    return out


def budgets(part: str, *, quick: bool) -> list[Row]:
    """Figures 11 to 14: share of the results, freshness, Hist-MSE and outliers, by budget, window and preference."""
    out = []
    makers = {"minute": minute, "whole": whole}
    for data, rows in workloads(600 if quick else 6_000).items():
        for window, make in makers.items():
            units, exact = full(make("SHJ"), rows)
            rare, most = rare_keys(rows, exact), bound(rows, exact, make("SHJ").limits().window_us)
            for percent in BUDGETS:
                given = units * percent / 100
                lines = {"SHJ": run(make("SHJ"), rows, given)[1]}
                for order in ("desc", "weighted", "asc"):
                    lines[order] = run(make("T4"), rows, given, Preference(order))[1]
                lines["asc, bounded"] = run(make("T4"), rows, given, Preference("asc", most=most))[1]
                if window == "whole":
                    lines["desc, fade 0.8"] = run(make("T4"), rows, given, Preference(fade=0.8))[1]
                for name, found in lines.items():
                    out.append({
                        "part": part, "data": data, "window": window, "budget_percent": percent, "join": name,
                        "by_key": by_key(rows, exact, given) / max(1, len(exact)),
                        "selectivity": rows.selectivity, "units": given, **measures(rows, exact, rare, found),
                    })  # fmt: skip
    return out


def measures(rows: Arrivals, exact: Int, rare: Int, found: Int) -> Row:
    """How good results are: their share, how faithful, how fresh, how many outliers."""
    return {
        "share": len(found) / max(1, len(exact)),
        "hist_mse": hist_mse(rows, exact, found),
        "apart_s": apart(rows, found),
        "results": len(found),
        "outliers_found": outliers(rows, found, rare) / max(1, outliers(rows, exact, rare)),
        "outliers_among": outliers(rows, found, rare) / max(1, len(found)),
        "exact": len(exact),
    }


def hist_mse(rows: Arrivals, exact: Int, found: Int) -> float | None:
    """Eq. 2: the squared differences of both histograms of keys, 100 equal intervals."""
    if not len(found):
        return None
    edges = np.linspace(rows.key.min(), rows.key.max() + 1, 101)
    shares = [np.histogram(rows.key[pairs[:, 0]], edges)[0] / len(pairs) for pairs in (exact, found)]
    return float(np.sum((shares[0] - shares[1]) ** 2))


def rare_keys(rows: Arrivals, exact: Int) -> Int:
    """The least frequent keys that together have 5 % of the results."""
    keys, counts = np.unique(rows.key, return_counts=True)
    results = np.bincount(np.searchsorted(keys, rows.key[exact[:, 0]]), minlength=len(keys))
    order = np.argsort(counts, kind="stable")
    return keys[order[np.cumsum(results[order]) <= 0.05 * len(exact)]]


def bound(rows: Arrivals, exact: Int, window_us: int) -> float:
    """What 5 % of the results stay below: tuples of their key in one stream times those in the other, as they come."""
    later, group = exact.max(axis=1), 2 * rows.key + rows.stream
    order = np.lexsort((rows.time, group))
    ends = np.flatnonzero(np.diff(group[order], append=-1)) + 1
    mine = np.zeros(len(order), np.int64)
    for begin, end in zip([0, *ends[:-1]], ends, strict=True):
        at = order[begin:end]
        mine[at] = np.arange(1, len(at) + 1) - np.searchsorted(rows.time[at], rows.time[at] - window_us)
    return float(np.quantile((mine * np.bincount(later, minlength=len(order)))[later], 0.05))


def outliers(rows: Arrivals, found: Int, rare: Int) -> int:
    """How many results are of rare keys."""
    return int(np.isin(rows.key[found[:, 0]], rare).sum())


def apart(rows: Arrivals, found: Int) -> float | None:
    """The mean distance in time of joined tuples, in seconds."""
    return float(np.mean(np.abs(rows.time[found[:, 0]] - rows.time[found[:, 1]]))) / SECOND if len(found) else None


def speed(part: str, *, quick: bool) -> list[Row]:
    """Updates of a count sketch and insertions into T4 per second of one core; memory over a long stream."""
    rows, runs = (50_000, 1) if quick else (4_000_000, 5)
    rng, summary = np.random.default_rng(1), Summary(CountSketch())
    out = []
    for data, keys in (("zipf", rng.zipf(1.2, rows) % 100_000), ("uniform", rng.integers(0, 10**6, rows))):
        summary.summarize(keys)
        took = best(lambda keys=keys: summary.summarize(keys), runs)
        out.append({"part": part, "does": "sketch 5 x 4,096", "data": data, "rows_per_second": rows / took})
        times, numbers = np.cumsum(rng.integers(0, 20, rows)), np.arange(rows)
        for variant in VARIANTS:
            layout = Layout(variant, granularity_us=SECOND, window_us=SECOND)
            took = best(
                lambda layout=layout, keys=keys, times=times, numbers=numbers: Representation(layout).insert(
                    keys, times, numbers
                ),
                min(2, runs),
            )
            out.append({"part": part, "does": f"insert into {variant}", "data": data, "rows_per_second": rows / took})
    return [*out, *memory(part, 100_000 if quick else 10_000_000)]


def memory(part: str, rows: int) -> list[Row]:
    """The most bytes of a representation over a long stream, beside those that its layout declares."""
    layout, most, start = Layout(granularity_us=SECOND, window_us=SECOND), 0, time.process_time()
    stream, rng = Representation(layout), np.random.default_rng(2)
    for begin in range(0, rows, 100_000):
        keys = rng.zipf(1.2, 100_000) % 100_000
        stream.insert(keys, np.arange(begin, begin + 100_000) * 10, np.arange(begin, begin + 100_000))
        most = max(most, stream.size)
    # 100,001 tuples of the window and a block of 8,192 have room in 2^17 slots of 11 numbers.
    declared = layout.summary_bytes + (1 << 17) * 8 * 11 + 4096
    return [{"part": part, "does": "memory", "rows": rows, "bytes": most, "declared": declared,
             "seconds": time.process_time() - start}]  # fmt: skip


def buckets(part: str, *, quick: bool) -> list[Row]:
    """How the gain depends on the number of buckets: the more, the less there is to scan."""
    out, rows = [], zipf(600 if quick else 6_000)
    for count in (1, 2, 4, 8, 16, 64):
        units, exact = full(minute("SHJ", buckets=count), rows)
        for percent in BUDGETS:
            for variant in ("SHJ", "T4"):
                _, found = run(minute(variant, buckets=count), rows, units * percent / 100)
                out.append({"part": part, "buckets": count, "budget_percent": percent, "variant": variant,
                            "units": units, "share": len(found) / len(exact)})  # fmt: skip
    return out
