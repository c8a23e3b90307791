"""Series rows: convert the input series of a test to row batches.

A series has the samples of one column. Samples of the same step become one row if their series have the same stream and
equal labels. A delay of a sample moves the arrival of its row.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tocsin.plan import Watch
from tocsin.rules.rulefile import RuleFile
from tocsin.runtime.contract import Batch, Float
from tocsin.testing.model import Scenario, Series


def make_batches(scenario: Scenario, file: RuleFile, watch: Watch) -> list[Batch]:
    """Return a row batch for each stream of a keyed pipeline. A missing sample is NaN: its readers ignore the row."""
    return [_batch(scenario, file, watch, stream) for stream in watch.streams]


def _batch(scenario: Scenario, file: RuleFile, watch: Watch, stream: str) -> Batch:
    groups: dict[tuple[tuple[str, str], ...], list[Series]] = {}
    for series in scenario.series:
        if series.stream == stream:
            groups.setdefault(tuple(sorted(series.labels.items())), []).append(series)
    keys: dict[tuple[str, ...], int] = {}
    parts = []
    for labels, group in groups.items():
        key = keys.setdefault(tuple(dict(labels)[name] for name in watch.on), len(keys))
        parts.append((key, *_rows(scenario, file, watch, stream, group)))
    columns = watch.columns(stream)
    none = np.zeros(0, np.int64)
    return Batch(
        0,
        stream,
        list(keys),
        np.concatenate([none, *(np.full(len(time), key) for key, time, _, _ in parts)]),
        np.concatenate([none, *(time for _, time, _, _ in parts)]),
        np.concatenate([none, *(arrival for _, _, arrival, _ in parts)]),
        {
            column: np.concatenate([np.zeros(0), *(values[at] for *_, values in parts)])
            for at, column in enumerate(columns)
        },
    )


def _rows(
    scenario: Scenario, file: RuleFile, watch: Watch, stream: str, group: Sequence[Series]
) -> tuple[np.ndarray[tuple[int], np.dtype[np.int64]], np.ndarray[tuple[int], np.dtype[np.int64]], list[Float]]:
    """Return event time, arrival time and values of the rows from the series of one stream and key."""
    count = max(len(series.samples) for series in group)
    has_sample, delay = np.zeros(count, np.bool_), np.zeros(count, np.int64)
    values = {column: np.full(count, np.nan) for column in watch.columns(stream)}
    for series in group:
        steps = np.flatnonzero(series.samples.there)
        has_sample[steps], delay[steps] = True, series.delays_us[steps]
        column = file.streams[stream].column(series.column)
        if column in values:
            values[column][steps] = series.samples.values[steps]
    rows = np.flatnonzero(has_sample)
    time = scenario.start_us + rows * scenario.interval_us
    return time, time + delay[rows], [numbers[rows] for numbers in values.values()]
