"""Summaries against their definitions, and the laws that all of them obey."""

from __future__ import annotations

from collections import Counter
from math import inf, sqrt
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from naive import promising as naive
from tocsin.stages.promising.count_sketch import CountSketch, hash_numbers
from tocsin.stages.promising.exact_counter import ExactCounter
from tocsin.stages.promising.histogram import Histogram
from tocsin.stages.promising.summary import Summary, squares_of, widened

FAR = 2**63
whole = st.integers(-FAR, FAR - 1) | st.integers(-5, 20)
streams = st.lists(whole, max_size=60).map(lambda values: np.array(values, np.int64))
schemes = st.sampled_from(
    [
        lambda: CountSketch(3, 16, 7),
        lambda: CountSketch(4, 2, 1),
        CountSketch,
        lambda: Histogram(-3, 17, 5),
        ExactCounter,
    ]
)


@given(streams, st.sampled_from([1, 2, 5]), st.sampled_from([2, 16, 4096]), st.integers(-FAR, FAR - 1))
def test_a_count_sketch_is_that_of_the_definition(values: Any, rows: int, width: int, seed: int) -> None:
    scheme, numbers = CountSketch(rows, width, seed), hash_numbers(rows, seed).tolist()
    summary = Summary(scheme)
    summary.summarize(values)
    wanted = naive.sketch(values.tolist(), numbers, width)
    assert summary.table.tolist() == wanted
    asked = np.append(values, [0, 1, -1])
    estimates = [naive.sketch_estimate(wanted, value, numbers) for value in asked.tolist()]
    assert summary.estimate(asked).tolist() == estimates


@given(st.lists(st.integers(-50, 50).map(lambda n: n / 4), max_size=40), st.sampled_from([1, 4, 7]))
def test_a_histogram_counts_bins_and_is_exact_where_ranges_end_at_them(values: list[float], bins: int) -> None:
    low, high = -4.0, -4.0 + bins  # Bins of width one: their ends are exact.
    summary = Summary(Histogram(low, high, bins))
    summary.summarize(np.array(values))
    assert summary.table[0].tolist() == naive.bin_counts(values, low, high, bins)
    for begin in range(bins):
        for end in range(begin + 1, bins + 1):
            # The highest number below an end: a closed range that holds just these bins.
            last = np.nextafter(low + end, -inf)
            wanted = naive.in_range(values, low + begin, last)
            assert summary.estimate_range(low + begin, last) == pytest.approx(wanted, abs=1e-9)
    assert summary.estimate_range(-inf, inf) == len(values)
    assert summary.estimate_range(1.0, 0.5) == 0


@given(st.lists(whole, max_size=80), st.integers(1, 9))
def test_an_exact_counter_is_exact_for_points_and_ranges(values: list[int], size: int) -> None:
    summary, counts = Summary(ExactCounter()), Counter(values)
    for begin in range(0, len(values), size):
        summary.summarize(np.array(values[begin : begin + size], np.int64))
    asked = [*counts, 3, -FAR]
    assert summary.estimate(np.array(asked)).tolist() == [counts[value] for value in asked]
    assert summary.estimate_range(-5, 10) == naive.in_range(values, -5, 10)
    assert summary.confidence() == 1.0


@given(st.lists(whole, max_size=90), st.integers(1, 40))
def test_what_an_exact_counter_learnt_does_not_depend_on_the_cut(values: list[int], size: int) -> None:
    at_once, cut = ExactCounter(), ExactCounter()
    at_once.places(np.array(values, np.int64), learn=True)
    for begin in range(0, len(values), size):
        # What is known by now takes no room.
        for _ in range(2):
            cut.places(np.array(values[begin : begin + size], np.int64), learn=True)
    assert cut.known == at_once.known == len(set(values))
    assert {name: array.tolist() for name, array in cut.learnt().items()} == {
        name: array.tolist() for name, array in at_once.learnt().items()
    }
    assert cut.width <= max(16, 4 * (cut.known + 1))


