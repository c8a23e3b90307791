"""Alert batches of rules with a lifecycle, and the last alert rows of a rule that was removed or changed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tocsin.operators.lifecycle import alert_state_machine as alert
from tocsin.operators.lifecycle.operator import AlertChanges
from tocsin.operators.lifecycle.witness import Witnesses
from tocsin.operators.no_data import NOT_YET, NoDataChanges
from tocsin.plan.identity import Identity, Lane
from tocsin.runtime.alert_batch import (
    FIRING,
    INACTIVE,
    NO_TIME,
    RESOLVED,
    AlertBatch,
    AlertSource,
    Key,
    ShownPayload,
    WitnessStream,
    distinct_keys,
    lifecycle_ids,
    text_array,
)
from tocsin.runtime.contract import Bools, Out

Arrays = Mapping[str, NDArray[Any]]


@lru_cache(maxsize=4096)
def alert_source(rule: Identity, on: tuple[str, ...]) -> AlertSource:
    """Return the constants of the alerts of a rule with these key columns."""
    streams = (WitnessStream(stream, columns, frozenset({*columns, *on})) for stream, columns in rule.lanes)
    return AlertSource(rule.alert, rule.labels, on, tuple(streams))


def lifecycle_alerts(
    rule: Identity, on: Sequence[str], keys: Sequence[Key], changes: AlertChanges, qualities: Sequence[str]
) -> AlertBatch:
    """Return changes of state as alert rows. `keys` are the keys of the page."""
    source, (distinct, place) = alert_source(rule, tuple(on)), distinct_keys(changes.key, keys)
    shown, late = changes.shown, np.full(len(changes.key), changes.late)
    return AlertBatch(
        source,
        distinct,
        place,
        text_array(lifecycle_ids(source, distinct, place, changes.start, late, changes.sequence)),
        changes.state,
        start=changes.start,
        fires=changes.fires,
        end=changes.end,
        sequence=changes.sequence,
        late=late,
        value=shown.value,
        margin=shown.margin,
        times=shown.times,
        values=shown.values,
        payload=ShownPayload.of(source.streams, shown.payload),
        quality=text_array(qualities),
    )


def with_doubts(qualities: Sequence[str], outside: Bools) -> list[str]:
    """Add `out-of-domain` to the quality of rows that have a value outside its domain."""
    if not outside.any():
        return list(qualities)
    return [f"{one} out-of-domain" if odd else one for one, odd in zip(qualities, outside.tolist(), strict=True)]


def no_data_alerts(
    rule: Identity, on: Sequence[str], keys: Sequence[Key], changes: NoDataChanges, quality: str
) -> AlertBatch:
    """Return changes of state of a no-data rule as alert rows."""
    count = len(changes.key)
    until = np.where(changes.end == NOT_YET, changes.start, changes.end)
    shown = Witnesses.none(count, 1, 0)
    shown.times[:, 0] = changes.last
    # Python divides large integers exactly, NumPy rounds them first.
    shown.value[:] = [duration / 1_000_000 for duration in (until - changes.last).tolist()]
    shown.margin[:] = [duration / 1_000_000 for duration in (until - changes.start).tolist()]
    state = np.where(changes.end == NOT_YET, FIRING, RESOLVED).astype(np.int8)
    sequence = np.zeros(count, np.int64)
    rows = AlertChanges(changes.key, state, changes.start, changes.start, changes.end, sequence, False, shown)
    return lifecycle_alerts(rule, on, keys, rows, [quality] * count)


def last_words(
    arrays: Arrays,
    facts: Mapping[str, Any],
    on: Sequence[str],
    stay: Iterable[Identity] = (),
    stores: Iterable[str] = (),
    lanes: Collection[Lane] = (),
) -> Out:
    """End the open lives on a page of all rules but those that stay: at their last evaluation, or event time.

    What was remembered in other than these stores, or waits in other lanes, is forgotten, and counted so.
    """
    keys, kept = [tuple(key) for key in facts["keys"]], set(stay)
    gone = [one for one in map(Identity.of_json, facts["rules"]) if one not in kept]
    words = [batch for one in gone for machine in (0, 1) for batch in _ends(one, machine, arrays, on, keys)]
    quiet = [one for one in map(Identity.of_json, facts.get("silences", ())) if one not in kept]
    out = Out(words + [batch for one in quiet for batch in _no_data_ends(one, arrays, on, keys)])
    kept_stores = set(stores)
    for store, name in facts.get("stores", {}).items():
        rows = 0 if store in kept_stores else len(arrays.get(f"s{store}.time", ()))
        if rows:
            out.count(name, {"retained": -rows, "expired": rows})
    for i, (stream, columns) in enumerate(facts.get("lanes", ())):
        rows = 0 if (stream, tuple(columns)) in lanes else int((arrays["hold.lane"] == i).sum())
        for name in facts["counted"][i] if rows else ():
            out.count(name, {"held": -rows, "expired": rows})
    return out


def _ends(rule: Identity, machine: int, arrays: Arrays, on: Sequence[str], keys: Sequence[Key]) -> Iterator[AlertBatch]:
    """Yield the ends of the open alerts of a rule, unless it has none."""
    if f"r{rule.id}.life{machine}.0" not in arrays:  # The rule emits all matches.
        return
    lives = alert.stored_lives(arrays, f"r{rule.id}.life{machine}")
    best = Witnesses(*(arrays[f"r{rule.id}.best{machine}.{i}"] for i in range(8)))
    at = (lives.phase != alert.NONE).nonzero()[0]
    if not len(at):
        return
    is_pending = lives.phase[at] == alert.PENDING
    state = np.where(is_pending, INACTIVE, RESOLVED).astype(np.int8)
    fires = np.where(is_pending, NO_TIME, lives.fires[at])
    end = np.where(lives.phase[at] == alert.KEEPING, lives.since[at], lives.last[at])
    changes = AlertChanges(at, state, lives.start[at], fires, end, lives.sequence[at], machine == 1, best.take(at))
    qualities = [f"exact{' late' * machine} rule-changed"] * len(at)
    yield lifecycle_alerts(rule, on, keys, changes, qualities)


def _no_data_ends(rule: Identity, arrays: Arrays, on: Sequence[str], keys: Sequence[Key]) -> Iterator[AlertBatch]:
    start, last = arrays[f"n{rule.id}.start"], arrays[f"n{rule.id}.last"]
    at = (start != NOT_YET).nonzero()[0]
    if len(at):
        end = np.maximum(start[at], arrays["silence.front"][at])
        yield no_data_alerts(rule, on, keys, NoDataChanges(at, start[at], end, last[at]), "exact rule-changed")
