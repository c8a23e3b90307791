"""Matches: all true combinations of rows of a rule with `emit: all`, as one alert batch.

Guarantees: the identity of a match depends only on the rule, the key and the rows of the combination. Every engine and
every call therefore computes the same identity for a combination. The sign of zero is removed, because rows that
differ only in this sign are equal.

Complexity: about 2 us per match.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tocsin.operators.join.operator import AlertActivity, Join, JoinResults
from tocsin.operators.lifecycle.alert_changes import alert_source
from tocsin.operators.lifecycle.emission_times import EmissionTimes
from tocsin.operators.lifecycle.witness import Witnesses
from tocsin.plan.identity import Identity
from tocsin.runtime.alert_batch import MATCH, AlertBatch, Key, ShownPayload, distinct_keys, match_ids, text_array
from tocsin.runtime.context import Context
from tocsin.runtime.contract import Bools, Float, Int
from tocsin.runtime.metrics import quality_text
from tocsin.runtime.state_registry import SectionSpec, Shard


def match_alerts(
    rule: Identity,
    on: Sequence[str],
    keys: Sequence[Key],
    key: Int,
    shown: Witnesses,
    qualities: Sequence[str],
    late: Bools | None = None,
) -> AlertBatch:
    """Return matches as alert rows. `key` has the number of each match's key in `keys`.

    A match starts with its oldest row and ends with its newest row. `late` marks the matches that are out of order.
    """
    source, (distinct, place) = alert_source(rule, tuple(on)), distinct_keys(key, keys)
    payload, values = ShownPayload.of(source.streams, shown.payload), shown.values + 0.0
    count, start = len(shown.times), shown.times.min(axis=1)
    return AlertBatch(
        source,
        distinct,
        place,
        text_array(match_ids(source, distinct, place, shown.times, values, payload)),
        np.full(count, MATCH, np.int8),
        start=start,
        fires=start,
        end=shown.times.max(axis=1),
        sequence=np.zeros(count, np.int64),
        late=np.zeros(count, np.bool_) if late is None else late,
        value=shown.value + 0.0,
        margin=shown.margin + 0.0,
        times=shown.times,
        values=values,
        payload=payload,
        quality=text_array(qualities),
    )


class Matches:
    """Operator that emits every true combination of a rule with `emit: all`. It has no state."""

    has_states = False
    sections: Sequence[SectionSpec] = ()

    def __init__(self, join: Join) -> None:
        self.join = join

    def activity(self, shard: Shard) -> AlertActivity:
        """Return the keys whose false evaluations the join must find: no key."""
        return AlertActivity(np.zeros(len(shard.keys), np.bool_), np.zeros(len(shard.keys), np.bool_))

    def process(
        self, shard: Shard, results: JoinResults, context: Context, emissions: EmissionTimes | None = None
    ) -> None:
        """Add the matches to the output."""
        if not len(results.matches):
            return
        matches = results.lookup.matches(results.matches, results.scores)
        outside, sampled = self.join.outside(matches).tolist(), _probabilities(results)
        late = results.late_matches
        marks = zip(late.tolist(), outside, strict=True)
        if sampled is None:
            losses = context.losses(matches.times.min(axis=1))
            qualities = [
                quality_text(loss, is_late=is_late, is_out_of_domain=odd)
                for loss, (is_late, odd) in zip(losses, marks, strict=True)
            ]
        else:
            qualities = [
                quality_text(probability=one, is_late=is_late, is_out_of_domain=odd)
                for one, (is_late, odd) in zip(sampled.tolist(), marks, strict=True)
            ]
        names, on = shard.keys.names, context.on
        batch = match_alerts(self.join.identity, on, names, matches.key, matches, qualities, late)
        context.out.alerts.append(batch)

    def advance(self, shard: Shard, watermark: Int, idle_until: Int, context: Context) -> None:
        """Do nothing: a match does not wait."""

    def waiting_keys(self, shard: Shard) -> Bools:
        """Mark the keys with buffered evaluations: no key."""
        return np.zeros(len(shard.keys), np.bool_)

    def open_keys(self, shard: Shard) -> Bools:
        """Mark the keys that have an alert: no key."""
        return np.zeros(len(shard.keys), np.bool_)


def _probabilities(results: JoinResults) -> Float | None:
    """Return the product of the inclusion probabilities of all rows of a match except the last arrival, or None."""
    lookup, matches = results.lookup, results.matches
    if all(segment.probability is None for segment in lookup.segments):
        return None
    serial = lookup.tuples.serial[matches]
    last, found = serial.argmax(axis=1), np.ones(len(matches))
    for stream, (segment, base) in enumerate(zip(lookup.segments, lookup.bases, strict=False)):
        rows = matches[:, stream] - base
        probability = np.ones(len(rows)) if segment.probability is None else segment.probability[rows]
        if segment.thresholds is not None:
            sample = segment.thresholds
            at = np.minimum(np.searchsorted(sample.serial, serial.max(axis=1)), len(sample.serial) - 1)
            probability = np.minimum(probability, sample.before[at] * sample.size[rows])
        found *= np.where(last == stream, 1.0, probability)
    return found
