"""The automatic choice on recordings: models are learnt as rows come, and the policy of each window follows from them.

A monitor watches a share of rows. After each piece of the stream, the policy of each window is chosen by what was seen
so far, for the piece that comes: PROB with the frequencies learnt, AGE with the age curve learnt, or RECENT. Where both
windows want PROB, memory is split between them by what it is expected to give, else in proportion to their rows.
Recall counts what is found behind a warm-up: a choice needs the whole lives of rows of four windows, and what was held
by another policy needs one more to go.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from benchmarks import memory_data as data
from benchmarks.memory_data import Float, Int, Streams
from benchmarks.memory_runs import Join, Row
from benchmarks.papers.p001 import policies as policy
from benchmarks.papers.p001.policies import Policy
from benchmarks.papers.p001.refit import refit
from benchmarks.papers.p001.shedding_join import Arrivals, SheddingJoin, Window, clear, equi, open_window
from benchmarks.papers.p001.window_memory import COUNT, KEY, rows_held
from tocsin.operators.retention.utility import frequency_model as frequency
from tocsin.operators.retention.utility.memory_curves import divide
from tocsin.operators.retention.utility.stream_monitor import Monitor

DAY = 86_400 * data.SECOND
PERCENTS = (5, 10, 20, 30, 50, 70, 90)


class Recording(NamedTuple):
    """How a recording is joined (windows of time, or of rows), counted from a time on, and watched."""

    name: str
    streams: Streams
    arrivals: Arrivals
    lengths: tuple[int, int]
    since: int
    by_tuples: bool = False
    granules: int = 20
    share: float = 0.01
    counters: int = 5_000
    every: int = 10_000

    @property
    def rates(self) -> list[float]:
        """Rows per unit of each window's clock, before the time from which it counts."""
        if self.by_tuples:
            return [1.0, 1.0]
        begin = int(self.streams.times[0][0])
        return [int((times < self.since).sum()) / (self.since - begin) for times in self.streams.times]


class Chosen(NamedTuple):
    """For a piece of the stream: its first row, and the policy, its name and the budget of each window."""

    begin: int
    policies: list[Policy]
    names: list[str]
    budgets: list[int]


def recordings(*, quick: bool) -> Iterator[Recording]:
    """The recordings that are there. Of auctions a window has only 330 rows, so more of them are watched."""
    if data.PURCHASES.exists() and not quick:
        streams = data.purchases()
        since = int(streams.times[0][0]) + 42 * DAY
        yield Recording("retail", streams, equi(*streams), (7 * DAY, 7 * DAY), since)
    for name in ("symbol", "symbol, price") if data.TRADES.exists() else ():
        streams = data.trades(20_000 if quick else 600_000, by_price=name != "symbol")
        arrivals = equi(*streams, by_tuples=True)
        since = len(arrivals.stream) // 20
        yield Recording(f"trades by {name}", streams, arrivals, (1000, 1000), since, by_tuples=True)
    if data.AUCTIONS.exists() and not quick:
        streams = data.auctions(20, 1)
        yield Recording(
            "auctions", streams, equi(*streams), (7 * DAY, 0), 42 * DAY, granules=168, share=0.2, every=2_000
        )


def automatic(part: str, *, quick: bool) -> Iterator[Row]:
    """Recall by memory with the policies that are chosen, with RECENT, and with PROB by the frequencies of the warm-up.

    `chosen` is how often each policy was, of the pieces and windows that count.
    """
    percents = (10, 50) if quick else PERCENTS
    for of in recordings(quick=quick):
        keys = int(max(column.max() for column in of.streams.keys)) + 1
        join = Join(of.arrivals, of.lengths, keys, of.since)
        pieces = chosen(of, join, percents)
        early = [of.arrivals.key[~join.counted & (of.arrivals.stream == i)] for i in (0, 1)]
        f = [np.bincount(column, minlength=keys) / max(len(column), 1) for column in early]
        fixed = {
            "recent": [policy.recent(length) for length in of.lengths],
            "prob": [policy.prob(f[1]), policy.prob(f[0])],
        }
        for percent in percents:
            budgets = [rate * length * percent / 100 for rate, length in zip(of.rates, of.lengths, strict=True)]
            counted = [one for one in pieces[percent] if join.counted[one.begin]]
            names = [name for one in counted for name, length in zip(one.names, of.lengths, strict=True) if length]
            yield {
                "part": part, "data": of.name, "policy": "AUTOMATIC", "memory_percent": percent,
                "recall": int(run(of, join, pieces[percent])[join.counted].sum()) / join.exact,
                "chosen": {name: names.count(name) / len(names) for name in sorted(set(names))},
            } | {
                name: join.recall(*zip(budgets, policies, strict=True)) for name, policies in fixed.items()
            }  # fmt: skip


