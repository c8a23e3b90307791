"""Demo: a factory in real time on local Spark, with an outage of one stream, a quality contract and a dashboard.

Three sensors of each machine report ten times per second. The humidity sensor of each machine fails in every 24
seconds for up to 12 seconds, and then sends the delayed rows at once. The rule `Condensation` is exact: late rows raise
late alerts, and no alert is missed. The rule `DampSurface` waits for late rows, as long as its recall target requires.
At the end, NumPy joins all rows of the run and checks that no alert of `Condensation` is missing.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tocsin.delivery import AlertLog
from tocsin.delivery.alert_json import parse_microseconds
from tocsin.factory import Factory
from tocsin.formatting import format_count, format_duration, format_event_time, format_share, format_size
from tocsin.plan import plan_rules
from tocsin.rules.load import load_rule_file
from tocsin.run_directory import Progress
from tocsin.runtime.contract import Float, Int

# Run directory in the folder of the demo.
RUN = "run"
WITHIN_US, KEEP_US = 5_000_000, 2_000_000
OUTAGES = {"humidity": 1}
# Largest delay of a row outside of outages.
DISORDER_US = 1_000_000
_MOST_ALERTS = 8

RULES = """\
streams:
  humidity:
    source: {{factory: {{machines: {machines}, rate: {rate}, disorder: 1s, outages: 1}}}}
    keys: [machine]
    values: {{value: {{domain: [1, 100]}}}}
  air:
    source: {{factory: {{machines: {machines}, rate: {rate}, disorder: 1s}}}}
    keys: [machine]
    values: {{value: {{domain: [-40, 60]}}}}
  surface:
    source: {{factory: {{machines: {machines}, rate: {rate}, disorder: 1s}}}}
    keys: [machine]
    values: {{value: {{domain: [-40, 60]}}}}
groups:
  - name: demo
    labels: {{severity: critical}}
    rules:
      - alert: Condensation      # exact
        expr: ln(humidity/100) + 18.678*air/(257.14+air) - 18.678*surface/(257.14+surface) > 0
        within: 5s
        on: [machine]
        keep_firing_for: 2s
        allowed_lateness: 10m
        annotations: {{summary: "{{{{ $labels.machine }}}}: {{{{ $values.humidity }}}} % at {{{{ $values.air }}}} °C"}}
      - alert: DampSurface       # with a quality contract
        expr: humidity > 70 and air - surface > 5
        within: 5s
        on: [machine]
        for: 300ms
        keep_firing_for: 2s
        allowed_lateness: 10m
        quality: {{recall: 0.99, period: 5s}}
        labels: {{severity: warning}}
        annotations: {{summary: "{{{{ $labels.machine }}}}: humidity {{{{ $values.humidity }}}} %"}}
