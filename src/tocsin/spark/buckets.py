"""Buckets: into which part of the state a key falls, and how the parts are numbered so that they spread."""

from __future__ import annotations

import zlib
from collections.abc import Sequence


def buckets_of(columns: Sequence[str], texts: Sequence[str], buckets: int) -> list[int]:
    """The buckets of keys of some columns: part of the state's format, so never to be changed."""
    seed = zlib.crc32(",".join(columns).encode())
    return [zlib.crc32(text.encode(), seed) % buckets for text in texts]


def bucket_ids(buckets: int, partitions: int) -> list[int]:
    """Name the buckets so that Spark's hash spreads them evenly over partitions.

    Plain numbers do not: 0 to 3 fall 3:1 on two partitions. The first is always 0, so that state written under other
    numbers of buckets or partitions is found, and refused.
    """
    ids, load, number = [0], [0] * partitions, 0
    load[spark_hash(0) % partitions] += 1
    while len(ids) < buckets:
        number += 1
        at = spark_hash(number) % partitions
        if load[at] == min(load):
            ids.append(number)
            load[at] += 1
    return ids


def spark_hash(number: int) -> int:
    """Spark's hash of an int: Murmur3 with the seed 42, as a signed number."""
    mask = 0xFFFFFFFF

    def rotate(x: int, by: int) -> int:
        return (x << by | x >> 32 - by) & mask

    k = rotate(number * 0xCC9E2D51 & mask, 15) * 0x1B873593 & mask
    h = (rotate(42 ^ k, 13) * 5 + 0xE6546B64) & mask ^ 4
    h = (h ^ h >> 16) * 0x85EBCA6B & mask
    h = (h ^ h >> 13) * 0xC2B2AE35 & mask
    h ^= h >> 16
    return h - (1 << 32) if h >> 31 else h
