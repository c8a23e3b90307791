"""Alert batches in Arrow: the columns of a DataFrame of alerts, and bytes that carry batches to another process.

The Spark operator returns bytes (`pack_alerts`), because the pandas interface of Spark converts nested columns row by
row in Python. The driver reads batches from the bytes (`unpack_alerts`) and writes the alert log. A DataFrame of alerts
has the public columns (`to_arrow`).

Algorithm: bytes are one Arrow IPC stream with one row per batch. A column of alert rows is a list column, so batches of
all rules are in one table without padding. Values that repeat (labels, names of streams, payload) are converted once
and taken by position.

Guarantees: `unpack_alerts(pack_alerts(batches))` is equal to `batches`, except that a character without UTF-8 encoding
becomes `?`, as in the alert log.

Complexity: about 1 us per alert row and 100 us per call.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from tocsin.runtime.alert_batch import NO_TIME, STATES, AlertBatch, AlertSource, ShownPayload, WitnessStream, text_array

# Alert rows in one binary value. Spark moves a value as a whole.
MOST_ROWS = 50_000

_TEXTS = pa.map_(pa.string(), pa.string())
_TIME = pa.timestamp("us", tz="UTC")
_PART = pa.struct(
    [("stream", pa.string()), ("time", _TIME), ("values", pa.map_(pa.string(), pa.float64())), ("payload", _TEXTS)]
)
# Public columns of a DataFrame of alerts.
SCHEMA = pa.schema(
    [
        ("alert", pa.string()),
        ("id", pa.string()),
        ("state", pa.string()),
        ("labels", _TEXTS),
        ("startsAt", _TIME),
        ("firesAt", _TIME),
        ("endsAt", _TIME),
        ("value", pa.float64()),
        ("margin", pa.float64()),
        ("witness", pa.list_(_PART)),
        ("quality", pa.string()),
    ]
)

_STREAM = pa.struct(
    [
        ("name", pa.string()),
        ("columns", pa.list_(pa.string())),
        ("hidden", pa.list_(pa.string())),
        ("is_optional", pa.bool_()),
    ]
)
_SOURCE = pa.struct(
    [
        ("alert", pa.string()),
        ("labels", pa.list_(pa.list_(pa.string()))),
        ("on", pa.list_(pa.string())),
        ("streams", pa.list_(_STREAM)),
    ]
)
# Arrays of a batch with their element types. Texts are arrays of Python objects.
_NUMBERS = {
    "key": np.int64,
    "state": np.int8,
    "start": np.int64,
    "fires": np.int64,
    "end": np.int64,
    "sequence": np.int64,
    "late": np.bool_,
    "value": np.float64,
    "margin": np.float64,
}
_MATRICES = {"times": np.int64, "values": np.float64}


def to_arrow(batch: AlertBatch) -> pa.RecordBatch:
    """Return the public columns of a batch."""
    count, key = len(batch), pa.array(batch.key)
    return pa.RecordBatch.from_arrays(
        [
            _repeated([batch.source.alert], np.zeros(count, np.int64)),
            _texts(batch.id.tolist()),
            _repeated(STATES, batch.state),
            _maps(batch.labels()).take(key),
            _times(batch.start),
            _times(batch.fires),
            _times(batch.end),
            pa.array(batch.value),
            pa.array(batch.margin),
            _witnesses(batch),
            _texts(batch.quality.tolist()),
        ],
        schema=SCHEMA,
    )


def _witnesses(batch: AlertBatch) -> pa.ListArray:
    """Return the witness column. Its elements are ordered by row and stream."""
    streams, count = batch.source.streams, len(batch)
    position = batch.payload.position.ravel()
    parts = pa.StructArray.from_arrays(
        [
            _repeated([stream.name for stream in streams], np.tile(np.arange(len(streams)), count)),
            _times(np.ascontiguousarray(batch.times).ravel()),
            _values(batch),
            _maps(batch.payload.distinct).take(pa.array(position, mask=position < 0)),
        ],
        fields=list(_PART),
    )
    return pa.ListArray.from_arrays(_offsets(np.full(count, len(streams))), parts)


def _values(batch: AlertBatch) -> pa.MapArray:
    """Return one map from column to value per witness part."""
    streams, count = batch.source.streams, len(batch)
    widths = np.array([len(stream.columns) for stream in streams], np.int64)
    names = [column for stream in streams for column in stream.columns]
    values, name, lengths = batch.values.ravel(), np.tile(np.arange(len(names)), count), np.tile(widths, count)
    if any(stream.is_optional for stream in streams):
        is_optional = np.repeat([stream.is_optional for stream in streams], widths)
        present = ~is_optional | np.isfinite(batch.values)
        sums = np.concatenate([np.zeros((count, 1), np.int64), np.cumsum(present, axis=1)], axis=1)
        lengths = np.diff(sums[:, np.concatenate([[0], np.cumsum(widths)])], axis=1).ravel()
        values, name = values[present.ravel()], name[present.ravel()]
    return pa.MapArray.from_arrays(_offsets(lengths), _repeated(names, name), pa.array(values, pa.float64()))


def _offsets(lengths: Any) -> pa.Array:
    return pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))


def _times(times: Any) -> pa.Array:
    return pa.array(times, pa.int64(), mask=times == NO_TIME).cast(_TIME)


def _repeated(texts: Sequence[str], position: Any) -> pa.Array:
    return _texts(texts).take(pa.array(position))


def _texts(texts: Sequence[str | None]) -> pa.Array:
    """Return texts as Arrow strings, with `?` for characters that UTF-8 cannot encode."""
    try:
        return pa.array(texts, pa.string())
    except UnicodeEncodeError:
        return pa.array([None if text is None else _encodable(text) for text in texts], pa.string())


def _encodable(text: str) -> str:
    """Return a text with `?` for characters that UTF-8 cannot encode."""
    return text.encode("utf-8", "replace").decode()


def _maps(maps: Sequence[Mapping[str, str | None]]) -> pa.MapArray:
    names = [name for one in maps for name in one]
    texts = [text for one in maps for text in one.values()]
    return pa.MapArray.from_arrays(_offsets([len(one) for one in maps]), _texts(names), _texts(texts))


def pack_alerts(batches: Iterable[AlertBatch]) -> list[bytes]:
    """Return batches as bytes: values of at most 50,000 alert rows each, in the same order."""
    packed, rows, pending = list[bytes](), 0, list[AlertBatch]()
    for batch in batches:
        for begin in range(0, len(batch), MOST_ROWS):
            piece = batch if len(batch) <= MOST_ROWS else batch.take(slice(begin, begin + MOST_ROWS))
            if rows + len(piece) > MOST_ROWS:
                packed.append(_pack(pending))
                rows, pending = 0, []
            pending.append(piece)
            rows += len(piece)
    return [*packed, _pack(pending)] if pending else packed


def _pack(batches: Sequence[AlertBatch]) -> bytes:
    columns: dict[str, pa.Array] = {
        "source": pa.array([_plain_source(batch.source) for batch in batches], _SOURCE),
        "version": pa.array([batch.version for batch in batches], pa.int64()),
        "keys": _lists([len(batch.keys) for batch in batches], _key_lists(batches)),
    }
    lengths = [len(batch) for batch in batches]
    for name in _NUMBERS:
        columns[name] = _lists(lengths, pa.array(np.concatenate([getattr(batch, name) for batch in batches])))
    for name in ("id", "quality"):
        columns[name] = _lists(lengths, _texts([text for batch in batches for text in getattr(batch, name).tolist()]))
    for name in _MATRICES:
        whole = np.concatenate([getattr(batch, name).ravel() for batch in batches])
        columns[name] = _lists([getattr(batch, name).size for batch in batches], pa.array(whole))
    position = np.concatenate([batch.payload.position.ravel() for batch in batches])
    columns["position"] = _lists([batch.payload.position.size for batch in batches], pa.array(position))
    distinct = _maps([one for batch in batches for one in batch.payload.distinct])
    columns["distinct"] = _lists([len(batch.payload.distinct) for batch in batches], distinct)
    columns["emitted"] = pa.array([batch.emitted for batch in batches], pa.list_(pa.int64()))
    table = pa.RecordBatch.from_pydict(columns)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_batch(table)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def _lists(lengths: Sequence[int], flat: pa.Array) -> pa.ListArray:
    return pa.ListArray.from_arrays(_offsets(lengths), flat)


def _key_lists(batches: Sequence[AlertBatch]) -> pa.ListArray:
    keys = [key for batch in batches for key in batch.keys]
    return _lists([len(key) for key in keys], _texts([text for key in keys for text in key]))


@lru_cache(maxsize=4096)
def _plain_source(source: AlertSource) -> dict[str, Any]:
    """Return the constants of a rule as Arrow reads them, with `?` for characters that UTF-8 cannot encode."""
    streams = [
        {
            "name": _encodable(stream.name),
            "columns": list(map(_encodable, stream.columns)),
            "hidden": sorted(map(_encodable, stream.hidden)),
            "is_optional": stream.is_optional,
        }
        for stream in source.streams
    ]
    return {
        "alert": _encodable(source.alert),
        "labels": [list(map(_encodable, label)) for label in source.labels],
        "on": list(map(_encodable, source.on)),
        "streams": streams,
    }


def unpack_alerts(data: bytes) -> list[AlertBatch]:
    """Return the batches that `pack_alerts` has written."""
    table = pa.ipc.open_stream(data).read_all().combine_chunks()
    (whole,) = table.to_batches()
    columns = {name: whole.column(name) for name in whole.schema.names}
    lists = {name: column for name, column in columns.items() if pa.types.is_list(column.type)}
    cuts = {name: column.offsets.to_numpy() for name, column in lists.items()}
    numbers = {name: _flat_numbers(lists[name]) for name in (*_NUMBERS, *_MATRICES, "position")}
    texts = {name: text_array(lists[name].flatten().to_pylist()) for name in ("id", "quality")}
    keys, distinct = lists["keys"].flatten().to_pylist(), _mappings(lists["distinct"].flatten())
    emitted, versions = columns["emitted"].to_pylist(), columns["version"].to_pylist()
    batches = []
    for i, plain in enumerate(columns["source"].to_pylist()):
        at = {name: slice(cut[i], cut[i + 1]) for name, cut in cuts.items()}
        source = _source(plain)
        rows, width = cuts["id"][i + 1] - cuts["id"][i], len(source.streams)
        position = numbers["position"][at["position"]].reshape(rows, width)
        payload = ShownPayload(tuple(distinct[at["distinct"]]), position)
        batches.append(
            AlertBatch(
                source,
                [tuple(key) for key in keys[at["keys"]]],
                times=numbers["times"][at["times"]].reshape(rows, width),
                values=numbers["values"][at["values"]].reshape(rows, source.columns),
                payload=payload,
                emitted=None if emitted[i] is None else np.array(emitted[i], np.int64),
                version=versions[i],
                **{name: numbers[name][at[name]] for name in _NUMBERS},
                **{name: text[at[name]] for name, text in texts.items()},
            )
        )
    return batches


def _mappings(maps: pa.MapArray) -> list[dict[str, str | None]]:
    """Return maps without nulls as dicts. `MapArray.to_pylist` takes 20 times longer."""
    pairs = list(zip(maps.keys.to_pylist(), maps.items.to_pylist(), strict=True))
    return [dict(pairs[begin:end]) for begin, end in pairwise(maps.offsets.to_pylist())]


def _flat_numbers(column: pa.ListArray) -> Any:
    flat = column.flatten()
    return flat.to_numpy(zero_copy_only=not pa.types.is_boolean(flat.type))


def _source(plain: Mapping[str, Any]) -> AlertSource:
    streams = [
        WitnessStream(stream["name"], tuple(stream["columns"]), frozenset(stream["hidden"]), stream["is_optional"])
        for stream in plain["streams"]
    ]
    labels = tuple((name, text) for name, text in plain["labels"])
    return AlertSource(plain["alert"], labels, tuple(plain["on"]), tuple(streams))
