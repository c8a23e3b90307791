"""State as bytes: named arrays and texts in one self-describing page with a version tag. Nothing is unpickled."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tocsin.errors import RunError

MAGIC = b"TOCSIN\x00"
# Version 1 was never released.
VERSION = OLDEST = 2
_KINDS = {"<i8": np.int64, "<i4": np.int32, "<f8": np.float64, "|b1": np.bool_}


def pack(arrays: Mapping[str, NDArray[Any]], **facts: Any) -> bytes:
    """Write arrays (int64, int32, float64, bool, or objects that are texts or None) and facts that JSON can hold."""
    head: dict[str, Any] = {"facts": facts, "arrays": []}
    body: list[bytes] = []
    for name, array in arrays.items():
        if array.dtype == object:
            data = json.dumps(array.ravel().tolist()).encode()
            kind = "text"
        else:
            kind = np.dtype(array.dtype).str
            data = np.ascontiguousarray(array).tobytes()
        head["arrays"].append([name, kind, list(array.shape), len(data)])
        body.append(data)
    text = json.dumps(head).encode()
    page = b"".join([len(text).to_bytes(8, "little"), text, *body])
    return b"".join([MAGIC, VERSION.to_bytes(2, "little"), zlib.crc32(page).to_bytes(4, "little"), page])


def packed_size(arrays: Mapping[str, NDArray[Any]], **facts: Any) -> int:
    """How many bytes `pack` makes of this, at most: the numbers in its header are taken for long ones."""
    size = 64 + len(json.dumps(facts))
    for name, array in arrays.items():
        text = len(json.dumps(array.ravel().tolist())) if array.dtype == object else array.nbytes
        size += text + len(json.dumps(name)) + 96
    return size


def unpack(data: bytes) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Read what `pack` wrote; the arrays are fresh copies."""
    if data[: len(MAGIC)] != MAGIC:
        message = "state page must begin with Tocsin's mark; it was written by something else or is damaged"
        raise RunError(message)
    if len(data) < 21:
        message = f"state page must be whole; it is damaged: it has only {len(data)} bytes"
        raise RunError(message)
    version = int.from_bytes(data[7:9], "little")
    if version < OLDEST:
        message = (
            f"state page must be of version {OLDEST} or newer; it has version {version}: start with a new checkpoint"
        )
        raise RunError(message)
    if version > VERSION:
        message = (
            f"state page must be of version {VERSION} or older; "
            f"it has version {version}: run the newer Tocsin that wrote it"
        )
        raise RunError(message)
    if zlib.crc32(data[13:]) != int.from_bytes(data[9:13], "little"):
        message = f"state page must be whole; it is damaged: the checksum of its {len(data)} bytes is wrong"
        raise RunError(message)
    at = 21 + int.from_bytes(data[13:21], "little")
    try:
        head = json.loads(data[21:at])
        facts, arrays = head["facts"], {}
        for name, kind, shape, size in head["arrays"]:
            arrays[name] = _array(data[at : at + size], kind, shape)
            at += size
    except (ValueError, KeyError, TypeError) as error:
        message = f"state page must be whole; it is damaged: {error}"
        raise RunError(message) from error
    return arrays, facts


def _array(data: bytes, kind: str, shape: list[int]) -> NDArray[Any]:
    if kind == "text":
        texts = np.empty(int(np.prod(shape)), dtype=object)
        texts[:] = json.loads(data)
        return texts.reshape(shape)
    return np.frombuffer(data, dtype=_KINDS[kind]).reshape(shape).copy()