@given(schemes, streams, streams, st.integers(0, 60))
def test_summaries_are_linear(scheme_of: Any, first: Any, second: Any, cut: int) -> None:
    scheme = scheme_of()
    both, parts = Summary(scheme), [Summary(scheme) for _ in range(3)]
    both.summarize(np.concatenate([first, second]))
    for part, values in zip(parts, (first[:cut], first[cut:], second), strict=True):
        part.summarize(values)
    total = Summary(scheme)
    for part in parts:
        total.add(part)
    assert total.table.tolist() == widened(both.table, scheme.width).tolist()
    assert (total.total, total.confidence()) == (both.total, both.confidence())
    for part in parts[1:]:
        total.subtract(part)
    alone = Summary(scheme)
    alone.summarize(first[:cut])
    asked = np.concatenate([first, second])
    assert total.estimate(asked).tolist() == alone.estimate(asked).tolist()
    both.summarize(second, -1)
    both.summarize(first[cut:], -1)
    assert both.estimate(asked).tolist() == alone.estimate(asked).tolist()
    assert both.total == len(first[:cut])


def test_a_sketch_errs_as_its_confidence_says() -> None:
    rng = np.random.default_rng(3)
    values = rng.zipf(1.3, 20_000) % 5_000
    counts = np.bincount(values, minlength=5_000)
    errors, said = [], []
    for seed in range(20):
        one_row = Summary(CountSketch(1, 512, seed))
        one_row.summarize(values)
        errors.append(one_row.estimate(np.arange(5_000)) - counts)
        said.append(1 / one_row.confidence() - 1)
    squared = np.mean(np.square(errors))
    truth = float(np.square(counts, dtype=np.float64).sum())
    assert squared == pytest.approx(truth / 512, rel=0.2)
    assert np.mean(said) == pytest.approx(sqrt(truth / 512), rel=0.2)
    # Unbiased: the mean error over 20 hashes and 5,000 values is a small part of the deviation.
    assert abs(np.mean(errors)) < 0.05 * sqrt(truth / 512)


def test_more_rows_leave_fewer_estimates_far_off() -> None:
    rng = np.random.default_rng(4)
    values = rng.integers(0, 2_000, 20_000)
    counts, far = np.bincount(values, minlength=2_000), []
    for rows in (1, 5, 9):
        summary = Summary(CountSketch(rows, 256, 5))
        summary.summarize(values)
        limit = 1 / summary.confidence() - 1
        far.append(np.mean(np.abs(summary.estimate(np.arange(2_000)) - counts) > limit))
    assert far[0] > far[1] > far[2]


@given(schemes, streams)
def test_confidence_is_one_without_values_and_squares_are_those_of_the_table(scheme_of: Any, values: Any) -> None:
    summary = Summary(scheme_of())
    assert summary.confidence() == 1.0
    summary.summarize(values)
    table = summary.table.tolist()
    assert squares_of(summary.table) == sum(count**2 for row in table for count in row)
    assert 0 < summary.confidence() <= 1


def test_zeros_of_either_sign_are_one_value() -> None:
    summary = Summary(CountSketch())
    summary.summarize(np.array([0.0, -0.0, 1.5]))
    assert summary.estimate(np.array([0.0, -0.0, 1.5])).tolist() == [2, 2, 1]


def test_input_is_not_written_to() -> None:
    for scheme in (CountSketch(), Histogram(0, 10), ExactCounter()):
        values = np.arange(20)
        values.flags.writeable = False
        summary = Summary(scheme)
        summary.summarize(values)
        assert summary.estimate(values).shape == (20,)


def test_a_sketch_has_no_answer_to_a_range() -> None:
    with pytest.raises(ValueError, match=r"only single values; use a histogram for the range \[1, 5\]"):
        Summary(CountSketch()).estimate_range(1, 5)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: CountSketch(0), "`rows` of a count sketch must be from 1 to 64; got 0"),
        (lambda: CountSketch(5, 1000), "must be a power of two from 2 to 16777216; got 1000"),
        (lambda: Histogram(3, 3), "needs finite `low` < `high`, from -1e.150 to 1e.150; got 3 and 3"),
        (lambda: Histogram(0, inf), "needs finite"),
        (lambda: Histogram(0, 1, 0), "`bins` of a histogram must be at least 1; got 0"),
        (lambda: Summary(ExactCounter()).summarize(np.array([0.5])), "needs integers; got float64"),
        (lambda: Summary(CountSketch()).add(Summary(CountSketch(seed=2))), "must have the same scheme"),
        (lambda: Summary(ExactCounter()).subtract(Summary(ExactCounter())), "must have the same scheme"),
    ],
)
def test_what_cannot_be_meant_is_refused(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
