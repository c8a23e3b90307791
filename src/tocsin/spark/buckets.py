"""Bucket ids: the numbers of the buckets in Spark, which distributes them evenly over any number of partitions.

The numbers are part of the state format. They do not depend on the number of partitions, so a tool that moves state to
another number of partitions keeps them.

Algorithm: Spark places a bucket by Murmur3 of its number, modulo the partitions. Murmur3 of a 32-bit number can be
inverted, so `bucket_ids` computes numbers with consecutive hashes. Plain numbers are not balanced: Spark assigns 0 to 3
in a ratio of 3:1 to two partitions.
"""

from __future__ import annotations

_MASK = 0xFFFFFFFF
# Murmur3 of 0 with Spark's seed. The first id is 0, so that state of another number of buckets is found and rejected.
_FIRST_HASH = 933_211_791
# Constants of Murmur3. Factors are inverses modulo 2^32.
_SEED, _ADDEND, _LENGTH = 42, 0xE6546B64, 4
_C1, _C2, _FIVE, _M1, _M2 = (pow(c, -1, 1 << 32) for c in (0xCC9E2D51, 0x1B873593, 5, 0x85EBCA6B, 0xC2B2AE35))


def bucket_ids(buckets: int) -> list[int]:
    """Return the number that each bucket has in Spark, as a signed 32-bit number."""
    return [_number_with_hash(_FIRST_HASH + bucket) for bucket in range(buckets)]


def _number_with_hash(h: int) -> int:
    """Return the number whose Murmur3 hash with Spark's seed is `h`. Each step of the hash is undone in reverse."""
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
