"""Micro-batches as pages draw them: the lines of `progress.jsonl` that can be read, and the numbers of each by name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tocsin.dashboard.fates import stores_of
from tocsin.run_directory import Progress
from tocsin.run_directory.progress import parse_progress
from tocsin.runtime.metrics import METRICS

# Metrics by alert, and the first words of their series.
ALERT_METRICS = tuple(metric for metric in METRICS if metric.labels == ("alert",) and metric.place)
OF_ALERT = tuple(f"{metric.name} " for metric in ALERT_METRICS)


class Noted(NamedTuple):
    """A micro-batch, when it was done, how many rows it had, and what is drawn of it."""

    progress: Progress
    seconds: float
    rows: float
    numbers: dict[str, float]


def noted_of(lines: Iterable[bytes], *, is_first: bool) -> tuple[list[Noted], int]:
    """The micro-batches of some lines, and how many lines are none; the first may be a piece, and is not counted."""
    noted, torn = list[Noted](), 0
    for line in lines:
        found = list(parse_progress([line])) if line.strip() else []
        torn += bool(line.strip()) and not found and not is_first
        is_first = False
        for one in found:
            try:
                noted.append(Noted(one, one.seconds, float(sum(one.gained.rows.values())), numbers_of(one)))
            except (TypeError, ValueError, AttributeError, KeyError, OverflowError):
                torn += 1
    return noted, torn


def numbers_of(one: Progress) -> dict[str, float]:
    """What is drawn over time of a micro-batch, by name."""
    stores = stores_of(one.total.counts)
    found: dict[str, float] = {
        "state bytes": one.total.state_bytes,
        "kept": sum(store.now for store in stores),
        "omitted": sum(store.counts.get("omitted", 0) for store in stores),
        "received": sum(store.received for store in stores),
        "firing": sum(one.total.firing().values()),
        "seconds": sum(one.milliseconds.values()) / 1000,
    }
    found |= {f"lag {name}": lag for name, lag in one.lag_s.items()}
    found |= {f"rows {name}": number for name, number in one.gained.rows.items()}
    for metric in ALERT_METRICS:
        found |= {f"{metric.name} {alert}": value * metric.scale for (alert,), value in one.total.items(metric.name)}
    return found
