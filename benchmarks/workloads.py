"""Seeded workloads: readings of a fleet in Parquet files, one file of each stream per micro-batch.

Every key reports about once per second and stream, with its own phase and a jitter, so that readings of two streams
hardly share a time. Files are in time order, rows inside a file too. Values are a slow wave per key plus noise; about
one reading in a thousand is a spike.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

START_US = 1_767_225_600_000_000  # 2026-01-01T00:00:00Z
STEP_US = 1_000_000
THREE_STREAMS = ("h", "a", "s")


def readings(rng: np.random.Generator, keys: int, rows: int, first_row: int) -> pa.Table:
    """Make `rows` rows of one stream that follow `first_row` earlier ones: (key long, ts timestamp, value double)."""
    number = np.arange(first_row, first_row + rows, dtype=np.int64)
    key = number % keys
    phase = key * STEP_US // keys
    jitter = rng.integers(-STEP_US // 4, STEP_US // 4, rows)
    time = START_US + number // keys * STEP_US + phase + jitter
    value = 20.0 + 5.0 * np.sin(time / 6e8 + key) + rng.normal(0.0, 1.0, rows)
    value += np.where(rng.random(rows) < 0.001, 25.0, 0.0)
    order = np.argsort(time, kind="stable")
    return pa.table({"key": key[order], "ts": pa.array(time[order], pa.timestamp("us", "UTC")), "value": value[order]})


def streams(folder: Path, names: tuple[str, ...], keys: int, rows: int, files: int, seed: int) -> dict[str, Path]:
    """Write `rows` rows over all of `names`, `files` files each, into a folder per stream; give the folders."""
    per_file = rows // len(names) // files
    paths = {}
    for place, name in enumerate(names):
        rng = np.random.default_rng([seed, place])
        paths[name] = Path(folder) / name
        paths[name].mkdir(parents=True, exist_ok=True)
        for file in range(files):
            table = readings(rng, keys, per_file, file * per_file)
            pq.write_table(table, paths[name] / f"part-{file:05d}.parquet")
    return paths


def two_streams(
    folder: Path, keys: int = 1000, rows: int = 2_000_000, files: int = 20, seed: int = 1
) -> dict[str, Path]:
    """Write the streams `r` and `s`: the workload that the design's numbers speak of, as its defaults."""
    return streams(folder, ("r", "s"), keys, rows, files, seed)


def three_streams(
    folder: Path, keys: int = 1000, rows: int = 3_000_000, files: int = 20, seed: int = 1
) -> dict[str, Path]:
    """Write the streams `h`, `a` and `s`: humidity, air temperature and surface temperature, as far as timing goes."""
    return streams(folder, THREE_STREAMS, keys, rows, files, seed)
