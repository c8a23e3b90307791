"""Runs of standing selections and their aggregates: Figures 15 and 16 of Ali, Aref, ElTabakh."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.memory_data import PURCHASES
from benchmarks.promising_data import Float, Int, prices
from tocsin.stages.promising.books import Pace
from tocsin.stages.promising.histogram import Histogram
from tocsin.stages.promising.layout import Layout
from tocsin.stages.promising.selection import PROMISES, Query, StandingSelection
from tocsin.stages.promising.selection import SELECTION_COSTS as COSTS

Row = dict[str, Any]
NUMBERS = (20, 40, 60, 80, 100, 140, 200)
# So many queries the naive way serves without loss.
SERVED = 20
# A zone is worked on while the next one comes; so behind the last one there are the units of one zone more.
ZONE = 1_000
SHARES = (0.22, 0.35, 0.5, 0.65, 0.8)


def streams(rows: int) -> dict[str, Float]:
    """Values by name; prices only where the recording is there."""
    out = {"gamma": np.minimum(np.random.default_rng(7).gamma(2.0, 2.0, rows), 19.99)}
    return out | ({"prices": prices(rows)} if PURCHASES.exists() else {})


def standing(values: Float, count: int, seed: int) -> list[Query]:
    """Ranges that hold 5 to 10 % of the values, as far as equal values let them."""
    rng, ordered = np.random.default_rng([seed, 8]), np.sort(values)
    out = []
    for share in rng.uniform(0.05, 0.10, count):
        begin = rng.uniform(0, 1 - share)
        low, high = ordered[int(begin * len(values))], ordered[int((begin + share) * len(values)) - 1]
        out.append(Query(float(low), float(high)))
    return out


def layout(rows: int) -> Layout:
    """Zones of 1,000 tuples, which come one per unit of time; nothing expires."""
    return Layout("T3", 4_000, 4, 4, window_us=10 * rows, max_length_us=ZONE, scheme=Histogram(0.0, 20.0, 64))


def naive(values: Float, asked: list[Query], units: float) -> tuple[Int, Float, Float]:
    """Ask queries one after another about each tuple, while there are units: results, their sums, tuples asked about.

    The turn goes on with the next tuple where it stopped, so that all queries lose alike.
    """
    low, high = (np.array([getattr(query, end) for query in asked]) for end in ("low", "high"))
    found, sums, tried = np.zeros(len(asked), np.int64), np.zeros(len(asked)), np.zeros(len(asked))
    credit, turn = 0.0, 0
    for value in values.tolist():
        credit = min(credit + units, units) if credit > 0 else credit + units
        chosen = (low <= value) & (value <= high)
        cost = COSTS.scan + COSTS.emit * chosen
        order = (turn + np.arange(len(asked))) % len(asked)
        served = order[: int(np.searchsorted(np.cumsum(cost[order]), credit, "right"))]
        credit -= float(cost[served].sum())
        credit = 0.0 if len(served) == len(asked) else credit
        turn = (turn + len(served)) % len(asked)
        hits = served[chosen[served]]
        found[hits] += 1
        sums[hits] += value
        tried[served] += 1
    return found, sums, tried


def enough(values: Float, seed: int) -> float:
    """Units per tuple with which the naive way serves 20 queries without loss."""
    asked = standing(values, SERVED, seed)
    chosen = sum(np.mean((values >= query.low) & (values <= query.high)) for query in asked)
    # A tuple that many select takes more than one that few do.
    most = max(int(sum(query.low <= value <= query.high for query in asked)) for value in values[:2000].tolist())
    return COSTS.scan * SERVED + COSTS.emit * max(float(chosen), float(most))


def selection(part: str, *, quick: bool) -> list[Row]:
    """Figure 15: the share of the exact result that queries find, by their number."""
    out, rows = [], 3_000 if quick else 20_000
    for data, values in streams(rows).items():
        units = enough(values, 1)
        for count in NUMBERS:
            asked = standing(values, count, 1)
            exact = np.array([np.sum((values >= query.low) & (values <= query.high)) for query in asked])
            found, _, _ = naive(values, asked, units)
            ours = StandingSelection(layout(rows), asked, pace=Pace(units, 0.0))
            ours.take(np.arange(len(values)), values)
            ours.rest(ZONE * units)
            mine = np.array([ours.results(i) for i in range(count)])
            out.append({"part": part, "data": data, "queries": count, "units": units,
                        "naive": float(np.mean(found / exact)), "promising": float(np.mean(mine / exact)),
                        "selectivity": float(np.mean(exact / len(values)))})  # fmt: skip
    return out


def aggregates(part: str, *, quick: bool) -> list[Row]:
    """Figure 16: the mean square error of AVG and SUM, relative to the exact value, of 100 queries."""
    out, rows = [], 3_000 if quick else 20_000
    for data, values in streams(rows).items():
        asked = standing(values, 100, 2)
        inside = [values[(values >= query.low) & (values <= query.high)] for query in asked]
        sums, means = (np.array([getattr(mine, name)() for mine in inside]) for name in ("sum", "mean"))
        for share in SHARES:
            units = share * (COSTS.scan * 100 + COSTS.emit * sum(map(len, inside)) / len(values))
            found, total, tried = naive(values, asked, units)
            processed = float(np.mean(tried) / len(values))
            row: Row = {"part": part, "data": data, "units": units, "processed": processed}
            for goal, exact in (("sum", sums), ("avg", means)):
                ours = StandingSelection(layout(rows), asked, PROMISES[goal], Pace(units, 0.0))
                ours.take(np.arange(len(values)), values)
                ours.rest(ZONE * units)
                told = [ours.total(i) if goal == "sum" else ours.average(i) for i in range(len(asked))]
                row[f"{goal}_promising"] = error(np.array([estimate.value for estimate in told]), exact)
                row[f"{goal}_said"] = float(np.mean([estimate.error for estimate in told] / exact))
            row["avg_naive"] = error(total / np.maximum(found, 1), means)
            row["sum_naive"] = error(total, sums)
            # What the naive way could say if it scaled its sums by the share of tuples that it asked about.
            row["sum_naive_scaled"] = error(total * len(values) / np.maximum(tried, 1), sums)
            out.append(row)
    return out


def error(told: Float, exact: Float) -> float:
    """The mean square error, each relative to the exact value."""
    return float(np.mean((told / exact - 1) ** 2))
