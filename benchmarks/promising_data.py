"""Workloads of promising tuples: purchases in two stores, and a seeded Zipf generator, replayed at random intervals."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.memory_data import PURCHASES

Int = NDArray[np.int64]
Float = NDArray[np.float64]

SECOND = 1_000_000
PRODUCTS = PURCHASES.parent / "products.parquet"


class Arrivals(NamedTuple):
    """Tuples of both streams in order of time: which stream, time, key."""

    stream: Int
    time: Int
    key: Int

    @property
    def selectivity(self) -> float:
        """The share of pairs of tuples that have one key."""
        counts = [np.unique(self.key[self.stream == side], return_counts=True) for side in (0, 1)]
        both = np.intersect1d(counts[0][0], counts[1][0], return_indices=True)
        same = int(np.sum(counts[0][1][both[1]] * counts[1][1][both[2]]))
        return same / (int(np.sum(self.stream == 0)) * int(np.sum(self.stream == 1)))


def replayed(keys: tuple[Int, Int], mean_s: float, seed: int) -> Arrivals:
    """Let the tuples of each stream come at exponential intervals."""
    rng = np.random.default_rng([seed, 5])
    times = [np.cumsum(rng.exponential(mean_s * SECOND, len(column))).astype(np.int64) for column in keys]
    order = np.argsort(np.concatenate(times), kind="stable")
    stream = np.repeat([0, 1], [len(column) for column in keys])
    return Arrivals(stream[order].astype(np.int64), np.concatenate(times)[order], np.concatenate(keys)[order])


def stores(by: str, rows: int, mean_s: float = 0.1, seed: int = 1) -> Arrivals:
    """Purchases in the two largest stores, by `product_id` or `manufacturer_id`; the first rows of each."""
    import pyarrow.parquet as pq

    table, products = pq.read_table(PURCHASES), pq.read_table(PRODUCTS)
    store, product = (table.column(name).to_numpy() for name in ("store_id", "product_id"))
    numbers, counts = np.unique(store, return_counts=True)
    largest = numbers[np.argsort(-counts, kind="stable")[:2]]
    keys = product
    if by == "manufacturer_id":
        maker = dict(zip(products["product_id"].to_pylist(), products["manufacturer_id"].to_pylist(), strict=True))
        keys = np.array([int(maker.get(int(number)) or 0) for number in product])
    first, second = (keys[store == number][:rows].astype(np.int64) for number in largest)
    return replayed((first, second), mean_s, seed)


def zipf(rows: int, z: float = 1.0, values: int = 2_000, mean_s: float = 0.1, seed: int = 1) -> Arrivals:
    """Two streams of one Zipf distribution, the ranks scattered over the values."""
    rng = np.random.default_rng([seed, 6])
    weights = np.arange(1, values + 1.0) ** -z
    names = rng.permutation(values)
    first, second = (names[rng.choice(values, rows, p=weights / weights.sum())] for _ in range(2))
    return replayed((first, second), mean_s, seed)


def prices(rows: int) -> Float:
    """What was paid for items, in all stores, in order; below 20, where nearly all are."""
    import pyarrow.parquet as pq

    paid = pq.read_table(PURCHASES).column("sales_value").to_numpy()
    return np.asarray(paid[paid < 20.0][:rows], np.float64)


def workloads(rows: int) -> dict[str, Arrivals]:
    """All joins by name; those of recordings only where they are there."""
    out = {"zipf": zipf(rows)}
    if PURCHASES.exists():
        out |= {by.removesuffix("_id"): stores(by, rows) for by in ("product_id", "manufacturer_id")}
    return out
