"""Alertmanager sink against a real Alertmanager, which the tests start."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from delivery.alertmanager_model import WorkerProcess, firing_label_sets, label_fingerprint
from delivery.alerts import START_US, ManualClock, row, write_log
from delivery.receivers import receiver
from servers import Alertmanager, need_alertmanager
from tocsin.delivery import AlertLog

NOW = START_US / 1e6


def real_worker(run: Path, server: Alertmanager) -> WorkerProcess:
    return WorkerProcess(run, ManualClock(time.time()), None, url=server.url)


def real_row(state: str, key: str, start: int, end: int | None = None) -> dict[str, Any]:
    """Return an alert event; times are minutes from now."""
    offset = int(time.time() - NOW) // 60
    return row(state, key=key, start=offset + start, end=None if end is None else offset + end)


def active_fingerprints(server: Alertmanager) -> set[str]:
    return {alert["fingerprint"] for alert in server.active()}


@pytest.mark.slow
def test_real_alertmanager_shows_the_firing_alerts_after_kills_of_both_sides(
    tmp_path: Path, alertmanager: Alertmanager
) -> None:
    random_source, run, number = random.Random(7), tmp_path / "run", 0
    process = real_worker(run, alertmanager)
    instances: dict[str, int] = {}
    for turn in range(12):
        lines = []
        for key in random_source.sample([f"k{i}" for i in range(90)], 30):
            start = -200 + 10 * turn
            if key in instances:
                lines.append(real_row("resolved", key, instances.pop(key), start))
            else:
                lines.append(real_row("firing", key, start))
                instances[key] = start
        write_log(run, [lines], first=number)
        number += 1
        event = random_source.choice(["none", "kill worker", "kill server", "kill both", "server down"])
        if event in {"kill worker", "kill both"}:
            process.kill()
        if event in {"kill server", "kill both", "server down"}:
            alertmanager.kill()
        if event == "server down":
            process.run_for(30)
        if event in {"kill server", "kill both", "server down"}:
            alertmanager.start()
        # Longer than the retry delays, the shortest firing time and the resend interval.
        process.run_for(130)
        assert active_fingerprints(alertmanager) == firing_label_sets(AlertLog(run / "alerts")), (turn, event)
    assert len(instances) > 20
    process.close()
    assert process.cursor.counts["rejected"] == 0


def test_real_alertmanager_computes_the_same_fingerprints(tmp_path: Path, alertmanager: Alertmanager) -> None:
    rows = [row(key='é\n"ü\\'), row(key="", alert="Fröst"), row(key="x" * 300)]
    run = tmp_path / "run"
    process = real_worker(run, alertmanager)
    write_log(run, [rows])
    process.run_for(5)
    assert active_fingerprints(alertmanager) == {label_fingerprint(each) for each in rows}
    for alert in alertmanager.active():
        assert alert["startsAt"] == "2026-01-01T00:00:00.000Z"
        assert alert["annotations"]["summary"].startswith("damp at")
    process.close()


@pytest.mark.slow
def test_real_alertmanager_rejects_one_invalid_alert_and_accepts_the_others(
    tmp_path: Path, alertmanager: Alertmanager
) -> None:
    rows = [real_row("firing", f"k{i}", -5) for i in range(20)]
    rows[3]["labels"] = {"9 invalid": "cat"}
    run = tmp_path / "run"
    process = real_worker(run, alertmanager)
    write_log(run, [rows])
    process.run_for(5)
    assert len(active_fingerprints(alertmanager)) == 19
    (line,) = process.cursor.rejected_path.read_text().splitlines()
    assert "9 invalid" in json.loads(line)["response"]
    process.close()


@pytest.mark.slow
def test_real_alertmanager_notifies_about_an_alert_that_ended_while_it_was_down(tmp_path: Path) -> None:
    need_alertmanager()
    run = tmp_path / "run"
    with receiver() as hook:
        server = Alertmanager(tmp_path / "alertmanager", hook=hook.url)
        write_log(run, [[real_row("firing", "a", -30)], [real_row("resolved", "a", -30, -20)]])
        process = real_worker(run, server)
        process.run_for(5)
        server.start()
        try:
            process.run_for(10)
            _wait_until(lambda: any(body["status"] == "firing" for body in hook.bodies()))
            process.run_for(120)
            _wait_until(lambda: any(body["status"] == "resolved" for body in hook.bodies()))
            assert active_fingerprints(server) == set()
        finally:
            server.kill()
            process.close()
    (notified,) = {alert["fingerprint"] for body in hook.bodies() for alert in body["alerts"]}
    assert notified == label_fingerprint(real_row("firing", "a", -30))


def _wait_until(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.05)
