"""Alertmanager sink against a model of Alertmanager, with a manual clock."""

from __future__ import annotations

import json
import random
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delivery.alertmanager_model import (
    AlertmanagerModel,
    Killed,
    WorkerProcess,
    firing_label_sets,
    label_fingerprint,
    start_worker,
)
from delivery.alerts import MINUTE_US, START_US, ManualClock, histories, row, write_log
from tocsin.delivery import AlertLog
from tocsin.delivery.alert_json import parse_seconds
from tocsin.delivery.sink_channel import DeliveryStatus, SinkResponse
from tocsin.delivery.sink_cursor import read_status

NOW = START_US / 1e6
RETRY = SinkResponse(DeliveryStatus.RETRY, "down", 503)


def test_firing_alert_is_sent_at_once_and_at_every_resend_with_a_later_end(tmp_path: Path) -> None:
    process, model = start_worker(tmp_path, [[row("pending"), row()]], resend="1m", dashboard="http://board")
    process.run_for(300)
    assert [round(at - NOW) for at, _ in model.posts] == [0, 60, 120, 180, 240]
    for at, (alert,) in model.posts:
        assert parse_seconds(alert["endsAt"]) - at == pytest.approx(240, abs=1e-5)
    assert model.posts[0][1][0] == {
        "labels": {"alertname": "Condensation", "machine": "p1", "severity": "critical"},
        "annotations": {"summary": "damp at p1"},
        "startsAt": "2026-01-01T00:00:00.000000Z",
        "endsAt": "2026-01-01T00:04:00.000000Z",
        "generatorURL": "http://board/alerts/Condensation-p1-0",
    }
    process.close()


@pytest.mark.parametrize(
    ("resend", "interval", "lifetime_s"), [("2m", "1m", 480), ("10s", "1m", 240), ("1m", "5m", 1200)]
)
def test_firing_alert_ends_after_four_times_the_longer_of_resend_and_interval(
    tmp_path: Path, resend: str, interval: str, lifetime_s: float
) -> None:
    process, model = start_worker(tmp_path, [[row()]], resend=resend, interval=interval)
    process.run_for(1)
    (at, (alert,)) = model.posts[0]
    assert parse_seconds(alert["endsAt"]) - at == pytest.approx(lifetime_s, abs=1e-5)
    process.close()


def test_resolved_alert_is_repeated_for_fifteen_minutes_with_its_own_end(tmp_path: Path) -> None:
    process, model = start_worker(tmp_path, [[row(start=-10)]])
    process.run_for(120)
    write_log(tmp_path, [[row("resolved", start=-10, end=1)]], first=1)
    model.posts.clear()
    process.run_for(1800)
    ends = {alert["endsAt"] for _, (alert,) in model.posts}
    assert ends == {"2026-01-01T00:01:00.000000Z"}
    times = [at - NOW for at, _ in model.posts]
    assert times == pytest.approx([120 + 60 * i for i in range(15)], abs=3)
    assert process.worker.state.label_sets == {}
    assert process.accounted_events() == 2
    process.close()


def test_event_is_unsent_until_alertmanager_accepts_it(tmp_path: Path) -> None:
    process, model = start_worker(tmp_path, [[row()]])
    model.before = lambda: RETRY
    process.run_for(5)
    status = read_status(tmp_path / "delivery")["am"]
    assert (status["position"], status["unsent"]) == ([0, 0], {"Condensation-p1-0": ["firing"]})
    assert not process.cursor.positions_path.exists()
    model.before = lambda: None
    process.run_for(120)
    assert read_status(tmp_path / "delivery")["am"]["unsent"] == {}
    (recorded,) = map(json.loads, process.cursor.positions_path.read_bytes().splitlines())
    assert recorded[:2] == [0, 0]
    assert parse_seconds(recorded[2]) >= model.posts[0][0] > NOW + 5
    process.close()


def test_unsent_event_stays_unsent_when_the_worker_restarts(tmp_path: Path) -> None:
    process, model = start_worker(tmp_path, [[row()]])
    model.before = lambda: RETRY
    process.run_for(5)
    process.close()
    process.open()
    assert process.cursor.status()["unsent"] == {"Condensation-p1-0": ["firing"]}
    model.before = lambda: None
    process.run_for(120)
    (recorded,) = map(json.loads, process.cursor.positions_path.read_bytes().splitlines())
    assert recorded[:2] == [0, 0]
    process.close()


def test_alert_is_sent_with_its_firing_time_when_it_was_pending_before(tmp_path: Path) -> None:
    fires = START_US - 3 * MINUTE_US
    process, model = start_worker(tmp_path, [[row("pending", start=-5), row(start=-5, firesAt=fires)]])
    process.run_for(5)
    write_log(tmp_path, [[row("resolved", start=-5, firesAt=fires, end=0)]], first=1)
    process.run_for(120)
    assert {alert["startsAt"] for _, alerts in model.posts for alert in alerts} == {"2025-12-31T23:57:00.000000Z"}
    process.close()


