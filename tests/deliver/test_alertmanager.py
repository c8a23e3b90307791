"""Alertmanager's rules, with a model of it and a clock of ours."""

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

from deliver.alerts import MINUTE_US, START_US, ManualClock, histories, row, write_log
from deliver.managers import Killed, Model, Session, firing_in, labels_of, session
from tocsin.deliver import AlertLog
from tocsin.deliver.channel import Answer, Verdict
from tocsin.deliver.encode import seconds_of
from tocsin.deliver.ledger import read_status

NOW = START_US / 1e6
RETRY = Answer(Verdict.RETRY, "down", 503)


def test_a_firing_alert_is_sent_at_once_and_every_resend_with_an_end_that_outlives_us(tmp_path: Path) -> None:
    it, model = session(tmp_path, [[row("pending"), row()]], resend="1m", dashboard="http://board")
    it.run_for(300)
    assert [round(at - NOW) for at, _ in model.posts] == [0, 60, 120, 180, 240]
    for at, (alert,) in model.posts:
        assert seconds_of(alert["endsAt"]) - at == pytest.approx(240, abs=1e-5)
    assert model.posts[0][1][0] == {
        "labels": {"alertname": "Condensation", "machine": "p1", "severity": "critical"},
        "annotations": {"summary": "damp at p1"},
        "startsAt": "2026-01-01T00:00:00.000000Z",
        "endsAt": "2026-01-01T00:04:00.000000Z",
        "generatorURL": "http://board/alerts/Condensation-p1-0",
    }
    it.close()


@pytest.mark.parametrize(("resend", "interval", "trust"), [("2m", "1m", 480), ("10s", "1m", 240), ("1m", "5m", 1200)])
def test_an_alert_is_believed_for_four_times_the_longer_of_resend_and_interval(
    tmp_path: Path, resend: str, interval: str, trust: float
) -> None:
    it, model = session(tmp_path, [[row()]], resend=resend, interval=interval)
    it.run_for(1)
    (at, (alert,)) = model.posts[0]
    assert seconds_of(alert["endsAt"]) - at == pytest.approx(trust, abs=1e-5)
    it.close()


def test_a_resolved_alert_is_sent_again_for_fifteen_minutes_with_its_own_end(tmp_path: Path) -> None:
    it, model = session(tmp_path, [[row(start=-10)]])
    it.run_for(120)
    write_log(tmp_path, [[row("resolved", start=-10, end=1)]], first=1)
    model.posts.clear()
    it.run_for(1800)
    ends = {alert["endsAt"] for _, (alert,) in model.posts}
    assert ends == {"2026-01-01T00:01:00.000000Z"}
    times = [at - NOW for at, _ in model.posts]
    assert times == pytest.approx([120 + 60 * i for i in range(15)], abs=3)
    assert it.courier.book.subjects == {}
    assert it.accounts() == 2
    it.close()


def test_what_was_read_and_not_told_is_owed_and_was_taken_when_it_was_told(tmp_path: Path) -> None:
    it, model = session(tmp_path, [[row()]])
    model.before = lambda: RETRY
    it.run_for(5)
    status = read_status(tmp_path / "delivery")["am"]
    assert (status["position"], status["owed"]) == ([0, 0], {"Condensation-p1-0": ["firing"]})
    assert not it.ledger.taken_path.exists()
    model.before = lambda: None
    it.run_for(120)
    assert read_status(tmp_path / "delivery")["am"]["owed"] == {}
    (taken,) = map(json.loads, it.ledger.taken_path.read_bytes().splitlines())
    assert taken[:2] == [0, 0]
    assert seconds_of(taken[2]) >= model.posts[0][0] > NOW + 5
    it.close()


def test_what_is_owed_is_still_owed_after_a_restart_and_taken_when_it_is_told(tmp_path: Path) -> None:
    it, model = session(tmp_path, [[row()]])
    model.before = lambda: RETRY
    it.run_for(5)
    it.close()
    it.open()
    assert it.ledger.status()["owed"] == {"Condensation-p1-0": ["firing"]}
    model.before = lambda: None
    it.run_for(120)
    (taken,) = map(json.loads, it.ledger.taken_path.read_bytes().splitlines())
    assert taken[:2] == [0, 0]
    it.close()


def test_an_alert_is_sent_with_its_firing_time_when_for_held_it_back(tmp_path: Path) -> None:
    fires = START_US - 3 * MINUTE_US
    it, model = session(tmp_path, [[row("pending", start=-5), row(start=-5, firesAt=fires)]])
    it.run_for(5)
    write_log(tmp_path, [[row("resolved", start=-5, firesAt=fires, end=0)]], first=1)
    it.run_for(120)
    assert {alert["startsAt"] for _, alerts in model.posts for alert in alerts} == {"2025-12-31T23:57:00.000000Z"}
    it.close()


