"""A small example on this machine: a stream falls silent for hours, little is kept meanwhile, no alarm is missed."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from tocsin.columns import EPOCH
from tocsin.local import run_local
from tocsin.logic import Float, Int
from tocsin.rules import Rule

SECOND, MINUTE, HOUR = 10**6, 60 * 10**6, 3600 * 10**6
STREAMS = ("humidity", "air", "surface")
WITHIN = 5 * MINUTE
OUTAGE = 6 * HOUR
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
    outage="6h",
)


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


@dataclass
class Progress:
    """Lines that say how far the run is; in a terminal one line that is written over."""

    factory: Factory
    started: float = field(default_factory=time.monotonic)
    kept: list[dict[str, int]] = field(default_factory=list)
    totals: dict[str, dict[str, int]] = field(default_factory=dict)

    def say(self, text: str) -> None:
        """Write a line with the seconds since the start."""
        print(f"[{time.monotonic() - self.started:5.1f} s] {text}", flush=True)

    def on_batch(self, done: Mapping[str, Any]) -> None:
        """Take over the counts of a micro-batch and show them."""
        for name, counts in done["counts"].items():
            mine = self.totals.setdefault(name, {})
            for count, number in counts.items():
                mine[count] = mine.get(count, 0) + number
        self.kept.append({name: counts.get("retained", 0) for name, counts in self.totals.items()})
        number, received = len(self.kept), sum(counts.get("received", 0) for counts in self.totals.values())
        text = (
            f"micro-batch {number:2} of {self.factory.batches}, {done['seconds']:4.1f} s: "
            f"{received:9,} readings so far, {sum(self.kept[-1].values()):7,} remembered"
        )
        if sys.stdout.isatty():
            print(
                f"\r[{time.monotonic() - self.started:5.1f} s] {text}",
                end="\n" if number == self.factory.batches else "",
                flush=True,
            )
        else:
            self.say(text + (" (humidity is back)" if number - 1 == self.factory.back_in else ""))


def main(factory: Factory | None = None) -> None:
    """Run the example from beginning to end; exit with status 1 if an alarm was missed."""
    factory = factory or Factory()
    progress = Progress(factory)
    silent = [clock(factory.start_us + us) for us in factory.silent_us]
    print(
        f"Condensation on {factory.machines} machines: an alert where the dew point is above a surface's temperature."
    )
    print("Humidity and air temperature give the dew point; readings at most 5 minutes apart belong together.")
    print(f"The humidity stream is silent from {silent[0]} to {silent[1]}, then sends all at once what it held back.\n")
    streams = factory.streams()
    # The yardstick. It also compiles the kernels, which Spark's workers then find in the cache.
    without = joined_lives(run_local(in_order(streams), RULE))
    progress.say(
        f"{len(without)} alerts from the same readings without the outage, in this process; kernels are compiled"
    )
    with tempfile.TemporaryDirectory(prefix="tocsin-demo-") as name:
        folder = Path(name)
        rows = run_on_spark(factory, streams, folder, progress)
    lives = joined_lives(rows)
    print_alerts(lives)
    kept_promise = print_check(streams, lives, without)
    progress.say("done")
    if not kept_promise:
        sys.exit(1)


def run_on_spark(
    factory: Factory, streams: Mapping[str, Mapping[str, Any]], folder: Path, progress: Progress
) -> list[dict[str, Any]]:
    """Write the readings as files, watch them with Spark, and show what was remembered during the silence."""
    # Imported here because pyspark is not needed to read this module.
    from tocsin.spark.demo import local_session, run_query, state_bytes, write_batch

    for name, columns in streams.items():
        batch = factory.batch_of(columns["arrived"])
        for number in range(factory.batches):
            write_batch(folder / name, number, {column: values[batch == number] for column, values in columns.items()})
    progress.say(
        f"{sum(len(columns['ts']) for columns in streams.values()):,} readings written as Parquet; starting Spark"
    )
    with local_session(folder) as session:
        progress.say(
            f"Spark {session.version} is up; the first micro-batch starts workers and loads or compiles kernels"
        )
        rows = run_query(session, RULE, folder, STREAMS, progress.on_batch)
        last = factory.back_in - 1
        print_state(factory, streams, progress, state_bytes(session, folder, last, STREAMS), last)
    return rows


def print_state(
    factory: Factory,
    streams: Mapping[str, Mapping[str, Any]],
    progress: Progress,
    sizes: Mapping[str, int],
    last: int,
) -> None:
    """Compare what was remembered at the end of the silence with what a plain join would have held."""
    now = factory.start_us + (last + 1) * factory.batch_us
    floor = now - OUTAGE - WITHIN
    hours = (now - factory.start_us - factory.silent_us[0]) / HOUR
    print(f"\nState at {clock(now)}, at the end of {hours:.0f} hours without humidity:")
    print(f"  {'':10}{'':10}{'a plain join keeps':>24}{'Tocsin keeps':>20}")
    print(f"  {'stream':10}{'received':>10}{'rows':>12}{'bytes':>12}{'rows':>10}{'bytes':>10}")
    total = np.zeros(5, np.int64)
    for name in STREAMS:
        ts, arrived = streams[name]["ts"], streams[name]["arrived"]
        here = arrived < now
        plain, kept = int((here & (ts >= floor)).sum()), progress.kept[last][name]
        # A plain join would hold the same columns of more rows.
        line = [int(here.sum()), plain, plain * ROW_BYTES, kept, sizes[name]]
        total += line
        print(state_line(name, line))
    print(state_line("all", total.tolist()))
    print(
        f"  1 row of {total[1] / total[3]:.0f} is kept; with keys and open alerts, pages have {sizes['all']:,} bytes."
    )
    print(f"  A plain join must keep every row of the last {OUTAGE // HOUR} hours: any may still find a partner.")
    print_counts(progress)


def print_counts(progress: Progress) -> None:
    """Show what became of all rows."""
    print("\nAfter the last micro-batch, per stream:")
    names = ("received", "omitted", "expired", "retained", "late", "quarantined")
    print(f"  {'stream':10}" + "".join(f"{name:>13}" for name in names))
    for name in STREAMS:
        print(f"  {name:10}" + "".join(f"{progress.totals[name].get(count, 0):>13,}" for count in names))
    missing = sum(
        progress.totals[name].get("received", 0) - sum(progress.totals[name].get(count, 0) for count in names[1:])
        for name in STREAMS
    )
    print(f"  received - (omitted + expired + retained + late + quarantined) = {missing}")


# Time and value of a remembered row.
ROW_BYTES = 16


def state_line(name: str, numbers: Sequence[int]) -> str:
    """One line of the table of states."""
    return f"  {name:10}" + "".join(
        f"{number:>{width},}" for number, width in zip(numbers, (10, 12, 12, 10, 10), strict=True)
    )


def joined_lives(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The changes of state of one alert as one: from its start to its end, None while it goes on."""
    lives: dict[tuple[str, str], dict[str, Any]] = {}
    for row in rows:
        identity = (row["id"], row["quality"])
        if identity not in lives or row["endsAt"] is not None:
            lives[identity] = dict(row)
    return sorted(lives.values(), key=lambda life: (life["startsAt"], life["labels"]["machine"]))


