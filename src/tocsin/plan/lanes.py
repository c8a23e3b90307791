"""Lanes: the rows of a stream that have the values which some store takes, and the order of rows by key and arrival.

How batches become such rows, and are counted, stands here too: every kind of watch begins so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tocsin.jit import kernel
from tocsin.operators.retention.operator import RowBatch
from tocsin.plan.ranges import RangeWatch
from tocsin.plan.steps import Watch
from tocsin.runtime.contract import Batch, Int, Out
from tocsin.runtime.metrics import RowOutcome
from tocsin.runtime.payload import joined_payload


def inputs_of(number: int, watch: Watch | RangeWatch) -> dict[tuple[int, str], list[str]]:
    """Return the inputs of the pipeline of a key set: the columns that it reads by key set number and stream."""
    return {(number, stream): watch.columns(stream) for stream in watch.streams}


def stream_rows(
    watch: Watch, name: str, batches: Sequence[Batch], places: Callable[[Batch], Int]
) -> tuple[RowBatch, Int]:
    """The rows of one stream and their arrival; several batches of it are joined. `places` numbers keys of a batch."""
    mine = [batch for batch in batches if batch.stream == name and len(batch.time)]
    columns = watch.columns(name)
    if not mine:
        return RowBatch.none(columns), np.zeros(0, np.int64)
    key = np.concatenate([places(batch)[batch.key] for batch in mine])
    time, arrival = (np.concatenate([getattr(batch, field) for batch in mine]) for field in ("time", "arrival"))
    values = {column: np.concatenate([batch.values[column] for batch in mine]) for column in columns}
    payload = None if watch.is_only_heard(name) else joined_payload(mine)
    return RowBatch(key, time, time, values, payload), arrival


def count_received(
    watch: Watch,
    whole: Mapping[str, int],
    lanes: Sequence[tuple[RowBatch, Int]],
    batches: Sequence[Batch],
    out: Out,
) -> None:
    """Count what came; what the engine could not use, and rows without a store's values, are quarantined there."""
    for store, name in zip(watch.stores, watch.store_names, strict=True):
        bad = sum(batch.quarantined for batch in batches if batch.stream == store.stream)
        rows, _ = lanes[watch.lanes.index(store.lane)]
        out.metrics.count_rows(name, {RowOutcome.QUARANTINED: whole[store.stream] + bad - len(rows.time)})
        if len(rows.time):
            out.metrics.record("newest_us", int(rows.time.max()), store.stream)


def lane_of(rows: RowBatch, arrival: Int, columns: Sequence[str]) -> tuple[RowBatch, Int]:
    """The rows of a stream that have finite values in some columns."""
    finite = np.logical_and.reduce([np.isfinite(rows.values[column]) for column in columns])
    if finite.all():
        return rows, arrival
    at = np.flatnonzero(finite)
    return rows.pick(at), arrival[at]


def in_no_lane(rows: RowBatch, arrival: Int, lanes: Sequence[RowBatch]) -> tuple[RowBatch, Int] | None:
    """The rows of a stream whose values no rule can use: all that they do is to move the newest time of their key."""
    if any(len(lane.time) == len(rows.time) for lane in lanes):
        return None
    unused = np.ones(len(rows.time), np.bool_)
    for lane in lanes:
        unused[lane.picked] = False
    at = np.flatnonzero(unused)
    return (rows.pick(at), arrival[at]) if len(at) else None


@kernel
def by_key(place: Int, arrived: Int, places: int) -> tuple[Int, Int]:
    """Order rows by (place, arrival): the order, and the rank of arrival of each row in it."""
    begins = np.zeros(places + 1, np.int64)
    for at in place:
        begins[at + 1] += 1
    for at in range(places):
        begins[at + 1] += begins[at]
    order, rank = np.empty(place.shape[0], np.int64), np.empty(place.shape[0], np.int64)
    for number in range(arrived.shape[0]):
        row = arrived[number]
        at = begins[place[row]]
        order[at], rank[at] = row, number
        begins[place[row]] += 1
    return order, rank
