"""Witness: the rows that an alert shows, with the margin and the value of their evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tocsin.operators.join.threshold_join import Evaluations, Tuples
from tocsin.runtime.contract import NEVER_SEEN, Float, Int
from tocsin.runtime.row_batch import Texts
from tocsin.runtime.versioned_rows import VersionedRows


@dataclass
class Witnesses:
    """Evaluations with all values that an alert shows. Each evaluation is one row.

    Attributes
    ----------
    key, time
        Key index, and event time of the evaluation.
    margin, truth, value
        Result of the condition.
    times
        Event time of the row of each stream.
    values
        Values of the columns of all streams.
    payload
        Payload of the row of each stream.
    """

    key: Int
    time: Int
    margin: Float
    truth: Int
    value: Float
    times: Int
    values: Float
    payload: Texts

    @classmethod
    def none(cls, rows: int, streams: int, values: int) -> Witnesses:
        """Return a number of empty rows."""
        whole = [np.zeros(rows, np.int64) for _ in range(3)]
        texts = np.full((rows, streams), None, dtype=object)
        times, numbers = np.zeros((rows, streams), np.int64), np.zeros((rows, values))
        return cls(whole[0], whole[1], np.zeros(rows), whole[2], np.zeros(rows), times, numbers, texts)

    def take(self, at: Any) -> Witnesses:
        """Return the rows at some positions."""
        return Witnesses(*(column[at] for column in self.columns()))

    def columns(self) -> list[NDArray[Any]]:
        """Return the columns in the order of the fields."""
        return [self.key, self.time, self.margin, self.truth, self.value, self.times, self.values, self.payload]

    def joined(self, other: Witnesses) -> Witnesses:
        """Return these rows, followed by the other rows."""
        pairs = zip(self.columns(), other.columns(), strict=True)
        return Witnesses(*(np.concatenate(pair) for pair in pairs))


@dataclass(frozen=True)
class WitnessLookup:
    """Lookup of times, values and payload of the rows of a combination.

    Attributes
    ----------
    value_offsets
        Position of the first value of each stream in a witness.
    tuples
        Rows of all streams, as the join reads them.
    segments
        Rows of each stream.
    bases
        Position of the first row of each stream among `tuples`.
    """

    value_offsets: Int
    tuples: Tuples
    segments: Sequence[VersionedRows]
    bases: Int

    def evaluations(self, evaluations: Evaluations, at: Int, time: Int, key: Int) -> Witnesses:
        """Return the witnesses of some evaluations of this batch."""
        scores = (evaluations.margin[at], evaluations.truth[at], evaluations.value[at])
        return self._rows(key[at], time[at], scores, evaluations.witness[at])

    def matches(self, matches: Int, scores: Float) -> Witnesses:
        """Return the witnesses of all true combinations."""
        offsets = self.segments[0].offsets
        first = matches[:, 0] if len(matches) else np.zeros(0, np.int64)
        key = np.searchsorted(offsets, first, side="right") - 1
        times = self.tuples.time[matches] if len(matches) else np.zeros((0, len(self.segments)), np.int64)
        truth = np.ones(len(matches), np.int64)
        return self._rows(key, times.max(axis=1, initial=NEVER_SEEN), (scores[:, 0], truth, scores[:, 1]), matches)

    def _rows(self, key: Int, time: Int, scores: tuple[Float, Int, Float], chosen: Int) -> Witnesses:
        margin, truth, value = scores
        shown = Witnesses.none(len(key), len(self.segments), int(self.value_offsets[-1]))
        for i, segment in enumerate(self.segments):
            at = chosen[:, i] - self.bases[i]
            shown.times[:, i] = segment.time[at]
            for c, column in enumerate(segment.values):
                shown.values[:, int(self.value_offsets[i]) + c] = column[at]
            shown.payload[:, i] = segment.texts(at)
        return Witnesses(key, time, margin, truth, value, shown.times, shown.values, shown.payload)
