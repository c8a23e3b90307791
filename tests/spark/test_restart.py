"""A query that is killed and started again loses no alert and gives none twice."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from spark.child import batches, finish, kill, start_job, wait_until
from spark.scenarios import condensation, plain

pytestmark = [pytest.mark.spark, pytest.mark.slow]

FILES, KILLS = 8, 3


def test_a_query_killed_at_random_moments_gives_each_alert_once(tmp_path: Path) -> None:
    scenario = condensation()
    scenario.write(tmp_path / "in", FILES)
    seed = random.randrange(2**32)
    print(f"seed {seed}")  # pytest shows it when the test fails
    draw, killed = random.Random(seed), []
    for _ in range(KILLS):
        goal = batches(tmp_path, "offsets") + draw.randint(1, 2)
        process = start_job(tmp_path, "condensation", "local[2]", "stream")
        try:
            # A batch takes about a second: the moment falls before, into or between writes of state, output and log.
            seen = wait_until(lambda goal=goal: batches(tmp_path, "offsets") >= goal, process)
            wait_until(lambda: False, process, draw.uniform(0.0, 2.5))
            assert seen or (tmp_path / "result").exists(), (tmp_path / "log").read_text()[-3000:]
        finally:
            kill(process)
        killed.append((batches(tmp_path, "offsets"), batches(tmp_path, "commits")))
        print(f"killed with {killed[-1]} batches begun and ended")
    found = finish(start_job(tmp_path, "condensation", "local[2]", "stream"), tmp_path)
    # The local engine gives what an undisturbed query gives: test_alerts.py.
    expected = plain(scenario.local())
    identities = [(row[1], row[2]) for row in found]
    assert len(set(identities)) == len(identities)
    assert found == expected
    assert batches(tmp_path, "commits") == FILES
    assert killed[0][1] < FILES, "every kill came after the end of the input"
