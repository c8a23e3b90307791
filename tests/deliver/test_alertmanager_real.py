"""A real Alertmanager, started by the tests."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from deliver.alerts import START_US, ManualClock, row, write_log
from deliver.managers import Session, firing_in, labels_of
from deliver.receivers import receiver
from servers import Alertmanager, need_alertmanager
from tocsin.deliver import AlertLog

NOW = START_US / 1e6


def real_session(run: Path, server: Alertmanager) -> Session:
    return Session(run, ManualClock(time.time()), None, url=server.url)


def real_row(state: str, key: str, start: int, end: int | None = None) -> dict[str, Any]:
    """Times in minutes from now."""
    offset = int(time.time() - NOW) // 60
    return row(state, key=key, start=offset + start, end=None if end is None else offset + end)


def prints(server: Alertmanager) -> set[str]:
    return {alert["fingerprint"] for alert in server.active()}


def test_alertmanager_knows_what_fires_after_kills_and_restarts_of_both_sides(
    tmp_path: Path, alertmanager: Alertmanager
) -> None:
    chance, run, number = random.Random(7), tmp_path / "run", 0
    it = real_session(run, alertmanager)
    lives: dict[str, int] = {}
    for turn in range(12):
        lines = []
        for key in chance.sample([f"k{i}" for i in range(90)], 30):
            start = -200 + 10 * turn
            if key in lives:
                lines.append(real_row("resolved", key, lives.pop(key), start))
            else:
                lines.append(real_row("firing", key, start))
                lives[key] = start
        write_log(run, [lines], first=number)
        number += 1
        event = chance.choice(["calm", "kill us", "kill it", "both", "down"])
        if event in {"kill us", "both"}:
            it.kill()
        if event in {"kill it", "both", "down"}:
            alertmanager.kill()
        if event == "down":
            it.run_for(30)
        if event in {"kill it", "both", "down"}:
            alertmanager.start()
        # Long enough for pauses after failures, for what is held as firing, and for the next time of telling.
        it.run_for(130)
        assert prints(alertmanager) == firing_in(AlertLog(run / "alerts")), (turn, event)
    assert len(lives) > 20
    it.close()
    assert it.ledger.counts["rejected"] == 0


def test_alertmanager_gives_the_fingerprints_that_we_give(tmp_path: Path, alertmanager: Alertmanager) -> None:
    rows = [row(key='é\n"ü\\'), row(key="", alert="Fröst"), row(key="x" * 300)]
    run = tmp_path / "run"
    it = real_session(run, alertmanager)
    write_log(run, [rows])
    it.run_for(5)
    assert prints(alertmanager) == {labels_of(each) for each in rows}
    for alert in alertmanager.active():
        assert alert["startsAt"] == "2026-01-01T00:00:00.000Z"
        assert alert["annotations"]["summary"].startswith("damp at")
    it.close()


def test_alertmanager_refuses_one_alert_of_many_and_takes_the_rest(tmp_path: Path, alertmanager: Alertmanager) -> None:
    rows = [real_row("firing", f"k{i}", -5) for i in range(20)]
    rows[3]["labels"] = {"9 lives": "cat"}
    run = tmp_path / "run"
    it = real_session(run, alertmanager)
    write_log(run, [rows])
    it.run_for(5)
    assert len(prints(alertmanager)) == 19
    (line,) = it.ledger.rejected_path.read_text().splitlines()
    assert "9 lives" in json.loads(line)["answer"]
    it.close()


def test_alertmanager_notifies_of_a_life_that_passed_while_it_was_down(tmp_path: Path) -> None:
    need_alertmanager()
    run = tmp_path / "run"
    with receiver() as hook:
        server = Alertmanager(tmp_path / "alertmanager", hook=hook.url)
        write_log(run, [[real_row("firing", "a", -30)], [real_row("resolved", "a", -30, -20)]])
        it = real_session(run, server)
        it.run_for(5)
        server.start()
        try:
            it.run_for(10)
            _wait_until(lambda: any(body["status"] == "firing" for body in hook.bodies()))
            it.run_for(120)
            _wait_until(lambda: any(body["status"] == "resolved" for body in hook.bodies()))
            assert prints(server) == set()
        finally:
            server.kill()
            it.close()
    (notified,) = {alert["fingerprint"] for body in hook.bodies() for alert in body["alerts"]}
    assert notified == labels_of(real_row("firing", "a", -30))


def _wait_until(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.05)
