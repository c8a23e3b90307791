"""Runs of the shedding join on recordings; a part whose recording is missing gives no rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from benchmarks import memory_data as data
from benchmarks.memory_data import Streams
from benchmarks.memory_runs import Join, Row, by_policy
from benchmarks.papers.p001 import baselines
from benchmarks.papers.p001 import policies as policy
from benchmarks.papers.p001.shedding_join import Arrivals, equi
from tocsin.operators.retention.utility import frequency_model as frequency
from tocsin.operators.retention.utility.age_model import AgeCurve
from tocsin.operators.retention.utility.memory_curves import divide

DAY = 86_400 * data.SECOND
PERCENTS = (5, 10, 20, 30, 40, 50, 60, 70, 80, 90)


def retail(part: str, *, quick: bool) -> Iterator[Row]:
    """Purchases by product, even stores against odd ones: both windows 7 days, frequencies of the first 28 days."""
    if data.PURCHASES.exists():
        streams = data.purchases()
        since = int(streams.times[0][0]) + 28 * DAY
        facts = {"part": part, "data": "retail"}
        yield from by_frequency(facts, streams, equi(*streams), 7 * DAY, since, (10, 50) if quick else PERCENTS)


def trades(part: str, *, quick: bool) -> Iterator[Row]:
    """Trades by symbol and by symbol and price: windows of 1,000 rows, frequencies of the first tenth."""
    for name in ("symbol", "symbol, price") if data.TRADES.exists() else ():
        streams = data.trades(20_000 if quick else 600_000, by_price=name != "symbol")
        arrivals = equi(*streams, by_tuples=True)
        since = len(arrivals.stream) // 10 // 2
        facts = {"part": part, "data": f"trades by {name}"}
        yield from by_frequency(facts, streams, arrivals, 1000, since, (10, 50) if quick else PERCENTS[1::2], unit=2)


def by_frequency(
    facts: Row, streams: Streams, arrivals: Arrivals, length: int, since: int, percents: Sequence[int], unit: int = 1
) -> Iterator[Row]:
    """Recall of PROB, with what was learnt before a time, and of policies that need no model.

    `unit` is how much the times of the streams go on in a unit of their windows.
    """
    keys = int(max(column.max() for column in streams.keys)) + 1
    begin = int(streams.times[0][0])
    early = [column[times < since * unit] for times, column in zip(*streams, strict=True)]
    f = [np.bincount(column, minlength=keys) / len(column) for column in early]
    rates = [len(column) / (since - begin) for column in early]
    join = Join(arrivals, (length, length), keys, since)
    curves = [frequency.rate_curve(f[i], f[1 - i], rates[i], rates[1 - i], length) for i in (0, 1)]
    ways = {
        "PROB": (policy.prob(f[1]), policy.prob(f[0])),
        "RECENT": (policy.recent(length),) * 2,
        "UNTIL-EXPIRY": (baselines.until_expiry(length),) * 2,
        "RANDOM": (baselines.random(1), baselines.random(2)),
    }
    for percent in percents:
        parts = divide(curves, sum(rates) * length * percent / 100)
        theory = sum(c.rate_at(own) for c, own in zip(curves, parts, strict=True)) / sum(c.most for c in curves)
        for name, policies in ways.items():
            budgets = parts if name == "PROB" else [rate * length * percent / 100 for rate in rates]
            row = {"policy": name, "memory_percent": percent, "theory": theory if name == "PROB" else None}
            yield facts | row | {"recall": join.recall(*zip(budgets, policies, strict=True))}


def auctions(part: str, *, quick: bool) -> Iterator[Row]:
    """Auctions and their bids, a window of 7 days, granules of an hour: an age curve with minima."""
    if data.AUCTIONS.exists():
        streams, length, granule = data.auctions(2 if quick else 20, 1), 7 * DAY, DAY // 24
        opened, bids = streams.times
        whole, age = opened <= opened[-1] - length, bids - opened[streams.keys[1]]
        mine = whole[streams.keys[1]]
        curve = AgeCurve(np.bincount(age[mine] // granule, minlength=length // granule) / whole.sum(), granule)
        join = Join(equi(*streams), (length, 0), len(opened), length)
        facts = {"part": part, "data": "auctions", "has_minima": curve.has_minima}
        yield from by_policy(facts, join, curve, streams.rate(0), length, (10, 50) if quick else PERCENTS)
