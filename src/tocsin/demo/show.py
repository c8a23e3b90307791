"""What the demo prints: how far it is, what was remembered, a few alerts, and whether the promise was kept."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import numpy as np

from tocsin.columns import EPOCH
from tocsin.demo.check import covered, holds, near, of_machine, true_windows
from tocsin.demo.plant import ALLOWED_LATENESS, HOUR, SECOND, STREAMS, WITHIN, Factory
from tocsin.run_directory import Progress as Done

# Time and value of a remembered row.
ROW_BYTES = 16


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

    def on_batch(self, done: Done) -> None:
        """Take over the counts of a micro-batch and show them; one that had no rows brings nothing."""
        if not any(done.gained.rows.values()):
            return
        self.totals = {name: dict(counts) for name, counts in done.total.counts.items()}
        seconds = sum(done.milliseconds.values()) / 1000
        self.kept.append({name: counts.get("retained", 0) for name, counts in self.totals.items()})
        number, received = len(self.kept), sum(counts.get("received", 0) for counts in self.totals.values())
        text = (
            f"micro-batch {number:2} of {self.factory.batches}, {seconds:4.1f} s: "
            f"{received:9,} rows so far, {sum(self.kept[-1].values()):7,} in state"
        )
        if sys.stdout.isatty():
            print(
                f"\r[{time.monotonic() - self.started:5.1f} s] {text}",
                end="\n" if number == self.factory.batches else "",
                flush=True,
            )
        else:
            self.say(text + (" (humidity is back)" if number - 1 == self.factory.back_in else ""))


def print_state(
    factory: Factory,
    streams: Mapping[str, Mapping[str, Any]],
    progress: Progress,
    sizes: Mapping[str, int],
    last: int,
) -> None:
    """Compare what was remembered at the end of the silence with what a plain join would have held."""
    now = factory.start_us + (last + 1) * factory.batch_us
    floor = now - ALLOWED_LATENESS - WITHIN
    hours = (now - factory.start_us - factory.silent_us[0]) / HOUR
    print(f"\nState at {clock(now)}, at the end of {hours:.0f} hours without humidity:")
    print(f"  {'':10}{'':10}{'full join retains':>24}{'Tocsin retains':>20}")
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
        f"  1 row of {total[1] / total[3]:.0f} is retained; with keys and open alerts, the state has {sizes['all']:,} "
        "bytes."
    )
    hours = ALLOWED_LATENESS // HOUR
    print(f"  A full join must retain every row of the last {hours} hours: each can still find a partner.")
    print_counts(progress)


def print_counts(progress: Progress) -> None:
    """Show what became of all rows."""
    print("\nAfter the last micro-batch, per stream:")
    names = ("received", "omitted", "duplicates", "expired", "retained", "late", "quarantined")
    print(f"  {'stream':10}" + "".join(f"{name:>13}" for name in names))
    for name in STREAMS:
        print(f"  {name:10}" + "".join(f"{progress.totals[name].get(count, 0):>13,}" for count in names))
    missing = sum(
        progress.totals[name].get("received", 0) - sum(progress.totals[name].get(count, 0) for count in names[1:])
        for name in STREAMS
    )
    print(f"  received - (omitted + duplicates + expired + retained + late + quarantined) = {missing}")


def state_line(name: str, numbers: Sequence[int]) -> str:
    """One line of the table of states."""
    return f"  {name:10}" + "".join(
        f"{number:>{width},}" for number, width in zip(numbers, (10, 12, 12, 10, 10), strict=True)
    )


def print_alerts(lives: Sequence[Mapping[str, Any]]) -> None:
    """Show a few alerts, those of the silence first among them."""
    late = [life for life in lives if "late" in life["quality"]]
    print(
        f"\n{len(lives)} alerts, {len(late)} of them late, raised after humidity returned. Three late alerts and two "
        "others:"
    )
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
    print(f"  windows of 5 minutes with an alarm in the full join of all rows: {windows:,}")
    print(f"  of these windows, without an alert at most 5 minutes away:  {missed}")
    print(f"  alerts from the same rows without the outage: {len(without)}; with the outage: {len(lives)}")
    print(f"  alerts without the outage that have no alert with the outage at most 10 minutes away:  {lost}")
    print(f"  alerts with a witness that does not satisfy the condition:  {false}")
    kept_promise = not missed + lost + false
    print("  No alarm was missed.\n" if kept_promise else "  THE GUARANTEE IS VIOLATED. This is a bug.\n")
    return kept_promise


def moment(time: datetime) -> str:
    """A time of day."""
    return f"{time:%H:%M:%S}"


def clock(time_us: int) -> str:
    """A time of day, given microseconds."""
    return f"{datetime.fromtimestamp(time_us // SECOND, tz=EPOCH.tzinfo):%H:%M}"
