"""Buckets: the part of the state that a key belongs to, and the numbers of the buckets in Spark.

Both functions are part of the state format. Neither depends on the number of partitions, so a tool that moves state to
another number of partitions keeps the buckets and their numbers.

Algorithm: Spark places a bucket by Murmur3 of its number, modulo the partitions. Murmur3 of a 32-bit number can be
inverted, so `bucket_ids` computes numbers with consecutive hashes. Consecutive hashes are spread evenly over every
number of partitions. Plain numbers are not: 0 to 3 fall 3:1 on two partitions.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

_MASK = 0xFFFFFFFF
# Murmur3 of 0 with Spark's seed. Bucket 0 has the number 0, so state of every earlier version is found and checked.
_FIRST_HASH = 933_211_791
# Constants of Murmur3 and their inverses modulo 2^32.
_SEED, _ADDEND, _LENGTH = 42, 0xE6546B64, 4
_C1, _C2, _FIVE, _M1, _M2 = (pow(c, -1, 1 << 32) for c in (0xCC9E2D51, 0x1B873593, 5, 0x85EBCA6B, 0xC2B2AE35))


def buckets_of(columns: Sequence[str], texts: Sequence[str], buckets: int) -> list[int]:
    """Return the bucket of each key of some key columns, from 0."""
    seed = zlib.crc32(",".join(columns).encode())
    return [zlib.crc32(text.encode(), seed) % buckets for text in texts]


def bucket_ids(buckets: int) -> list[int]:
    """Return the numbers that the buckets have in Spark, as signed 32-bit numbers."""
    return [_number_with_hash(_FIRST_HASH + bucket) for bucket in range(buckets)]


def _number_with_hash(h: int) -> int:
    """Return the number whose Murmur3 hash with Spark's seed is `h`: each step of the hash, undone in reverse."""
    h ^= h >> 16
    h = h * _M2 & _MASK
    h ^= h >> 13 ^ h >> 26
    h = h * _M1 & _MASK
    h ^= h >> 16 ^ _LENGTH
    h = (h - _ADDEND) * _FIVE & _MASK
    k = _rotate(h, 32 - 13) ^ _SEED
    number = _rotate(k * _C2 & _MASK, 32 - 15) * _C1 & _MASK
    return number - (1 << 32) if number >> 31 else number


def _rotate(x: int, by: int) -> int:
    return (x << by | x >> 32 - by) & _MASK
