"""Odd clocks beside recorded rows: what stops, leaps ahead, goes back or comes again does not freeze or poison them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.driver import Driver, buffered_rows, parts_of, plan_of, stories
from tests.test_waiting_recordings import RECORDINGS, SECOND, Streams, check_counts
from tocsin import Rule
from tocsin.local import Result, run_local_detailed

pytestmark = pytest.mark.recordings

# Per recording: how long rows wait, are too late, and when a stream is idle.
TIMES = {
    "lorawan": ("10m", "2h", "3h"),
    "crypto": ("300ms", "10s", "2s"),
    "hhar": ("500ms", "30s", "5s"),
    "flights": ("4h", "24h", "6h"),
}
YEAR = 365 * 86_400 * SECOND


def case(name: str) -> tuple[Streams, Rule]:
    streams, settings = RECORDINGS[name]()
    wait, allowed_lateness, idle = TIMES[name]
    rule = Rule(
        "x",
        settings["expr"],
        within=settings["within"],
        on="key",
        quality={"wait": wait},
        allowed_lateness=allowed_lateness,
        idle_timeout=idle,
    )
    return streams, rule


def with_rows(streams: Streams, name: str, rows: dict[str, Any]) -> Streams:
    mine = {column: np.concatenate([cells, rows[column]]) for column, cells in streams[name].items()}
    return streams | {name: mine}


def lives(result: Result) -> dict[Any, Any]:
    return stories(row for row in result.alerts if row["labels"]["key"] != "odd")


# The times of a device whose rows arrive as those of the recording do: a year ahead, a year back, always the same,
# running back, and an hour before they arrive, and so after.
ODD = {
    "future": lambda arrival: arrival + YEAR,
    "past": lambda arrival: arrival - YEAR,
    "stands": lambda arrival: np.full(len(arrival), int(arrival[0])),
    "back": lambda arrival: arrival[0] - (arrival - arrival[0]),
    "leaps": lambda arrival: arrival + np.where(np.arange(len(arrival)) % 2, YEAR, -3600 * SECOND),
}


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("name", RECORDINGS)
def test_a_device_with_an_odd_clock_changes_nothing_of_the_others(name: str, odd: str) -> None:
    streams, rule = case(name)
    plain = run_local_detailed(streams, rule, arrival="arrival")
    arrival = np.sort(streams["a"]["arrival"])[::10]
    device = {"arrival": arrival, "ts": ODD[odd](arrival), "key": np.full(len(arrival), "odd", object)}
    both = streams
    for stream in "ab":
        both = with_rows(both, stream, device | {"value": np.full(len(arrival), 1.0)})
    disturbed = run_local_detailed(both, rule, arrival="arrival")
    check_counts(disturbed)
    assert lives(disturbed) == lives(plain)
    assert len(plain.alerts) > 10


@pytest.mark.parametrize("name", RECORDINGS)
def test_rows_that_are_sent_again_too_late_to_serve_change_nothing(name: str) -> None:
    streams, rule = case(name)
    plain = run_local_detailed(streams, rule, arrival="arrival")
    again, sent = streams, {}
    for stream, columns in streams.items():
        old = columns["ts"] < columns["ts"].max() - (columns["ts"].max() - columns["ts"].min()) // 2
        sent[stream] = int(old.sum())
        rows = {column: cells[old] for column, cells in columns.items()}
        end = max(cells["arrival"].max() for cells in streams.values())
        again = with_rows(again, stream, rows | {"arrival": np.full(sent[stream], end + 1)})
    replayed = run_local_detailed(again, rule, arrival="arrival")
    check_counts(replayed)
    assert lives(replayed) == lives(plain)
    for stream, counts in replayed.counts.items():
        assert counts["late"] == plain.counts[stream]["late"] + sent[stream]


@pytest.mark.parametrize("name", RECORDINGS)
def test_a_row_that_leaps_a_year_ahead_waits_alone(name: str) -> None:
    """What follows it is behind its clock, so it waits for nothing; it is used, and none of it is too late."""
    streams, rule = case(name)
    first = streams["a"]
    middle = np.argsort(first["arrival"], kind="stable")[len(first["ts"]) // 2]
    row = {column: cells[[middle]] for column, cells in first.items()}
    leapt = with_rows(streams, "a", row | {"ts": row["ts"] + YEAR})
    plan = plan_of(leapt, rule, arrival="arrival")
    driver = Driver(plan, through_pages=False)
    driver.take(driver.session.push(parts_of(plan, leapt, (), "arrival")[0]))
    plain = run_local_detailed(streams, rule, arrival="arrival")
    for stream, counts in driver.result.counts.items():
        assert counts["late"] <= plain.counts[stream]["late"]
    waiting = np.concatenate([buffer.time for buffer in buffered_rows(driver.session)])
    newest = max(int(columns["ts"].max()) for columns in streams.values())
    assert (waiting > newest).sum() == 1
    results = [
        sum(whole for _, whole in found.metrics.results_by_period()["x"].values()) for found in (driver.result, plain)
    ]
    assert results[0] > 0.95 * results[1]


@pytest.mark.parametrize("name", RECORDINGS)
def test_a_stream_that_stops_is_waited_for_as_long_as_idle_says(name: str) -> None:
    streams, rule = case(name)
    second = streams["b"]
    stops = int(np.median(second["arrival"]))
    halved = streams | {"b": {column: cells[second["arrival"] <= stops] for column, cells in second.items()}}
    plan = plan_of(halved, rule, arrival="arrival")
    driver = Driver(plan, through_pages=False)
    driver.take(driver.session.push(parts_of(plan, halved, (), "arrival")[0]))
    order = plan.watches[0].order
    assert order is not None
    buffers = buffered_rows(driver.session)
    assert buffers
    for buffer in buffers:
        clock = buffer.clocks.newest.max(axis=1)[buffer.key]
        assert (buffer.time > clock - order.idle_timeout_us - order.waiting.wait_us).all()
    assert driver.result.counts["a"]["held"] < len(streams["a"]["ts"]) // 4


def test_flights_that_leave_before_their_time_are_used_as_any_other() -> None:
    """When a row came is never compared with its time: moved by a day, arrivals give the same alerts and counts."""
    streams, rule = case("flights")
    early = streams["a"]["arrival"] < streams["a"]["ts"]
    assert early.sum() > 1000
    moved = {name: columns | {"arrival": columns["arrival"] + 86_400 * SECOND} for name, columns in streams.items()}
    plain, later = (run_local_detailed(given, rule, arrival="arrival") for given in (streams, moved))
    assert (lives(plain), plain.counts) == (lives(later), later.counts)
    assert plain.counts["a"]["quarantined"] == 0
