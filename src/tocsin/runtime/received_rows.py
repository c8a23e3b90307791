"""Received rows: conversion of the batches of one call to rows of streams and to a row batch over the input views.

Each kind of pipeline begins with `read_streams` and `read_views`. An input view contains only the rows with finite
values in all of its columns. The other rows are counted as quarantined there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tocsin.runtime.context import Context, InputView
from tocsin.runtime.contract import Batch, Float, Int, Payload
from tocsin.runtime.metrics import RowOutcome
from tocsin.runtime.row_batch import Cells, JoinedPayload, RowBatch, join_payload


@dataclass(frozen=True)
class PipelineInputs:
    """Streams that a pipeline reads.

    Attributes
    ----------
        number: Number of the key set in the plan.
        on: Names of the key columns.
        streams: Names of the streams.
        views: Input views, in the order of their streams.
    """

    number: int
    on: tuple[str, ...]
    streams: tuple[str, ...]
    views: tuple[InputView, ...]

    def columns(self, stream: str) -> list[str]:
        """Return the value columns that are read of a stream, each once."""
        return sorted({column for view in self.views if view.stream == stream for column in view.columns})

    def has_view(self, stream: str) -> bool:
        """Return whether a rule reads values of a stream. Of other streams only time and key of the rows matter."""
        return any(view.stream == stream for view in self.views)

    @property
    def columns_read(self) -> dict[tuple[int, str], list[str]]:
        """Columns that the pipeline reads, by key set number and stream."""
        return {(self.number, stream): self.columns(stream) for stream in self.streams}


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


def read_streams(
    inputs: PipelineInputs, batches: Sequence[Batch], key_indexes: Callable[[Batch], Int]
) -> dict[str, StreamRows]:
    """Join the batches of each stream. `key_indexes` returns the key index of each key of a batch."""
    return {name: _read_stream(inputs, name, batches, key_indexes) for name in inputs.streams}


def _read_stream(
    inputs: PipelineInputs, name: str, batches: Sequence[Batch], key_indexes: Callable[[Batch], Int]
) -> StreamRows:
    mine = [batch for batch in batches if batch.stream == name and len(batch.time)]
    columns = inputs.columns(name)
    if not mine:
        none = np.zeros(0, np.int64)
        return StreamRows(none, none, none, {column: np.zeros(0) for column in columns}, None)
    keys = [key_indexes(batch)[batch.key] for batch in mine]
    payload = join_payload(mine) if inputs.has_view(name) else None
    if len(mine) == 1:
        batch = mine[0]
        values = {column: batch.values[column] for column in columns}
        return StreamRows(keys[0], batch.time, batch.arrival, values, payload)
    time, arrival = (np.concatenate([getattr(batch, field) for batch in mine]) for field in ("time", "arrival"))
    values = {column: np.concatenate([batch.values[column] for batch in mine]) for column in columns}
    return StreamRows(np.concatenate(keys), time, arrival, values, payload)


def read_views(
    inputs: PipelineInputs, streams: Mapping[str, StreamRows], *, with_unused: bool = False
) -> tuple[RowBatch, Int]:
    """Return the rows of all views, view by view, and their order of arrival.

    Rows that arrived together keep the order of the streams, and in a stream the order of the source. `with_unused`
    adds the rows that no view can use.
    """
    parts = _find_parts(inputs, streams, with_unused=with_unused)
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
    if len(parts) <= len(inputs.streams):
        return rows, np.argsort(arrival, kind="stable")
    stream = np.repeat([inputs.streams.index(part.stream) for part in parts], counts)
    return rows, np.lexsort((cells.position, stream, arrival))


def _find_parts(inputs: PipelineInputs, streams: Mapping[str, StreamRows], *, with_unused: bool) -> list[_Part]:
    parts = []
    for number, view in enumerate(inputs.views):
        values = streams[view.stream].values
        finite = np.logical_and.reduce([np.isfinite(values[column]) for column in view.columns])
        parts.append(_Part(number, view.stream, view.columns, None if finite.all() else np.flatnonzero(finite)))
    if not with_unused:
        return parts
    for name in dict.fromkeys(part.stream for part in parts):
        used = [part.at for part in parts if part.stream == name]
        if all(at is not None for at in used):
            unused = np.ones(len(streams[name]), np.bool_)
            for at in used:
                unused[at] = False
            if unused.any():
                parts.append(_Part(len(inputs.views), name, (), np.flatnonzero(unused)))
    return parts


def _concatenate(streams: Mapping[str, StreamRows], parts: Sequence[_Part], name: str) -> Int:
    columns: list[Int] = [np.zeros(0, np.int64)]
    for part in parts:
        column: Int = getattr(streams[part.stream], name)
        columns.append(column if part.at is None else column[part.at])
    return np.concatenate(columns)


def count_received(
    inputs: PipelineInputs,
    streams: Mapping[str, StreamRows],
    rows: RowBatch,
    batches: Sequence[Batch],
    context: Context,
) -> None:
    """Count the rows of each view that its source or the view rejects, and record the newest times."""
    counts, begin = np.bincount(rows.view, minlength=len(inputs.views)).tolist(), 0
    for view, count in zip(inputs.views, counts, strict=False):
        bad = sum(batch.quarantined for batch in batches if batch.stream == view.stream)
        for name in view.inputs:
            context.count(name, {RowOutcome.QUARANTINED: len(streams[view.stream]) + bad - count})
        if count:
            context.set_metric("newest_us", int(rows.time[begin : begin + count].max()), view.stream)
        begin += count
