"""Waiting on recordings with arrival times: late rows, clocks that stand or run apart, arrival before event time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from benchmarks.recordings import recording
from tocsin import Rule
from tocsin.local import Result, run_local_detailed
from tocsin.runtime.metrics import OUTCOMES

pytestmark = pytest.mark.recordings

MS, SECOND = 1_000, 1_000_000
Streams = dict[str, dict[str, np.ndarray]]


def table(key: Any, ts: Any, arrival: Any, value: Any) -> dict[str, np.ndarray]:
    fine = np.isfinite(np.asarray(value, float)) & np.isfinite(np.asarray(arrival, float))
    columns = {"key": np.asarray(key, object), "ts": ts, "arrival": arrival, "value": np.asarray(value, float)}
    found = {name: np.asarray(cells)[fine] for name, cells in columns.items()}
    return found | {name: found[name].astype(np.int64) for name in ("ts", "arrival")}


def lorawan() -> tuple[Streams, dict[str, Any]]:
    """Temperatures of each radio device beside those of all: rare frames come up to 48 minutes late."""
    rows = pd.read_csv(recording("lorawan_helium/frames.csv.gz"))
    rows = rows[rows.device == "0018B20000020CA0"].dropna(subset=["temperature"])
    ts, arrival = rows.event_ms.to_numpy() * MS, rows.arrival_ms.to_numpy() * MS
    odd = rows.fcnt.to_numpy() % 2 == 1
    key, value = np.full(len(rows), "site", object), rows.temperature.to_numpy()
    streams = {name: table(key[at], ts[at], arrival[at], value[at]) for name, at in (("a", odd), ("b", ~odd))}
    return streams, {
        "expr": "a - b > 0.9",
        "within": "1h",
        "period": "1d",
        "adapt_every": "10m",
        "step": "1s",
        "allowed_lateness": "2h",
    }


def crypto() -> tuple[Streams, dict[str, Any]]:
    """Bids and asks of all symbols of an exchange: heavy disorder between symbols, up to 1.6 s."""
    rows = pd.read_csv(recording("crypto_feed_arrival/bybit.csv.gz"))
    rows = rows[rows.channel == "book"]
    streams = {}
    for name, side in (("a", "buy"), ("b", "sell")):
        mine = rows[rows.side == side]
        streams[name] = table(["all"] * len(mine), mine.event_us, mine.arrival_us, mine.price % 100)
    return streams, {"expr": "a - b > 80", "within": "100ms", "period": "2s", "adapt_every": "200ms", "step": "1ms"}


def hhar() -> tuple[Streams, dict[str, Any]]:
    """Accelerometer and gyroscope of a watch whose clock stands still for minutes."""
    streams = {}
    for name, file in (("a", "watch_accelerometer"), ("b", "watch_gyroscope")):
        (path,) = recording("hhar_phone_watch").glob(f"*{file}*")
        rows = pd.read_csv(path)
        streams[name] = table(["watch"] * len(rows), rows.creation_ns // 1000, rows.arrival_ms * MS, rows.x)
    return streams, {"expr": "a - b > -8", "within": "50ms", "period": "10s", "adapt_every": "1s", "step": "10ms"}


def flights() -> tuple[Streams, dict[str, Any]]:
    """Scheduled departures, told when they left: hours late, some before their time; weather of the hour in time."""
    rows = pd.read_parquet(recording("nycflights13/flights_2013q1.parquet")).dropna(subset=["actual_dep_s"])
    rows = rows.iloc[:12_000]
    weather = pd.read_csv(recording("nycflights13/weather_2013.csv.gz"), na_values="NA")
    hours = pd.to_datetime(weather.time_hour, utc=True).astype("int64").to_numpy() // 1000
    weather, hours = weather[hours < hours[0] + 20 * 86_400 * SECOND], hours[hours < hours[0] + 20 * 86_400 * SECOND]
    a = table(rows.origin, rows.sched_dep_s * SECOND, rows.actual_dep_s * SECOND, rows.dep_delay)
    b = table(weather.origin, hours, hours, weather.wind_speed)
    settings = {
        "expr": "a + b > 60",
        "within": "30m",
        "period": "1d",
        "adapt_every": "1h",
        "step": "1m",
        "allowed_lateness": "24h",
    }
    return {"a": a, "b": b}, settings


RECORDINGS = {"lorawan": lorawan, "crypto": crypto, "hhar": hhar, "flights": flights}


def rule(settings: dict[str, Any], **given: Any) -> Rule:
    allowed_lateness = settings.get("allowed_lateness", "1h")
    return Rule("x", settings["expr"], within=settings["within"], on="key", allowed_lateness=allowed_lateness, **given)


def asked(settings: dict[str, Any], recall: float) -> dict[str, Any]:
    names = ("period", "adapt_every", "step")
    return {"quality": {"recall": recall, "in_order": True} | {name: settings[name] for name in names}}


def check_counts(result: Result) -> None:
    for counts in result.counts.values():
        assert counts["received"] == sum(counts.get(outcome, 0) for outcome in OUTCOMES)
        assert counts["held"] == 0


def recall_of(found: Result, truth: Result) -> float:
    """The share of true results that came in order, over all periods."""
    true = sum(whole for _, whole in truth.metrics.results_by_period()["x"].values())
    return sum(in_order for in_order, _ in found.metrics.results_by_period()["x"].values()) / true


@pytest.mark.parametrize("name", RECORDINGS)
def test_waits_put_recorded_rows_in_order_as_far_as_they_promise(name: str) -> None:
    streams, settings = RECORDINGS[name]()
    by_time = {stream: {**columns, "arrival": columns["ts"]} for stream, columns in streams.items()}
    truth = run_local_detailed(by_time, rule(settings, quality={"wait": 0}), arrival="arrival")
    assert sum(whole for _, whole in truth.metrics.results_by_period()["x"].values()) > 100
    found, behind = {}, {}
    for wait in ("0s", "max"):
        found[wait] = run_local_detailed(streams, rule(settings, quality={"wait": wait}), arrival="arrival")
        check_counts(found[wait])
        behind[wait] = sum(counts["behind"] for counts in found[wait].counts.values())
    assert behind["max"] <= behind["0s"]
    # To wait as long as the largest delay so far puts no fewer results in order than no wait, within a hundredth.
    assert recall_of(found["max"], truth) >= 0.99 * recall_of(found["0s"], truth)
    for recall in (0.8, 0.9, 0.99):
        reached = run_local_detailed(streams, rule(settings, **asked(settings, recall)), arrival="arrival")
        check_counts(reached)
        if name == "crypto":  # Half a minute, with delays that grow: too short to learn from.
            assert recall_of(reached, truth) > 2 * recall_of(found["0s"], truth)
        else:
            assert recall_of(reached, truth) >= recall
