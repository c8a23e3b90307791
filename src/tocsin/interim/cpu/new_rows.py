"""New rows: those of both sides of an anytime join in one order of arrival, in columns."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tocsin.runtime.contract import Float, Int
from tocsin.runtime.row_batch import RowBatch, Texts

# The columns that are whole numbers.
COLUMNS = ("side", "time", "elapsed", "key", "came", "left")


@dataclass
class NewRows:
    """Rows in order of arrival, with their key by number in the log.

    `elapsed` is the time of the bucket at which a row was taken, or was taken again; `came` that at which it came, or
    at which its key was last heard when it was taken again. `left` is 1 for a row that was taken again with something
    left to probe, which nobody will.
    """

    side: Int
    time: Int
    elapsed: Int
    key: Int
    came: Int
    left: Int
    values: Float
    payload: Texts | None

    def __len__(self) -> int:
        """How many rows there are."""
        return len(self.time)

    def pick(self, at: Int | slice) -> NewRows:
        """Some of the rows."""
        texts = None if self.payload is None else self.payload[at]
        numbers = self.side[at], self.time[at], self.elapsed[at], self.key[at], self.came[at], self.left[at]
        return NewRows(*numbers, self.values[at], texts)

    def taken_at(self, elapsed: Int) -> NewRows:
        """The same rows, taken at these times of the bucket for the first time."""
        return replace(self, elapsed=elapsed, came=elapsed)

    def taken_again(self, elapsed_us: int, heard: Int) -> NewRows:
        """The same rows, taken once more at a time of the bucket, with when their keys were last heard."""
        return replace(self, elapsed=np.full(len(self), elapsed_us), came=heard)


def no_rows(width: int) -> NewRows:
    """Rows with so many values: none."""
    none = np.zeros(0, np.int64)
    return NewRows(none, none, none, none, none, none, np.zeros((0, width)), None)


def new_rows(rows: RowBatch, arrival_order: Int) -> NewRows:
    """Return the rows of all views in order of arrival; no bucket has taken them yet."""
    arrived = rows.take(arrival_order)
    none = np.zeros(len(arrived), np.int64)
    values = arrived.cells.values[:, arrived.cell].T + 0.0
    texts = arrived.texts(np.arange(len(arrived))) if arrived.has_payload else None
    return NewRows(arrived.view, arrived.time, none, arrived.key, none, none, values, texts)
