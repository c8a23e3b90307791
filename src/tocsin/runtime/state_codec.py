"""State pages: named arrays and JSON values, encoded as bytes with a version and a checksum. Nothing is unpickled."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tocsin.errors import RunError

MAGIC = b"TOCSIN\x00"
# Version 1 was never released. Version 3 added short integers (`<i2`, `|i1`).
OLDEST, VERSION = 2, 3
_KINDS = {"<i8": np.int64, "<i4": np.int32, "<i2": np.int16, "|i1": np.int8, "<f8": np.float64, "|b1": np.bool_}
_SHORT = (np.int8, np.int16, np.int32)


def pack(arrays: Mapping[str, NDArray[Any]], **facts: Any) -> bytes:
    """Encode arrays (signed integers, float64, bool, or objects that are text or None) and JSON values to bytes."""
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


def shortened(array: NDArray[Any]) -> NDArray[Any]:
    """Convert an int64 array to the shortest integer type that represents all its numbers."""
    if array.dtype != np.int64:
        return array
    low, high = (int(array.min()), int(array.max())) if array.size else (0, 0)
    kinds = (kind for kind in _SHORT if np.iinfo(kind).min <= low and high <= np.iinfo(kind).max)
    return array.astype(next(kinds, np.int64))


def lengthened(array: NDArray[Any]) -> NDArray[Any]:
    """Convert an array of short integers to int64, the type that kernels require."""
    return array.astype(np.int64) if array.dtype in _SHORT else array


def packed_size(arrays: Mapping[str, NDArray[Any]], **facts: Any) -> int:
    """Return an upper bound for the size of the encoded page in bytes."""
    return 64 + len(json.dumps(facts)) + arrays_size(arrays)


def arrays_size(arrays: Mapping[str, NDArray[Any]]) -> int:
    """Return an upper bound for the size of encoded arrays in bytes. It assumes the longest headers."""
    size = 0
    for name, array in arrays.items():
        if array.dtype != object:
            text = array.nbytes
        elif any(array.ravel().tolist()):  # Four times as fast as NumPy on objects.
            text = len(json.dumps(array.ravel().tolist()))
        else:
            text = max(len("[]"), array.size * len("null, "))
        size += text + _name_size(name) + 96
    return size


@lru_cache(maxsize=4096)
def _name_size(name: str) -> int:
    return len(json.dumps(name))


def check_version(data: bytes, name: str = "") -> None:
    """Raise RunError if the header of a page is damaged or has an unsupported version. Messages contain `name`."""
    page = f"state page `{name}`" if name else "state page"
    if data[: len(MAGIC)] != MAGIC:
        message = f"{page} is damaged or was not written by Tocsin"
        raise RunError(message)
    if len(data) < 21:
        message = f"{page} is damaged: it has only {len(data)} bytes"
        raise RunError(message)
    version = int.from_bytes(data[7:9], "little")
    if version < OLDEST:
        message = f"{page} must have version {OLDEST} or newer; got {version}: start with a new checkpoint"
        raise RunError(message)
    if version > VERSION:
        message = f"{page} must have version {VERSION} or older; got {version}: use the newer Tocsin that wrote it"
        raise RunError(message)


def unpack(data: bytes) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Decode a page to new arrays and JSON values."""
    check_version(data)
    if zlib.crc32(data[13:]) != int.from_bytes(data[9:13], "little"):
        message = f"state page is damaged: the checksum of its {len(data)} bytes is wrong"
        raise RunError(message)
    at = 21 + int.from_bytes(data[13:21], "little")
    try:
        head = json.loads(data[21:at])
        facts, arrays = head["facts"], {}
        for name, kind, shape, size in head["arrays"]:
            arrays[name] = _array(data[at : at + size], kind, shape)
            at += size
    except (ValueError, KeyError, TypeError) as error:
        message = f"state page is damaged: {error}"
        raise RunError(message) from error
    return arrays, facts


def _array(data: bytes, kind: str, shape: list[int]) -> NDArray[Any]:
    if kind == "text":
        texts = np.empty(int(np.prod(shape)), dtype=object)
        texts[:] = json.loads(data)
        return texts.reshape(shape)
    return np.frombuffer(data, dtype=_KINDS[kind]).reshape(shape).copy()
