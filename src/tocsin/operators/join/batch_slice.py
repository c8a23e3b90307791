"""Batch slice: the rows of a batch in one shard. Values that several rules need are computed once and cached."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import numpy as np

from tocsin.jit import kernel
from tocsin.operators.join.cell_grid import CellExtremes, CellGrid, build_cell_grid, cell_extremes
from tocsin.plan.steps import Store
from tocsin.runtime.contract import NEVER_SEEN, Bools, Float, Int
from tocsin.runtime.row_batch import RowBatch
from tocsin.runtime.versioned_rows import VersionedRows

T = TypeVar("T")

# Arrivals per cell, over all streams. Smaller cells cost more than they save.
ROWS_PER_CELL = 32


@kernel
def scan_arrivals(view: Int, key: Int, time: Int, newest: Int, first: Int) -> Bools:
    """Find the newest time of each key and view, and the first time of each key; mark the keys in time order."""
    in_order, latest = np.ones(first.shape[0], np.bool_), np.full(first.shape[0], NEVER_SEEN)
    for i in range(key.shape[0]):
        k = key[i]
        if view[i] >= newest.shape[1]:
            continue
        if latest[k] == NEVER_SEEN:
            first[k] = time[i]
        in_order[k] &= time[i] >= latest[k]
        latest[k] = max(latest[k], time[i])
        newest[k, view[i]] = max(newest[k, view[i]], time[i])
    return in_order


@dataclass
class BatchSlice:
    """Rows of a batch in one shard, by key and arrival.

    Attributes
    ----------
        arrivals: New rows of all views.
        segments: Retained and new rows of each input.
        views: View of each input.
        keys: Number of keys in the shard.
    """

    arrivals: RowBatch
    segments: Sequence[VersionedRows]
    views: Sequence[int]
    keys: int
    _cache: dict[Hashable, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Find the newest times and the keys in order."""
        view, key, time = self.arrivals.view, self.arrivals.key, self.arrivals.time
        self.newest = np.full((self.keys, max(self.views, default=-1) + 1), NEVER_SEEN)
        self.first = np.full(self.keys, NEVER_SEEN)
        self.in_order = scan_arrivals(view, key, time, self.newest, self.first)

    def positions(self, store: int) -> Int:
        """Return the positions of the arrivals of an input."""
        view = self.views[store]
        return self._once(("positions", view), lambda: np.flatnonzero(self.arrivals.view == view))

    def arrival_of(self, store: int, *, with_skipped: bool) -> Int:
        """Return the arrival of each row of an input, or -1. Skipped rows have one if `with_skipped` is set."""

        def work() -> Int:
            segment, at = self.segments[store], self.positions(store)
            found = np.full(len(segment), -1)
            found[segment.probes] = at if with_skipped else np.where(segment.is_skipped, -1, at)
            return found

        return self._once(("arrival", store, with_skipped), work)

    def cells_with_new_rows(self, store: int, shift: int) -> Bools:
        """Mark the cells that have new rows of an input that are evaluated."""

        def work() -> Bools:
            before = np.concatenate([[0], np.cumsum(self.arrival_of(store, with_skipped=False) >= 0)])
            has_rows: Bools = np.diff(before[self.cell_grid(shift).starts[store]]) > 0
            return has_rows

        return self._once(("cells with new rows", store, shift), work)

    def comparison_values(self, store: int, need: Store) -> Float:
        """Return the comparison value of each row, or NaN if no proof covers the row."""

        def work() -> Float:
            numbers, is_fixed = need.numbers(self.segments[store].values)
            return np.where(is_fixed, np.nan, 0.0 if need.whole or len(numbers) > 1 else numbers[0])

        return self._once(("numbers", store, *_compared(need)), work)

    def cell_size_log2(self, span_us: int) -> int:
        """Return the binary logarithm of the cell length: a quarter to half of a span, or more if rows are sparse."""
        least = self._once("gap", self._find_median_gap) * ROWS_PER_CELL
        return max(0, span_us.bit_length() - 2, int(least).bit_length())

    def _find_median_gap(self) -> int:
        """Return the median over the keys of the mean time between rows. A single row can be far away."""
        rows = np.bincount(self.arrivals.key, minlength=self.keys)
        has_rows = rows > 0
        if self.newest.shape[1] == 0 or not has_rows.any():
            return 0
        length = self.newest.max(axis=1) - self.first
        return max(0, int(np.median(length[has_rows] // rows[has_rows])))

    def cell_grid(self, shift: int) -> CellGrid:
        """Return the rows of all inputs, divided into cells of key and time."""
        return self._once(("grid", shift), lambda: build_cell_grid(self.segments, self.keys, shift))

    def cell_extremes(self, store: int, need: Store, shift: int, distance: int) -> CellExtremes:
        """Return the extremes of an input around each cell."""

        def work() -> CellExtremes:
            grid = self.cell_grid(shift)
            return cell_extremes(
                self.comparison_values(store, need), grid.starts[store], grid.key, grid.number, distance
            )

        return self._once(("cell_extremes", store, *_compared(need), shift, distance), work)

    def _once(self, name: Hashable, work: Callable[[], T]) -> T:
        if name not in self._cache:
            self._cache[name] = work()
        return cast("T", self._cache[name])


def _compared(need: Store) -> tuple[Any, ...]:
    """Return the parts of an input that its comparison values depend on."""
    return need.by, need.domains, need.whole
