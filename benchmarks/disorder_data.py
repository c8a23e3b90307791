"""The three datasets of the disorder benchmark, seeded: two synthetic ones and a football match with disorder added.

A dataset is its rows in order of arrival. `README.md` has the recipe of each in words.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from benchmarks.recordings import recording
from tocsin.runtime.contract import Float, Int

RECORDING = recording("soccer_zxy_tromso/positions.parquet")
SECOND = 1_000_000
TICK_US = 10_000
# Between two ranks of the Zipf delays. Ji et al. do not give it; this one comes near their Table II and Figure 6.
DELAY_GRID_US = 100_000
LARGEST_DELAY_US = 20 * SECOND
VALUES = 100
# Every dataset starts here, so that no time is negative.
START_US = 1_000 * SECOND


class Dataset(NamedTuple):
    """Rows in order of arrival, and the query that runs on them."""

    name: str
    query: str
    windows_us: tuple[int, ...]
    stream: Int
    time_us: Int
    attributes: Float

    def head(self, seconds: int) -> Dataset:
        """The rows that arrive while the newest row is at most so many seconds after the first clock."""
        newest = np.maximum.accumulate(self.time_us)
        rows = int(np.searchsorted(newest, newest[0] + seconds * SECOND, side="right"))
        return self._replace(stream=self.stream[:rows], time_us=self.time_us[:rows], attributes=self.attributes[:rows])


def synthetic(name: str, seed: int, seconds: int = 1800) -> Dataset:
    """D_syn of Ji et al., section VI: `x3` or `x4`."""
    skews, columns, window, query = {
        "x3": ((2.0, 3.0, 3.0), ((0,), (0,), (0,)), 5, "equal"),
        "x4": ((3.0, 3.0, 3.0, 4.0), ((0, 1, 2), (0,), (0,), (0,)), 3, "star"),
    }[name]
    rng = np.random.default_rng([seed, len(skews)])
    streams, ticks = len(skews), seconds * SECOND // TICK_US
    clock = START_US + np.arange(1, ticks + 1, dtype=np.int64) * TICK_US
    time = np.empty((ticks, streams), np.int64)
    values = np.zeros((ticks, streams, 1 + max(max(used) for used in columns)))
    ranks = LARGEST_DELAY_US // DELAY_GRID_US + 1
    for stream, skew in enumerate(skews):
        time[:, stream] = clock - zipf(rng, np.full(ticks, skew), ranks) * DELAY_GRID_US
        for column in columns[stream]:
            values[:, stream, column] = 1 + zipf(rng, changing_skew(rng, ticks), VALUES)
    stream_of = np.tile(np.arange(streams, dtype=np.int64), ticks)
    return Dataset(
        name, query, (window * SECOND,) * streams, stream_of, time.reshape(-1), values.reshape(ticks * streams, -1)
    )


def changing_skew(rng: np.random.Generator, ticks: int) -> Float:
    """The skew of an attribute at each tick: 1.0, then drawn from [0, 5] again every 1 to 10 minutes."""
    skew, at = np.full(ticks, 1.0), 0
    while True:
        at += int(rng.uniform(60, 600) * SECOND / TICK_US)
        if at >= ticks:
            return skew
        skew[at:] = rng.uniform(0.0, 5.0)


def zipf(rng: np.random.Generator, skew: Float, ranks: int) -> Int:
    """Draw a rank from 0 for each skew: rank r has weight (r + 1) ** -skew."""
    drawn = rng.random(skew.size)
    out = np.empty(skew.size, np.int64)
    for value in np.unique(skew):
        weights = np.arange(1, ranks + 1, dtype=np.float64) ** -value
        cumulative = np.cumsum(weights) / weights.sum()
        mine = skew == value
        out[mine] = np.minimum(np.searchsorted(cumulative, drawn[mine], side="right"), ranks - 1)
    return out


# Players in two groups; player 1 has hardly any rows, and player 3 leaves after five minutes.
GROUPS = ((2, 3, 6, 8, 11, 13), (1, 7, 10, 12, 15, 16))
LONGEST_GAP_US = SECOND
TRANSIT_US = 45_000
# This share of the rows is held up, by 0.5 s times a Pareto number of shape 1, at most 15 s.
HELD, HELD_US, MOST_HELD_US = 0.0003, 500_000, 15 * SECOND
# By stream: the row this long after the start is held up so long. The last of each sets the largest delay.
LONGEST_US = (
    ((20 * SECOND, 18 * SECOND), (300 * SECOND, 22 * SECOND)),
    ((20 * SECOND, 18 * SECOND), (400 * SECOND, 26 * SECOND)),
)


def soccer(seed: int) -> Dataset:
    """The recording of a match, its gaps skipped, with disorder added: a row arrives a transit after its time."""
    time, group, x, y = recorded()
    rng = np.random.default_rng([seed, 2])
    transit = rng.exponential(TRANSIT_US, time.size)
    held = np.flatnonzero(rng.random(time.size) < HELD)
    transit[held] = np.minimum(HELD_US * (1 + rng.pareto(1.0, held.size)), MOST_HELD_US)
    for stream, longest in enumerate(LONGEST_US):
        for after_us, transit_us in longest:
            transit[np.flatnonzero((group == stream) & (time >= START_US + after_us))[0]] = transit_us
    order = np.argsort(time + transit.astype(np.int64), kind="stable")
    places = np.stack((x, y), axis=1)
    return Dataset("x2", "near", (5 * SECOND,) * 2, group[order], time[order], places[order])


def recorded() -> tuple[Int, Int, Float, Float]:
    """Times from START_US with long gaps cut out, groups, and places."""
    import pyarrow.parquet as pq

    table = pq.read_table(RECORDING)
    time, player, x, y = (table.column(name).to_numpy() for name in ("t_us", "player_id", "x", "y"))
    step = np.diff(time, prepend=time[:1])
    step[step > LONGEST_GAP_US] = 50_000
    group = np.isin(player, GROUPS[1]).astype(np.int64)
    return START_US + np.cumsum(step), group, x.astype(np.float64), y.astype(np.float64)


def make(name: str, seed: int, *, quick: bool = False) -> Dataset:
    """A dataset by name; the quick one is its first minute."""
    if name == "x2":
        return soccer(seed).head(60) if quick else soccer(seed)
    return synthetic(name, seed, 60 if quick else 1800)
