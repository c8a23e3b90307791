"""The machine of lives, directly: small stories, and that pieces of a story make the same events."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.operators.lifecycle import alert_state_machine as alert
from tocsin.runtime.alert_batch import STATES

# (key, time, truth, margin)
Evaluation = tuple[int, int, int, float]


def told(events: np.ndarray) -> list[tuple[int, str, int, int | None]]:
    rows = events[1 : 1 + int(events[0, 0])].tolist()
    return [(row[0], STATES[row[1]], row[2], None if row[5] == alert.NO_TIME else row[5]) for row in rows]


def drive(
    lives: alert.AlertStates, timing: alert.Timing, evaluations: Sequence[Evaluation]
) -> list[tuple[int, str, int, int | None]]:
    key, time, truth = (np.array([e[i] for e in evaluations], np.int64) for i in range(3))
    margin = np.array([e[3] for e in evaluations], np.float64)
    events = alert.new_events(len(evaluations), len(lives.phase))
    alert.apply_evaluations(lives, key, time, truth, margin, np.arange(len(evaluations)), timing, events)
    return told(events)


def settle(lives: alert.AlertStates, timing: alert.Timing, *progress: int) -> list[tuple[int, str, int, int | None]]:
    events = alert.new_events(0, len(lives.phase))
    alert.expire_stale_alerts(lives, np.array(progress, np.int64), timing, events)
    return told(events)


def test_keys_have_lives_of_their_own() -> None:
    lives, timing = alert.new_alert_states(2), alert.Timing(0, 0, 5)
    found = drive(lives, timing, [(0, 1, 1, 1.0), (1, 2, 0, -1.0), (1, 3, 1, 1.0), (0, 4, 0, -1.0)])
    assert found == [(0, "firing", 1, None), (1, "firing", 3, None), (0, "resolved", 1, 4)]
    assert lives.phase.tolist() == [alert.NONE, alert.FIRING]


@pytest.mark.parametrize(("progress", "ended"), [(8, []), (9, [(0, "resolved", 1, 8)])])
def test_progress_ends_a_life_once_it_has_passed_stale_and_keep(progress: int, ended: list[object]) -> None:
    lives, timing = alert.new_alert_states(1), alert.Timing(0, 2, 5)  # last 1, silent from 6, kept until 8
    drive(lives, timing, [(0, 1, 1, 1.0)])
    assert settle(lives, timing, progress) == ended


def test_a_pending_life_ends_inactive_by_silence() -> None:
    lives, timing = alert.new_alert_states(1), alert.Timing(3, 2, 5)
    assert drive(lives, timing, [(0, 1, 1, 1.0)]) == [(0, "pending", 1, None)]
    assert settle(lives, timing, 7) == [(0, "inactive", 1, 6)]


def test_an_evaluation_back_in_time_ends_the_life_before_it() -> None:
    lives, timing = alert.new_alert_states(1), alert.Timing(0, 1, 5)
    found = drive(lives, timing, [(0, 9, 1, 1.0), (0, 2, 1, 1.0)])
    assert found == [(0, "firing", 9, None), (0, "resolved", 9, 15), (0, "firing", 2, None)]


def test_the_best_evaluation_is_the_first_of_the_largest_margin_of_this_life() -> None:
    lives, timing = alert.new_alert_states(1), alert.Timing(0, 0, 50)
    drive(lives, timing, [(0, 0, 1, 9.0), (0, 1, 0, -1.0), (0, 2, 1, 1.0), (0, 3, 1, 4.0), (0, 4, 1, 4.0)])
    assert (lives.best.tolist(), lives.margin.tolist()) == ([3], [4.0])


STORIES = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 4), st.integers(0, 1)), max_size=12)
TIMINGS = st.builds(
    alert.Timing, st.sampled_from([0, 2]), st.sampled_from([0, 3]), st.sampled_from([0, 1, 4]), st.just(0)
)


@given(STORIES, TIMINGS, st.booleans(), st.lists(st.integers(0, 12), max_size=3))
def test_alerts_have_distinct_identities_when_starts_are_equal_or_go_back(
    steps: list[tuple[int, int, int]], timing: alert.Timing, is_late: bool, cuts: list[int]
) -> None:
    """Late evaluations come in any order; an alert has one identity from its first to its last change."""
    story = [(key, time, truth, 1.0 if truth else -1.0) for key, time, truth in steps]
    if is_late:
        timing = timing._replace(behind_us=alert.FOREVER)
    else:
        story.sort()
    lives, rows = alert.new_alert_states(3), []
    ends = [0, *sorted(min(cut, len(story)) for cut in cuts), len(story)]
    for first, last in itertools.pairwise(ends):
        key, time, truth = (np.array([step[i] for step in story[first:last]], np.int64) for i in range(3))
        margin = np.array([step[3] for step in story[first:last]], np.float64)
        events = alert.new_events(last - first, 3)
        alert.apply_evaluations(lives, key, time, truth, margin, np.arange(last - first), timing, events)
        rows += events[1 : 1 + int(events[0, 0])].tolist()
    opened: dict[int, tuple[int, ...]] = {}
    seen = list[tuple[int, ...]]()
    for key, event, start, sequence, fires, end, _ in rows:
        identity = (key, start, sequence)
        assert fires == (start + timing.for_us if event in {alert.TO_FIRING, alert.TO_RESOLVED} else alert.NO_TIME)
        if key not in opened:
            assert is_late or sequence == sum(one[:2] == (key, start) for one in seen)
            assert identity not in seen
            seen.append(identity)
            opened[key] = identity
        assert opened[key] == identity
        if end != alert.NO_TIME:
            del opened[key]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), max_size=20))
def test_the_order_is_by_key_then_time_then_position(rows: list[tuple[int, int]]) -> None:
    key, time = (np.array([row[i] for row in rows], np.int64) for i in range(2))
    order = alert.order_by_key_and_time(4, key, time)
    assert order.tolist() == sorted(range(len(rows)), key=lambda i: (rows[i][0], rows[i][1], i))
