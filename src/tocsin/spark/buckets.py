"""Bucket ids: numbers of buckets that Spark distributes evenly over its partitions."""

from __future__ import annotations


def bucket_ids(buckets: int, partitions: int) -> list[int]:
    """Return an id per bucket so that Spark assigns nearly the same number of buckets to each partition.

    Consecutive numbers are not balanced: Spark assigns 0 to 3 in a ratio of 3:1 to two partitions. The first id is
    always 0, so that state of another number of buckets or partitions is found and rejected.
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
    """Return Spark's hash of an integer: Murmur3 with the seed 42, as a signed number."""
    mask = 0xFFFFFFFF

    def rotate(x: int, by: int) -> int:
        return (x << by | x >> 32 - by) & mask

    k = rotate(number * 0xCC9E2D51 & mask, 15) * 0x1B873593 & mask
    h = (rotate(42 ^ k, 13) * 5 + 0xE6546B64) & mask ^ 4
    h = (h ^ h >> 16) * 0x85EBCA6B & mask
    h = (h ^ h >> 13) * 0xC2B2AE35 & mask
    h ^= h >> 16
    return h - (1 << 32) if h >> 31 else h