@pytest.mark.parametrize("boundary", [0, 1, 2, 3])
@pytest.mark.parametrize("ids", ["ab", "ba"])
def test_latest_of_alerts_with_equal_labels_and_start_is_sent(tmp_path: Path, boundary: int, ids: str) -> None:
    """Check that the newest alert wins for any order of the ids, because Alertmanager identifies alerts by labels."""
    first, second = ids
    rows = [row(id=first), row("resolved", id=first, end=0), row(id=second)]
    process, model = start_worker(tmp_path, [rows[:boundary], rows[boundary:]])
    process.run_for(10)
    ((_, (alert,)),) = model.posts
    assert parse_seconds(alert["endsAt"]) > NOW + 10
    write_log(tmp_path, [[row("resolved", id=second, end=0)]], first=2)
    process.run_for(300)
    assert not model.active()
    assert process.accounted_events() == 4
    assert process.cursor.counts["superseded"] == 2
    process.close()


def test_pending_and_inactive_events_are_skipped(tmp_path: Path) -> None:
    process, model = start_worker(tmp_path, [[row("pending"), row("inactive", end=1)]])
    process.run_for(120)
    assert model.posts == []
    assert process.cursor.counts["skipped"] == 2
    process.close()


def test_alert_is_sent_as_firing_first_when_it_ended_while_alertmanager_was_down(tmp_path: Path) -> None:
    process, model = start_worker(tmp_path, [[row(start=-5)], [row("resolved", start=-5, end=-2)]])
    model.before = lambda: RETRY
    process.run_for(7200)
    assert model.posts == []
    model.before = lambda: None
    process.drain()
    states = [(alert["startsAt"], parse_seconds(alert["endsAt"]) > at) for at, (alert,) in model.posts]
    start = "2025-12-31T23:55:00.000000Z"
    assert states == [(start, True), (start, False)]
    assert model.posts[1][0] - model.posts[0][0] == pytest.approx(60, abs=1.5)
    assert model.posts[1][1][0]["endsAt"] == "2025-12-31T23:58:00.000000Z"
    assert process.cursor.counts["delivered"] == 2
    process.close()


def test_match_is_sent_as_firing_and_then_as_resolved(tmp_path: Path) -> None:
    process, model = start_worker(tmp_path, [[row("match", start=-2, end=-1)]])
    process.drain()
    assert [parse_seconds(alert["endsAt"]) > at for at, (alert,) in model.posts] == [True, False]
    process.close()


def test_historic_alert_is_sent_once_as_resolved(tmp_path: Path) -> None:
    old = [row(key="old", start=-3000), row("resolved", key="old", start=-3000, end=-2900)]
    late = [row(key="late", start=-300), row("resolved", key="late", start=-300, end=-200)]
    process, model = start_worker(tmp_path, [old + late], max_age="1d")
    process.run_for(3600)
    by_key: dict[str, list[bool]] = {}
    for at, alerts in model.posts:
        for alert in alerts:
            by_key.setdefault(alert["labels"]["machine"], []).append(parse_seconds(alert["endsAt"]) > at)
    assert by_key["old"] == [False]
    assert by_key["late"] == [True] + [False] * 15
    assert process.accounted_events() == 4
    process.close()


def test_worker_reads_the_whole_log_before_it_sends(tmp_path: Path) -> None:
    instances = [
        change for i in range(40) for change in (row(start=10 * i), row("resolved", start=10 * i, end=10 * i + 5))
    ]
    process, model = start_worker(tmp_path, [[instance] for instance in instances])
    process.clock.time += 3600 * 24
    process.run_for(30)
    ((_, (alert,)),) = model.posts
    assert alert["startsAt"] == "2026-01-01T06:30:00.000000Z"
    assert process.cursor.counts["superseded"] == 78
    process.close()


def test_label_set_stays_active_when_one_of_two_alerts_ends(tmp_path: Path) -> None:
    process, model = start_worker(tmp_path, [[row(start=-9), row(start=-5, quality="exact late")]])
    process.run_for(61)
    label = label_fingerprint(row())
    write_log(tmp_path, [[row("resolved", start=-5, end=-4)]], first=1)
    process.run_for(120)
    assert model.active() == {label}
    assert model.posts[-1][1][0]["startsAt"] == "2025-12-31T23:51:00.000000Z"
    write_log(tmp_path, [[row("resolved", start=-9, end=-1)]], first=2)
    process.run_for(120)
    assert model.active() == set()
    assert process.accounted_events() == 4
    process.close()


