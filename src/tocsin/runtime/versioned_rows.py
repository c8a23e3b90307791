"""Versioned rows: the retained and new rows of one input during a batch, as in multiversion concurrency control.

Retention returns every row with the serial number at which it entered the state and the one at which it left. A probe
with serial number s finds exactly the rows with `begin < s < end`, so batch boundaries change no result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from tocsin.runtime.contract import NEVER, Bools, Float, Int
from tocsin.runtime.row_batch import Texts

# Begin of a row that was in the state before the batch.
BEFORE = -1


@dataclass(frozen=True, slots=True)
class SampleThresholds:
    """Inclusion probabilities that fall during a slice.

    Attributes
    ----------
        size: Factor of each row: its probability is the threshold times this number.
        serial, before: Serial number of each arrival, and the threshold before it.
        after: Threshold after the slice.
    """

    size: Float
    serial: Int
    before: Float
    after: float


@dataclass(frozen=True, slots=True)
class VersionedRows:
    """Rows of one input by key and time.

    Attributes
    ----------
        offsets: First row of each key, and the end of the last key.
        begin, end: Serial numbers at which a row entered and left the state. A row with equal numbers was never stored.
        values: Columns of the input.
        source: Number of each row: the retained rows first, then the new rows by key and arrival.
        payload: Function from row numbers to texts, or None if no row has a payload.
        probes: Position of each new row in this object.
        is_repeat: New rows that equal an earlier row.
        is_covered: New rows that are out of order and were omitted on arrival, and are no repeats.
        probability: Inclusion probability of each row before the slice, or None if rows are not sampled.
        thresholds: Thresholds of the sample during the slice, or None.
        shed: Number of rows that left the state because memory was short.
        position: Position of each row in its stream while a trace is recorded, or None.
    """

    offsets: Int
    time: Int
    begin: Int
    end: Int
    values: tuple[Float, ...]
    source: Int
    payload: Callable[[Int], Texts] | None
    probes: Int
    is_repeat: Bools
    is_covered: Bools
    probability: Float | None = None
    shed: int = 0
    position: Int | None = None
    thresholds: SampleThresholds | None = None

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.time)

    @property
    def is_skipped(self) -> Bools:
        """New rows that no rule of several streams evaluates."""
        return self.is_repeat | self.is_covered

    def texts(self, at: Int) -> Texts:
        """Return the payload of some rows."""
        return np.full(len(at), None, dtype=object) if self.payload is None else self.payload(self.source[at])

    def take(self, at: Int, key: Int) -> VersionedRows:
        """Return some rows of the given keys in the same order, without new rows."""
        offsets = np.concatenate([[0], np.cumsum(np.bincount(key, minlength=len(self.offsets) - 1))])
        none = slice(0, 0)
        return VersionedRows(
            offsets,
            self.time[at],
            self.begin[at],
            self.end[at],
            tuple(value[at] for value in self.values),
            self.source[at],
            self.payload,
            self.probes[none],
            self.is_repeat[none],
            self.is_covered[none],
            None if self.probability is None else self.probability[at],
            position=None if self.position is None else self.position[at],
        )

    def as_new(self, at: Int, key: Int) -> VersionedRows:
        """Return some rows, which are ordered by key, as new rows that arrive in this order."""
        number, nothing = np.arange(len(at)), np.zeros(len(at), np.bool_)
        return replace(
            self.take(at, key),
            begin=number,
            end=np.full(len(at), NEVER),
            probes=number,
            is_repeat=nothing,
            is_covered=nothing,
        )
