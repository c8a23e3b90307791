"""Hashing: fixed numbers of the state format, and the definitions of their hashes."""

from __future__ import annotations

import zlib

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.naive import memory as naive
from tocsin import local
from tocsin.hashing import (
    assign_buckets,
    fingerprints_as_floats,
    key_number,
    key_numbers,
    key_text,
    parse_key,
    row_fingerprints,
    stable_hash,
    text_digest,
    text_digests,
    uniform,
    unit_numbers,
)
from tocsin.runtime.contract import Batch
from tocsin.spark.blobs import TIME, Feed, read_blob
from tocsin.spark.rows import fold_partition

GAMMA = 0x9E3779B97F4A7C15
WORDS = st.integers(-(2**63), 2**63 - 1)
NAMES = ["m1", "m2", "ü", "", "a,b"]


def test_numbers_of_the_state_format_are_fixed() -> None:
    digests = [0, -5426141060434712860, 6104225451280506833, 3976460501203677525]
    assert [text_digest(text) for text in (None, "", "m1", "ü")] == digests
    numbers = [1526056362820126708, 4561631562139797834, 3592004472611365212]
    assert [key_number(key) for key in (("m1",), ("m1", "north"), ())] == numbers
    assert assign_buckets(("machine",), NAMES, 24).tolist() == [8, 10, 18, 12, 1]
    assert assign_buckets(("machine", "site"), ['["m1", "north"]', "[]", "m1"], 24).tolist() == [21, 21, 3]
    columns = [np.array([0, 1, -1]), np.array([0.0, 1.5, np.inf])]
    fingerprints = row_fingerprints(columns, 3)
    assert fingerprints.tolist() == [-8777301567785488270, 256481386506484873, -2100767974723955131]
    assert unit_numbers(fingerprints).tolist() == [0.9045419551356693, 0.010933921169821281, 0.9853854906750051]
    assert uniform(1, 2, 3) == 0.05816240739533696
    assert stable_hash("air", ("value",), 0, None) == "cd8bd01a5b0679f9"


@given(st.lists(st.tuples(WORDS, WORDS, st.floats(width=64)), max_size=5))
def test_row_fingerprints_are_splitmix64_of_each_column(rows: list[tuple[int, int, float]]) -> None:
    first, second, third = (np.array([row[i] for row in rows], kind) for i, kind in enumerate((int, int, float)))
    bits = (third + 0.0).view(np.int64).tolist()
    expected = []
    for row, word in zip(rows, bits, strict=True):
        state = 0
        for number in (*row[:2], word):
            state = naive.splitmix64((state * GAMMA + number + GAMMA) % 2**64)
        expected.append(state)
    fingerprints = row_fingerprints([first, second, third], len(rows))
    assert (fingerprints.view(np.uint64)).tolist() == expected
    assert unit_numbers(fingerprints).tolist() == [(naive.splitmix64(state) >> 11) / 2**53 for state in expected]


@given(st.integers(-(2**40), 2**40), st.integers(0, 2**40), st.integers(0, 2**40))
def test_uniform_is_the_published_splitmix64(seed: int, row: int, draw: int) -> None:
    # The published output for the seed 1234567.
    assert naive.splitmix64(1234567 + GAMMA) == 6457827717110365317
    assert uniform(seed, row, draw) == naive.random_number(seed, row, draw)


def test_row_fingerprints_ignore_the_sign_of_zero_and_the_memory_layout() -> None:
    values = np.array([[0.0, -0.0, 2.0], [5.0, 5.0, 7.0]])
    first, second, third = row_fingerprints(values, 3).tolist()
    assert first == second != third
    assert row_fingerprints(values.T.copy().T, 3).tolist() == [first, second, third]
    assert row_fingerprints((), 2).tolist() == [0, 0]


@given(st.lists(WORDS, min_size=2, max_size=9, unique_by=lambda word: word >> 12))
def test_fingerprints_as_floats_are_different_and_larger_than_comparable_values(words: list[int]) -> None:
    floats = fingerprints_as_floats(np.array(words))
    assert len(set(floats.tolist())) == len(words)
    assert (floats >= 2.0**1022).all()
    assert np.isfinite(floats).all()


@given(st.lists(st.text(), max_size=3).map(tuple))
def test_a_key_is_read_from_its_text_and_has_a_62_bit_number(key: tuple[str, ...]) -> None:
    text = key_text(key)
    assert parse_key(text, len(key)) == key
    assert 0 <= key_number(key) < 2**62
    assert key_numbers([key, key]).tolist() == [key_number(key)] * 2


def test_text_digests_are_the_digest_of_each_text() -> None:
    texts = ["a", None, "b", "\ud800"]
    assert text_digests(texts, 4).tolist() == [text_digest(text) for text in texts]


@pytest.mark.parametrize("columns", [("machine",), ("machine", "site")])
def test_a_key_has_the_same_bucket_in_the_local_engine_and_in_a_spark_partition(columns: tuple[str, ...]) -> None:
    keys, buckets = [tuple(f"{name}{i}" for i, _ in enumerate(columns)) for name in NAMES], 3
    rows = len(keys)
    code = np.arange(rows)
    batch = Batch(0, "air", keys, code, np.arange(rows), np.arange(rows), {})
    local_keys = [
        [tuple(key) for key in local._bucket([batch], [columns], number, buckets)[0].keys] for number in range(buckets)
    ]
    table = pa.RecordBatch.from_pydict(
        {name: [key[i] for key in keys] for i, name in enumerate(columns)} | {TIME: list(range(rows))}
    )
    feed = Feed(0, "air", columns, (), arrival=False, payload=False, dead=False)
    spark_keys: list[list[tuple[str, ...]]] = [[] for _ in range(buckets)]
    for folded in fold_partition([table], [(0, feed)], range(buckets)):
        for bucket, blob in zip(folded["bucket"].to_pylist(), folded["blob"].to_pylist(), strict=True):
            spark_keys[bucket] += read_blob(blob, [feed]).keys
    assert [sorted(mine) for mine in spark_keys] == [sorted(mine) for mine in local_keys]
    assert sorted(key for mine in local_keys for key in mine) == sorted(keys)
    crc = [zlib.crc32((",".join(columns) + key_text(key)).encode()) % buckets for key in keys]
    assert assign_buckets(columns, [key_text(key) for key in keys], buckets).tolist() == crc