def print_alerts(lives: Sequence[Mapping[str, Any]]) -> None:
    """Show a few alerts, those of the silence first among them."""
    late = [life for life in lives if "late" in life["quality"]]
    print(f"\n{len(lives)} alerts, {len(late)} of them found when humidity came back. Three of those, and two others:")
    head = f"  {'machine':9}{'from':>10}{'to':>10}{'dew point':>11}{'surface':>9}"
    print(f"{head}   witness: humidity, air; times of humidity, air, surface")
    for life in [*late[:3], *[life for life in lives if life not in late][:2]]:
        values = {part["stream"]: part["values"]["value"] for part in life["witness"]}
        times = ", ".join(moment(part["time"]) for part in life["witness"])
        ends = "firing" if life["endsAt"] is None else moment(life["endsAt"])
        print(
            f"  {life['labels']['machine']:9}{moment(life['startsAt']):>10}{ends:>10}{life['value']:>9.2f} C"
            f"{values['surface']:>7.1f} C   {values['humidity']:.1f} %, {values['air']:.1f} C; {times}"
        )


def in_order(streams: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """The streams without the column that says when a reading arrived."""
    return {
        name: {column: columns[column] for column in ("machine", "ts", "value")} for name, columns in streams.items()
    }


def print_check(
    streams: Mapping[str, Mapping[str, Any]], lives: Sequence[Mapping[str, Any]], without: Sequence[Mapping[str, Any]]
) -> bool:
    """Compare with the full join of all readings, worked out by NumPy alone, and with a run that had no outage.

    Each alert's end is taken before `keep_firing_for`, so only times at which the condition was found true count.
    """
    windows, missed = 0, 0
    for machine in np.unique(streams["air"]["machine"]).tolist():
        starts = true_windows({name: of_machine(columns, machine) for name, columns in streams.items()})
        mine = [life for life in lives if life["labels"]["machine"] == machine]
        windows += len(starts)
        missed += int((~covered(starts, mine)).sum())
    false = sum(not holds(life["witness"]) for life in lives)
    lost = sum(not near(alert, lives) for alert in without)
    print("\nCheck:")
    print(f"  windows of 5 minutes in which the full join of all readings has an alarm: {windows:,}")
    print(f"  of them without an alert at most 5 minutes away:  {missed}")
    print(f"  alerts of the same readings without the outage: {len(without)}; with it: {len(lives)}")
    print(f"  of the former without one of the latter at most 10 minutes away:  {lost}")
    print(f"  alerts whose witness is no alarm:  {false}")
    kept_promise = not missed + lost + false
    print("  No alarm was missed.\n" if kept_promise else "  THE PROMISE IS BROKEN. This is a bug.\n")
    return kept_promise


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


def moment(time: datetime) -> str:
    """A time of day."""
    return f"{time:%H:%M:%S}"


def clock(time_us: int) -> str:
    """A time of day, given microseconds."""
    return f"{datetime.fromtimestamp(time_us // SECOND, tz=EPOCH.tzinfo):%H:%M}"
