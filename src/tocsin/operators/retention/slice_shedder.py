"""Slice shedder: the inputs of all shards of a bucket as the arguments of the shedding kernel, and its results.

The caller is `plan/retention_budget.py`. It passes the layouts of all shards, so the row with the smallest utility is
found over all keys and inputs of a bucket.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tocsin.jit import kernel
from tocsin.operators.retention.bracketing import SegmentRows
from tocsin.operators.retention.operator import Retention, ShedOutcomes, SliceLayout
from tocsin.operators.retention.shedding import (
    SHED,
    Arrivals,
    Inputs,
    SliceRows,
    Utilities,
    Versions,
    new_versions,
    shed_rows,
)
from tocsin.operators.retention.sorted_rows import sort_by_time
from tocsin.runtime.contract import Float, Int


class ShedSlice(NamedTuple):
    """Result of a slice.

    Attributes
    ----------
        ends: Order and end of each row, by shard and input, as `Retention.merge` needs them.
        outcomes: States of the rows, by shard and input.
        total: Charge of the retained rows.
        lane, key, time, end: Lane, number of the key, time and last serial number of each row that was shed.
        versions: Results of the kernel.
    """

    ends: list[list[tuple[Int, Int]]]
    outcomes: list[list[ShedOutcomes]]
    total: int
    lane: Int
    key: Int
    time: Int
    end: Int
    versions: Versions


@kernel
def order_by_time(time: Int, offsets: Int, order: Int) -> None:
    """Order the rows of each key by time."""
    for key in range(offsets.shape[0] - 1):
        sort_by_time(time, offsets[key], offsets[key + 1], order)


def shed_slice(  # noqa: PLR0913, PLR0917 - the arguments of the kernel
    retentions: Sequence[Retention],
    lanes: Sequence[int],
    layouts: Sequence[Sequence[SliceLayout]],
    columns: tuple[Sequence[Sequence[Int]], Sequence[Sequence[Float]], Sequence[Int]],
    arrivals: Arrivals,
    newest: Int,
    horizon_us: int,
    how: Utilities,
    share: int,
    extra: Int,
) -> ShedSlice:
    """Run the kernel over the layouts of all shards.

    `columns` are the cost and the utility of each row, by shard and input, and the number of each key by shard.
    `newest` is the newest time of all keys before the slice; it is updated.
    """
    costs, utilities, numbers = columns
    shards, keys = len(layouts), [len(number) for number in numbers]
    parts, reductions, windows = [], [], []
    for i, retention in enumerate(retentions):
        found = [retention.segment_rows(layouts[shard][i]) for shard in range(shards)]
        parts.append(found)
        reductions.append(found[0][2] if found else 0)
        windows.append(retention.window_lengths)
    order = [(i, shard) for i in range(len(retentions)) for shard in range(shards)]
    flat = [layouts[shard][i] for i, shard in order]
    sizes = np.array([len(layout.time) for layout in flat], np.int64)
    begins = np.concatenate([[0], np.cumsum(sizes)])
    offsets = np.concatenate([layout.offsets[:-1] + begin for layout, begin in zip(flat, begins[:-1], strict=True)])
    offsets = np.concatenate([offsets, begins[-1:]]).astype(np.int64)
    total_keys = sum(keys)
    segment = np.repeat(np.arange(len(retentions) * total_keys), np.diff(offsets))
    rows = SegmentRows(
        *(np.concatenate([getattr(parts[i][s][0], name) for i, s in order]) for name in SegmentRows._fields)
    )
    depth = max(parts[i][s][1].shape[0] for i, s in order)
    values = np.zeros((depth, int(begins[-1])))
    for (i, s), begin, end in zip(order, begins[:-1], begins[1:], strict=True):
        mine = parts[i][s][1]
        # Missing values equal the first one, so that they change no comparison.
        values[:, begin:end] = np.concatenate([mine, np.repeat(mine[:1], depth - len(mine), axis=0)])
    tie = np.concatenate([np.repeat(numbers[s], np.diff(layouts[s][i].offsets)) for i, s in order])
    slice_rows = SliceRows(
        offsets,
        np.concatenate([layout.known for layout in flat]),
        segment,
        np.repeat(np.arange(len(retentions)), total_keys),
        rows,
        values,
        np.concatenate([costs[s][i] for i, s in order]),
        np.concatenate([utilities[s][i] for i, s in order]),
        tie,
    )
    inputs = Inputs(
        np.array(lanes, np.int64),
        np.array(reductions, np.int64),
        np.array([lengths for lengths, _ in windows], np.int64).T.copy(),
        np.array([kind for _, kind in windows], np.int64),
        np.full(len(retentions), horizon_us),
    )
    versions = new_versions(int(begins[-1]), len(arrivals.time))
    total, _ = shed_rows(slice_rows, arrivals, inputs, how, newest, share, extra, versions)
    return _results(layouts, order, begins, slice_rows, inputs, versions, arrivals, total)


def _results(
    layouts: Sequence[Sequence[SliceLayout]],
    order: Sequence[tuple[int, int]],
    begins: Int,
    slice_rows: SliceRows,
    inputs: Inputs,
    versions: Versions,
    arrivals: Arrivals,
    total: int,
) -> ShedSlice:
    ends: list[list[tuple[Int, Int]]] = [[] for _ in layouts]
    outcomes: list[list[ShedOutcomes]] = [[] for _ in layouts]
    for (i, shard), begin, stop in zip(order, begins[:-1], begins[1:], strict=True):
        layout, place = layouts[shard][i], np.empty(int(stop - begin), np.int64)
        order_by_time(layout.time, layout.offsets, place)
        ends[shard].append((place, versions.end[begin:stop]))
        refused = versions.is_refused[np.searchsorted(arrivals.serial, layout.rows.serial)]
        outcomes[shard].append(ShedOutcomes(versions.state[begin:stop], refused))
    is_shed = versions.state == SHED
    lane = inputs.lane[slice_rows.source[slice_rows.segment[is_shed]]]
    return ShedSlice(
        ends,
        outcomes,
        total,
        lane,
        slice_rows.tie[is_shed],
        slice_rows.rows.t[is_shed],
        versions.end[is_shed],
        versions,
    )
