"""Frequencies in small space: the bounds of SpaceSaving on any stream, and what counts as a change."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from naive import memory as naive
from tocsin.operators.retention.utility.space_saving import (
    Frequencies,
    add_key,
    frequencies_of,
    frequency_of,
    have_changed,
    known,
    new_frequencies,
    shares_now,
    shares_of,
)

ZIPF = 1 / np.arange(1, 51) / np.sum(1 / np.arange(1, 51))


@given(st.lists(st.integers(0, 12), max_size=150), st.integers(1, 8), st.sampled_from([0, 7, 40]))
def test_counters_enclose_true_counts_and_no_error_is_above_the_total_by_counters(
    keys: list[int], counters: int, half_life: int
) -> None:
    found, wanted = new_frequencies(counters, half_life), naive.counts_by_halves(keys, half_life)
    for key in keys:
        add_key(found, key, half_life)
    total = sum(wanted.values())
    assert found.total[0] == total
    assert found.counts.sum() == pytest.approx(total)
    place = dict(zip(known(found)[0].tolist(), range(counters), strict=False))
    assert {key for key, count in wanted.items() if count > total / counters} <= set(place)
    for key, at in place.items():
        true = wanted[key]
        assert found.counts[at] - found.errors[at] <= true + 1e-9
        assert true <= found.counts[at] + 1e-9
        assert found.errors[at] <= total / counters + 1e-9
        assert frequency_of(found, key) == pytest.approx((found.counts[at] - found.errors[at]) / total)
    if counters >= len(set(keys)):
        assert not found.errors.any()


def counted(keys: np.ndarray, counters: int = 100) -> Frequencies:
    found = new_frequencies(counters)
    for key in keys.tolist():
        add_key(found, key)
    return found


@given(st.lists(st.integers(-5, 9), max_size=40), st.integers(1, 8))
def test_shares_that_were_written_down_are_those_of_that_moment(keys: list[int], counters: int) -> None:
    asked = np.array([*range(-6, 11), np.iinfo(np.int64).max])
    of = counted(np.array(keys, np.int64), counters)
    then, wanted = shares_now(of), frequencies_of(of, asked)
    add_key(of, 9)
    assert (shares_of(then, asked) == wanted).all()
    assert then.key.nbytes + then.share.nbytes == 16 * counters


def test_frequencies_change_where_keys_do_and_not_by_chance() -> None:
    random, alarms = np.random.default_rng(6), 0
    for _ in range(20):
        keys = random.choice(50, 3000, p=ZIPF)
        alarms += have_changed(counted(keys), counted(keys[2000:]), 0.01)
        moved = np.concatenate([keys[:2000], (keys[2000:] + 25) % 50])
        assert have_changed(counted(moved), counted(moved[2000:]), 0.01)
        # Of three counters for fifty values little is certain, and nothing is claimed.
        assert not have_changed(counted(keys, 3), counted(keys[2000:], 3), 0.01)
    assert alarms <= 1
