"""Alert state machine: evaluations of a key, in event-time order, move its alert through its states.

The states are pending, firing, resolved and inactive.

Algorithm: each rule has one machine per key, and a second machine for late evaluations. Time advances only with
evaluations and watermarks, never with processing time.

Guarantees: the alerts of docs/explanation/semantics.md (D46 to D53). The split of evaluations into calls does not
change the events.

Complexity: O(1) per evaluation.

References: the alert states of Prometheus (`for`, `keep_firing_for`), here in event time.
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
# Truth of an evaluation. HOLDING: not true, but on the firing side of the recovery threshold.
FALSE, TRUE, HOLDING = 0, 1, 2
STORED = -1
FOREVER = 1 << 62


class Timing(NamedTuple):
    """Durations of a rule in microseconds.

    Attributes
    ----------
    for_us
        Duration of a true condition before the alert fires.
    keep_us
        Duration of firing after the condition became false.
    stale_us
        Time without evaluations until the alert is stale.
    behind_us
        Largest distance of the start of an alert before the latest start of its key.
    """

    for_us: int
    keep_us: int
    stale_us: int
    behind_us: int = 0


class AlertStates(NamedTuple):
    """State of the alert of each key.

    Attributes
    ----------
    phase
        NONE, PENDING, FIRING or KEEPING. An alert in phase KEEPING fires only because of `keep_firing_for`.
    start
        Start of the alert.
    latest
        Latest start of any alert of the key.
    sequence
        0 for the first alert of the key. It increases by 1 with each alert that does not start after `latest`. `start`
        and `sequence` identify an alert.
    fires
        Firing time, or NO_TIME before the alert fires.
    last
        Time of the last evaluation.
    since
        Start of phase KEEPING.
    best
        Number of the best evaluation in this call, or STORED if an earlier call had the best evaluation.
    margin
        Margin of the best evaluation.
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


def new_alert_states(keys: int) -> AlertStates:
    """Return the states of keys without an alert."""
    phase, start, sequence, last, since = (np.zeros(keys, np.int64) for _ in range(5))
    latest, fires = np.full(keys, NO_TIME), np.full(keys, NO_TIME)
    return AlertStates(phase, start, latest, sequence, fires, last, since, np.full(keys, STORED), np.zeros(keys))


def new_events(evaluations: int, keys: int) -> Int:
    """Return a table for changes of state. Its first cell holds the number of changes.

    The columns are key, event, start, sequence number, firing time, end and best evaluation. An evaluation ends at most
    one alert, and it starts or promotes at most one alert. The watermark ends at most one alert per key.
    """
    events = np.empty((1 + 2 * evaluations + keys, 7), np.int64)
    events[0, 0] = 0
    return events


@kernel
def add_event(states: AlertStates, key: int, event: int, end: int, events: Int) -> None:
    """Append a change of state. `end` is NO_TIME before the alert ends."""
    events[0, 0] += 1
    at = events[0, 0]
    events[at, 0] = key
    events[at, 1] = event
    events[at, 2] = states.start[key]
    events[at, 3] = states.sequence[key]
    events[at, 4] = states.fires[key]
    events[at, 5] = end
    events[at, 6] = states.best[key]


@kernel
def start_alert(states: AlertStates, key: int, time: int, timing: Timing, events: Int) -> None:
    """Start an alert, and number it among the alerts that may have the same start."""
    if time <= states.latest[key]:
        states.sequence[key] += 1
    else:
        if time - states.latest[key] > timing.behind_us:
            states.sequence[key] = 0
        states.latest[key] = time
    states.start[key], states.fires[key] = time, NO_TIME
    if timing.for_us > 0:
        states.phase[key] = PENDING
        add_event(states, key, TO_PENDING, NO_TIME, events)
    else:
        fire_alert(states, key, timing, events)


@kernel
def fire_alert(states: AlertStates, key: int, timing: Timing, events: Int) -> None:
    """Move an alert to firing. Its firing time does not depend on the time of the evaluation that moves it."""
    states.phase[key] = FIRING
    states.fires[key] = states.start[key] + timing.for_us
    add_event(states, key, TO_FIRING, NO_TIME, events)


