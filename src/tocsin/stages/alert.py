"""Alert: evaluations of a key, in event-time order, drive its life: pending, firing, resolved, inactive.

Idea: a small machine per (rule, key), and a second one for late evaluations; time comes only from evaluations and progress, never from a clock.
Guarantee: the lives of docs/concepts/semantics.md; applying evaluations in one call or in many gives the same events.
Cost: O(1) per evaluation. Source: Prometheus's life cycle (`for`, `keep_firing_for`) moved to event time.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.jit import kernel
from tocsin.logic import Float, Int

NONE, PENDING, FIRING, KEEPING = 0, 1, 2, 3
EVENTS = ("pending", "firing", "resolved", "inactive")
TO_PENDING, TO_FIRING, TO_RESOLVED, TO_INACTIVE = 0, 1, 2, 3
STORED = -1
FOREVER = 1 << 62


class Timing(NamedTuple):
    """Durations of a rule in microseconds."""

    for_us: int
    keep_us: int
    stale_us: int


class Lives(NamedTuple):
    """One machine per key. `best` is the evaluation that speaks for the life: a number of this call, or STORED from before it."""

    phase: Int
    start: Int
    last: Int
    since: Int
    best: Int
    margin: Float


class Events(NamedTuple):
    """Changes of state, in a growing table of (key, event, start, end, best); `end` is -FOREVER while the life is open."""

    rows: Int
    count: Int


def new_lives(keys: int) -> Lives:
    """Machines without a life."""
    return Lives(*(np.zeros(keys, np.int64) for _ in range(4)), np.full(keys, STORED), np.zeros(keys))


@kernel
def add_event(events: Events, lives: Lives, key: int, event: int, end: int) -> Events:
    """Write down a change of state."""
    rows, at = events.rows, events.count[0]
    if at == rows.shape[0]:
        longer = np.empty((2 * at, 5), np.int64)
        longer[:at] = rows
        rows = longer
    rows[at, 0], rows[at, 1], rows[at, 2] = key, event, lives.start[key]
    rows[at, 3], rows[at, 4] = end, lives.best[key]
    events.count[0] += 1
    return Events(rows, events.count)


@kernel
def settle(lives: Lives, key: int, until: int, timing: Timing, events: Events) -> Events:
    """End what silence ends before `until`."""
    phase = lives.phase[key]
    if (phase == PENDING or phase == FIRING) and lives.last[key] + timing.stale_us < until:  # noqa: PLR1714
        silent = lives.last[key] + timing.stale_us
        if phase == PENDING:
            lives.phase[key] = NONE
            return add_event(events, lives, key, TO_INACTIVE, silent)
        lives.phase[key], lives.since[key] = KEEPING, silent
    if lives.phase[key] == KEEPING and lives.since[key] + timing.keep_us < until:
        lives.phase[key] = NONE
        return add_event(events, lives, key, TO_RESOLVED, lives.since[key] + timing.keep_us)
    return events


@kernel
def hold(lives: Lives, key: int, time: int, timing: Timing, events: Events) -> Events:
    """Take a true evaluation into a life that has begun or begins with it."""
    if lives.phase[key] == NONE:
        lives.start[key] = time
        lives.phase[key] = PENDING if timing.for_us > 0 else FIRING
        event = TO_PENDING if timing.for_us > 0 else TO_FIRING
        return add_event(events, lives, key, event, -FOREVER)
    if lives.phase[key] == PENDING and time - lives.start[key] >= timing.for_us:
        lives.phase[key] = FIRING
        return add_event(events, lives, key, TO_FIRING, -FOREVER)
    if lives.phase[key] == KEEPING:
        lives.phase[key] = FIRING
    return events


@kernel
def release(lives: Lives, key: int, time: int, timing: Timing, events: Events) -> Events:
    """Take a false evaluation."""
    phase = lives.phase[key]
    if phase == PENDING:
        lives.phase[key] = NONE
        return add_event(events, lives, key, TO_INACTIVE, time)
    if phase == FIRING and timing.keep_us == 0:
        lives.phase[key] = NONE
        return add_event(events, lives, key, TO_RESOLVED, time)
    if phase == FIRING:
        lives.phase[key], lives.since[key] = KEEPING, time
    return events


@kernel
def evaluate(
    lives: Lives, key: int, time: int, truth: int, margin: float, number: int, timing: Timing, events: Events
) -> Events:
    """Drive one life by one evaluation."""
    events = settle(lives, key, time, timing, events)
    begins = truth != 0 and lives.phase[key] == NONE
    if begins or (lives.phase[key] != NONE and margin > lives.margin[key]):
        lives.best[key], lives.margin[key] = number, margin
    events = hold(lives, key, time, timing, events) if truth else release(lives, key, time, timing, events)
    lives.last[key] = time
    return events


@kernel
def drive(
    lives: Lives, offsets: Int, time: Int, truth: Int, margin: Float, number: Int, timing: Timing, events: Events
) -> Events:
    """Drive the lives of all keys; the evaluations of key k are offsets[k]:offsets[k+1], in the order in which they apply."""
    for key in range(offsets.shape[0] - 1):
        for i in range(offsets[key], offsets[key + 1]):
            if lives.phase[key] == NONE and not truth[i]:
                continue
            events = evaluate(lives, key, time[i], truth[i], margin[i], number[i], timing, events)
    return events


@kernel
def drive_late(
    lives: Lives, key: Int, time: Int, truth: Int, margin: Float, number: Int, timing: Timing, events: Events
) -> Events:
    """Drive the lives of late evaluations in order of arrival; one that goes back in time ends the life before it."""
    for i in range(key.shape[0]):
        if time[i] < lives.last[key[i]]:
            events = settle(lives, key[i], FOREVER, timing, events)
        events = evaluate(lives, key[i], time[i], truth[i], margin[i], number[i], timing, events)
    return events


@kernel
def settle_all(lives: Lives, progress: Int, timing: Timing, events: Events) -> Events:
    """Let progress end the lives that have been silent."""
    for key in range(progress.shape[0]):
        if lives.phase[key] != NONE:
            events = settle(lives, key, progress[key], timing, events)
    return events


@kernel
def of_interest(
    found: Int, late: NDArray[np.bool_], key: Int, time: Int, truth: Int, lives: Lives, progress: Int, waiting: Int
) -> Int:
    """Timely evaluations that can change something: those that must wait, and those of a key that has a life or begins one."""
    open_keys = lives.phase != NONE
    for k in waiting:
        open_keys[k] = True
    for i in range(key.shape[0]):
        if found[i] and truth[i] and not late[i]:
            open_keys[key[i]] = True
    chosen, count = np.empty(key.shape[0], np.int64), 0
    for i in range(key.shape[0]):
        if found[i] and not late[i] and (open_keys[key[i]] or time[i] > progress[key[i]]):
            chosen[count] = i
            count += 1
    return chosen[:count].copy()


@kernel
def by_key_and_time(keys: int, key: Int, time: Int) -> tuple[Int, Int]:
    """Order of evaluations by (key, time, position) and where each key begins; nearly linear when times are nearly sorted."""
    offsets = np.zeros(keys + 1, np.int64)
    for k in key:
        offsets[k + 1] += 1
    for k in range(keys):
        offsets[k + 1] += offsets[k]
    fill, order = offsets[:-1].copy(), np.empty(key.shape[0], np.int64)
    for i in range(key.shape[0]):
        at, begin = fill[key[i]], offsets[key[i]]
        while at > begin and time[order[at - 1]] > time[i]:
            order[at] = order[at - 1]
            at -= 1
        order[at] = i
        fill[key[i]] += 1
    return order, offsets
