"""What buckets know adds up to what one bucket with all rows knows, and gives the wait that it would choose."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.reorder.recall_settings import PAPER
from tocsin.operators.reorder.observed_wait import ObservedWait
from tocsin.operators.reorder.wait_agreement import agreed_wait, decode_statistics, encode_statistics, merge_statistics
from tocsin.operators.reorder.wait_policy import DelayStatistics, RecallConfig

GRAIN, BINS = 10_000, 2048
WINDOWS = [5_000_000, 3_000_000]


def quality(recall: float, **more: Any) -> RecallConfig:
    return RecallConfig(recall, **(PAPER | {"bins": BINS, "max_change": 1e9} | more))


Rows = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def drawn(seed: int, rows: int = 3000, gives: float = 0.1) -> Rows:
    """Rows with their stream, delay, skew and number of results; late ones give more."""
    random = np.random.default_rng(seed)
    delay = np.where(random.random(rows) < 0.3, random.integers(1, 300 * GRAIN, rows), 0)
    results = (random.random(rows) < np.where(delay > 0, 3 * gives, gives)).astype(float)
    return random.integers(0, 2, rows), delay, random.integers(0, 80 * GRAIN, rows), results


def learnt(wait: ObservedWait, rows: Rows, *, adapt: bool = True) -> ObservedWait:
    stream, delay, skew, results = rows
    wait.note_arrivals(stream, delay, skew)
    wait.note_results(delay, skew, np.ones(len(stream)), results, delay < 50 * GRAIN)
    if adapt:
        wait.adapt()
    return wait


def through_text(known: DelayStatistics) -> DelayStatistics:
    return decode_statistics(json.loads(json.dumps(encode_statistics(known))), BINS)


def parts(rows: Rows, count: int) -> list[Rows]:
    at = np.linspace(0, len(rows[0]), count + 1).astype(int)
    return [tuple(column[a:b] for column in rows) for a, b in pairwise(at)]  # type: ignore[misc]


@given(st.integers(0, 10**6), st.sampled_from([0.5, 0.9, 0.99, 1.0]), st.sampled_from([0.0, 0.001, 0.1]))
def test_one_bucket_agrees_with_itself(seed: int, recall: float, gives: float) -> None:
    wait = ObservedWait(quality(recall), WINDOWS)
    for part in parts(drawn(seed, 900, gives), 3):
        learnt(wait, part)
        known = through_text(wait.statistics())
        assert agreed_wait(wait.quality, wait.shape, [known]) == wait.wait_us


@given(st.integers(0, 10**6))
def test_statistics_come_through_text_to_the_bit(seed: int) -> None:
    wait = ObservedWait(quality(0.9), WINDOWS)
    for part in parts(drawn(seed, 900), 3):
        learnt(wait, part)
    for mine, its in zip(wait.statistics(), through_text(wait.statistics()), strict=True):
        assert np.array_equal(mine, its)


@pytest.mark.parametrize("recall", [0.9, 0.99])
@pytest.mark.parametrize("count", [2, 7])
def test_buckets_agree_on_what_one_with_all_rows_would_choose(recall: float, count: int) -> None:
    """In one interval nothing is forgotten and no window is cut: the sums are the very same."""
    rows, whole = drawn(5), ObservedWait(quality(recall), WINDOWS)
    buckets = [ObservedWait(quality(recall), WINDOWS) for _ in range(count)]
    for bucket, part in zip(buckets, parts(rows, count), strict=True):
        learnt(bucket, part)
    learnt(whole, rows)
    known = [through_text(bucket.statistics()) for bucket in buckets]
    for mine, its in zip(merge_statistics(known), whole.statistics(), strict=True):
        assert np.array_equal(mine, its)
    assert agreed_wait(whole.quality, whole.shape, known) == whole.wait_us
    assert agreed_wait(whole.quality, whole.shape, known[::-1]) == whole.wait_us


def test_a_bucket_without_results_takes_part_by_its_delays() -> None:
    quiet, late = (ObservedWait(quality(0.9), [5_000_000]) for _ in range(2))
    zeros = np.zeros(1000, np.int64)
    learnt(quiet, (zeros, zeros, zeros, np.zeros(1000)))
    learnt(late, (zeros, zeros + 100 * GRAIN, zeros, np.zeros(1000)))
    both = agreed_wait(late.quality, late.shape, [quiet.statistics(), late.statistics()])
    # Half of the rows are 100 grains late, and a window of 5 s lacks those of its last second.
    assert quiet.wait_us == 0 < both <= late.wait_us == 100 * GRAIN


def test_few_results_in_each_of_many_buckets_are_enough_together() -> None:
    """Three results in a bucket tell nothing of the recall to aim at; sixteen times three do."""
    buckets = []
    for number in range(16):
        rows = drawn(number, 500, 0.0)
        rows[3][:3] = 1.0
        buckets.append(learnt(ObservedWait(quality(0.9), WINDOWS), rows))
    assert all(bucket.required == 0.9 for bucket in buckets)
    whole = merge_statistics([bucket.statistics() for bucket in buckets])
    assert whole.true == 48 >= buckets[0].quality.enough


def test_a_wait_agreed_on_is_gone_to_at_the_pace_of_ones_own_and_statistics_go_on() -> None:
    own, told = (ObservedWait(quality(0.9, max_change=0.2), WINDOWS) for _ in range(2))
    for number, part in enumerate(parts(drawn(8), 6), 1):
        learnt(own, part)
        learnt(told, part, adapt=False).adapt(1, 90 * GRAIN)
        assert told.wait_us == min(20 * number, 90) * GRAIN
        for mine, its in zip(own.statistics(), told.statistics(), strict=True):
            assert np.array_equal(mine, its)
    told.adapt(3, 0)
    assert told.wait_us == 30 * GRAIN


def test_an_interval_without_rows_counts_for_the_last_p() -> None:
    """Results of P are those of P in time: where a choice comes every third L, the last twenty choices make P."""
    often, seldom = (ObservedWait(quality(0.9, over_us=60_000_000), [5_000_000]) for _ in range(2))
    zeros = np.zeros(10, np.int64)
    for _ in range(60):
        learnt(often, (zeros, zeros, zeros, np.ones(10)))
        learnt(seldom, (zeros, zeros, zeros, np.ones(10)), adapt=False).adapt(3)
    assert (often.statistics().true, seldom.statistics().true) == (590, 200)