@kernel
def expire_stale_alert(states: AlertStates, key: int, until: int, timing: Timing, events: Int) -> None:
    """End an alert that staleness ends before `until`."""
    phase = states.phase[key]
    stale_at = states.last[key] + timing.stale_us
    if phase == PENDING and stale_at < until:
        states.phase[key] = NONE
        add_event(states, key, TO_INACTIVE, stale_at, events)
        return
    if phase == FIRING and stale_at < until:
        states.phase[key] = KEEPING
        states.since[key] = stale_at
    keep_end = states.since[key] + timing.keep_us
    if states.phase[key] == KEEPING and keep_end < until:
        states.phase[key] = NONE
        add_event(states, key, TO_RESOLVED, keep_end, events)


@kernel
def apply_evaluation(states: AlertStates, key: int, time: int, truth: int, timing: Timing, events: Int) -> None:
    """Update one alert by one evaluation. A HOLDING evaluation only continues an alert that fires."""
    phase = states.phase[key]
    true = truth == TRUE or (truth == HOLDING and phase == FIRING)
    if true and phase == NONE:
        start_alert(states, key, time, timing, events)
    elif true and phase == PENDING and time - states.start[key] >= timing.for_us:
        fire_alert(states, key, timing, events)
    elif true and phase == KEEPING:
        states.phase[key] = FIRING
    elif not true and phase == PENDING:
        states.phase[key] = NONE
        add_event(states, key, TO_INACTIVE, time, events)
    elif not true and phase == FIRING and timing.keep_us == 0:
        states.phase[key] = NONE
        add_event(states, key, TO_RESOLVED, time, events)
    elif not true and phase == FIRING:
        states.phase[key] = KEEPING
        states.since[key] = time
    states.last[key] = time


@kernel
def apply_evaluations(
    states: AlertStates, key: Int, time: Int, truth: Int, margin: Float, number: Int, timing: Timing, events: Int
) -> None:
    """Apply evaluations in the given order. An evaluation back in time first ends the open alert of its key."""
    phase, last, best, best_margin = states.phase, states.last, states.best, states.margin
    for i in range(key.shape[0]):
        k = key[i]
        if phase[k] == NONE and truth[i] != TRUE:
            last[k] = time[i]
            continue
        # Most common case: the alert continues to fire.
        if phase[k] == FIRING and truth[i] == TRUE and last[k] <= time[i] <= last[k] + timing.stale_us:
            last[k] = time[i]
            if margin[i] > best_margin[k]:
                best[k], best_margin[k] = number[i], margin[i]
            continue
        expire_stale_alert(states, k, FOREVER if time[i] < states.last[k] else time[i], timing, events)
        starts = truth[i] == TRUE and states.phase[k] == NONE
        if starts or (states.phase[k] != NONE and margin[i] > states.margin[k]):
            states.best[k] = number[i]
            states.margin[k] = margin[i]
        apply_evaluation(states, k, time[i], truth[i], timing, events)


@kernel
def expire_stale_alerts(states: AlertStates, watermark: Int, timing: Timing, events: Int) -> None:
    """End the alerts that are stale at the watermark of their key."""
    for key in range(watermark.shape[0]):
        if states.phase[key] != NONE:
            expire_stale_alert(states, key, watermark[key], timing, events)


@kernel
def relevant_evaluations(
    found: Int,
    late: NDArray[np.bool_],
    key: Int,
    time: Int,
    truth: Int,
    states: AlertStates,
    watermark: Int,
    buffered_keys: Int,
) -> Int:
    """Return the timely evaluations that can change a state.

    An evaluation is relevant if it is after the watermark. It is also relevant if its key has an open alert, a buffered
    evaluation or a true evaluation in this call.
    """
    open_keys = states.phase != NONE
    for k in buffered_keys:
        open_keys[k] = True
    for i in range(key.shape[0]):
        if found[i] and truth[i] == TRUE and not late[i]:
            open_keys[key[i]] = True
    chosen, count = np.empty(key.shape[0], np.int64), 0
    for i in range(key.shape[0]):
        if found[i] and not late[i] and (open_keys[key[i]] or time[i] > watermark[key[i]]):
            chosen[count] = i
            count += 1
    return chosen[:count].copy()


@kernel
def order_by_key_and_time(keys: int, key: Int, time: Int) -> Int:
    """Return the order of evaluations by (key, time, position). The cost is linear if times are nearly sorted."""
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
