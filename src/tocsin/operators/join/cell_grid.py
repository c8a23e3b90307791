"""Cell grid: the rows of a shard by key and time, and the extremes of the rows around each cell.

Algorithm: the length of a cell is a power of two. All inputs share the cells. A rule reads a few values per cell and
stream in place of the rows. Rules with the same comparison value of a stream share its extremes.

Guarantees: each row is in one cell. The rows of an input and cell are contiguous and in time order.

Complexity: one pass over all rows per cell length. For each stream, one pass over its rows and `2 * distance + 1` reads
per cell.

References: extremes by block as in Moerkotte, Small Materialized Aggregates, VLDB 1998; here by key and time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tocsin.jit import kernel
from tocsin.runtime.contract import Bools, Float, Int
from tocsin.runtime.versioned_rows import VersionedRows

# Rows of a stream around a cell: no rows; rows with known values; at least one row with an unknown value.
NO_ROWS, KNOWN, UNKNOWN = 0, 1, 2
_NO_CELL = 1 << 62


class CellGrid(NamedTuple):
    """Cells by key and time.

    Attributes
    ----------
    key
        Key index of each cell.
    number
        Cell i has the times from i << shift to the start of cell i + 1.
    starts
        `starts[s, c]` is the first row of input s in cell c.
    """

    key: Int
    number: Int
    starts: Int


class CellExtremes(NamedTuple):
    """Largest and least comparison value of a stream around each cell.

    Attributes
    ----------
    largest, least
        Extremes of the known values.
    state
        NO_ROWS, KNOWN or UNKNOWN.
    """

    largest: Float
    least: Float
    state: Int


@kernel
def walk_cells(offsets: Int, bases: Int, time: Int, shift: int, cells: tuple[Int, Int, Int], fill: bool) -> int:
    """Count the cells of the rows of all inputs. Write the cells into `cells` if `fill` is set."""
    key, number, starts = cells
    inputs, keys = offsets.shape[0], offsets.shape[1] - 1
    heads, count = np.empty(inputs, np.int64), 0
    for k in range(keys):
        for s in range(inputs):
            heads[s] = offsets[s, k]
        while True:
            cell = _NO_CELL
            for s in range(inputs):
                if heads[s] < offsets[s, k + 1]:
                    cell = min(cell, time[bases[s] + heads[s]] >> shift)
            if cell == _NO_CELL:
                break
            if fill:
                key[count], number[count] = k, cell
            for s in range(inputs):
                if fill:
                    starts[s, count] = heads[s]
                while heads[s] < offsets[s, k + 1] and time[bases[s] + heads[s]] >> shift == cell:
                    heads[s] += 1
            count += 1
    if fill:
        for s in range(inputs):
            starts[s, count] = offsets[s, keys]
    return count


def build_cell_grid(segments: Sequence[VersionedRows], keys: int, shift: int) -> CellGrid:
    """Divide the rows of all inputs into cells."""
    offsets = np.array([segment.offsets for segment in segments], np.int64).reshape(len(segments), keys + 1)
    bases = np.concatenate([[0], np.cumsum([len(segment.time) for segment in segments])])
    time = np.concatenate([segment.time for segment in segments])
    empty = np.zeros(0, np.int64)
    count = walk_cells(offsets, bases, time, shift, (empty, empty, np.zeros((0, 0), np.int64)), False)
    key, number = np.empty(count, np.int64), np.empty(count, np.int64)
    starts = np.empty((len(segments), count + 1), np.int64)
    walk_cells(offsets, bases, time, shift, (key, number, starts), True)
    return CellGrid(key, number, starts)


@kernel
def cell_extremes(value: Float, starts: Int, key: Int, number: Int, distance: int) -> CellExtremes:
    """Find the extremes of each cell and of the cells of its key within `distance` cells."""
    cells = key.shape[0]
    own = CellExtremes(np.full(cells, -np.inf), np.full(cells, np.inf), np.zeros(cells, np.int64))
    for c in range(cells):
        for row in range(starts[c], starts[c + 1]):
            if np.isnan(value[row]):
                own.state[c] = UNKNOWN
            else:
                own.state[c] = max(own.state[c], KNOWN)
                own.largest[c] = max(own.largest[c], value[row])
                own.least[c] = min(own.least[c], value[row])
    largest, least, state = own.largest.copy(), own.least.copy(), own.state.copy()
    for c in range(cells):
        for step in (-1, 1):
            near = c + step
            while 0 <= near < cells and key[near] == key[c] and abs(number[near] - number[c]) <= distance:
                largest[c] = max(largest[c], own.largest[near])
                least[c] = min(least[c], own.least[near])
                state[c] = max(state[c], own.state[near])
                near += step
    return CellExtremes(largest, least, state)


@kernel
def add_cells_around(chosen: Bools, key: Int, number: Int, distance: int) -> Bools:
    """Add to the chosen cells the cells of the same key within `distance` cells."""
    widened, cells = chosen.copy(), chosen.shape[0]
    for c in range(cells):
        if not chosen[c]:
            continue
        for step in (-1, 1):
            near = c + step
            while 0 <= near < cells and key[near] == key[c] and abs(number[near] - number[c]) <= distance:
                widened[near] = True
                near += step
    return widened
