"""Workloads of range thresholding: Section 8 of Qiao, Gan, Tao, Range Thresholding on Streams, SIGMOD 2016, and trades.

Requests and elements have one order: a request with the number `a` comes just before element `a`. A query that is to
live `k` timestamps and is registered before element `a` is terminated before element `a + k`: it sees `k` elements.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.recordings import recording

Int = NDArray[np.int64]
Float = NDArray[np.float64]

DOMAIN = 100_000
TRADES = recording("equity_ticks_2013/trades.parquet")
MODES = ("static", "stochastic", "fixed")


class Setting(NamedTuple):
    """What a workload is made from; the defaults are the paper's."""

    mode: str = "static"
    dims: int = 1
    queries: int = 1_000_000
    threshold: int = 20_000_000
    volume: float = 0.1
    elements: int = 3_000_000  # Of a static one: as many as it takes.
    insert: float = 0.3
    real: bool = False
    seed: int = 1


class Workload(NamedTuple):
    """Elements and requests; the query of number `i` has the id `i`, and numbers are in order of registration."""

    setting: Setting
    low: Float
    high: Float
    threshold: Int
    values: Float
    weights: Int
    register_at: Int
    terminate_id: Int  # In fixed mode a slot: whichever query is in it ends, and the next number takes its place.
    terminate_at: Int


def make(setting: Setting) -> Workload:
    """Make a workload of one of the three modes."""
    rng = np.random.default_rng([setting.seed, MODES.index(setting.mode), setting.dims])
    m, n = setting.queries, stream_length(setting)
    register_at = np.zeros(m, dtype=np.int64)
    if setting.mode == "stochastic":
        begun = np.flatnonzero(rng.random(n * 2 // 3) < setting.insert)
        register_at = np.concatenate((register_at, begun))
    if setting.mode == "fixed":
        ended = int(rng.binomial(m * n, ending(setting)))
        terminate_at, terminate_id = np.sort(rng.integers(1, n, ended)), rng.integers(0, m, ended)
        count = m + ended + m  # A query that matures is replaced too; at most about one in a slot does.
    else:
        count = register_at.size
        at = register_at + rng.geometric(ending(setting), count)
        terminate_id = np.argsort(at, kind="stable")
        terminate_id = terminate_id[at[terminate_id] < n]
        terminate_at = at[terminate_id]
    low, high = squares(rng, count, setting)
    values = rng.uniform(0, DOMAIN, (n, setting.dims)) if setting.real else rng.integers(
        0, DOMAIN + 1, (n, setting.dims)).astype(np.float64)  # fmt: skip
    threshold = np.full(count, setting.threshold, dtype=np.int64)
    return Workload(setting, low, high, threshold, values, weights(rng, n), register_at, terminate_id, terminate_at)


def ending(setting: Setting) -> float:
    """Probability that a query ends at a timestamp: nine in ten end before they are expected to mature."""
    return float(-np.expm1(np.log(0.1) / expected_life(setting)))


def expected_life(setting: Setting) -> float:
    """Elements until a query is expected to mature: tau / 10 for ranges of a tenth of the domain."""
    return setting.threshold / (100 * setting.volume)


def stream_length(setting: Setting) -> int:
    """Elements to make: a static stream ends when no query is alive, which eight deviations more allow for."""
    if setting.mode != "static":
        return setting.elements
    life = expected_life(setting)
    return int(life * (1 + 8 / np.sqrt(setting.threshold / 100))) + 100


def squares(rng: np.random.Generator, count: int, setting: Setting) -> tuple[Float, Float]:
    """Ranges of the given volume around the middle, drawn again unless they lie in the domain."""
    side = DOMAIN * setting.volume ** (1 / setting.dims)
    side = side if setting.real else float(round(side))
    low = np.empty((count, setting.dims))
    todo = np.arange(count)
    while todo.size:
        low[todo] = rng.normal(DOMAIN / 2, 0.15 * DOMAIN / 2, (todo.size, setting.dims)) - side / 2
        todo = todo[((low[todo] < 0) | (low[todo] + side > DOMAIN)).any(axis=1)]
    if not setting.real:
        np.round(low, out=low)
    return low, low + side


def weights(rng: np.random.Generator, count: int) -> Int:
    """N(100, 15) rounded, drawn again below 1."""
    drawn = np.round(rng.normal(100, 15, count)).astype(np.int64)
    while (again := np.flatnonzero(drawn < 1)).size:
        drawn[again] = np.round(rng.normal(100, 15, again.size)).astype(np.int64)
    return drawn


def trades(symbol: str, queries: int, seed: int = 1) -> Workload:
    """The first day of a symbol, and random price ranges with volumes between 100 shares and all of the day's."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    table: Any = pq.read_table(TRADES, columns=["t_ms", "symbol", "price", "size"])
    table = table.filter(pc.equal(table["symbol"], symbol))
    day = table["t_ms"].to_numpy() // 86_400_000
    first = (day == day[0]) & (table["size"].to_numpy() > 0)
    price, size = table["price"].to_numpy()[first], table["size"].to_numpy()[first].astype(np.int64)
    rng = np.random.default_rng([seed, *symbol.encode()])
    ends = np.sort(np.round(rng.uniform(price.min(), price.max(), (queries, 2)), 2), axis=1)
    asked = np.exp(rng.uniform(np.log(100), np.log(size.sum()), queries)).astype(np.int64)
    none = np.zeros(0, dtype=np.int64)
    setting = Setting(f"trades of {symbol}", 1, queries, 0, 0.0, price.size, seed=seed)
    low, high = ends[:, :1].copy(), ends[:, 1:].copy()
    return Workload(setting, low, high, asked, price[:, None], size, np.zeros(queries, dtype=np.int64), none, none)