archive: {{path: archive}}
"""


def main(folder: Path | None = None, machines: int = 40, seconds: float = 45.0) -> None:
    """Run the demo for some seconds after the first micro-batch; exit with status 1 if an alert is missing.

    Rule file, archive and run directory (`RUN`) are written into a folder; without one, into a temporary folder.
    """
    made = tempfile.TemporaryDirectory(prefix="tocsin-demo-") if folder is None else nullcontext(str(folder))
    with made as name:
        if not _play(Path(name), machines, seconds):
            sys.exit(1)


def _play(folder: Path, machines: int, seconds: float) -> bool:
    # Imported here, because `--help` must not need pyspark.
    from tocsin.spark.run import Options, run
    from tocsin.spark.sources.factory import first_start_us

    rate = 10 * machines
    (folder / "rules.yaml").write_text(RULES.format(machines=machines, rate=rate), "utf-8")
    file = load_rule_file(folder / "rules.yaml", partial(plan_rules, bounded=False), {})
    print(f"{machines} machines with 3 sensors report 10 times per second. Each humidity sensor fails for up to 12 s,")
    print("then sends its delayed rows. An alert fires if the dew point is above the temperature of a surface.")
    print("Spark starts now; the first micro-batch loads kernels, or compiles them once.\n")
    stop, started, shown = threading.Event(), time.monotonic(), list[float]()

    def report(progress: Progress) -> None:
        now = time.monotonic()
        if not shown or now - shown[-1] >= 4:
            shown.append(now)
            print(f"[{now - started:5.1f} s] {format_progress(progress)}", flush=True)
        # The first micro-batch starts Python workers and loads kernels.
        if now - shown[0] >= seconds:
            stop.set()

    options = Options(folder / RUN, master="local[2]", conf={"spark.sql.shuffle.partitions": "2"})
    ended = run(file, options, stop, report)
    assert ended.progress is not None
    rows = dict[str, Mapping[str, Any]]()
    for name, number in ended.progress.total.rows.items():
        outages, start_us = OUTAGES.get(name, 0), first_start_us(folder / RUN)
        factory = Factory(machines, rate=rate, disorder_us=DISORDER_US, outages=outages, start_us=start_us)
        rows[name] = factory.read(name, 0, number)
    lives = alerts_of(alert for _, alert in AlertLog(folder / RUN / "alerts").read())
    print_results(ended.progress, rows, lives)
    return print_check(rows, [one for one in lives if one["alert"] == "Condensation"])


def format_progress(progress: Progress) -> str:
    """Return one line about a micro-batch: rows, state and alerts."""
    received, retained = sum(progress.total.rows.values()), retained_rows(progress)
    firing = sum(progress.total.firing().values())
    return (
        f"micro-batch {progress.batch:2}: {received:7,} rows received, {retained:6,} in state; "
        f"{format_count(firing, 'alert')} firing"
    )


def retained_rows(progress: Progress) -> int:
    """Return the number of rows in state, with the rows that wait for a reorder."""
    counts = progress.total.counts.values()
    return sum(store.get("retained", 0) + store.get("held", 0) for store in counts)


def alerts_of(events: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return each alert with its latest state, in the order of start times. Times are in microseconds."""
    found: dict[tuple[str, str, str], dict[str, Any]] = {}
    for event in events:
        end = event["endsAt"]
        times = {
            "start": parse_microseconds(event["startsAt"]),
            "end": None if end is None else parse_microseconds(end),
        }
        found[event["alert"], event["id"], event["startsAt"]] = {**event, **times}
    fired = [one for one in found.values() if one["state"] in {"firing", "resolved"}]
    return sorted(fired, key=lambda one: (one["start"], one["labels"]["machine"]))


def print_results(
    progress: Progress, rows: Mapping[str, Mapping[str, Any]], lives: Sequence[Mapping[str, Any]]
) -> None:
    """Print the outage, the state, the quality contract and some alerts."""
    delays = rows["humidity"]["arrived"] - rows["humidity"]["ts"]
    delayed = int((delays > DISORDER_US).sum())
    print(
        f"\nOutage: {delayed:,} of {len(delays):,} humidity rows arrived late, by up to {format_duration(max(delays))}."
    )
    retained, size = retained_rows(progress), format_size(progress.total.state_bytes)
    # With this allowed lateness, no row of the demo expires in a full join.
    joined = sum(store.get("received", 0) for store in progress.total.counts.values())
    print(
        f"State: {retained:,} rows, {size}. A full join with an allowed lateness of 10 minutes retains {joined:,} rows,"
    )
    print(f"because both rules read every row; Tocsin retains {format_share(retained / max(joined, 1))} of them.")
    quality = progress.waits.get("DampSurface", {})
    wait_us, recall = quality.get("wait_us"), quality.get("recall")
    if wait_us is not None:
        known = "unknown" if recall is None else format_share(recall)
        print(f"Quality: `DampSurface` requests a recall of 99%. It waits {format_duration(wait_us)};", end=" ")
        print(f"the estimated recall is {known}.")
    print(f"\nAlerts ({len(lives)}; quality `late`: raised by delayed rows):")
    for one in lives[:_MOST_ALERTS]:
        length = "open" if one["end"] is None else format_duration(one["end"] - one["start"])
        since = format_event_time(one["start"])[11:19]
        summary = one["annotations"].get("summary", "")
        print(f"  {since}  {one['alert']:13} {length:>7}  {one['quality']:12} {summary}")
    if len(lives) > _MOST_ALERTS:
        print(f"  and {len(lives) - _MOST_ALERTS} more")


