"""State pages: named arrays and JSON values, encoded as bytes with a version and a checksum. Nothing is unpickled.

Algorithm: an integer array is written as differences from its minimum, in the shortest unsigned type. An array that is
mostly equal to its default is written as the positions and values of the other cells. Decoding restores every array
with its type and shape.

Guarantees: `pack` never returns more bytes than `packed_size`. A short form is used only if it saves more than its
longer header.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tocsin.errors import RunError

MAGIC = b"TOCSIN\x00"
# Number of the state format. A page of another format is rejected.
VERSION = 4
_KINDS = {"<i8": np.int64, "<i4": np.int32, "<f8": np.float64, "|b1": np.bool_}
_SHORT: dict[str, type[np.unsignedinteger[Any]]] = {"|u1": np.uint8, "<u2": np.uint16, "<u4": np.uint32}
_TEXT = "text"
# An array with fewer cells has no short form: the short form has a longer header.
_FEWEST_CELLS = 32
# An array is mostly equal to its default if at most one in this number of cells differs.
_SPARSE = 8
_HEADER_BYTES = 96
# Largest number in the longest short type.
_MOST = 2**32 - 1
_NOWHERE = np.zeros(0, np.int64)


@dataclass(frozen=True)
class EncodedTexts:
    """Array of texts that is already encoded as a JSON list, with its shape."""

    data: bytes
    shape: tuple[int, ...]


Arrays = Mapping[str, NDArray[Any] | EncodedTexts]


def pack(
    arrays: Arrays, defaults: Mapping[str, Any] | None = None, is_full_width: bool = False, /, **facts: Any
) -> bytes:
    """Encode arrays (int64, int32, float64, bool, or objects that are text or None) and JSON values to bytes.

    `defaults` has the value of most cells of an array, by the name of the array. With `is_full_width` no array has a
    short form.
    """
    known = defaults or {}
    head: dict[str, Any] = {"facts": facts, "arrays": []}
    body: list[bytes] = []
    for name, array in arrays.items():
        more: list[Any] = []
        if isinstance(array, EncodedTexts):
            kind, data = _TEXT, [array.data]
        elif array.dtype == object:
            kind, (more, data) = _TEXT, _encode_texts(array, is_full_width)
        else:
            kind = np.dtype(array.dtype).str
            if kind not in _KINDS:
                message = f"array `{name}` must have one of the types {', '.join(_KINDS)}; got {kind}"
                raise TypeError(message)
            more, data = _encode_cells(array, known.get(name), is_full_width)
        head["arrays"].append([name, kind, list(array.shape), sum(map(len, data)), *more])
        body += data
    text = json.dumps(head).encode()
    page = [len(text).to_bytes(8, "little"), text, *body]
    checksum = 0
    for part in page:
        checksum = zlib.crc32(part, checksum)
    return b"".join([MAGIC, VERSION.to_bytes(2, "little"), checksum.to_bytes(4, "little"), *page])


def _encode_texts(array: NDArray[Any], is_full_width: bool) -> tuple[list[Any], list[bytes]]:
    """Return the header of a text array after its size, and its bytes."""
    texts = array.ravel().tolist()
    count = len(texts) - texts.count(None)
    if is_full_width or not _is_sparse(count, len(texts)):
        return [], [json.dumps(texts).encode()]
    at = [i for i, text in enumerate(texts) if text is not None] if count else []
    kind, positions = _unsigned(np.array(at, np.int64), len(texts))
    return [[None, count, kind]], [positions, json.dumps([texts[i] for i in at]).encode()]


def _encode_cells(array: NDArray[Any], default: Any, is_full_width: bool) -> tuple[list[Any], list[bytes]]:
    """Return the header of a numeric array after its size, and its bytes."""
    cells = np.ascontiguousarray(array)
    if is_full_width or cells.size < _FEWEST_CELLS or cells.itemsize < 8:
        return [], [cells.tobytes()]
    if default is not None:
        # Bits are compared, because -0.0 equals 0.0 and NaN differs from itself.
        flat = cells.reshape(-1).view(np.int64)
        differs = flat != _bits(default, cells.dtype.str)
        count = int(np.count_nonzero(differs))
        if _is_sparse(count, cells.size):
            at = differs.nonzero()[0] if count else _NOWHERE
            kind, positions = _unsigned(at, cells.size)
            return [[default, count, kind]], [positions, flat[at].tobytes()]
    if cells.dtype == np.int64:
        low, high = int(cells.min()), int(cells.max())
        if high - low <= _MOST:
            kind, data = _unsigned(cells - low, high - low + 1)
            return [[low, kind]], [data]
    return [], [cells.tobytes()]


def _is_sparse(count: int, cells: int) -> bool:
    """Return whether an array is written sparse if `count` of its cells differ from the default."""
    return cells >= _FEWEST_CELLS and count * _SPARSE <= cells <= _MOST


def _unsigned(numbers: NDArray[np.int64], end: int) -> tuple[str, bytes]:
    """Return the shortest type for numbers from 0 to below `end`, and their bytes."""
    kind = "|u1" if end <= 1 << 8 else "<u2" if end <= 1 << 16 else "<u4"
    return kind, numbers.astype(_SHORT[kind]).tobytes()


@lru_cache(maxsize=256)
def _bits(default: Any, kind: str) -> int:
    """Return the bits of a default as an integer."""
    return int(np.array([default], kind).view(np.int64)[0])


def packed_size(arrays: Mapping[str, NDArray[Any]], **facts: Any) -> int:
    """Return an upper bound for the size of the encoded page in bytes."""
    return 64 + len(json.dumps(facts)) + arrays_size(arrays)


def arrays_size(arrays: Mapping[str, NDArray[Any]]) -> int:
    """Return an upper bound for the size of encoded arrays in bytes. It assumes full width and the longest headers."""
    size = 0
    for name, array in arrays.items():
        size += texts_size(array) if array.dtype == object else array.nbytes
        size += _name_size(name) + _HEADER_BYTES
    return size


def texts_size(array: NDArray[Any]) -> int:
    """Return an upper bound for the size of an encoded text array in bytes, without its header."""
    texts = array.ravel().tolist()
    if any(texts):  # Four times as fast as NumPy on objects.
        return len(json.dumps(texts))
    return max(len("[]"), array.size * len("null, "))


@lru_cache(maxsize=4096)
def _name_size(name: str) -> int:
    return len(json.dumps(name))


def check_version(data: bytes, name: str = "") -> None:
    """Raise RunError if the header of a page is damaged or has another version. Messages contain `name`."""
    page = f"state page `{name}`" if name else "state page"
    if data[: len(MAGIC)] != MAGIC:
        message = f"{page} is damaged or was not written by Tocsin"
        raise RunError(message)
    if len(data) < 21:
        message = f"{page} is damaged: it has only {len(data)} bytes"
        raise RunError(message)
    version = int.from_bytes(data[7:9], "little")
    if version < VERSION:
        message = (
            f"{page} must have state format {VERSION}; got {version}, which an older Tocsin wrote: start without "
            "state, for example with `tocsin run RULES --run-dir NEW` or with a new checkpoint"
        )
        raise RunError(message)
    if version > VERSION:
        message = f"{page} must have state format {VERSION}; got {version}: use the newer Tocsin that wrote it"
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
        for name, kind, shape, size, *more in head["arrays"]:
            arrays[name] = _decode(data[at : at + size], kind, shape, *more)
            at += size
    except (ValueError, LookupError, TypeError, OverflowError) as error:
        message = f"state page is damaged: {error}"
        raise RunError(message) from error
    return arrays, facts


def _decode(data: bytes, kind: str, shape: list[int], short: list[Any] | None = None) -> NDArray[Any]:
    """Return a new array from its bytes; `short` is the header of a short form."""
    count = math.prod(shape)
    if short is None:
        cells = _texts(data, count) if kind == _TEXT else np.frombuffer(data, _KINDS[kind]).copy()
        return cells.reshape(shape)
    if len(short) == 2:
        low, width = short
        numbers: NDArray[np.int64] = np.frombuffer(data, _SHORT[width]).astype(np.int64) + low
        return numbers.reshape(shape)
    default, differing, width = short
    end = differing * np.dtype(_SHORT[width]).itemsize
    at = np.frombuffer(data[:end], _SHORT[width])
    cells = np.full(count, default, object if kind == _TEXT else _KINDS[kind])
    cells[at] = _texts(data[end:], differing) if kind == _TEXT else np.frombuffer(data[end:], _KINDS[kind])
    return cells.reshape(shape)


def _texts(data: bytes, count: int) -> NDArray[np.object_]:
    """Return an array of the texts in a JSON list."""
    texts = np.empty(count, dtype=object)
    texts[:] = json.loads(data)
    return texts