@pytest.mark.parametrize("cut", [0, 1, 2, 3])
@pytest.mark.parametrize("ids", ["ab", "ba"])
def test_the_last_of_alerts_with_equal_labels_and_start_is_shown(tmp_path: Path, cut: int, ids: str) -> None:
    """Check that an alert which fires again is firing for any order of the ids: Alertmanager knows only labels."""
    first, second = ids
    rows = [row(id=first), row("resolved", id=first, end=0), row(id=second)]
    it, model = session(tmp_path, [rows[:cut], rows[cut:]])
    it.run_for(10)
    ((_, (alert,)),) = model.posts
    assert seconds_of(alert["endsAt"]) > NOW + 10
    write_log(tmp_path, [[row("resolved", id=second, end=0)]], first=2)
    it.run_for(300)
    assert not model.active()
    assert it.accounts() == 4
    assert it.ledger.counts["superseded"] == 2
    it.close()


def test_pending_and_inactive_are_not_sent(tmp_path: Path) -> None:
    it, model = session(tmp_path, [[row("pending"), row("inactive", end=1)]])
    it.run_for(120)
    assert model.posts == []
    assert it.ledger.counts["skipped"] == 2
    it.close()


def test_a_life_that_passed_while_it_was_down_is_shown_firing_before_it_is_resolved(tmp_path: Path) -> None:
    it, model = session(tmp_path, [[row(start=-5)], [row("resolved", start=-5, end=-2)]])
    model.before = lambda: RETRY
    it.run_for(7200)
    assert model.posts == []
    model.before = lambda: None
    it.drain()
    states = [(alert["startsAt"], seconds_of(alert["endsAt"]) > at) for at, (alert,) in model.posts]
    start = "2025-12-31T23:55:00.000000Z"
    assert states == [(start, True), (start, False)]
    assert model.posts[1][0] - model.posts[0][0] == pytest.approx(60, abs=1.5)
    assert model.posts[1][1][0]["endsAt"] == "2025-12-31T23:58:00.000000Z"
    assert it.ledger.counts["delivered"] == 2
    it.close()


def test_a_match_is_a_life_that_ended_at_once(tmp_path: Path) -> None:
    it, model = session(tmp_path, [[row("match", start=-2, end=-1)]])
    it.drain()
    assert [seconds_of(alert["endsAt"]) > at for at, (alert,) in model.posts] == [True, False]
    it.close()


def test_history_is_told_once_as_resolved(tmp_path: Path) -> None:
    old = [row(key="old", start=-3000), row("resolved", key="old", start=-3000, end=-2900)]
    late = [row(key="late", start=-300), row("resolved", key="late", start=-300, end=-200)]
    it, model = session(tmp_path, [old + late], show_past="1d")
    it.run_for(3600)
    by_key: dict[str, list[bool]] = {}
    for at, alerts in model.posts:
        for alert in alerts:
            by_key.setdefault(alert["labels"]["machine"], []).append(seconds_of(alert["endsAt"]) > at)
    assert by_key["old"] == [False]
    assert by_key["late"] == [True] + [False] * 15
    assert it.accounts() == 4
    it.close()


def test_the_log_is_read_to_its_end_before_anything_is_told(tmp_path: Path) -> None:
    lives = [change for i in range(40) for change in (row(start=10 * i), row("resolved", start=10 * i, end=10 * i + 5))]
    it, model = session(tmp_path, [[life] for life in lives])
    it.clock.time += 3600 * 24
    it.run_for(30)
    ((_, (alert,)),) = model.posts
    assert alert["startsAt"] == "2026-01-01T06:30:00.000000Z"
    assert it.ledger.counts["superseded"] == 78
    it.close()


def test_an_older_life_that_ends_does_not_end_a_newer_one_with_the_same_labels(tmp_path: Path) -> None:
    it, model = session(tmp_path, [[row(start=-9), row(start=-5, quality="exact late")]])
    it.run_for(61)
    label = labels_of(row())
    write_log(tmp_path, [[row("resolved", start=-5, end=-4)]], first=1)
    it.run_for(120)
    assert model.active() == {label}
    assert model.posts[-1][1][0]["startsAt"] == "2025-12-31T23:51:00.000000Z"
    write_log(tmp_path, [[row("resolved", start=-9, end=-1)]], first=2)
    it.run_for(120)
    assert model.active() == set()
    assert it.accounts() == 4
    it.close()


