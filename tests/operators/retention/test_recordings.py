"""What stays of recorded data, against the optima that were found by exhaustive reasoning when the design was made."""

from __future__ import annotations

import csv
import gzip
from datetime import datetime

import numpy as np
import pytest

from benchmarks.recordings import recording
from tocsin.operators.retention.threshold_sorter import ThresholdSorter, retained

pytestmark = pytest.mark.recordings


def read(file: str, time: str, value: str) -> tuple[np.ndarray, np.ndarray]:
    """Give times (dates: in seconds) and values of one column."""
    with gzip.open(recording(file), "rt", encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    texts = [row[time] for row in rows]
    if ":" in texts[0]:
        zero = datetime.fromisoformat(texts[0])
        t = [int((datetime.fromisoformat(text) - zero).total_seconds()) for text in texts]
    else:
        t = [int(text) for text in texts]
    return np.array(t, np.int64), np.array([float(row[value]) for row in rows])


RECORDINGS = [
    pytest.param("uci_occupancy/occupancy.csv.gz", "date", "light", 3600, 1928, 20560, id="light"),
    pytest.param("uci_occupancy/occupancy.csv.gz", "date", "temperature", 3600, 3788, 20560, id="temperature"),
    pytest.param("debs2012_manufacturing/debs2012_small.csv.gz", "ts_us", "mf01", 1_000_000, 5007, 17000, id="power"),
]


@pytest.mark.parametrize(("file", "time", "value", "interval", "optimum", "size"), RECORDINGS)
def test_a_recording_in_order_keeps_the_optimum(
    file: str, time: str, value: str, interval: int, optimum: int, size: int
) -> None:
    t, v = read(file, time, value)
    assert (t.size, retained(t, v, interval).sum()) == (size, optimum)


@pytest.mark.parametrize(("file", "time", "value", "interval", "optimum", "size"), RECORDINGS)
@pytest.mark.parametrize("disorder", [0.1, 1.0, 10.0])
def test_a_shuffled_recording_keeps_hardly_more(
    file: str, time: str, value: str, interval: int, optimum: int, size: int, disorder: float
) -> None:
    t, v = read(file, time, value)
    rng = np.random.default_rng(7)
    arrival = np.argsort(t + rng.normal(0, disorder * interval, size))
    sorter = ThresholdSorter(interval)
    for start in range(0, size, 500):
        batch = arrival[start : start + 500]
        sorter.push(t[batch], v[batch])
    assert optimum <= len(sorter) <= 1.02 * optimum
