"""Alert batches of rules with a lifecycle."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.operators.lifecycle.witness import Witnesses
from tocsin.plan.identity import Identity
from tocsin.runtime.alert_batch import (
    AlertBatch,
    AlertSource,
    Key,
    ShownPayload,
    WitnessStream,
    distinct_keys,
    lifecycle_ids,
    text_array,
)
from tocsin.runtime.contract import Int


class AlertChanges(NamedTuple):
    """Changes of state of alerts, in the order in which they occurred.

    Attributes
    ----------
    key
        Number of the key on its page.
    state
        New state: a position in `alert_batch.STATES`.
    start, fires, end
        Start, firing time and end. NO_TIME replaces a time that is not known yet.
    sequence
        Number that distinguishes alerts of its key with the same start.
    late
        Whether late evaluations drive the alerts.
    shown
        Witness of the best evaluation.
    """

    key: Int
    state: NDArray[np.int8]
    start: Int
    fires: Int
    end: Int
    sequence: Int
    late: bool
    shown: Witnesses


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
