"""Series that are reduced: synthetic ones, and the recordings where they are at hand."""

from __future__ import annotations

import csv
import gzip
from datetime import datetime

import numpy as np

from benchmarks.recordings import recording

Series = tuple[np.ndarray, np.ndarray]

RECORDINGS = {
    "occupancy, light": ("uci_occupancy/occupancy.csv.gz", "date", "light"),
    "occupancy, temperature": ("uci_occupancy/occupancy.csv.gz", "date", "temperature"),
    "DEBS 2012, mf01": ("debs2012_manufacturing/debs2012_small.csv.gz", "ts_us", "mf01"),
    "road sensor speed_6005 (gaps)": ("nab_sensors/series.csv.gz", "timestamp", "value"),
}


def wiener(rng: np.random.Generator, t: np.ndarray) -> np.ndarray:
    """A Wiener process at these times."""
    return np.cumsum(rng.normal(0, 1, t.size) * np.sqrt(np.diff(t, prepend=t[0])))


def gamma_wiener(size: int, seed: int = 5) -> Series:
    rng = np.random.default_rng(seed)
    t = np.cumsum(rng.gamma(1.0, 1.0, size))
    return t, wiener(rng, t)


def with_gaps(size: int, seed: int = 6) -> Series:
    """A Wiener process that is silent for a thousand to a million steps, once in about two thousand tuples."""
    rng = np.random.default_rng(seed)
    steps = rng.gamma(1.0, 1.0, size)
    silent = rng.random(size) < 1 / 2000
    steps[silent] = 10 ** rng.uniform(3, 6, int(silent.sum()))
    t = np.cumsum(steps)
    return t, wiener(rng, t)


def recordings() -> dict[str, Series]:
    """Give the recordings that are here; none is no error."""
    return {name: _read(*where) for name, where in RECORDINGS.items() if recording(where[0]).exists()}


def _read(file: str, time: str, value: str) -> Series:
    with gzip.open(recording(file), "rt", encoding="utf-8") as lines:
        rows = [row for row in csv.DictReader(lines) if row.get("series", "speed_6005") == "speed_6005"]
    texts = [row[time] for row in rows]
    dated = ":" in texts[0]
    t = [int(datetime.fromisoformat(text + "+00:00").timestamp()) if dated else int(text) for text in texts]
    order = np.argsort(t, kind="stable")
    return np.array(t, np.int64)[order], np.array([float(row[value]) for row in rows])[order]