def print_check(rows: Mapping[str, Mapping[str, Any]], lives: Sequence[Mapping[str, Any]]) -> bool:
    """Compare the alerts of `Condensation` with a full join of all rows; return whether no alert is missing."""
    windows, missed = 0, 0
    for machine in np.unique(rows["air"]["machine"]).tolist():
        starts = true_windows({name: rows_of(columns, machine) for name, columns in rows.items()})
        mine = [one for one in lives if one["labels"]["machine"] == machine]
        windows, missed = windows + len(starts), missed + int((~covered(starts, mine)).sum())
    false = sum(not holds(one["witness"]) for one in lives)
    print(f"\nCheck: a full join of all rows has {windows:,} windows of 5 s with a true condition.")
    print(f"  windows without an alert: {missed}; alerts with a false witness: {false}")
    is_complete = not missed + false
    print("  No alert was missed." if is_complete else "  THE GUARANTEE IS VIOLATED. This is a bug.")
    return is_complete


def rows_of(columns: Mapping[str, Any], machine: str) -> tuple[Int, Float]:
    """Return times and values of one machine, in the order of times."""
    at = np.flatnonzero(columns["machine"] == machine)
    at = at[np.argsort(columns["ts"][at], kind="stable")]
    return columns["ts"][at], columns["value"][at]


def true_windows(rows: Mapping[str, tuple[Int, Float]]) -> Int:
    """Return the starts of the windows in which the condition is true.

    Rows that are pairwise at most `WITHIN_US` apart are in the window that starts with the first of them. The condition
    increases with humidity and air, so the best rows of a window are its largest two and its smallest surface.
    """
    starts = np.unique(np.concatenate([times for times, _ in rows.values()]))
    humidity, air = (largest(*rows[name], starts) for name in ("humidity", "air"))
    times, surface = rows["surface"]
    coldest = -largest(times, -surface, starts)
    known = np.isfinite(humidity) & np.isfinite(air) & np.isfinite(coldest)
    found: Int = starts[known][margin(humidity[known], air[known], coldest[known]) > 0]
    return found


def largest(times: Int, values: Float, starts: Int) -> Float:
    """Return the largest value of each window, and -inf for an empty window."""
    begins = np.searchsorted(times, starts, side="left")
    ends = np.searchsorted(times, starts + WITHIN_US, side="right")
    pairs = np.stack([begins, ends], axis=1).ravel()
    most = np.maximum.reduceat(np.append(values, -np.inf), pairs)[::2]
    return np.where(begins < ends, most, -np.inf)


def margin(humidity: Any, air: Any, surface: Any) -> Any:
    """Return the margin of `Condensation`: it is above 0 if the dew point is above the temperature of the surface."""
    return np.log(humidity / 100) + 18.678 * air / (257.14 + air) - 18.678 * surface / (257.14 + surface)


def covered(starts: Int, lives: Sequence[Mapping[str, Any]]) -> Any:
    """Return for each window whether an alert was true at most `WITHIN_US` before, in or after the window."""
    found = np.zeros(len(starts), np.bool_)
    for one in lives:
        end = np.iinfo(np.int64).max if one["end"] is None else one["end"] - KEEP_US
        found |= (one["start"] <= starts + 2 * WITHIN_US) & (end >= starts - WITHIN_US)
    return found


def holds(witness: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether the rows of a witness satisfy the condition."""
    values = {part["stream"]: part["values"]["value"] for part in witness}
    times = [parse_microseconds(part["time"]) for part in witness]
    is_close = max(times) - min(times) <= WITHIN_US
    return is_close and bool(margin(values["humidity"], values["air"], values["surface"]) > 0)
