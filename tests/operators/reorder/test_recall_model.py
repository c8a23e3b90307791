"""The model of recall against its equations, written out in exact fractions."""

from __future__ import annotations

from fractions import Fraction
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from naive import disorder as naive
from operators.reorder.recall_settings import BINS, Setting, settings_of_disorder
from tocsin.operators.reorder.recall_model import (
    cross_recalls,
    in_order_shares,
    produced_sizes,
    selectivity_ratios,
    true_size,
    window_shares,
)

WAITS = BINS + 3
rates = st.lists(st.integers(1, 9), min_size=4, max_size=4)


def approx(exact: Fraction) -> object:
    return pytest.approx(float(exact), rel=1e-12, abs=1e-14)


def after(setting: Setting, i: int, wait: int) -> dict[int, Fraction]:
    f = naive.density(setting.histograms[i])
    return naive.density_after(f, wait * setting.grain, setting.syncs[i], setting.grain)


def usable(window: int) -> int:
    return max(window, 1)


@given(setting=settings_of_disorder(), rates=rates, every=st.integers(1, 9))
def test_eq_1_is_the_true_size_over_its_common_factors(setting: Setting, rates: list[int], every: int) -> None:
    windows = [usable(window) for window in setting.windows]
    rates = rates[: len(windows)]
    exact = naive.true_size(Fraction(1), [Fraction(rate) for rate in rates], windows, every)
    factor = Fraction(prod(rates) * every * prod(windows), max(windows))
    assert true_size(setting.model()) == approx(exact / factor)


@given(setting=settings_of_disorder())
def test_eq_2_gives_the_rows_in_order_at_every_wait(setting: Setting) -> None:
    model = setting.model()
    for i in range(len(setting.windows)):
        shares = in_order_shares(model, i, 0, WAITS)
        for wait in range(WAITS):
            assert shares[wait] == approx(after(setting, i, wait)[0])


@given(setting=settings_of_disorder())
def test_eq_3_gives_what_is_in_a_window_at_every_wait(setting: Setting) -> None:
    model = setting.model()
    for i, window in enumerate(usable(window) for window in setting.windows):
        shares = window_shares(model, i, 0, WAITS)
        for wait in range(WAITS):
            sizes = naive.basic_windows(Fraction(1), window, setting.basic, setting.grain, after(setting, i, wait))
            assert shares[wait] == approx(sum(sizes) / window)


@given(setting=settings_of_disorder(), rates=rates, every=st.integers(1, 9), wait=st.integers(0, WAITS))
def test_eq_4_is_the_produced_size_over_its_common_factors(
    setting: Setting, rates: list[int], every: int, wait: int
) -> None:
    windows = [usable(window) for window in setting.windows]
    rate = [Fraction(rate) for rate in rates[: len(windows)]]
    left = [after(setting, i, wait) for i in range(len(windows))]
    contents = [
        naive.basic_windows(rate[i], windows[i], setting.basic, setting.grain, left[i]) for i in range(len(windows))
    ]
    exact = naive.produced_size(Fraction(1), rate, every, left, contents)
    factor = prod(rate) * every * Fraction(prod(windows), max(windows))
    assert produced_sizes(setting.model(), wait, 1)[0] == approx(exact / factor)


@given(setting=settings_of_disorder())
def test_eq_5_is_the_recall_at_every_wait(setting: Setting) -> None:
    found = cross_recalls(setting.model(), 0, WAITS)
    for recall, exact in zip(found, setting.recalls(by_delay=False), strict=True):
        assert recall == approx(exact)
        assert (recall == 1.0) == (exact == 1)


@given(setting=settings_of_disorder())
def test_eq_6_is_the_ratio_of_selectivities_at_every_wait(setting: Setting) -> None:
    found = selectivity_ratios(setting.model(), 0, WAITS)
    for wait in range(WAITS):
        exact = naive.selectivity_ratio(setting.cross, setting.results, wait * setting.grain, setting.grain)
        assert found[wait] == approx(exact)


@given(setting=settings_of_disorder())
def test_both_together_are_the_recall_with_selectivities_by_delay(setting: Setting) -> None:
    model = setting.model()
    found = selectivity_ratios(model, 0, WAITS) * cross_recalls(model, 0, WAITS)
    for recall, exact in zip(found, setting.recalls(by_delay=True), strict=True):
        assert recall == approx(exact)


@given(setting=settings_of_disorder(), first=st.integers(0, WAITS), count=st.integers(0, WAITS))
def test_waits_may_be_looked_at_in_any_stretch(setting: Setting, first: int, count: int) -> None:
    model = setting.model()
    assert cross_recalls(model, first, count).tolist() == cross_recalls(model, 0, 2 * WAITS)[first:][:count].tolist()
    ratios = selectivity_ratios(model, 0, 2 * WAITS)
    assert selectivity_ratios(model, first, count).tolist() == ratios[first:][:count].tolist()


@given(setting=settings_of_disorder())
def test_with_equal_selectivities_recall_never_falls_with_the_wait(setting: Setting) -> None:
    found = cross_recalls(setting.model(), 0, WAITS).tolist()
    assert found == sorted(found)


def test_with_selectivities_by_delay_recall_may_fall_with_the_wait() -> None:
    # All results come from rows without delay; those behind them meet many others, and match none.
    setting = Setting([{0: 9, 3: 1}], [10], [0], 1, 1, cross={0: 10, 1: 90}, results={0: 10, 1: 0})
    model = setting.model()
    found = selectivity_ratios(model, 0, 2) * cross_recalls(model, 0, 2)
    assert found[0] == pytest.approx(9.0)
    assert found[1] == pytest.approx(0.9)


def test_of_one_stream_recall_is_the_share_of_rows_in_order() -> None:
    setting = Setting([{0: 6, 2: 3, 5: 1}], [40], [0], 10, 10)
    assert cross_recalls(setting.model(), 0, 7).tolist() == pytest.approx([0.6, 0.6, 0.9, 0.9, 0.9, 1.0, 1.0])


def test_streams_that_delivered_nothing_are_complete() -> None:
    assert cross_recalls(Setting([{}, {}], [5, 7], [0, 0], 1, 1).model(), 0, 2).tolist() == [1.0, 1.0]


def test_without_results_nothing_tells_selectivities_apart() -> None:
    setting = Setting([{0: 1}], [5], [0], 1, 1, cross={0: 5, 2: 3}, results={0: 0, 2: 0})
    assert selectivity_ratios(setting.model(), 0, 4).tolist() == [1.0] * 4


def test_up_to_a_wait_without_combinations_nothing_tells_selectivities_apart() -> None:
    setting = Setting([{0: 1}], [5], [0], 1, 1, cross={2: 8}, results={2: 2})
    assert selectivity_ratios(setting.model(), 0, 4).tolist() == [1.0] * 4
