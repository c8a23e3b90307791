"""Hashing: the numbers that identify keys, rows and texts.

Checkpoints store these numbers, and all engines and machines must compute equal ones. They are therefore part of the
state format. A change of any number in `tests/test_hashing.py` needs a new state format number.

Algorithm:
    - Texts use BLAKE2b with a digest of 64 bits.
    - Numbers use the output function of splitmix64, which is one to one on 64 bits.
    - Buckets use CRC-32, which costs a seventh of BLAKE2b per key. Spark computes it as `crc32(concat(columns, key))`.

Guarantees:
    - Equal inputs have equal numbers in each process. Both zeros are equal numbers.
    - n different rows have two equal fingerprints with a probability of about n^2 / 2^65.

References: Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014; variant 13 of Stafford's
mixing functions.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tocsin.jit import kernel

Int = NDArray[np.int64]
Float = NDArray[np.float64]
Key = tuple[str, ...]

# Constants of splitmix64 as signed numbers: 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB.
_GAMMA = -7046029254386353131
_FIRST = -4658895280553007687
_SECOND = -7723592293110705685
_BITS = (1 << 64) - 1
# Masks of the bits that remain after a logical shift to the right.
_LEFT_30, _LEFT_27, _LEFT_31, _LEFT_11 = (1 << 34) - 1, (1 << 37) - 1, (1 << 33) - 1, (1 << 53) - 1
_UNIT = 2.0**-53


def text_digest(text: str | None) -> int:
    """Return the signed 64-bit digest of a text, or 0 for None."""
    if text is None:
        return 0
    digest = hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


def text_digests(texts: Iterable[str | None], count: int) -> Int:
    """Return the digests of `count` texts."""
    return np.fromiter(map(text_digest, texts), np.int64, count)


def stable_hash(*parts: Any) -> str:
    """Return 16 hexadecimal digits for values that JSON can represent. State sections and plans are named by them."""
    return hashlib.blake2b(json.dumps(parts).encode(), digest_size=8).hexdigest()


def key_text(key: Sequence[str]) -> str:
    """Return the text of a key: the value of a single column, or a JSON array of several values.

    >>> key_text(("m1",)), key_text(("m1", "north"))
    ('m1', '["m1", "north"]')
    """
    return key[0] if len(key) == 1 else json.dumps(key)


def parse_key(text: str, columns: int) -> Key:
    """Return the key of a text from `key_text`, with the number of its columns."""
    return (text,) if columns == 1 else tuple(json.loads(text))


@lru_cache(maxsize=1 << 17)
def key_number(key: Key) -> int:
    """Return the number of a key, from 0 to 2^62 - 1."""
    return (text_digest(key_text(key)) & _BITS) >> 2


def key_numbers(keys: Sequence[Key]) -> Int:
    """Return the number of each key."""
    return np.fromiter(map(key_number, keys), np.int64, len(keys))


def assign_buckets(columns: Sequence[str], texts: Sequence[str], buckets: int) -> Int:
    """Return the bucket of each key of some key columns. A key is represented by its `key_text`."""
    seed = zlib.crc32(",".join(columns).encode())
    numbers = (zlib.crc32(text.encode(errors="surrogatepass"), seed) % buckets for text in texts)
    return np.fromiter(numbers, np.int64, len(texts))


def row_fingerprints(columns: Iterable[NDArray[Any]], rows: int) -> Int:
    """Return one number per row of integer and floating-point columns: equal rows have equal numbers."""
    state, shifted = np.zeros(rows, np.uint64), np.empty(rows, np.uint64)
    for column in columns:
        # -0.0 + 0.0 is 0.0.
        bits = (column + 0.0).view(np.uint64) if column.dtype == np.float64 else column.view(np.uint64)
        state *= np.uint64(_GAMMA & _BITS)
        state += bits
        state += np.uint64(_GAMMA & _BITS)
        _mix_in_place(state, shifted)
    return state.view(np.int64)


def _mix_in_place(state: NDArray[np.uint64], shifted: NDArray[np.uint64]) -> None:
    """Apply `mix` to an array. The second array is scratch memory."""
    for shift, factor in ((30, _FIRST), (27, _SECOND), (31, 1)):
        np.right_shift(state, np.uint64(shift), out=shifted)
        state ^= shifted
        state *= np.uint64(factor & _BITS)


def fingerprints_as_floats(fingerprints: Int) -> Float:
    """Return fingerprints as numbers from 2^1022 on, which are larger than any value that a rule compares."""
    fraction = (fingerprints >> np.int64(12)) & np.int64(2**52 - 1)
    return np.asarray((1.0 + fraction * 2.0**-52) * 2.0**1022)


def unit_numbers(fingerprints: Int) -> Float:
    """Return a random number from [0, 1) for each fingerprint. It depends on the fingerprint alone."""
    state = fingerprints.view(np.uint64).copy()
    _mix_in_place(state, np.empty_like(state))
    return np.asarray((state >> np.uint64(11)) * _UNIT)


@kernel
def mix(state: int) -> int:
    """Return the output of splitmix64 for the lowest 64 bits of a number."""
    bits = (state ^ ((state >> 30) & _LEFT_30)) * _FIRST
    bits = (bits ^ ((bits >> 27) & _LEFT_27)) * _SECOND
    return bits ^ ((bits >> 31) & _LEFT_31)


@kernel
def uniform(seed: int, row: int, draw: int) -> float:
    """Return a random number from [0, 1): the given draw of the given row. Batches do not affect it."""
    own = mix(int(seed) + _GAMMA * (int(row) + 1))
    return float((mix(own + _GAMMA * (int(draw) + 1)) >> 11) & _LEFT_11) * _UNIT