def chosen(of: Recording, join: Join, percents: Sequence[int]) -> dict[int, list[Chosen]]:
    """What is chosen before each piece, for each amount of memory."""
    windows = [length or None for length in of.lengths]
    watch = {"share": of.share, "counters": of.counters, "by_tuples": of.by_tuples}
    monitor = Monitor((windows[0], windows[1]), of.granules, **watch)
    time = np.ascontiguousarray(of.arrivals.clock.max(axis=1))
    out: dict[int, list[Chosen]] = {percent: [] for percent in percents}
    for begin in range(0, len(time), of.every):
        for percent in percents:
            out[percent].append(_choose(of, monitor, join.keys, percent, begin))
        piece = slice(begin, begin + of.every)
        monitor.take(of.arrivals.stream[piece], time[piece], of.arrivals.key[piece])
    return out


def _choose(of: Recording, monitor: Monitor, keys: int, percent: float, begin: int) -> Chosen:
    rates, lengths = of.rates, of.lengths
    budgets = [rate * length * percent / 100 for rate, length in zip(rates, lengths, strict=True)]
    names = [
        monitor.choice(i, budget).policy if length else "RECENT"
        for i, (budget, length) in enumerate(zip(budgets, lengths, strict=True))
    ]
    f = [_by_key(monitor.frequencies(i), keys) for i in (0, 1)]
    if names == ["PROB", "PROB"]:
        curves = [frequency.rate_curve(f[i], f[1 - i], rates[i], rates[1 - i], lengths[i]) for i in (0, 1)]
        shares = divide(curves, sum(budgets))
        # What the values known cannot use is for the others, of which nothing is known.
        left = 1 - sum(shares) / sum(budgets)
        budgets = [share + left * own for share, own in zip(shares, budgets, strict=True)]
    policies = [_policy(monitor, i, name, f[1 - i], lengths[i]) for i, name in enumerate(names)]
    return Chosen(begin, policies, names, [int(budget) for budget in budgets])


def _by_key(known: tuple[Int, Float], keys: int) -> Float:
    share = np.zeros(keys)
    share[known[0]] = known[1]
    return share


def _policy(monitor: Monitor, window: int, name: str, f_other: Float, length: int) -> Policy:
    if name == "PROB":
        return policy.prob(f_other)
    return policy.age(monitor.age_curve(window), length) if name == "AGE" else policy.recent(length)


def run(of: Recording, join: Join, pieces: Sequence[Chosen]) -> Int:
    """Join with policies and budgets that change; count the results of each row."""
    kept = [i for i, length in enumerate(of.lengths) if length]
    windows: list[Window | None] = [None, None]
    for i in kept:
        windows[i] = open_window(of.lengths[i], pieces[0].budgets[i], pieces[0].policies[i], join.keys)
    shedding, hits = SheddingJoin(windows), []
    for piece in pieces:
        for i in kept if piece.begin else ():
            now = int(of.arrivals.clock[piece.begin - 1, i])
            shedding.windows[i] = changed(shedding.windows[i], piece.policies[i], piece.budgets[i], now)
        hits.append(shedding.count(of.arrivals.between(piece.begin, piece.begin + of.every)))
        assert all(shedding.windows[i].held.state[COUNT] <= piece.budgets[i] for i in kept)
    return np.concatenate(hits)


def changed(window: Window, new: Policy, budget: int, now: int) -> Window:
    """A window with another policy and budget."""
    clear(window, now, False)
    held, _ = refit(window.held, new, budget, now)
    tally = np.bincount(held.slots[rows_held(held), KEY], minlength=len(window.tally))
    return window._replace(policy=new, held=held, tally=tally)
