"""Alert batch: alert rows of one rule in columns, from the operators to the alert log.

An operator builds one `AlertBatch` per rule and call. `Session` returns it in `Out.alerts`. `alert_arrow` converts it
to the columns of a DataFrame or to bytes for the driver. The alert log (`delivery.alert_json`) writes it as JSON.
Python dicts with the public column names exist only where a caller reads single rows (`AlertBatch.rows`).

Algorithm: everything that is the same for all rows of a key is computed once per (rule, key) and cached: the labels and
the hash of the beginning of the identity. Payload is parsed once per distinct text.

Guarantees:
    - The identity depends on the rule, the key and the rows of the alert, not on batch boundaries or the engine.
    - All arrays have one entry per alert row, in the order in which the changes occurred. They are never written.

Complexity: about 2 us per alert row. The SHA-256 of the identity takes half of this time.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.runtime.contract import Bools, Float, Int
from tocsin.runtime.payload import mapping_encoder, unread_columns_of

# Public names of states. `AlertBatch.state` has their positions.
STATES = ("pending", "firing", "resolved", "inactive", "match")
PENDING, FIRING, RESOLVED, INACTIVE, MATCH = range(5)
# The value of a time that an alert does not have.
NO_TIME = -(1 << 62)
# Number of (rule, key) pairs with cached labels and hashes, about 1 kB each.
_CACHED_KEYS = 1 << 16

Key = tuple[str, ...]
Texts = NDArray[Any]
# An alert row with the public column names.
Row = dict[str, Any]
# Keys are sorted, so equal values have equal texts. The identity of an alert depends on every character.
_encode = json.JSONEncoder(sort_keys=True).encode
_encode_all = mapping_encoder(", ", ": ", sort_keys=True)


@dataclass(frozen=True)
class WitnessStream:
    """One stream in the witness of a rule.

    Attributes
    ----------
    name
        Name of the stream.
    columns
        Names of its values in the witness.
    hidden
        Columns that are not shown as payload.
    is_optional
        Whether an infinite value means that the row has no value.
    """

    name: str
    columns: tuple[str, ...]
    hidden: frozenset[str]
    is_optional: bool = False


@dataclass(frozen=True)
class AlertSource:
    """Constants of all alerts of a rule.

    Attributes
    ----------
    alert
        Name of the alert.
    labels
        Fixed labels.
    on
        Names of the labels that the key has.
    streams
        Streams of the witness.
    """

    alert: str
    labels: tuple[tuple[str, str], ...]
    on: tuple[str, ...]
    streams: tuple[WitnessStream, ...]
    # The cache looks sources up by their hash, which is therefore computed once.
    _hash: int = field(init=False, repr=False, compare=False, default=0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.alert, self.labels, self.on, self.streams)))

    def __hash__(self) -> int:
        return self._hash

    @property
    def columns(self) -> int:
        """Number of values in a witness."""
        return sum(len(stream.columns) for stream in self.streams)

    def labels_of(self, key: Key) -> Mapping[str, str]:
        """Return the labels of a key. The caller must not change them."""
        return _key_constants(self, key).labels


class _KeyConstants(NamedTuple):
    """Labels of one (rule, key), and the beginning of its identities: the hash of alert name and labels."""

    labels: dict[str, str]
    hash: Any


@lru_cache(maxsize=_CACHED_KEYS)
def _key_constants(source: AlertSource, key: Key) -> _KeyConstants:
    labels = {**dict(source.labels), **dict(zip(source.on, key, strict=True))}
    # The text of the identity continues after the first two elements of the list.
    begin = f"{_encode([source.alert, sorted(labels.items())])[:-1]}, "
    return _KeyConstants(labels, hashlib.sha256(begin.encode()))


@lru_cache(maxsize=_CACHED_KEYS)
def _match_hash(source: AlertSource, key: Key) -> Any:
    streams = [[stream.name, stream.columns] for stream in source.streams]
    started = _key_constants(source, key).hash.copy()
    started.update(f"{_encode(streams)}]".encode())
    return started


@dataclass(frozen=True)
class ShownPayload:
    """Payload of witnesses as it is shown: distinct payloads, and one position per alert row and stream, or -1."""

    distinct: tuple[Mapping[str, str | None], ...]
    position: NDArray[np.int32]

    @classmethod
    def of(cls, streams: Sequence[WitnessStream], texts: Texts) -> ShownPayload:
        """Parse payload texts, one column per stream. A text that occurs in many rows is parsed once."""
        position, distinct = np.full(texts.shape, -1, np.int32), list[Mapping[str, str | None]]()
        for number, stream in enumerate(streams):
            column = texts[:, number].tolist()
            if column.count(None) < len(column):
                position[:, number] = _show(column, stream.hidden, distinct)
        return cls(tuple(distinct), position)

    def take(self, at: Any) -> ShownPayload:
        """Return some rows."""
        return ShownPayload(self.distinct, self.position[at])

    def rows(self) -> list[list[dict[str, str | None] | None]]:
        """Return a dict or None per alert row and stream."""
        distinct = self.distinct
        return [[None if i < 0 else dict(distinct[i]) for i in row] for row in self.position.tolist()]


def _show(texts: Sequence[str | None], hidden: Collection[str], distinct: list[Mapping[str, str | None]]) -> Any:
    """Add the distinct payloads of texts to `distinct`, and return their positions."""
    different = [text for text in dict.fromkeys(texts) if text is not None]
    shown = unread_columns_of(different, hidden)
    begin, is_shown = len(distinct), np.array([one is not None for one in shown], np.bool_)
    distinct += filter(None, shown)
    numbers = np.where(is_shown, begin + np.cumsum(is_shown) - 1, -1)
    positions: dict[str | None, int] = dict(zip(different, numbers.tolist(), strict=True))
    return np.fromiter(map(positions.get, texts, repeat(-1)), np.int32, len(texts))


@dataclass(frozen=True)
class AlertBatch:
    """Alert rows of one rule.

    Attributes
    ----------
    source
        Constants of the rule.
    keys, key
        Distinct keys, and the position of each row's key.
    id
        Identity of the alert: 16 hexadecimal digits.
    state
        Position in `STATES`.
    start, fires, end
        Times in microseconds. `fires` is NO_TIME before the alert fires, and `end` is NO_TIME while it is open.
    sequence
        Number that distinguishes alerts of a key with the same start.
    late
        Whether late evaluations drive the alert.
    value, margin
        Value and margin of the witness.
    times, values, payload
        Witness: one time and payload per stream, and the values of all streams one after the other.
    quality
        Words about the completeness of the results.
    emitted
        Newest event time of the key when the alert began to fire, or NO_TIME; None if it is not measured.
    version
        Number of the plan among plans that run side by side; None for a single plan.
    """

    source: AlertSource
    keys: Sequence[Key]
    key: Int
    id: Texts
    state: NDArray[np.int8]
    start: Int
    fires: Int
    end: Int
    sequence: Int
    late: Bools
    value: Float
    margin: Float
    times: Int
    values: Float
    payload: ShownPayload
    quality: Texts
    emitted: Int | None = None
    version: int | None = None

    def __len__(self) -> int:
        return len(self.id)

    def take(self, at: Any) -> AlertBatch:
        """Return some rows: a slice, positions or a mask."""
        changed: dict[str, Any] = {name: getattr(self, name)[at] for name in ROW_ARRAYS}
        emitted = None if self.emitted is None else self.emitted[at]
        return replace(self, payload=self.payload.take(at), emitted=emitted, **changed)

    def labels(self) -> list[Mapping[str, str]]:
        """Return the labels of each key of `keys`. The caller must not change them."""
        return [self.source.labels_of(key) for key in self.keys]

    def rows(self, to_time: Callable[[int], Any] = int) -> list[Row]:
        """Return one dict per row. `to_time` converts times from microseconds. The dicts share no parts."""
        labels = [dict(one) for one in self.labels()]
        columns = zip(
            self.id.tolist(),
            [STATES[state] for state in self.state.tolist()],
            self.key.tolist(),
            *(_converted(times, to_time) for times in (self.start, self.fires, self.end)),
            self.value.tolist(),
            self.margin.tolist(),
            self.witnesses(to_time),
            self.quality.tolist(),
            strict=True,
        )
        return [
            {
                "alert": self.source.alert,
                "id": mark,
                "state": state,
                "labels": labels[key].copy(),
                "startsAt": start,
                "firesAt": fires,
                "endsAt": end,
                "value": value,
                "margin": margin,
                "witness": witness,
                "quality": quality,
            }
            for mark, state, key, start, fires, end, value, margin, witness, quality in columns
        ]

    def witnesses(self, to_time: Callable[[int], Any] = int) -> list[list[Row]]:
        """Return the witness of each row: a dict per stream."""
        payload = self.payload.rows()
        times = [_converted(column, to_time) for column in self.times.T]
        parts, begin = [], 0
        for i, stream in enumerate(self.source.streams):
            columns = stream.columns
            values = self.values[:, begin : begin + len(columns)].tolist()
            begin += len(columns)
            shown = (dict(zip(columns, one, strict=True)) for one in values)
            if stream.is_optional:
                shown = ({name: x for name, x in one.items() if np.isfinite(x)} for one in shown)
            parts.append(
                [
                    {"stream": stream.name, "time": time, "values": numbers, "payload": texts[i]}
                    for time, numbers, texts in zip(times[i], shown, payload, strict=True)
                ]
            )
        return [list(row) for row in zip(*parts, strict=True)] if parts else [[] for _ in range(len(self))]

    def emission_times(self) -> list[int | None]:
        """Return the emission time of each row in microseconds, or None."""
        return [None] * len(self) if self.emitted is None else _converted(self.emitted, int)

    def count_states(self) -> dict[str, int]:
        """Return the number of rows by state."""
        counts = np.bincount(self.state, minlength=len(STATES)).tolist()
        return {state: count for state, count in zip(STATES, counts, strict=True) if count}


# Arrays of a batch with one entry per row.
ROW_ARRAYS = (
    "key", "id", "state", "start", "fires", "end", "sequence", "late", "value", "margin", "times", "values", "quality",
)  # fmt: skip


def _converted(times: Int, to_time: Callable[[int], Any]) -> list[Any]:
    return [None if time == NO_TIME else to_time(time) for time in times.tolist()]


def text_array(texts: Sequence[str]) -> Texts:
    """Return texts as an array of Python objects."""
    array = np.empty(len(texts), object)
    array[:] = texts
    return array


def distinct_keys(numbers: Int, keys: Sequence[Key]) -> tuple[list[Key], Int]:
    """Return the distinct keys of rows whose key numbers are given, and the position of each row's key."""
    distinct, key = np.unique(numbers, return_inverse=True)
    return [keys[number] for number in distinct.tolist()], key


