"""The edge filter and a rule together: no alarm is lost because of the rows that the filter omits."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import tocsin
from tocsin.edge.edge_filter import EdgeFilter
from tocsin.edge.settings import Settings

SECOND = 1_000_000
WITHIN = 5 * SECOND
INTERVAL = 2 * WITHIN


def _reduced(stream: dict[str, np.ndarray], max_delay_us: int, shape: str) -> dict[str, np.ndarray]:
    """Return the rows of a stream that the edge filter sends."""
    edge = EdgeFilter(Settings("ts", ("value",), INTERVAL, max_delay_us, (shape,), ("machine",), time_unit="us"))
    rows = zip(stream["machine"], stream["ts"].tolist(), stream["value"].tolist(), strict=True)
    data = b"".join(json.dumps({"machine": m, "ts": t, "value": v}).encode() + b"\n" for m, t, v in rows)
    sent = [json.loads(due.line) for due in edge.process(data) + edge.end()]
    sent.sort(key=lambda row: row["ts"])
    return {name: np.array([row[name] for row in sent]) for name in stream}


def _find_matches(streams: dict[str, dict[str, np.ndarray]]) -> list[tuple[str, int]]:
    """Return key and time of each evaluation that is true."""
    rule = tocsin.Rule(
        "Condensation",
        "dew_point > surface",
        within="5s",
        on="machine",
        shapes={"dew_point": "increasing", "surface": "decreasing"},
        emit="all",
    )
    return [(row["labels"]["machine"], _to_us(row["startsAt"])) for row in tocsin.run_local(streams, rule)]


def _to_us(time: Any) -> int:
    return int(np.datetime64(time.replace(tzinfo=None), "us").astype(np.int64))


@pytest.mark.parametrize("max_delay_us", [0, SECOND, INTERVAL])
def test_sent_rows_raise_each_alarm_within_two_intervals_when_the_edge_filter_omits_rows(max_delay_us: int) -> None:
    random = np.random.default_rng(11)
    ts = np.repeat(np.arange(600), 3) * SECOND
    machine = np.tile(["a", "b", "c"], 600)
    wave = np.sin(ts / SECOND / 40) + random.normal(0, 0.4, ts.size)
    streams = {
        "dew_point": {"machine": machine, "ts": ts, "value": np.round(12 + wave, 1)},
        "surface": {"machine": machine, "ts": ts + SECOND // 2, "value": np.round(13.8 + wave[::-1], 1)},
    }
    reduced = {
        "dew_point": _reduced(streams["dew_point"], max_delay_us, "increasing"),
        "surface": _reduced(streams["surface"], max_delay_us, "decreasing"),
    }
    expected, matches = _find_matches(streams), _find_matches(reduced)
    assert len(expected) > 50
    assert max_delay_us == 0 or len(reduced["dew_point"]["ts"]) < len(ts) / 2
    for key, time in expected:
        assert any(other == key and abs(at - time) <= 2 * INTERVAL for other, at in matches)
