"""Figures 11 to 14 by the clock: as much processor time for each join, in place of as many units."""

from __future__ import annotations

import time
from math import inf
from typing import Any

import numpy as np

from benchmarks.promising_data import Arrivals, workloads
from benchmarks.promising_runs import full, measures, minute, rare_keys, whole
from tocsin.stages.promising.anytime_join import AnytimeJoin
from tocsin.stages.promising.books import Pace
from tocsin.stages.promising.layout import Layout
from tocsin.stages.promising.preference import Preference

Row = dict[str, Any]
PERCENTS = (15, 25, 35, 50, 60, 75, 90)
# Paces at which joins are timed, of the units that the hash join needs for all results.
SHARES = (0.0, 0.1, 0.2, 0.35, 0.5, 0.7, 0.9, 1.2, 2.0)
ORDERS = ("desc", "weighted", "asc")


def clock(part: str, *, quick: bool) -> list[Row]:
    """What each join finds in a part of the processor time that the hash join takes for all results."""
    out, rounds = [], 1 if quick else 9
    for data, rows in workloads(600 if quick else 6_000).items():
        for window, make in (("minute", minute), ("whole", whole)):
            units, exact = full(make("SHJ"), rows)
            rare = rare_keys(rows, exact)
            joins = {"SHJ": (make("SHJ"), Preference())} | {order: (make("T4"), Preference(order)) for order in ORDERS}
            paces = {(name, units * share): joins[name] for name in joins for share in SHARES}
            took = least_times(paces | {("SHJ", inf): joins["SHJ"]}, rows, rounds)
            for name, (layout, preference) in joins.items():
                given, times = zip(*((pace, took[name, pace]) for join, pace in paces if join == name), strict=True)
                for percent in PERCENTS:
                    # Time rises with the pace, but for what else the machine does.
                    asked = took["SHJ", inf] * percent / 100
                    pace = float(np.interp(asked, np.maximum.accumulate(times), given))
                    found = AnytimeJoin(layout, preference, Pace(pace, 0.0)).take(rows.stream, rows.time, rows.key)
                    out.append({
                        "part": part, "data": data, "window": window, "budget_percent": percent, "join": name,
                        "units": pace, "full_us": 1e6 * took["SHJ", inf] / len(rows.key),
                        "least_us": 1e6 * times[0] / len(rows.key), **measures(rows, exact, rare, found),
                    })  # fmt: skip
    return out


def least_times(
    joins: dict[tuple[str, float], tuple[Layout, Preference]], rows: Arrivals, rounds: int
) -> dict[tuple[str, float], float]:
    """The least processor time of each join in some rounds, all joins in each of them."""
    least = dict.fromkeys(joins, inf)
    for _ in range(rounds):
        for key, (layout, preference) in joins.items():
            join = AnytimeJoin(layout, preference, Pace(key[1], 0.0))
            start = time.process_time()
            join.take(rows.stream, rows.time, rows.key)
            least[key] = min(least[key], time.process_time() - start)
    return least