def lifecycle_ids(
    source: AlertSource, keys: Sequence[Key], key: Int, start: Int, late: Bools, sequence: Int
) -> list[str]:
    """Return the identities of alerts with a lifecycle: alert name, labels, start, late and sequence number."""
    hashes = [_key_constants(source, one).hash for one in keys]
    ids = []
    for k, time, is_late, number in zip(key.tolist(), start.tolist(), late.tolist(), sequence.tolist(), strict=True):
        mark = hashes[k].copy()
        mark.update(f"{time}, {'true' if is_late else 'false'}, {number}]".encode())
        ids.append(mark.hexdigest()[:16])
    return ids


def match_ids(
    source: AlertSource, keys: Sequence[Key], key: Int, times: Int, values: Float, payload: ShownPayload
) -> list[str]:
    """Return the identities of matches: alert name, labels, streams, and the times, values and payload of all rows."""
    hashes = [_match_hash(source, one) for one in keys]
    numbers = np.concatenate([times, np.ascontiguousarray(values).view(np.int64)], axis=1)
    width, data = 8 * numbers.shape[1], numbers.astype("<i8").tobytes()
    has_payload = (payload.position >= 0).any(axis=1)
    if not has_payload.any():
        ids = []
        for i, k in enumerate(key.tolist()):
            mark = hashes[k].copy()
            mark.update(data[i * width : (i + 1) * width])
            ids.append(mark.hexdigest()[:16])
        return ids
    return _match_ids_with_payload(hashes, key, data, width, payload)


