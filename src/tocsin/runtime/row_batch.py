"""Row batch: the rows of one pipeline in columns, the row type of the reorder buffer and of Retention.

`read_views` (`runtime/received_rows.py`) builds a row batch from the batches of one call. An operator reads the values
of rows through `values_of`, so the values of a row that is only counted are never copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tocsin.jit import kernel
from tocsin.runtime.contract import Batch, Bools, Float, Int, Payload

Texts = NDArray[np.object_]


@dataclass(frozen=True, slots=True)
class RowSample:
    """Decision of a sampling policy for each row of a batch.

    Attributes
    ----------
        probability: Inclusion probability of the row.
        is_rejected: The row is joined once, and no later row finds it.
        is_repeat: The row equals a row that was sampled before, and is not evaluated.
    """

    probability: Float
    is_rejected: Bools
    is_repeat: Bools

    def take(self, at: Int | Bools | slice) -> RowSample:
        """Return the decisions for some rows."""
        return RowSample(self.probability[at], self.is_rejected[at], self.is_repeat[at])


@dataclass(frozen=True, slots=True)
class Cells:
    """Values and payload of the rows of one call. Row batches of the call share them.

    Attributes
    ----------
        values: One row per column of the view; NaN in columns that the view of a row does not have.
        position: Position of each row in its stream, in the order of the source.
        payload: Payload of the rows, or None if no row has a payload.
    """

    values: Float
    position: Int
    payload: Payload | None


@dataclass(frozen=True, slots=True)
class RowBatch:
    """Rows of one pipeline.

    Attributes
    ----------
        view: Input view of each row: the stream and the columns read, as a position in `Watch.lanes`. A row that
            no view can use has the number of views. It only moves the newest time of its key.
        key: Key index in the key table of the receiver.
        time: Event time in microseconds.
        serial: Arrival number of the row in its slice of a call, or in the release of the reorder buffer.
        cell: Position of the row in `cells`.
    """

    view: Int
    key: Int
    time: Int
    serial: Int
    cell: Int
    cells: Cells
    sample: RowSample | None = None

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.time)

    def take(self, at: Int | Bools | slice) -> RowBatch:
        """Return some rows in the given order."""
        sample = None if self.sample is None else self.sample.take(at)
        return RowBatch(self.view[at], self.key[at], self.time[at], self.serial[at], self.cell[at], self.cells, sample)

    def of_view(self, view: int) -> RowBatch:
        """Return the rows of one view in the order of this batch."""
        return self.take(np.flatnonzero(self.view == view))

    def with_keys(self, key: Int) -> RowBatch:
        """Return the rows with other key indexes."""
        return replace(self, key=key)

    def values_of(self, column: int) -> Float:
        """Return a column of the rows, which have one view."""
        value: Float = self.cells.values[column][self.cell]
        return value

    @property
    def has_payload(self) -> bool:
        """Whether any row of the call has a payload."""
        return self.cells.payload is not None

    def texts(self, at: Int) -> Texts:
        """Return the payload of some rows; None for a row without payload."""
        texts = np.full(len(at), None, dtype=object)
        if self.cells.payload is not None and len(at):
            texts[:] = list(self.cells.payload.take(self.cell[at]))
        return texts


@dataclass(frozen=True, slots=True)
class ObservedRows:
    """Rows by key and arrival, without values.

    Attributes
    ----------
        stream: Number of the stream in the pipeline.
        key, time: Key index and event time.
    """

    stream: Int
    key: Int
    time: Int


def no_rows(columns: int) -> RowBatch:
    """Return a batch without rows for views of at most the given number of columns."""
    none = np.zeros(0, np.int64)
    return RowBatch(none, none, none, none, none, Cells(np.zeros((columns, 0)), none, None))


@kernel
def group_by_key(key: Int, arrival_order: Int) -> tuple[Int, Int]:
    """Return the order of rows by key and arrival, and the arrival number of each row in this order."""
    keys = 0
    for k in key:
        keys = max(keys, k + 1)
    begins = np.zeros(keys + 1, np.int64)
    for k in key:
        begins[k + 1] += 1
    for k in range(keys):
        begins[k + 1] += begins[k]
    order, serial = np.empty(arrival_order.shape[0], np.int64), np.empty(arrival_order.shape[0], np.int64)
    for number in range(arrival_order.shape[0]):
        row = arrival_order[number]
        at = begins[key[row]]
        order[at], serial[at] = row, number
        begins[key[row]] += 1
    return order, serial


def sort_by_key(rows: RowBatch, arrival_order: Int) -> RowBatch:
    """Return rows by key and arrival, numbered by arrival."""
    order, serial = group_by_key(rows.key, arrival_order)
    return replace(rows.take(order), serial=serial)


@kernel
def mark_out_of_order(key: Int, time: Int, newest: Int) -> Bools:
    """Mark the rows that are older than an earlier row of their key, and update the newest time of each key."""
    is_behind = np.empty(key.shape[0], np.bool_)
    for i in range(key.shape[0]):
        is_behind[i] = time[i] < newest[key[i]]
        newest[key[i]] = max(newest[key[i]], time[i])
    return is_behind


class JoinedPayload:
    """Payload of the rows of several batches, one behind the other."""

    def __init__(self, parts: Sequence[tuple[int, Payload | None, Int | None]]) -> None:
        """Join `parts`: number of rows, payload, and the positions in this payload if they are not 0 to the end."""
        self._parts = parts
        self._begins = np.cumsum([0, *(count for count, _, _ in parts)])

    def take(self, positions: Int, /) -> Texts:
        """Return the texts at some positions."""
        texts = np.full(len(positions), None, dtype=object)
        part = np.searchsorted(self._begins, positions, side="right") - 1
        for number, (count, payload, picked) in enumerate(self._parts):
            if payload is None or not count:
                continue
            mine = np.flatnonzero(part == number)
            if len(mine):
                at = positions[mine] - self._begins[number]
                texts[mine] = list(payload.take(at if picked is None else picked[at]))
        return texts


def join_payload(batches: Sequence[Batch]) -> Payload | None:
    """Return the payload of the rows of several batches, or None if no row has a payload."""
    if len(batches) == 1 or all(batch.payload is None for batch in batches):
        return batches[0].payload
    return JoinedPayload([(len(batch.time), batch.payload, None) for batch in batches])
