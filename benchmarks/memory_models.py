"""The automatic model and the three models that can be set by hand, on the paper's streams and on recordings.

Each cell runs the monitor, the choice of the policies and the shedding kernel of a rule over one stream, row by row in
slices as a pipeline does, and counts the pairs of equal keys that are found. Recall counts pairs from the second
quarter of the stream on.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks import memory_automatic as recorded
from benchmarks import memory_data as data
from benchmarks.memory_data import Int
from benchmarks.memory_runs import Row
from benchmarks.recordings import recording
from tocsin.hashing import row_fingerprints
from tocsin.operators.retention.bracketing import CLOSED, SegmentRows
from tocsin.operators.retention.shedding import (
    HELD,
    WHOLE,
    Arrivals,
    Inputs,
    SliceRows,
    new_versions,
    no_newest,
    shed_rows,
)
from tocsin.operators.retention.utility.row_utility import RowUtility
from tocsin.runtime.contract import NEVER

# Key columns of each recording.
KEYS = {
    "crypto_feed_arrival/bybit.csv.gz": ("symbol", "channel"),
    "crypto_feed_arrival/coinbase.csv.gz": ("symbol", "side"),
    "crypto_feed_arrival/kraken.csv.gz": ("symbol", "price"),
    "debs2012_manufacturing/debs2012_small.csv.gz": ("mf01",),
    "hhar_phone_watch/phone_accelerometer.csv.gz": ("activity",),
    "hhar_phone_watch/watch_gyroscope.csv.gz": ("activity",),
    "lorawan_helium/frames.csv.gz": ("device",),
    "lorawan_helium/receptions.csv.gz": ("hotspot",),
    "nab_sensors/series.csv.gz": ("series",),
    "nycflights13/flights_2013q1.parquet": ("dest",),
    "nycflights13/weather_2013.csv.gz": ("origin", "wind_dir"),
    "skab_testbed/valve1.csv.gz": ("run",),
    "soccer_zxy_tromso/positions.parquet": ("player_id",),
    "uci_occupancy/occupancy.csv.gz": ("temperature",),
    "ulb_library1_wsn/readings.csv.gz": ("node_id",),
}
MODELS = ("auto", "key", "age", "none")
CASES, SKEWS, PERCENTS = ("DC", "IC", "UC"), (1.2, 2.0), (10, 30)
# Rows of a slice, after the first ones.
SLICE = 4_096
LIVES = 250


class Stream(NamedTuple):
    """Rows of both lanes in order of arrival, the window of each lane, and the rows that both windows have."""

    name: str
    lane: Int
    time: Int
    key: Int
    windows: tuple[int, int]
    granules: int = 20

    @property
    def memory(self) -> float:
        """The rows that both windows have on average."""
        span = max(int(self.time[-1] - self.time[0]), 1)
        return sum(float((self.lane == i).sum()) * min(self.windows[i] / span, 1.0) for i in (0, 1))


def slices(rows: int) -> Iterator[slice]:
    """Divide rows into slices: 1,024, 1,024, 2,048, and 4,096 from there on."""
    begin = 0
    while begin < rows:
        end = min(rows, begin + min(max(begin, 1_024), SLICE))
        yield slice(begin, end)
        begin = end


def run(stream: Stream, memory: int, by: str) -> tuple[Int, list[tuple[float, float, float]]]:
    """Return the pairs found with each row as the later one, and the predicted recall with its interval per slice."""
    utility = RowUtility(stream.windows, LIVES, stream.granules, by)
    keys, key = np.unique(stream.key, return_inverse=True)
    newest, end = no_newest(len(keys)), np.zeros(len(key), np.int64)
    horizon = np.array([max(stream.windows)] * 2)
    inputs = Inputs(np.array([0, 1]), np.full(2, WHOLE), np.full((2, 2), -1), np.full(2, CLOSED), horizon)
    stamp, nothing = row_fingerprints((stream.key, stream.time), len(key)), np.zeros(0, np.int64)
    retained, predicted = nothing, list[tuple[float, float, float]]()
    clock = np.maximum.accumulate(stream.time)
    for span in slices(len(key)):
        if utility.is_due() and len(retained):
            utility.judge(float(memory), (1.0, 1.0))
        interval = utility.interval
        predicted.append((utility.predicted, *(interval or (np.nan, np.nan))))
        new = np.arange(span.start, span.stop)
        rows = np.concatenate([retained, new])
        segment = stream.lane[rows] * len(keys) + key[rows]
        order = np.argsort(segment, kind="stable")
        rows, segment = rows[order], segment[order]
        offsets = np.concatenate([[0], np.cumsum(np.bincount(segment, minlength=2 * len(keys)))])
        is_new = rows >= span.start
        known = np.bincount(segment[~is_new], minlength=2 * len(keys))
        time, lane = stream.time[rows], stream.lane[rows]
        by_key = np.zeros(len(rows))
        for i in (0, 1):
            by_key[lane == i] = utility.expected_results(i, stream.key[rows[lane == i]])
        part = SegmentRows(
            time, by_key, time, time, np.zeros(len(rows), np.bool_), rows, np.where(is_new, rows - span.start, -1)
        )
        slice_rows = SliceRows(
            offsets, known, segment, np.repeat([0, 1], len(keys)), part, by_key.reshape(1, -1),
            np.ones(len(rows), np.int64), by_key, rows,
        )  # fmt: skip
        arrivals = Arrivals(stream.lane[span], key[span], stream.time[span], clock[span], np.arange(len(new)))
        versions, how = new_versions(len(rows), len(new)), utility.utilities(memory)
        left, state = versions.end, versions.state
        none = np.zeros(len(new), np.int64)
        _, most = shed_rows(slice_rows, arrivals, inputs, how, newest, memory, none, versions)
        assert most <= memory
        end[rows] = np.where(left == NEVER, NEVER, left + span.start)
        stays = rows[state == HELD]
        lost = np.zeros(len(new), np.bool_)
        gone = rows[(left != NEVER) & (state != HELD)]
        lost[gone[gone >= span.start] - span.start] = True
        utility.learn(stream.lane[span], clock[span], stream.key[span], stamp[span], np.zeros(len(new), np.bool_))
        for i in (0, 1):
            utility.lose(i, stamp[gone[stream.lane[gone] == i]])
        order = np.lexsort((stream.time[stays], segment[state == HELD]))
        retained = stays[order]
    return pairs(stream, key, end), predicted


def pairs(stream: Stream, key: Int, end: Int) -> Int:
    """Return for each row the earlier rows of the other lane in its window that are retained at its arrival."""
    found = np.zeros(len(key), np.int64)
    for lane in (0, 1):
        held, probe = np.flatnonzero(stream.lane == lane), np.flatnonzero(stream.lane != lane)
        order = probe[np.argsort(key[probe], kind="stable")]
        # Probes by key and arrival as one number each.
        place = key[order] * (len(key) + 1) + order
        last = np.searchsorted(np.maximum.accumulate(stream.time), stream.time[held] + stream.windows[lane], "right")
        until = np.minimum(end[held], last)
        first = np.searchsorted(place, key[held] * (len(key) + 1) + held)
        stop = np.maximum(np.searchsorted(place, key[held] * (len(key) + 1) + until), first)
        count = np.zeros(len(order) + 1, np.int64)
        np.add.at(count, first, 1)
        np.add.at(count, stop, -1)
        found[order] += np.cumsum(count)[:-1]
    return found


def paper(*, quick: bool) -> Iterator[Stream]:
    """The paper's streams by frequency: rows of S1 are joined with later rows of S2."""
    for case in CASES:
        for z in SKEWS:
            streams = data.drawn(*data.frequencies(case, z, 1), 4_000 if quick else 20_000, 1)
            yield _merged(f"{case}, Z = {z:g}", streams, (data.W1, 0))