def _match_ids_with_payload(
    hashes: Sequence[Any], key: Int, data: bytes, width: int, payload: ShownPayload
) -> list[str]:
    # The last text is at position -1.
    texts = [*_encode_all(payload.distinct), "null"]
    shown = [map(texts.__getitem__, column) for column in payload.position.T.tolist()]
    is_any = np.any(payload.position >= 0, axis=1).tolist()
    ids = []
    for i, (k, is_shown, row) in enumerate(zip(key.tolist(), is_any, zip(*shown, strict=True), strict=True)):
        mark = hashes[k].copy()
        numbers = data[i * width : (i + 1) * width]
        mark.update(numbers + f"[{', '.join(row)}]".encode() if is_shown else numbers)
        ids.append(mark.hexdigest()[:16])
    return ids


def request_ids(batch: AlertBatch) -> list[str]:
    """Return the identities of matured range requests: alert name, labels, start, and the witness."""
    hashes = [_key_constants(batch.source, key).hash for key in batch.keys]
    ids = []
    for k, time, witness in zip(batch.key.tolist(), batch.start.tolist(), batch.witnesses(), strict=True):
        rows = [[part["time"], part["values"], part["payload"]] for part in witness]
        mark = hashes[k].copy()
        mark.update(f"{time}, {_encode(rows)}]".encode())
        ids.append(mark.hexdigest()[:16])
    return ids
