"""Alert events, alert logs and clocks for the delivery tests."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from tocsin.delivery import AlertLog, AlertWriter
from tocsin.delivery.backoff import Backoff

MINUTE_US = 60_000_000
# 2026-01-01.
START_US = 1_767_225_600_000_000


class ManualClock:
    """Clock that advances only by waits."""

    def __init__(self, now: float = START_US / 1e6) -> None:
        self.time = now
        self.waits: list[float] = []

    def now(self) -> float:
        return self.time

    def wait(self, stop: threading.Event, seconds: float) -> None:
        self.waits.append(seconds)
        self.time += seconds


def quick_backoff() -> Backoff:
    return Backoff(random_source=random.Random(0))


def row(
    state: str = "firing", *, key: str = "p1", start: int = 0, end: int | None = None, **more: Any
) -> dict[str, Any]:
    """Return an alert event; times are minutes after START_US."""
    alert = more.pop("alert", "Condensation")
    starts = START_US + start * MINUTE_US
    return {
        "alert": alert,
        "id": f"{alert}-{key}-{start}",
        "state": state,
        "labels": {"machine": key, "severity": "critical"},
        "startsAt": starts,
        "firesAt": None if state in {"pending", "inactive"} else starts,
        "endsAt": None if end is None else START_US + end * MINUTE_US,
        "value": 16.0,
        "margin": 2.0,
        "witness": [
            {"stream": "dew_point", "time": starts, "values": {"value": 16.0}, "payload": {"site": "north"}},
            {"stream": "surface", "time": starts, "values": {"value": 14.0, "probe": 3.0}, "payload": None},
        ],
        "quality": "exact",
        "annotations": {"summary": f"damp at {key}"},
        **more,
    }


def write_log(
    run: Path, batches: Iterable[Sequence[dict[str, Any]]], *, first: int = 0, form: str = "json"
) -> AlertLog:
    writer = AlertWriter(run / "alerts", form)
    for number, rows in enumerate(batches, first):
        writer.write(number, rows)
    return AlertLog(run / "alerts")


def changes(log: AlertLog) -> list[tuple[str, str]]:
    """Return alert id and state of all lines, in order."""
    return [(alert["id"], alert["state"]) for _, alert in log.read()]


@st.composite
def histories(draw: st.DrawFn) -> list[list[dict[str, Any]]]:
    """Draw batches of alert events of all states for a few keys; some alerts of a key have equal times."""
    clocks = {key: 0 for key in draw(st.sampled_from([["a"], ["a", "b"], ["a", "b", "c", "d"]]))}
    lines: list[dict[str, Any]] = []
    open_alerts: dict[str, tuple[int, str]] = {}
    for number in range(draw(st.integers(0, 25))):
        key = draw(st.sampled_from(sorted(clocks)))
        clocks[key] += draw(st.integers(0, 3))
        now, name = clocks[key], f"{key}-{number}"
        if key in open_alerts:
            start, opened = open_alerts.pop(key)
            lines.append(row("resolved", key=key, start=start, end=now, id=opened))
            continue
        kind = draw(st.sampled_from(["firing", "firing", "pending", "inactive", "match"]))
        if kind in {"firing", "pending"}:
            lines += [row("pending", key=key, start=now, id=name)] if kind == "pending" else []
            lines.append(row("firing", key=key, start=now, id=name))
            open_alerts[key] = now, name
        elif kind == "inactive":
            lines.append(row("pending", key=key, start=now, id=name))
            lines.append(row("inactive", key=key, start=now, end=now, id=name))
        else:
            lines.append(row("match", key=key, start=now, end=now, id=name))
    boundaries = sorted(draw(st.lists(st.integers(0, len(lines)), max_size=6)))
    return [lines[i:j] for i, j in zip([0, *boundaries], [*boundaries, len(lines)], strict=True)]
