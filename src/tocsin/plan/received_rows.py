"""Received rows: conversion of the batches of one call to rows of streams and to a row batch over the input views.

Each kind of pipeline begins with `read_streams` and `read_views`. An input view contains only the rows with finite
values in all of its columns. The other rows are counted as quarantined there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tocsin.plan.ranges import RangeWatch
from tocsin.plan.steps import Watch
from tocsin.runtime.contract import Batch, Float, Int, Out, Payload
from tocsin.runtime.metrics import RowOutcome
from tocsin.runtime.row_batch import Cells, JoinedPayload, RowBatch, join_payload


@dataclass(frozen=True, slots=True)
class StreamRows:
    """Rows of one stream in the order of the source.

    Attributes
    ----------
        key, time, arrival: Key index, event time and arrival number of each row.
        values: Value columns by name.
        payload: Payload of the rows, or None.
    """

    key: Int
    time: Int
    arrival: Int
    values: dict[str, Float]
    payload: Payload | None

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.time)


class _Part(NamedTuple):
    """Rows of one input view.

    Attributes
    ----------
        view: Number of the view.
        stream, columns: Stream and value columns.
        at: Positions of the rows in the stream, or None for all rows.
    """

    view: int
    stream: str
    columns: Sequence[str]
    at: Int | None


def inputs_of(number: int, watch: Watch | RangeWatch) -> dict[tuple[int, str], list[str]]:
    """Return the inputs of a pipeline: the columns that it reads, by key set number and stream."""
    return {(number, stream): watch.columns(stream) for stream in watch.streams}


def read_streams(watch: Watch, batches: Sequence[Batch], key_indexes: Callable[[Batch], Int]) -> dict[str, StreamRows]:
    """Join the batches of each stream. `key_indexes` returns the key index of each key of a batch."""
    return {name: _read_stream(watch, name, batches, key_indexes) for name in watch.streams}


def _read_stream(watch: Watch, name: str, batches: Sequence[Batch], key_indexes: Callable[[Batch], Int]) -> StreamRows:
    mine = [batch for batch in batches if batch.stream == name and len(batch.time)]
    columns = watch.columns(name)
    if not mine:
        none = np.zeros(0, np.int64)
        return StreamRows(none, none, none, {column: np.zeros(0) for column in columns}, None)
    keys = [key_indexes(batch)[batch.key] for batch in mine]
    payload = None if watch.is_only_heard(name) else join_payload(mine)
    if len(mine) == 1:
        batch = mine[0]
        values = {column: batch.values[column] for column in columns}
        return StreamRows(keys[0], batch.time, batch.arrival, values, payload)
    time, arrival = (np.concatenate([getattr(batch, field) for batch in mine]) for field in ("time", "arrival"))
    values = {column: np.concatenate([batch.values[column] for batch in mine]) for column in columns}
    return StreamRows(np.concatenate(keys), time, arrival, values, payload)


def read_views(watch: Watch, streams: Mapping[str, StreamRows], *, with_unused: bool = False) -> tuple[RowBatch, Int]:
    """Return the rows of all views, view by view, and their order of arrival.

    Rows that arrived together keep the order of the streams, and in a stream the order of the source. `with_unused`
    adds the rows that no view can use.
    """
    parts = _find_parts(watch, streams, with_unused=with_unused)
    counts = [len(streams[part.stream]) if part.at is None else len(part.at) for part in parts]
    key, time, arrival = (_concatenate(streams, parts, name) for name in ("key", "time", "arrival"))
    position = [np.arange(count) if part.at is None else part.at for part, count in zip(parts, counts, strict=True)]
    position.append(np.zeros(0, np.int64))
    values = np.full((max((len(part.columns) for part in parts), default=0), sum(counts)), np.nan)
    begin = 0
    for part, count in zip(parts, counts, strict=True):
        for slot, column in enumerate(part.columns):
            value = streams[part.stream].values[column]
            values[slot, begin : begin + count] = value if part.at is None else value[part.at]
        begin += count
    payload = None
    if any(streams[part.stream].payload is not None for part in parts):
        of_parts = [(count, streams[part.stream].payload, part.at) for part, count in zip(parts, counts, strict=True)]
        payload = JoinedPayload(of_parts)
    number = np.arange(len(time))
    cells = Cells(values, np.concatenate(position), payload)
    rows = RowBatch(np.repeat([part.view for part in parts], counts).astype(np.int64), key, time, number, number, cells)
    if len(parts) <= len(watch.streams):
        return rows, np.argsort(arrival, kind="stable")
    stream = np.repeat([watch.streams.index(part.stream) for part in parts], counts)
    return rows, np.lexsort((cells.position, stream, arrival))


def _find_parts(watch: Watch, streams: Mapping[str, StreamRows], *, with_unused: bool) -> list[_Part]:
    parts = []
    for view, (name, columns) in enumerate(watch.lanes):
        finite = np.logical_and.reduce([np.isfinite(streams[name].values[column]) for column in columns])
        parts.append(_Part(view, name, columns, None if finite.all() else np.flatnonzero(finite)))
    if not with_unused:
        return parts
    for name in dict.fromkeys(part.stream for part in parts):
        used = [part.at for part in parts if part.stream == name]
        if all(at is not None for at in used):
            unused = np.ones(len(streams[name]), np.bool_)
            for at in used:
                unused[at] = False
            if unused.any():
                parts.append(_Part(len(watch.lanes), name, (), np.flatnonzero(unused)))
    return parts


def _concatenate(streams: Mapping[str, StreamRows], parts: Sequence[_Part], name: str) -> Int:
    columns: list[Int] = [np.zeros(0, np.int64)]
    for part in parts:
        column: Int = getattr(streams[part.stream], name)
        columns.append(column if part.at is None else column[part.at])
    return np.concatenate(columns)


def count_received(
    watch: Watch, streams: Mapping[str, StreamRows], rows: RowBatch, batches: Sequence[Batch], out: Out
) -> None:
    """Count the received rows of each input, and the rows that its source or its view rejects."""
    counts = np.bincount(rows.view, minlength=len(watch.lanes)).tolist()
    for store, name in zip(watch.stores, watch.store_names, strict=True):
        bad = sum(batch.quarantined for batch in batches if batch.stream == store.stream)
        view = watch.lanes.index(store.lane)
        received = len(streams[store.stream]) + bad
        out.metrics.count_rows(name, {RowOutcome.QUARANTINED: received - counts[view]})
        if counts[view]:
            begin = sum(counts[:view])
            out.metrics.record("newest_us", int(rows.time[begin : begin + counts[view]].max()), store.stream)
