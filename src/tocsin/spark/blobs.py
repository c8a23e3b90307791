"""Blobs: rows of one stream and bucket as one Arrow stream, the form in which they pass the shuffle."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tocsin.hashing import parse_key
from tocsin.runtime.contract import Float, Int

# Names that no column of a user has.
TIME, ARRIVAL, PAYLOAD = "_tocsin_time", "_tocsin_arrival", "_tocsin_payload"
REASON, RAW = "_tocsin_reason", "_tocsin_raw"
# A value column, apart from a key column of the same name.
VALUE = "_tocsin_value_"
BLOBS = "bucket int, first long, blob binary"


@dataclass(frozen=True)
class Feed:
    """How one stream's columns are read for one key set; the same stream has a feed per key set.

    The DataFrame has the columns of `keys` (any type whose text is plain: whole numbers, strings), `TIME` (long
    microseconds, or timestamp_ntz, read as UTC), those of `values` (double; `VALUE` and the name), and, if said so,
    `ARRIVAL` (like `TIME`; where null, the time counts), `PAYLOAD` (string), and, where rows may be marked as not
    usable (`dead`), `REASON` and `RAW` (strings; null in rows that can be used). A key may be divided into several
    `parts`: each row goes to all of them, or, if `parted`, to one by the id in its payload.
    """

    key_set: int
    stream: str
    keys: tuple[str, ...]
    values: tuple[str, ...]
    arrival: bool = False
    payload: bool = False
    dead: bool = False
    parts: int = 1
    parted: bool = False

    @property
    def columns(self) -> list[str]:
        """The columns that travel, each once."""
        names = [*self.keys, TIME, *(VALUE + name for name in self.values)]
        names += [ARRIVAL] * self.arrival + [PAYLOAD] * self.payload
        names += [REASON, RAW] * self.dead
        return list(dict.fromkeys(names))


@dataclass(frozen=True)
class Piece:
    """Rows of one feed, partition and fold, in order of arrival.

    `dead` has reason and text of rows not usable; where they were too many to travel, `aside` names the file that has
    them, and their number. `control` has control rows that came beside the streams. `delays` counts how late its rows
    and those of its neighbours came, by classes.
    """

    feed: int
    partition: int
    number: int
    keys: Sequence[tuple[str, ...]]
    key: Int
    time: Int
    order: Int
    values: tuple[Float, ...]
    payload: NDArray[Any] | None
    quarantined: int
    dead: tuple[tuple[str, str], ...] = ()
    aside: tuple[str, int] | None = None
    control: tuple[Mapping[str, Any], ...] = ()
    delays: Mapping[str, int] = field(default_factory=dict)

    def take(self, start: int, stop: int) -> Piece:
        """A run of its rows; what could not be used stays with the first."""
        at = slice(start, stop)
        values = tuple(value[at] for value in self.values)
        payload = None if self.payload is None else self.payload[at]
        cut = {
            "key": self.key[at],
            "time": self.time[at],
            "order": self.order[at],
            "values": values,
            "payload": payload,
        }
        if start:
            cut |= {"quarantined": 0, "dead": (), "aside": None, "control": (), "delays": {}}
        return replace(self, **cut)  # type: ignore[arg-type]


def write_blob(
    codes: NDArray[np.int32], texts: list[str], columns: Mapping[str, NDArray[Any]], facts: Mapping[str, Any]
) -> bytes:
    """Write rows of one bucket: codes of keys and their texts, columns by name, and facts about all of them."""
    arrays = {"key": pa.DictionaryArray.from_arrays(pa.array(codes), pa.array(texts, pa.string()))}
    for name, column in columns.items():
        arrays[name] = pa.array(column, pa.string() if name == "payload" else None)
    batch = pa.RecordBatch.from_pydict(arrays, metadata={"facts": json.dumps(facts)})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def read_blob(blob: bytes, feeds: Sequence[Feed]) -> Piece:
    """Read what `write_blob` wrote."""
    table = pa.ipc.open_stream(blob).read_all().combine_chunks()
    facts = json.loads(table.schema.metadata[b"facts"])
    feed = feeds[facts["feed"]]
    columns = {name: table.column(name).to_numpy() for name in table.column_names if name != "key"}
    encoded = table.column("key").combine_chunks()
    encoded = encoded.chunk(0) if isinstance(encoded, pa.ChunkedArray) else encoded
    width = len(feed.keys) + (feed.parts > 1)
    keys = [parse_key(text, width) for text in encoded.dictionary.to_pylist()]
    return Piece(
        facts["feed"],
        facts["partition"],
        facts["piece"],
        keys,
        encoded.indices.to_numpy().astype(np.int64),
        columns["time"],
        columns.get("order", columns["time"]),
        tuple(columns[f"v{slot}"] for slot in range(len(feed.values))),
        columns.get("payload"),
        facts["quarantined"],
        tuple((reason, raw) for reason, raw in facts["dead"]),
        tuple(facts["aside"]) if facts.get("aside") else None,
        tuple(facts.get("control", ())),
        facts.get("delays", {}),
    )
