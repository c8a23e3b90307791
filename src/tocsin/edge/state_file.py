"""State file: the state of the edge filter in one file. The next run continues with it.

Guarantee: the file is complete at any moment, because it is written under another name, synced and renamed. It has a
kind, a version and a checksum, and reading it executes nothing. A state of other settings is rejected.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tocsin.edge.csv_reader import CsvReader
from tocsin.edge.edge_filter import EdgeFilter
from tocsin.edge.key_reducer import KeyReducer
from tocsin.errors import RunError
from tocsin.runtime.contract import NEVER
from tocsin.runtime.state_codec import pack, unpack

KIND, VERSION = "edge", 1


def encode_state(edge: EdgeFilter, queue: Iterable[int], position: dict[str, Any]) -> bytes:
    """Return the state of a filter, the numbers of the queued lines and the position in the input as bytes."""
    key_reducers = edge.reducer.key_reducers
    for key_reducer in key_reducers.values():
        key_reducer.compact()
    buffer = edge.buffer
    lines = [*buffer.in_progress, *buffer.lines.items()]
    values = range(len(edge.settings.values))
    arrays = {
        "key": _text_array(json.dumps(key) for key in key_reducers),
        "newest": _int_array(key_reducer.newest for key_reducer in key_reducers.values()),
        "due": _int_array(key_reducer.due for key_reducer in key_reducers.values()),
        "rows": _int_array(len(key_reducer.t) for key_reducer in key_reducers.values()),
        "t": _int_array(t for key_reducer in key_reducers.values() for t in key_reducer.t),
        "serial": _int_array(serial for key_reducer in key_reducers.values() for serial in key_reducer.serial),
        "v": np.array([_concatenate(key_reducers, index, "v") for index in values], np.float64),
        "gone": np.array([_concatenate(key_reducers, index, "covered_at") for index in values]) != NEVER,
        "number": _int_array(number for number, _ in lines),
        "line": _text_array(line.decode("latin-1") for _, line in lines),
        "queue": _int_array([*(number for number, _ in buffer.in_progress), *queue]),
    }
    facts = {
        "kind": KIND,
        "version": VERSION,
        "settings": edge.settings.state_settings(),
        "header": edge.header.decode("latin-1"),
        "place": position,
        "rest": edge.splitter.rest.decode("latin-1"),
        "inside": edge.splitter.is_in_long_line,
        "passed": buffer.passed,
        "serial": buffer.serial,
        "counts": buffer.counts(),
    }
    return pack(arrays, **facts)


def restore_state(data: bytes, edge: EdgeFilter, now: float) -> tuple[list[int], dict[str, Any]]:
    """Restore a new filter from bytes of `encode_state`; return the queued numbers and the position in the input."""
    arrays, facts = unpack(data)
    if facts.get("kind") != KIND:
        message = "the state file must be from `tocsin edge`; another part of Tocsin wrote it"
        raise RunError(message)
    if facts["version"] > VERSION:
        message = f"the state file must have version {VERSION} or older; it has version {facts['version']}"
        raise RunError(message)
    _check_settings(facts["settings"], edge.settings.state_settings())
    if facts["header"] and isinstance(edge.parser, CsvReader):
        edge.parser.read_header(facts["header"].encode("latin-1"))
    edge.splitter.rest, edge.splitter.is_in_long_line = facts["rest"].encode("latin-1"), facts["inside"]
    buffer = edge.buffer
    buffer.passed, buffer.serial = facts["passed"], facts["serial"]
    lines = (line.encode("latin-1") for line in arrays["line"])
    buffer.restore(facts["counts"], zip(arrays["number"].tolist(), lines, strict=True))
    _restore_key_reducers(arrays, edge, now)
    return arrays["queue"].tolist(), facts["place"]


def read_state(path: Path) -> bytes | None:
    """Read a state file, or return None if it does not exist."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _restore_key_reducers(arrays: dict[str, NDArray[Any]], edge: EdgeFilter, now: float) -> None:
    reducer, start = edge.reducer, 0
    for index, text in enumerate(arrays["key"]):
        key_reducer, stop = KeyReducer(reducer.config, edge.buffer), start + int(arrays["rows"][index])
        key_reducer.t, key_reducer.serial = arrays["t"][start:stop].tolist(), arrays["serial"][start:stop].tolist()
        key_reducer.newest, key_reducer.due = int(arrays["newest"][index]), int(arrays["due"][index])
        key_reducer.last_seen = now
        for number, value in enumerate(key_reducer.values):
            value.v = arrays["v"][number, start:stop].tolist()
            value.covered_at = [0 if is_covered else NEVER for is_covered in arrays["gone"][number, start:stop]]
        key_reducer.compact()
        reducer.restore(_decode_key(json.loads(text)), key_reducer)
        start = stop


def _decode_key(stored: Any) -> Hashable:
    """Return the key of a JSON value. JSON stores tuples as lists."""
    return tuple(_decode_key(part) for part in stored) if isinstance(stored, list) else stored


def _check_settings(before: dict[str, Any], now: dict[str, Any]) -> None:
    for name, value in now.items():
        if before.get(name) != value:
            message = (
                "the state file must have the settings of this run; "
                f"`{name}` was {before.get(name)!r} and is now {value!r}"
            )
            raise RunError(message)


def _concatenate(key_reducers: dict[Hashable, KeyReducer], index: int, name: str) -> list[Any]:
    """Return one column of a value field for the rows of all keys."""
    return [x for key_reducer in key_reducers.values() for x in getattr(key_reducer.values[index], name)]


def _int_array(numbers: Iterable[int]) -> NDArray[np.int64]:
    return np.array(list(numbers), np.int64)


def _text_array(texts: Iterable[str]) -> NDArray[Any]:
    items = list(texts)
    # NumPy would create an array of fixed-width texts.
    array = np.empty(len(items), object)
    array[:] = items
    return array