def test_ended_late_alert_is_superseded_when_an_older_alert_is_open(tmp_path: Path) -> None:
    ended = [row(start=-5, quality="exact late"), row("resolved", start=-5, end=-4, quality="exact late")]
    process, model = start_worker(tmp_path, [[row(start=-9), *ended]])
    process.drain()
    assert model.active() == {label_fingerprint(row())}
    process.close()
    assert (process.cursor.counts["delivered"], process.cursor.counts["superseded"]) == (1, 2)


def test_future_times_are_sent_as_the_current_time(tmp_path: Path) -> None:
    process, model = start_worker(tmp_path, [[row(start=100)]])
    process.run_for(61)
    assert model.posts[0][1][0]["startsAt"] == "2026-01-01T00:00:00.000000Z"
    write_log(tmp_path, [[row("resolved", start=100, end=200)]], first=1)
    process.run_for(5)
    assert model.active() == set()
    process.close()


def test_rejected_alert_is_recorded_and_the_others_are_sent(tmp_path: Path) -> None:
    rows = [row(key=f"k{i}") for i in range(100)]
    rows[42]["labels"] = {"not a name": "x"}
    process, model = start_worker(tmp_path, [rows])
    process.run_for(200)
    assert len(model.active()) == 99
    rejected = [json.loads(line) for line in process.cursor.rejected_path.read_text().splitlines()]
    assert [each["alert"]["labels"] for each in rejected] == [{"not a name": "x", "alertname": "Condensation"}]
    assert rejected[0]["position"] == [0, 42]
    process.close()
    assert (process.cursor.counts["rejected"], process.cursor.counts["delivered"]) == (1, 99)


def test_resending_continues_after_a_restart_without_the_log(tmp_path: Path) -> None:
    process, model = start_worker(tmp_path, [[row(key=f"k{i}") for i in range(3)]])
    process.run_for(5)
    process.close()
    for path in (tmp_path / "alerts").iterdir():
        path.unlink()
    model.alerts.clear()
    process.open()
    process.run_for(5)
    assert len(model.active()) == 3
    assert process.cursor.counts["delivered"] == 3
    process.close()


@pytest.mark.parametrize("survives", [True, False])
def test_no_alert_is_lost_when_the_cursor_cannot_be_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, survives: bool
) -> None:
    process, model = start_worker(tmp_path, [[row()]])

    def fail() -> SinkResponse:
        raise Killed

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("tocsin.delivery.sink_cursor.replace_file", full)
        with pytest.raises(OSError, match="No space left"):
            process.run_for(5)
        write_log(tmp_path, [[row(key="other")]], first=1)
        model.before = fail
        with suppress(Killed):
            process.worker.process_next(threading.Event())
    model.before = lambda: None
    if survives:
        process.reopen()
    else:
        process.kill()
    model.alerts.clear()
    process.run_for(5)
    assert len(model.active()) == 2
    process.close()


@given(batches=histories(), seed=st.integers(0, 10**6))
def test_alertmanager_shows_the_firing_alerts_after_random_failures_and_kills(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[dict[str, Any]]], seed: int
) -> None:
    run, random_source = tmp_path_factory.mktemp("run"), random.Random(seed)
    clock = ManualClock()
    model, written = AlertmanagerModel(clock), 0
    process = WorkerProcess(run, clock, model)

    def fail_at_random() -> SinkResponse | None:
        draw = random_source.random()
        if draw < 0.1:
            raise Killed
        if draw < 0.15:
            # Alertmanager restarts and loses its alerts.
            model.alerts.clear()
        return RETRY if draw < 0.3 else None

    model.before = model.after = fail_at_random
    while written < len(batches):
        write_log(run, [batches[written]], first=written)
        written += 1
        try:
            process.run_for(random_source.choice([0.5, 30, 100]), poll_s=5.0)
        except Killed:
            process.kill()
    model.before = model.after = lambda: None
    process.kill()
    process.run_for(200, poll_s=5.0)
    log = AlertLog(run / "alerts")
    assert model.active() == firing_label_sets(log)
    _check_newest_alerts_were_sent_as_firing(log, model)
    process.run_for(1200, poll_s=20.0)
    assert model.active() == firing_label_sets(log)
    assert set(process.worker.state.label_sets) == firing_label_sets(log)
    process.close()
    counts = process.cursor.counts
    assert process.accounted_events() == sum(len(batch) for batch in batches)
    assert (counts["pending"], counts["rejected"]) == (0, 0)


def _check_newest_alerts_were_sent_as_firing(log: AlertLog, model: AlertmanagerModel) -> None:
    """Check that the newest alert of each label set was sent as firing, so that Alertmanager could notify about it."""
    newest: dict[str, str] = {}
    for _, alert in log.read():
        if alert["state"] in {"firing", "match"}:
            newest[label_fingerprint(alert)] = max(newest.get(label_fingerprint(alert), ""), alert["startsAt"])
    # Start times are not compared, because a start in the future was sent as the current time.
    assert set(newest) <= {name for name, _ in model.seen_firing}
