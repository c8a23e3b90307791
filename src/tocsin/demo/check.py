"""The yardstick of the demo: the full join of all readings by NumPy alone, and what an alert is worth beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import numpy as np

from tocsin.columns import EPOCH
from tocsin.demo.plant import KEEP, WITHIN
from tocsin.runtime.contract import Float, Int


def joined_lives(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The changes of state of one alert as one: from its start to its end, None while it goes on."""
    lives: dict[tuple[str, str], dict[str, Any]] = {}
    for row in rows:
        identity = (row["id"], row["quality"])
        if identity not in lives or row["endsAt"] is not None:
            lives[identity] = dict(row)
    return sorted(lives.values(), key=lambda life: (life["startsAt"], life["labels"]["machine"]))


def in_order(streams: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """The streams without the column that says when a reading arrived."""
    return {
        name: {column: columns[column] for column in ("machine", "ts", "value")} for name, columns in streams.items()
    }


def near(alert: Mapping[str, Any], lives: Sequence[Mapping[str, Any]]) -> bool:
    """Tell whether the machine of an alert has another one around its start."""
    start = np.array([micros(alert["startsAt"]) - WITHIN])
    mine = [life for life in lives if life["labels"]["machine"] == alert["labels"]["machine"]]
    return bool(covered(start, mine)[0] or covered(start + WITHIN, mine)[0])


def of_machine(columns: Mapping[str, Any], machine: str) -> tuple[Int, Float]:
    """Times and values of one machine, in order of time."""
    at = np.flatnonzero(columns["machine"] == machine)
    at = at[np.argsort(columns["ts"][at], kind="stable")]
    return columns["ts"][at], columns["value"][at]


def true_windows(readings: Mapping[str, tuple[Int, Float]]) -> Int:
    """Where windows begin that hold a true combination.

    Three readings pairwise at most 5 minutes apart lie in the window that begins with the first of them, and the dew
    point rises with humidity and air, so the best of a window are its largest two and its smallest surface.
    """
    starts = np.unique(np.concatenate([times for times, _ in readings.values()]))
    humidity, air = (largest(*readings[name], starts) for name in ("humidity", "air"))
    times, surface = readings["surface"]
    coldest = -largest(times, -surface, starts)
    there = np.isfinite(humidity) & np.isfinite(air) & np.isfinite(coldest)
    found: Int = starts[there][dew_point(humidity[there], air[there]) > coldest[there]]
    return found


def largest(times: Int, values: Float, starts: Int) -> Float:
    """Largest value of each window of 5 minutes, -inf where it is empty."""
    begins = np.searchsorted(times, starts, side="left")
    ends = np.searchsorted(times, starts + WITHIN, side="right")
    pairs = np.stack([begins, ends], axis=1).ravel()
    most = np.maximum.reduceat(np.append(values, -np.inf), pairs)[::2]
    return np.where(begins < ends, most, -np.inf)


def dew_point(humidity: Any, air: Any) -> Any:
    """Temperature at which air of this humidity (in %) condenses."""
    gamma = np.log(humidity / 100) + 18.678 * air / (257.14 + air)
    return 257.14 * gamma / (18.678 - gamma)


def covered(starts: Int, lives: Sequence[Mapping[str, Any]]) -> Any:
    """Tell which windows have an alert that was on at most 5 minutes before, in or after them."""
    found = np.zeros(len(starts), np.bool_)
    for life in lives:
        begin = micros(life["startsAt"])
        end = np.iinfo(np.int64).max if life["endsAt"] is None else micros(life["endsAt"]) - KEEP
        found |= (begin <= starts + 2 * WITHIN) & (end >= starts - WITHIN)
    return found


def holds(witness: Sequence[Mapping[str, Any]]) -> bool:
    """Tell whether a witness is a true combination."""
    values = {part["stream"]: part["values"]["value"] for part in witness}
    times = [micros(part["time"]) for part in witness]
    return max(times) - min(times) <= WITHIN and bool(dew_point(values["humidity"], values["air"]) > values["surface"])


def micros(time: datetime) -> int:
    """Microseconds since 1970; Spark's times have no zone and are UTC here."""
    return round((time.replace(tzinfo=EPOCH.tzinfo) - EPOCH).total_seconds() * 10**6)
