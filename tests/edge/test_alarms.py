"""From the sensor to the alarm: what the edge leaves out, no rule misses."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import tocsin
from tocsin.edge.filter import Filter
from tocsin.edge.settings import Settings

SECOND = 1_000_000
WITHIN = 5 * SECOND
INTERVAL = 2 * WITHIN


def _reduced(stream: dict[str, np.ndarray], hold_us: int, shape: str) -> dict[str, np.ndarray]:
    """Send a stream through the edge as JSON lines and read what comes out."""
    edge = Filter(Settings("ts", ("value",), INTERVAL, hold_us, (shape,), ("machine",), time_unit="us"))
    rows = zip(stream["machine"], stream["ts"].tolist(), stream["value"].tolist(), strict=True)
    data = b"".join(json.dumps({"machine": m, "ts": t, "value": v}).encode() + b"\n" for m, t, v in rows)
    found = [json.loads(due.line) for due in edge.take(data) + edge.end()]
    found.sort(key=lambda row: row["ts"])
    return {name: np.array([row[name] for row in found]) for name in stream}


def _fires(streams: dict[str, dict[str, np.ndarray]]) -> list[tuple[str, int]]:
    """Give the key and the time of each evaluation that is true."""
    rule = tocsin.Rule(
        "Condensation",
        "dew_point > surface",
        within="5s",
        on="machine",
        shapes={"dew_point": "increasing", "surface": "decreasing"},
        emit="all",
    )
    return [(row["labels"]["machine"], _us(row["startsAt"])) for row in tocsin.run_local(streams, rule)]


def _us(time: Any) -> int:
    return int(np.datetime64(time.replace(tzinfo=None), "us").astype(np.int64))


@pytest.mark.parametrize("hold_us", [0, SECOND, INTERVAL])
def test_every_alarm_of_all_rows_has_one_of_the_rows_sent_at_most_two_intervals_away(hold_us: int) -> None:
    random = np.random.default_rng(11)
    ts = np.repeat(np.arange(600), 3) * SECOND
    machine = np.tile(["a", "b", "c"], 600)
    wave = np.sin(ts / SECOND / 40) + random.normal(0, 0.4, ts.size)
    streams = {
        "dew_point": {"machine": machine, "ts": ts, "value": np.round(12 + wave, 1)},
        "surface": {"machine": machine, "ts": ts + SECOND // 2, "value": np.round(13.8 + wave[::-1], 1)},
    }
    reduced = {
        "dew_point": _reduced(streams["dew_point"], hold_us, "increasing"),
        "surface": _reduced(streams["surface"], hold_us, "decreasing"),
    }
    expected, found = _fires(streams), _fires(reduced)
    assert len(expected) > 50
    assert hold_us == 0 or len(reduced["dew_point"]["ts"]) < len(ts) / 2
    for key, time in expected:
        assert any(own == key and abs(at - time) <= 2 * INTERVAL for own, at in found)
