"""State of the edge as one page of bytes, and its file.

*Guarantee*: the file is whole, old or new, at any moment: it is written beside, synced, and renamed. It says what it is
and of which version, has a checksum, and nothing in it is executed. State of other settings is refused.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tocsin.edge.csvlines import Csv
from tocsin.edge.filter import Filter
from tocsin.edge.track import Track
from tocsin.errors import RunError
from tocsin.pages import pack, unpack
from tocsin.stages.reduce.bracket import NEVER

KIND, VERSION = "edge", 1


def dump(edge: Filter, queue: Iterable[int], place: dict[str, Any]) -> bytes:
    """Write all that is remembered, the order of what waits for the output, and the place in the input."""
    tracks = edge.reducer.tracks
    for track in tracks.values():
        track.compact()
    ledger = edge.ledger
    lines = [*ledger.begun, *ledger.lines.items()]
    arrays = {
        "key": _texts(json.dumps(key) for key in tracks),
        "newest": _whole(track.newest for track in tracks.values()),
        "due": _whole(track.due for track in tracks.values()),
        "rows": _whole(len(track.t) for track in tracks.values()),
        "t": _whole(t for track in tracks.values() for t in track.t),
        "serial": _whole(number for track in tracks.values() for number in track.serial),
        "v": np.array([_each(tracks, place, "v") for place in range(len(edge.settings.values))], np.float64),
        "gone": np.array([_each(tracks, place, "gone") for place in range(len(edge.settings.values))]) != NEVER,
        "number": _whole(number for number, _ in lines),
        "line": _texts(line.decode("latin-1") for _, line in lines),
        "queue": _whole([*(number for number, _ in ledger.begun), *queue]),
    }
    rest = {"rest": edge.lines.rest.decode("latin-1"), "inside": edge.lines.inside}
    numbers = {"passed": ledger.passed, "serial": ledger.serial, "counts": ledger.counts()}
    facts = {
        "kind": KIND,
        "version": VERSION,
        "settings": edge.settings.bound(),
        "header": edge.header.decode("latin-1"),
        "place": place,
    }
    return pack(arrays, **facts, **rest, **numbers)


def load(data: bytes, edge: Filter, now: float) -> tuple[list[int], dict[str, Any]]:
    """Let a fresh filter go on from bytes of `dump`; give what waits for the output, and the place in the input."""
    arrays, facts = unpack(data)
    if facts.get("kind") != KIND:
        message = "the state must be that of an edge; it was written by another part of Tocsin"
        raise RunError(message)
    if facts["version"] > VERSION:
        message = f"the state must be of version {VERSION} or older; it has version {facts['version']}"
        raise RunError(message)
    _compare(facts["settings"], edge.settings.bound())
    if facts["header"] and isinstance(edge.format, Csv):
        edge.format.take_header(facts["header"].encode("latin-1"))
    edge.lines.rest, edge.lines.inside = facts["rest"].encode("latin-1"), facts["inside"]
    ledger = edge.ledger
    ledger.passed, ledger.serial = facts["passed"], facts["serial"]
    lines = (line.encode("latin-1") for line in arrays["line"])
    ledger.recall(facts["counts"], zip(arrays["number"].tolist(), lines, strict=True))
    _load_tracks(arrays, edge, now)
    return arrays["queue"].tolist(), facts["place"]


def read(path: Path) -> bytes | None:
    """Read a state file; None if there is none."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _load_tracks(arrays: dict[str, NDArray[Any]], edge: Filter, now: float) -> None:
    reducer, start = edge.reducer, 0
    for place, text in enumerate(arrays["key"]):
        track, stop = Track(reducer.policy, edge.ledger), start + int(arrays["rows"][place])
        track.t, track.serial = arrays["t"][start:stop].tolist(), arrays["serial"][start:stop].tolist()
        track.newest, track.due = int(arrays["newest"][place]), int(arrays["due"][place])
        track.seen = now
        for number, value in enumerate(track.values):
            value.v = arrays["v"][number, start:stop].tolist()
            value.gone = [0 if gone else NEVER for gone in arrays["gone"][number, start:stop]]
        track.compact()
        reducer.restore(_key(json.loads(text)), track)
        start = stop


def _key(found: Any) -> Hashable:
    """Make a key of what JSON gives for it: lists were tuples."""
    return tuple(_key(part) for part in found) if isinstance(found, list) else found


def _compare(then: dict[str, Any], now: dict[str, Any]) -> None:
    for name, value in now.items():
        if then.get(name) != value:
            message = f"the state must be of the same settings; `{name}` was {then.get(name)!r} and is now {value!r}"
            raise RunError(message)


def _each(tracks: dict[Hashable, Track], place: int, name: str) -> list[Any]:
    """Give one column of the value at a place, of all tracks."""
    return [x for track in tracks.values() for x in getattr(track.values[place], name)]


def _whole(numbers: Iterable[int]) -> NDArray[np.int64]:
    return np.array(list(numbers), np.int64)


def _texts(texts: Iterable[str]) -> NDArray[Any]:
    listed = list(texts)
    array = np.empty(len(listed), object)
    array[:] = listed
    return array
