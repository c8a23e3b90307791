"""The plant of the demo: machines with three sensors, one of them silent for hours, and the rule that watches them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tocsin.rules import Rule
from tocsin.runtime.contract import Float, Int

SECOND, MINUTE, HOUR = 10**6, 60 * 10**6, 3600 * 10**6
STREAMS = ("humidity", "air", "surface")
WITHIN = 5 * MINUTE
ALLOWED_LATENESS = 6 * HOUR
KEEP = 10 * MINUTE

# The dew point by Magnus's formula, with Bögel's constants, in degrees Celsius.
GAMMA = "(ln(humidity/100) + 18.678*air/(257.14+air))"
RULE = Rule(
    "Condensation",
    f"257.14*{GAMMA} / (18.678-{GAMMA}) > surface",
    within="5m",
    on="machine",
    shapes={"humidity": "increasing", "air": "increasing", "surface": "decreasing"},
    domains={"humidity": (1, 100), "air": (-40, 60), "surface": (-40, 60)},
    keep_firing_for="10m",
    allowed_lateness="6h",
)


# The same rule as a file; the readings arrive hour by hour, a file of each stream per micro-batch.
_STREAM = """\
  {name}:
    source: {{parquet: {{path: {name}, max_files_per_batch: 1}}}}
    keys: [machine]
    arrival: arrived
    values: {{value: {{domain: [{low}, {high}]}}}}
"""
_FILE = """\
streams:
{streams}groups:
  - name: demo
    rules:
      - alert: {rule.alert}
        expr: {rule.expr}
        within: {rule.within}
        on: [{rule.on[0]}]
        shapes: {{humidity: increasing, air: increasing, surface: decreasing}}
        keep_firing_for: {rule.keep_firing_for}
        allowed_lateness: {rule.allowed_lateness}
        annotations: {{summary: "{{{{ $labels.machine }}}}: {{{{ $values.humidity }}}} % at {{{{ $values.air }}}} °C"}}
archive: {{path: kept}}
"""


def rule_file_text() -> str:
    """The rule of the demo over files beside it, and an archive, so that every alert can be explained."""
    streams = [_STREAM.format(name=name, low=RULE.domains[name][0], high=RULE.domains[name][1]) for name in STREAMS]
    return _FILE.format(streams="".join(streams), rule=RULE)


@dataclass(frozen=True)
class Factory:
    """Machines with three sensors each, of which humidity is silent for a while and then sends all at once."""

    machines: int = 50
    hours: int = 8
    every_us: int = 5 * SECOND
    silent_us: tuple[int, int] = (HOUR, 6 * HOUR)
    batch_us: int = HOUR
    start_us: int = 1_767_225_600 * SECOND  # 2026-01-01
    seed: int = 20260101

    @property
    def batches(self) -> int:
        """Into how many micro-batches arrivals fall."""
        return -(-self.hours * HOUR // self.batch_us)

    @property
    def back_in(self) -> int:
        """The micro-batch that brings the silent stream back."""
        return self.silent_us[1] // self.batch_us

    def streams(self) -> dict[str, dict[str, Any]]:
        """Columns of each stream: machine, ts and arrived in microseconds, value."""
        random = np.random.default_rng(self.seed)
        columns: dict[str, list[Any]] = {name: [] for name in STREAMS}
        for machine in range(self.machines):
            for name, (offset_us, value) in self._readings(random).items():
                columns[name].append((np.full(len(value), f"m{machine:02}"), offset_us, value))
        made = {}
        for name, parts in columns.items():
            names, offset_us, value = (np.concatenate(column) for column in zip(*parts, strict=True))
            arrived = offset_us.copy()
            if name == "humidity":
                begin, end = self.silent_us
                arrived[(offset_us >= begin) & (offset_us < end)] = end
            order = np.lexsort((offset_us, arrived))
            made[name] = {
                "machine": names[order],
                "ts": self.start_us + offset_us[order],
                "arrived": self.start_us + arrived[order],
                "value": value[order],
            }
        return made

    def _readings(self, random: np.random.Generator) -> dict[str, tuple[Int, Float]]:
        """One machine: slow swings, damp air let in now and then, noise; rounded, and never quite on time."""
        count = self.hours * HOUR // self.every_us
        damp = np.sort(random.uniform(0, self.hours, 4))
        readings = {}
        for name, middle, swing, noise, step in (
            ("humidity", 45.0, 4.0, 0.3, 0.1),
            ("air", 22.0, 1.5, 0.05, 0.1),
            ("surface", 15.0, 1.0, 0.05, 0.1),
        ):
            offset_us = np.arange(count) * self.every_us + random.integers(0, self.every_us // 2, count)
            hours = offset_us / HOUR
            value = middle + swing * np.sin(hours * random.uniform(0.7, 1.3) + random.uniform(0, 6))
            if name == "humidity":
                for at in damp:
                    value += random.uniform(10, 35) * np.exp(-(((hours - at) / 0.08) ** 2))
            value += random.normal(0, noise, count)
            readings[name] = (offset_us, np.round(np.round(value / step) * step, 1))
        return readings

    def batch_of(self, arrived: Int) -> Int:
        """The micro-batch in which each reading arrives."""
        numbers: Int = (arrived - self.start_us) // self.batch_us
        return numbers
