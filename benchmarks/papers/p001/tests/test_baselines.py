"""Baseline policies: UNTIL-EXPIRY refits in order of age, RANDOM draws every row with equal chances."""

from __future__ import annotations

import numpy as np

from benchmarks.papers.p001 import baselines
from benchmarks.papers.p001 import window_memory as window
from benchmarks.papers.p001.refit import refit
from benchmarks.papers.p001.window_memory import ROW


def test_random_draws_victims_with_equal_chances() -> None:
    policy, cells, rounds = baselines.random(7), 9, 4000
    held, places = window.empty(cells, policy), np.zeros(cells + 1)
    for number in range(cells + rounds):
        before = held.slots[window.rows_held(held), ROW].tolist()
        slot = baselines.find_any_victim(held, policy, number, 0, number)
        if slot == window.REFUSED:
            places[cells] += 1
            continue
        if slot != window.ROOM:
            places[before.index(held.slots[slot, ROW])] += 1
            window.remove(held, slot)
        window.insert(held, policy, number, 0, number)
    # Chi-square with 9 degrees of freedom: 21.7 is exceeded once in 100.
    assert ((places - rounds / 10) ** 2 / (rounds / 10)).sum() < 21.7


def test_until_expiry_drops_the_newest_row_first_when_the_budget_shrinks() -> None:
    policy = baselines.until_expiry(7)
    held = window.empty(4, policy)
    for number, time in enumerate([2, 3, 8, 9]):
        assert baselines.find_any_victim(held, policy, time, 0, number) == window.ROOM
        window.insert(held, policy, time, 0, number)
    assert refit(held, policy, 1, 9)[1].tolist() == [3, 2, 1]


def test_prop_gives_each_join_an_equal_share_of_its_need() -> None:
    needs = [lambda recall: 30 * recall, lambda recall: 10 * recall]
    assert baselines.divide_in_proportion(needs, 20) == [15, 5]
    assert baselines.divide_in_proportion(needs, 90) == [30, 10]