def recordings(*, quick: bool) -> Iterator[Stream]:
    """The recordings of the benchmark of the paper's join, and every second row of each other recording by its key."""
    for of in recorded.recordings(quick=quick):
        lengths = of.lengths if not of.by_tuples else (2 * of.lengths[0], 2 * of.lengths[1])
        yield _merged(of.name, of.streams, lengths, of.granules)
    for path, columns in KEYS.items():
        if recording(path).exists() and not quick:
            key = _read_keys(recording(path), columns)
            number = np.arange(len(key))
            window = min(2_000, len(key) // 16)
            name = f"{path.split('.')[0]} by {', '.join(columns)}"
            yield Stream(name, number % 2, number, key, (window, window))


def _read_keys(path: Path, columns: tuple[str, ...]) -> Int:
    """Return the number of the key of each row of a table."""
    if path.suffix == ".parquet":
        import pyarrow.parquet as pq

        table = pq.read_table(path, columns=list(columns))
        rows = list(zip(*(table.column(name).to_pylist() for name in columns), strict=True))
    else:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            rows = [tuple(row[name] for name in columns) for row in csv.DictReader(file)]
    return np.unique(["\0".join(map(str, row)) for row in rows], return_inverse=True)[1].reshape(-1).astype(np.int64)


def _merged(name: str, streams: data.Streams, windows: tuple[int, int], granules: int = 20) -> Stream:
    time, key = np.concatenate(streams.times), np.concatenate(streams.keys)
    order = np.argsort(time, kind="stable")
    return Stream(name, (order >= len(streams.times[0])).astype(np.int64), time[order], key[order], windows, granules)


def models(part: str, *, quick: bool) -> Iterator[Row]:
    """Recall of each model from the second quarter of the stream on, by memory."""
    for streams in (paper, recordings):
        for stream in streams(quick=quick):
            quarter = len(stream.key) // 4
            exact = pairs(stream, np.unique(stream.key, return_inverse=True)[1], np.full(len(stream.key), NEVER))
            for percent in PERCENTS:
                memory = max(int(stream.memory * percent / 100), 16)
                recall, predicted = dict[str, float](), list[tuple[float, float, float]]()
                for by in MODELS:
                    found, told = run(stream, memory, by)
                    recall[by] = int(found[quarter:].sum()) / max(int(exact[quarter:].sum()), 1)
                    if by == "auto":
                        ends = [span.start for span in slices(len(stream.key))]
                        predicted = [one for one, at in zip(told, ends, strict=True) if at >= quarter]
                known = np.array([one for one in predicted if not np.isnan(one[0])]).reshape(-1, 3)
                yield {
                    "part": part, "data": stream.name, "memory_percent": percent, "memory": memory, **recall,
                    "ratio": recall["auto"] / max(recall[by] for by in MODELS[1:]),
                    "predicted": float(known[:, 0].mean()) if len(known) else None,
                    "interval": known[:, 1:].mean(axis=0).tolist() if len(known) else None,
                }  # fmt: skip
