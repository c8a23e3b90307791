"""Mesh: the rows of a page cut into cells of key and time, and what lies around each cell.

Idea: cells are as long as a power of two. All stores share them, so what a rule wants to know of a stretch of time it
learns from a few numbers per cell and stream, which rules that compare a stream by the same number share.
Guarantee: every row lies in one cell; the rows of a store and cell stand together, in time order.
Cost: one pass over all rows per length of cells; per stream, one pass over its rows and `2 * reach + 1` looks per cell.
Source: least and largest numbers kept by block, as in Moerkotte, Small Materialized Aggregates, VLDB 1998; here by key
and time, and of the neighbours too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tocsin.jit import kernel
from tocsin.runtime.contract import Bools, Float, Int
from tocsin.runtime.versioned_rows import VersionedRows

# What is known of the rows of a stream around a cell: there are none; their extremes; nothing, of one of them.
NOBODY, KNOWN, VAGUE = 0, 1, 2
_NO_CELL = 1 << 62


class CellGrid(NamedTuple):
    """Cells by key and time: number i has the times from i << shift on. Row `starts[s, c]` is the first of store s."""

    key: Int
    number: Int
    starts: Int


class Span(NamedTuple):
    """The largest and the least number of a stream around each cell, and what is known of them."""

    largest: Float
    least: Float
    state: Int


@kernel
def mark(offsets: Int, bases: Int, time: Int, shift: int, cells: tuple[Int, Int, Int], fill: bool) -> int:
    """Walk through the rows of all stores cell by cell; give the number of cells, and `fill` them in."""
    key, number, starts = cells
    stores, keys = offsets.shape[0], offsets.shape[1] - 1
    heads, count = np.empty(stores, np.int64), 0
    for k in range(keys):
        for s in range(stores):
            heads[s] = offsets[s, k]
        while True:
            cell = _NO_CELL
            for s in range(stores):
                if heads[s] < offsets[s, k + 1]:
                    cell = min(cell, time[bases[s] + heads[s]] >> shift)
            if cell == _NO_CELL:
                break
            if fill:
                key[count], number[count] = k, cell
            for s in range(stores):
                if fill:
                    starts[s, count] = heads[s]
                while heads[s] < offsets[s, k + 1] and time[bases[s] + heads[s]] >> shift == cell:
                    heads[s] += 1
            count += 1
    if fill:
        for s in range(stores):
            starts[s, count] = offsets[s, keys]
    return count


def lay_mesh(segments: Sequence[VersionedRows], keys: int, shift: int) -> CellGrid:
    """Cut the rows of all stores into cells."""
    offsets = np.array([segment.offsets for segment in segments], np.int64).reshape(len(segments), keys + 1)
    bases = np.concatenate([[0], np.cumsum([len(segment.time) for segment in segments])])
    time = np.concatenate([segment.time for segment in segments])
    nothing = np.zeros(0, np.int64)
    count = mark(offsets, bases, time, shift, (nothing, nothing, np.zeros((0, 0), np.int64)), False)
    key, number = np.empty(count, np.int64), np.empty(count, np.int64)
    starts = np.empty((len(segments), count + 1), np.int64)
    mark(offsets, bases, time, shift, (key, number, starts), True)
    return CellGrid(key, number, starts)


@kernel
def spread(value: Float, starts: Int, key: Int, number: Int, reach: int) -> Span:
    """Find the extremes of each cell and of those of its key that are at most `reach` cells away."""
    cells = key.shape[0]
    own = Span(np.full(cells, -np.inf), np.full(cells, np.inf), np.zeros(cells, np.int64))
    for c in range(cells):
        for row in range(starts[c], starts[c + 1]):
            if np.isnan(value[row]):
                own.state[c] = VAGUE
            else:
                own.state[c] = max(own.state[c], KNOWN)
                own.largest[c] = max(own.largest[c], value[row])
                own.least[c] = min(own.least[c], value[row])
    largest, least, state = own.largest.copy(), own.least.copy(), own.state.copy()
    for c in range(cells):
        for step in (-1, 1):
            other = c + step
            while 0 <= other < cells and key[other] == key[c] and abs(number[other] - number[c]) <= reach:
                largest[c] = max(largest[c], own.largest[other])
                least[c] = min(least[c], own.least[other])
                state[c] = max(state[c], own.state[other])
                other += step
    return Span(largest, least, state)


@kernel
def widen(chosen: Bools, key: Int, number: Int, reach: int) -> Bools:
    """Add to cells all those of their key that are at most `reach` away."""
    wide, cells = chosen.copy(), chosen.shape[0]
    for c in range(cells):
        if not chosen[c]:
            continue
        for step in (-1, 1):
            other = c + step
            while 0 <= other < cells and key[other] == key[c] and abs(number[other] - number[c]) <= reach:
                wide[other] = True
                other += step
    return wide
