"""What rules find whose memory is limited, and how much processor time they take, beside the rule without a limit.

Time: two streams of Zipf keys in memory, one row a millisecond each, joined within 5 s with `emit: all`; few pairs are
true, so that what is measured is the join. The same rule with alerts that live leaves most rows out before they are
joined. The rule without a limit runs before and after each limited one.
Recall: recordings, beside what the shedding join finds of the same rows with the policies that are chosen as it goes.
One pair in 25 is true, by numbers that have nothing to do with keys and times: as good a sample of all as any.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import numpy as np

from benchmarks import memory_automatic as automatic
from benchmarks import memory_data as data
from benchmarks.memory_automatic import DAY, Recording
from benchmarks.memory_data import Streams
from benchmarks.memory_runs import Join, Row
from benchmarks.papers.p001.policies import recent
from benchmarks.papers.p001.shedding_join import equi
from tocsin import Rule, local
from tocsin.columns import EPOCH

KEYS = 2000
# Of the state that the rule keeps without a limit, or of its rows; in percent.
LIMITS: tuple[dict[str, Any], ...] = (
    {"unit": "bytes", "percent": 1000},
    {"unit": "bytes", "percent": 50},
    {"unit": "bytes", "percent": 25},
    {"unit": "rows", "percent": 50},
    {"unit": "rows", "percent": 10},
    {"unit": "bytes", "percent": 50, "prefer": "sample"},
    {"unit": "bytes", "percent": 50, "emit": "witness"},
    {"unit": "rows", "percent": 50, "emit": "witness"},
)


def streams(rows: int) -> dict[str, dict[str, Any]]:
    """Rows of both streams in order of time."""
    draw, chance = np.random.default_rng(1), 1 / np.arange(1, KEYS + 1)
    names = np.array([f"k{number}" for number in range(KEYS)], dtype=object)
    found = {}
    for name in ("a", "b"):
        key = draw.choice(KEYS, rows, p=chance / chance.sum())
        found[name] = {"ts": np.sort(draw.integers(0, 1000 * rows, rows)), "machine": names[key]}
        found[name]["value"] = draw.normal(0, 1, rows)
    return found


def rules(part: str, *, quick: bool) -> Iterator[Row]:
    """Seconds by limit, and by those of the rule without one."""
    given = streams(5_000 if quick else 100_000)
    free = {}
    for emit in ("all", "witness"):
        _seconds(given, emit)
        free[emit] = _seconds(given, emit)[1]
    for limit in LIMITS[::3] if quick else LIMITS:
        emit = limit.get("emit", "all")
        memory = _memory(free[emit], limit)
        quality = {"memory": memory, "prefer": limit.get("prefer", "subset")}
        before, _ = _seconds(given, emit)
        seconds, found = _seconds(given, emit, quality=quality)
        after, _ = _seconds(given, emit)
        yield {
            "part": part, "data": "Zipf", "memory": memory, "emit": emit, **limit, "seconds": seconds,
            "ratio": seconds / ((before + after) / 2), "found": len(found.alerts) / len(free[emit].alerts),
        }  # fmt: skip


def _memory(free: local.Result, limit: dict[str, Any]) -> str:
    """A part of what the rule keeps without a limit, and no less than is allowed."""
    if limit["unit"] == "bytes":
        return f"{max(free.state_bytes * limit['percent'] // 100, 50_000)}B"
    retained = sum(counts["retained"] for counts in free.counts.values())
    return f"{max(retained * limit['percent'] // 100, 16)} rows"


def _seconds(given: dict[str, Any], emit: str, **more: Any) -> tuple[float, local.Result]:
    rule = Rule("pair", "a + b > 5", within="5s", on="machine", emit=emit, allowed_lateness="0s", **more)
    begin = time.process_time()
    found = local.run_local_detailed(given, rule)
    return time.process_time() - begin, found


def recordings(*, quick: bool) -> Iterator[tuple[Recording, dict[str, Any]]]:
    """Parts of recordings, as the shedding join has them, and what a rule says of them."""
    if data.PURCHASES.exists() and not quick:
        streams = _some(data.purchases(), 4)
        since = int(streams.times[0][0]) + 42 * DAY
        yield Recording("retail", streams, equi(*streams), (7 * DAY, 7 * DAY), since), {"within": "7d"}
    for name in ("symbol", "symbol, price") if data.TRADES.exists() else ():
        streams = data.trades(6_000 if quick else 30_000, by_price=name != "symbol")
        # Every second trade is of one stream: 1,000 rows of it come in 2,000 units of time.
        of = Recording(f"trades by {name}", streams, equi(*streams), (2000, 2000), 20_000 if not quick else 4_000)
        yield of, {"within": "2ms"}
    if data.AUCTIONS.exists() and not quick:
        streams = data.auctions(20, 1)
        watched: dict[str, Any] = {"granules": 168, "share": 0.2, "every": 2_000}
        of = Recording("auctions", streams, equi(*streams), (7 * DAY, 0), 63 * DAY, **watched)
        yield of, {"within": {("a", "b"): ("0s", "7d")}, "quality": {"model": {"granularity": "1h"}}}


def _some(streams: Streams, part: int) -> Streams:
    """The rows of every so-many-th key."""
    mine = [keys % part == 0 for keys in streams.keys]
    times, keys = ([column[rows] for column, rows in zip(of, mine, strict=True)] for of in streams)
    return Streams((times[0], times[1]), (keys[0], keys[1]))


def recorded(part: str, *, quick: bool) -> Iterator[Row]:
    """Recall behind the warm-up by memory: of the rule, of the rule without models, and of the shedding join."""
    percents = (10, 50) if quick else (10, 20, 50)
    for of, stated in recordings(quick=quick):
        draw, columns = np.random.default_rng(1), {}
        for name, times, keys in zip("ab", *of.streams, strict=True):
            machine = np.array([f"k{key}" for key in keys.tolist()], dtype=object)
            columns[name] = {"ts": times, "machine": machine, "value": draw.normal(0, 1, len(times))}
        exact, _ = _found(columns, of.since, **stated)
        join = Join(of.arrivals, of.lengths, int(max(column.max() for column in of.streams.keys)) + 1, of.since)
        pieces = automatic.chosen(of, join, percents)
        for percent in percents:
            budgets = [rate * length * percent / 100 for rate, length in zip(of.rates, of.lengths, strict=True)]
            memory = f"{max(int(sum(budgets)), 16)} rows"
            quality = {**stated.get("quality", {}), "memory": memory}
            count, told = _found(columns, of.since, **stated | {"quality": quality})
            newest, _ = _found(columns, of.since, **stated | {"quality": quality | {"model": {"by": "none"}}})
            kept = [(budget, recent(length)) for budget, length in zip(budgets, of.lengths, strict=True)]
            yield {
                "part": part, "data": of.name, "memory_percent": percent, "memory": memory, "pairs": exact,
                "recall": count / exact, "recent": newest / exact,
                "predicted": told["predicted"], "reached": told["reached"],
                "stage": int(automatic.run(of, join, pieces[percent])[join.counted].sum()) / join.exact,
                "stage_recent": join.recall(*kept),
            }  # fmt: skip


def _found(columns: dict[str, Any], since: int, **more: Any) -> tuple[int, Any]:
    """How many pairs a rule finds whose later row came at a time or after; and what it says of its memory."""
    rule = Rule("pair", "a + b > 2.5", on="machine", emit="all", allowed_lateness="0s", **more)
    found = local.run_local_detailed(columns, rule)
    begin = EPOCH + timedelta(microseconds=since)
    ends = (max(part["time"] for part in row["witness"]) for row in found.alerts)
    return sum(end >= begin for end in ends), found.metrics.section("memory").get("pair")
