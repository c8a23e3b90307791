"""Alert: evaluations of a key, in event-time order, drive its life: pending, firing, resolved, inactive.

Idea: a small machine per (rule, key), and a second one for late evaluations; time comes only from evaluations and
progress, never from a clock.
Guarantee: the lives of docs/explanation/semantics.md (D46 to D53); applying evaluations in one call or in many gives
the same events.
Cost: O(1) per evaluation. Source: Prometheus's life cycle (`for`, `keep_firing_for`) moved to event time.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.jit import kernel
from tocsin.runtime.alert_batch import NO_TIME
from tocsin.runtime.contract import Float, Int

NONE, PENDING, FIRING, KEEPING = 0, 1, 2, 3
# Changes of state: positions in `alert_batch.STATES`.
TO_PENDING, TO_FIRING, TO_RESOLVED, TO_INACTIVE = 0, 1, 2, 3
# What an evaluation says: HOLDING is not true, but not yet past the recovery threshold either.
FALSE, TRUE, HOLDING = 0, 1, 2
STORED = -1
FOREVER = 1 << 62


class Timing(NamedTuple):
    """Durations of a rule in microseconds.

    `behind_us` is the largest distance of the start of an alert before the latest start of its key.
    """

    for_us: int
    keep_us: int
    stale_us: int
    behind_us: int = 0


class AlertStates(NamedTuple):
    """One machine per key: phase, start of the life, last evaluation, since when it only keeps firing, best evaluation.

    `latest` is the latest start of any alert of the key. With `start`, `sequence` identifies an alert: it is 0 for the
    first alert and increases by 1 with each alert that does not start after `latest`. `fires` is the firing time, or
    NO_TIME before the alert fires.
    `best` is the number of an evaluation of this call, or STORED from before it; `margin` is that evaluation's.
    """

    phase: Int
    start: Int
    latest: Int
    sequence: Int
    fires: Int
    last: Int
    since: Int
    best: Int
    margin: Float


def new_lives(keys: int) -> AlertStates:
    """Machines without a life."""
    phase, start, sequence, last, since = (np.zeros(keys, np.int64) for _ in range(5))
    latest, fires = np.full(keys, NO_TIME), np.full(keys, NO_TIME)
    return AlertStates(phase, start, latest, sequence, fires, last, since, np.full(keys, STORED), np.zeros(keys))


def new_events(evaluations: int, keys: int) -> Int:
    """Return a table for changes of state; its first cell holds the number of changes.

    The columns are key, event, start, sequence number, firing time, end and best evaluation.
    An evaluation ends at most one life and begins or promotes at most one; progress ends at most one per key.
    """
    events = np.empty((1 + 2 * evaluations + keys, 7), np.int64)
    events[0, 0] = 0
    return events


@kernel
def add_event(lives: AlertStates, key: int, event: int, end: int, events: Int) -> None:
    """Write down a change of state; `end` is NO_TIME before the alert ends."""
    events[0, 0] += 1
    at = events[0, 0]
    events[at, 0] = key
    events[at, 1] = event
    events[at, 2] = lives.start[key]
    events[at, 3] = lives.sequence[key]
    events[at, 4] = lives.fires[key]
    events[at, 5] = end
    events[at, 6] = lives.best[key]


@kernel
def begin(lives: AlertStates, key: int, time: int, timing: Timing, events: Int) -> None:
    """Start an alert, and number it among the alerts that may have the same start."""
    if time <= lives.latest[key]:
        lives.sequence[key] += 1
    else:
        if time - lives.latest[key] > timing.behind_us:
            lives.sequence[key] = 0
        lives.latest[key] = time
    lives.start[key], lives.fires[key] = time, NO_TIME
    if timing.for_us > 0:
        lives.phase[key] = PENDING
        add_event(lives, key, TO_PENDING, NO_TIME, events)
    else:
        fire(lives, key, timing, events)


@kernel
def fire(lives: AlertStates, key: int, timing: Timing, events: Int) -> None:
    """Move an alert to firing. Its firing time does not depend on the time of the evaluation that moves it."""
    lives.phase[key] = FIRING
    lives.fires[key] = lives.start[key] + timing.for_us
    add_event(lives, key, TO_FIRING, NO_TIME, events)


@kernel
def settle(lives: AlertStates, key: int, until: int, timing: Timing, events: Int) -> None:
    """End what silence ends before `until`."""
    phase = lives.phase[key]
    silent = lives.last[key] + timing.stale_us
    if phase == PENDING and silent < until:
        lives.phase[key] = NONE
        add_event(lives, key, TO_INACTIVE, silent, events)
        return
    if phase == FIRING and silent < until:
        lives.phase[key] = KEEPING
        lives.since[key] = silent
    kept = lives.since[key] + timing.keep_us
    if lives.phase[key] == KEEPING and kept < until:
        lives.phase[key] = NONE
        add_event(lives, key, TO_RESOLVED, kept, events)


@kernel
def evaluate(lives: AlertStates, key: int, time: int, truth: int, timing: Timing, events: Int) -> None:
    """Drive one life by one evaluation; only a life that fires is held by one that is holding."""
    phase = lives.phase[key]
    true = truth == TRUE or (truth == HOLDING and phase == FIRING)
    if true and phase == NONE:
        begin(lives, key, time, timing, events)
    elif true and phase == PENDING and time - lives.start[key] >= timing.for_us:
        fire(lives, key, timing, events)
    elif true and phase == KEEPING:
        lives.phase[key] = FIRING
    elif not true and phase == PENDING:
        lives.phase[key] = NONE
        add_event(lives, key, TO_INACTIVE, time, events)
    elif not true and phase == FIRING and timing.keep_us == 0:
        lives.phase[key] = NONE
        add_event(lives, key, TO_RESOLVED, time, events)
    elif not true and phase == FIRING:
        lives.phase[key] = KEEPING
        lives.since[key] = time
    lives.last[key] = time


@kernel
def drive(
    lives: AlertStates, key: Int, time: Int, truth: Int, margin: Float, number: Int, timing: Timing, events: Int
) -> None:
    """Drive lives by evaluations in the order that applies; one that goes back in time ends the life before it."""
    phase, last, best, best_margin = lives.phase, lives.last, lives.best, lives.margin
    for i in range(key.shape[0]):
        k = key[i]
        if phase[k] == NONE and truth[i] != TRUE:
            last[k] = time[i]
            continue
        # Most of what is left: a life that fires goes on.
        if phase[k] == FIRING and truth[i] == TRUE and last[k] <= time[i] <= last[k] + timing.stale_us:
            last[k] = time[i]
            if margin[i] > best_margin[k]:
                best[k], best_margin[k] = number[i], margin[i]
            continue
        settle(lives, k, FOREVER if time[i] < lives.last[k] else time[i], timing, events)
        begins = truth[i] == TRUE and lives.phase[k] == NONE
        if begins or (lives.phase[k] != NONE and margin[i] > lives.margin[k]):
            lives.best[k] = number[i]
            lives.margin[k] = margin[i]
        evaluate(lives, k, time[i], truth[i], timing, events)


@kernel
def settle_all(lives: AlertStates, progress: Int, timing: Timing, events: Int) -> None:
    """Let progress end the lives that have been silent."""
    for key in range(progress.shape[0]):
        if lives.phase[key] != NONE:
            settle(lives, key, progress[key], timing, events)


@kernel
def of_interest(
    found: Int,
    late: NDArray[np.bool_],
    key: Int,
    time: Int,
    truth: Int,
    lives: AlertStates,
    progress: Int,
    waiting: Int,
) -> Int:
    """Timely evaluations that can change something: they must wait, or their key has a life or begins one."""
    open_keys = lives.phase != NONE
    for k in waiting:
        open_keys[k] = True
    for i in range(key.shape[0]):
        if found[i] and truth[i] == TRUE and not late[i]:
            open_keys[key[i]] = True
    chosen, count = np.empty(key.shape[0], np.int64), 0
    for i in range(key.shape[0]):
        if found[i] and not late[i] and (open_keys[key[i]] or time[i] > progress[key[i]]):
            chosen[count] = i
            count += 1
    return chosen[:count].copy()


@kernel
def by_key_and_time(keys: int, key: Int, time: Int) -> Int:
    """Order of evaluations by (key, time, position); nearly linear when times are nearly sorted."""
    offsets = np.zeros(keys + 1, np.int64)
    for k in key:
        offsets[k + 1] += 1
    for k in range(keys):
        offsets[k + 1] += offsets[k]
    fill, order = offsets.copy(), np.empty(key.shape[0], np.int64)
    for i in range(key.shape[0]):
        at, begin = fill[key[i]], offsets[key[i]]
        while at > begin and time[order[at - 1]] > time[i]:
            order[at] = order[at - 1]
            at -= 1
        order[at] = i
        fill[key[i]] += 1
    return order
