"""Factory: readings of machines that never were, the same for the same seed, from any row number on.

Idea: a machine reports each of three sensors once per period, a little off the beat. Readings are made in blocks of 240
periods of all machines, each from a random generator of its own, and sorted inside a block by when they arrive: with
delays up to `disorder`, and after an outage all that came in it at once. No row leaves its block, so a row is known by
its number alone.

Humidity, air and surface temperature of a machine belong together: about one block in four has an episode of damp air,
in which the dew point rises above the surface; nothing else comes near to it.
Guarantee: the same arguments give the same rows, however the range of rows is cut, with the same version of NumPy. A
row comes at most `disorder` behind the newest of its stream, and one of an outage no later than the outage ended.
Cost: a block is made at once, 0.2 microseconds per row; the last few are kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tocsin.runtime.contract import Float, Int

SENSORS = ("air", "humidity", "surface")
ROUNDS = 240
MOST_OUTAGES = 20
START_US = 1_767_225_600_000_000  # 2026-01-01T00:00:00Z
# Of each sensor: mean, slow swing, noise. Values are whole tenths.
_LEVELS = {"air": (22.0, 1.5, 0.05), "humidity": (45.0, 4.0, 0.3), "surface": (15.0, 1.0, 0.05)}
_DAMP = (38.0, 45.0)
_DELAYED = 0.3
_MACHINES, _EPISODES, _ROWS = 1, 2, 3

Columns = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Factory:
    """Machines with three sensors; `rate` is rows per second and stream (0: a row per second and machine)."""

    machines: int = 10
    seed: int = 0
    rate: float = 100.0
    disorder_us: int = 0
    outages: int = 0
    start_us: int = START_US

    def __post_init__(self) -> None:
        """Check the numbers."""
        for name, least in (("machines", 1), ("seed", 0), ("rate", 0), ("disorder_us", 0), ("outages", 0)):
            if getattr(self, name) < least:
                message = f"factory: `{name}` must be at least {least}; got {getattr(self, name)}"
                raise ValueError(message)
        if self.outages > MOST_OUTAGES:
            message = f"factory: `outages` must be at most {MOST_OUTAGES}; got {self.outages}"
            raise ValueError(message)

    @property
    def period_us(self) -> int:
        """How often a machine reports."""
        return max(4, round(self.machines / self.rate * 1_000_000)) if self.rate else 1_000_000

    @property
    def block_rows(self) -> int:
        """Rows of a stream in a block."""
        return ROUNDS * self.machines

    def read(self, sensor: str, first: int, stop: int) -> Columns:
        """Give rows in order of arrival: machine, ts and arrived in microseconds since 1970, value."""
        if sensor not in SENSORS:
            message = f"factory: `sensor` must be one of {', '.join(SENSORS)}; got {sensor!r}"
            raise ValueError(message)
        parts = []
        for number in range(first // self.block_rows, -(-stop // self.block_rows)):
            begin = number * self.block_rows
            cut = slice(max(0, first - begin), stop - begin)
            parts.append({name: column[cut] for name, column in _block(self, sensor, number).items()})
        if not parts:
            parts = [{name: column[:0] for name, column in _block(self, sensor, 0).items()}]
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def arrived_by(self, sensor: str, time_us: int) -> int:
        """How many rows of a sensor have arrived by a moment."""
        number = (time_us - self.start_us) // (ROUNDS * self.period_us)
        if number < 0:
            return 0
        here: int = np.searchsorted(_block(self, sensor, number)["arrived"], time_us, side="right").item()
        return number * self.block_rows + here

    def episodes(self, number: int) -> tuple[NDArray[np.bool_], Int]:
        """Which machines have an episode of damp air in a block, and when it is worst."""
        random = np.random.default_rng([self.seed, _EPISODES, number])
        which = random.random(self.machines) < 0.25
        middle = number * ROUNDS + random.integers(30, ROUNDS - 30, self.machines)
        return which, self.start_us + middle * self.period_us


@lru_cache(maxsize=6)
def _block(factory: Factory, sensor: str, number: int) -> Columns:
    random = np.random.default_rng([factory.seed, _ROWS, SENSORS.index(sensor), number])
    shape = (ROUNDS, factory.machines)
    time = _times(factory, sensor, number, random.integers(0, factory.period_us // 4, shape))
    value = _values(factory, sensor, number, time) + random.normal(0.0, _LEVELS[sensor][2], shape)
    arrived = _arrivals(factory, number, time, random)
    names = np.array([f"m{machine:04}" for machine in range(factory.machines)])
    columns: Columns = {"ts": time.ravel(), "arrived": arrived.ravel(), "value": np.round(value, 1).ravel()}
    order = np.lexsort((columns["ts"], columns["arrived"]))
    columns = {"machine": np.tile(names, ROUNDS), **columns}
    return {name: _frozen(column[order]) for name, column in columns.items()}


def _times(factory: Factory, sensor: str, number: int, jitter: Int) -> Int:
    """A beat of its own per machine and sensor, and a jitter; a round never runs into the next."""
    random = np.random.default_rng([factory.seed, _MACHINES, SENSORS.index(sensor)])
    beat = random.integers(0, 3 * factory.period_us // 4, factory.machines)
    rounds = number * ROUNDS + np.arange(ROUNDS, dtype=np.int64)
    time: Int = factory.start_us + (rounds * factory.period_us)[:, None] + beat + jitter
    return time


def _values(factory: Factory, sensor: str, number: int, time: Int) -> Float:
    """A slow swing per machine, and damp air where there is an episode."""
    mean, swing, _ = _LEVELS[sensor]
    random = np.random.default_rng([factory.seed, _MACHINES, SENSORS.index(sensor) + len(SENSORS)])
    phase, speed = random.uniform(0, 6.283, factory.machines), random.uniform(0.7, 1.3, factory.machines)
    turns = (time - factory.start_us) / (ROUNDS * factory.period_us)
    value: Float = mean + swing * np.sin(6.283 * speed * turns + phase)
    if sensor == "humidity":
        which, middle = factory.episodes(number)
        size = np.where(which, np.random.default_rng([factory.seed, _EPISODES, number, 1]).uniform(*_DAMP), 0.0)
        value = value + size * np.exp(-(((time - middle) / (8 * factory.period_us)) ** 2))
    return value


def _arrivals(factory: Factory, number: int, time: Int, random: np.random.Generator) -> Int:
    """When readings arrive: some late, those of an outage at its end, and none after its block."""
    delay = random.integers(0, factory.disorder_us + 1, time.shape)
    arrived = time + np.where(random.random(time.shape) < _DELAYED, delay, 0)
    rounds = np.arange(ROUNDS)[:, None]
    for slot in range(factory.outages):
        length = ROUNDS // factory.outages
        lasts = random.integers(max(1, length // 20), max(2, length // 2), factory.machines)
        begins = slot * length + random.integers(0, length - lasts + 1, factory.machines)
        silent = (rounds >= begins) & (rounds < begins + lasts)
        back = factory.start_us + (number * ROUNDS + begins + lasts) * factory.period_us
        arrived = np.where(silent, np.maximum(arrived, back), arrived)
    last = factory.start_us + (number + 1) * ROUNDS * factory.period_us - 1
    return np.asarray(np.minimum(arrived, last), np.int64)


def _frozen(column: NDArray[Any]) -> NDArray[Any]:
    column.flags.writeable = False
    return column