def test_a_newer_life_that_ended_unseen_is_superseded_by_an_older_one_that_goes_on(tmp_path: Path) -> None:
    ended = [row(start=-5, quality="exact late"), row("resolved", start=-5, end=-4, quality="exact late")]
    it, model = session(tmp_path, [[row(start=-9), *ended]])
    it.drain()
    assert model.active() == {labels_of(row())}
    it.close()
    assert (it.ledger.counts["delivered"], it.ledger.counts["superseded"]) == (1, 2)


def test_times_ahead_of_our_clock_are_sent_as_now(tmp_path: Path) -> None:
    it, model = session(tmp_path, [[row(start=100)]])
    it.run_for(61)
    assert model.posts[0][1][0]["startsAt"] == "2026-01-01T00:00:00.000000Z"
    write_log(tmp_path, [[row("resolved", start=100, end=200)]], first=1)
    it.run_for(5)
    assert model.active() == set()
    it.close()


def test_an_alert_that_is_refused_is_put_aside_and_the_others_are_sent(tmp_path: Path) -> None:
    rows = [row(key=f"k{i}") for i in range(100)]
    rows[42]["labels"] = {"not a name": "x"}
    it, model = session(tmp_path, [rows])
    it.run_for(200)
    assert len(model.active()) == 99
    refused = [json.loads(line) for line in it.ledger.rejected_path.read_text().splitlines()]
    assert [each["alert"]["labels"] for each in refused] == [{"not a name": "x", "alertname": "Condensation"}]
    assert refused[0]["position"] == [0, 42]
    it.close()
    assert (it.ledger.counts["rejected"], it.ledger.counts["delivered"]) == (1, 99)


def test_resending_is_taken_up_after_a_restart_without_reading_the_log_again(tmp_path: Path) -> None:
    it, model = session(tmp_path, [[row(key=f"k{i}") for i in range(3)]])
    it.run_for(5)
    it.close()
    for path in (tmp_path / "alerts").iterdir():
        path.unlink()
    model.alerts.clear()
    it.open()
    it.run_for(5)
    assert len(model.active()) == 3
    assert it.ledger.counts["delivered"] == 3
    it.close()


@pytest.mark.parametrize("survives", [True, False])
def test_a_ledger_that_cannot_be_saved_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, survives: bool
) -> None:
    it, model = session(tmp_path, [[row()]])

    def fail() -> Answer:
        raise Killed

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("tocsin.deliver.ledger.replace_file", full)
        with pytest.raises(OSError, match="No space left"):
            it.run_for(5)
        write_log(tmp_path, [[row(key="other")]], first=1)
        model.before = fail
        with suppress(Killed):
            it.courier.round(threading.Event())
    model.before = lambda: None
    if survives:
        it.reopen()
    else:
        it.kill()
    model.alerts.clear()
    it.run_for(5)
    assert len(model.active()) == 2
    it.close()


@given(batches=histories(), seed=st.integers(0, 10**6))
def test_through_failures_and_kills_it_comes_to_know_what_fires(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[dict[str, Any]]], seed: int
) -> None:
    run, chance = tmp_path_factory.mktemp("run"), random.Random(seed)
    clock = ManualClock()
    model, written = Model(clock), 0
    it = Session(run, clock, model)

    def trouble() -> Answer | None:
        luck = chance.random()
        if luck < 0.1:
            raise Killed
        if luck < 0.15:
            # It, too, may die and forget.
            model.alerts.clear()
        return RETRY if luck < 0.3 else None

    model.before = model.after = trouble
    while written < len(batches):
        write_log(run, [batches[written]], first=written)
        written += 1
        try:
            it.run_for(chance.choice([0.5, 30, 100]), poll_s=5.0)
        except Killed:
            it.kill()
    model.before = model.after = lambda: None
    it.kill()
    it.run_for(200, poll_s=5.0)
    log = AlertLog(run / "alerts")
    assert model.active() == firing_in(log)
    _check_newest_lives_were_seen(log, model)
    it.run_for(1200, poll_s=20.0)
    assert model.active() == firing_in(log)
    assert set(it.courier.book.subjects) == firing_in(log)
    it.close()
    counts = it.ledger.counts
    assert it.accounts() == sum(len(batch) for batch in batches)
    assert (counts["pending"], counts["rejected"]) == (0, 0)


def _check_newest_lives_were_seen(log: AlertLog, model: Model) -> None:
    """The newest life of each label set was shown as firing, so that a notification could happen."""
    newest: dict[str, str] = {}
    for _, alert in log.read():
        if alert["state"] in {"firing", "match"}:
            newest[labels_of(alert)] = max(newest.get(labels_of(alert), ""), alert["startsAt"])
    # A start that lay ahead of the clock was told as the time it was told at.
    seen = {name for name, _ in model.seen_firing}
    assert set(newest) <= seen
