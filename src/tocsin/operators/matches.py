"""Matches: all true combinations of rows of a rule with `emit: all`, as one alert batch.

Guarantee: the identity of a match depends only on the rule, the key and the rows of the combination. Every engine and
every call therefore computes the same identity for a combination. The sign of zero is removed, because rows that
differ only in this sign are equal.

Complexity: about 2 us per match.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tocsin.operators.lifecycle.alert_changes import alert_source
from tocsin.operators.lifecycle.witness import Witnesses
from tocsin.plan.identity import Identity
from tocsin.runtime.alert_batch import MATCH, AlertBatch, Key, ShownPayload, distinct_keys, match_ids, text_array
from tocsin.runtime.contract import Int


def match_alerts(
    rule: Identity, on: Sequence[str], keys: Sequence[Key], key: Int, shown: Witnesses, qualities: Sequence[str]
) -> AlertBatch:
    """Return matches as alert rows. `key` has the number of each match's key in `keys`.

    A match starts with its oldest row and ends with its newest row.
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
        late=np.zeros(count, np.bool_),
        value=shown.value + 0.0,
        margin=shown.margin + 0.0,
        times=shown.times,
        values=values,
        payload=payload,
        quality=text_array(qualities),
    )
