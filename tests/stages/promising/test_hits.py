"""What is learnt of keys: ratios that tend to what was seen, in effect with the next block."""

from __future__ import annotations

import numpy as np

from tocsin.stages.promising.hits import SLOTS, Hits


def test_ratios_are_drawn_from_the_mean_to_what_was_seen() -> None:
    hits, keys = Hits(), np.array([1, 2, SLOTS + 1])
    assert hits.ratios(keys).tolist() == [1.0, 1.0, 1.0]
    hits.learn(np.repeat([1, 2], 1000), np.repeat([0.0, 1.0], 1000), 2000)
    assert hits.ratios(keys).tolist() == [1.0, 1.0, 1.0], "not before the block ends"
    hits.settle()
    never, always, shared = hits.ratios(keys).tolist()
    assert never == shared < 0.01
    assert 0.99 < always < 1
    assert abs(hits.mean - 0.5) < 0.01
    hits.learn(np.repeat([2], 100_000), np.ones(100_000), 100_000)
    assert hits.settle() == 0
    assert hits.mean > 0.9
    unknown = float(hits.ratios(np.array([77]))[0])
    assert abs(unknown - 0.5) < 0.02, "a key that is tried more than others says no more of them"


def test_expected_results_are_those_of_all_pairs_by_their_keys() -> None:
    hits = Hits()
    hits.learn(np.repeat([1, 2], 1000), np.repeat([0.0, 1.0], 1000), 2000)
    hits.meet(np.array([1, 2, 2]), np.array([500, 300, 200]))
    assert abs(hits.settle() - 500) < 10
    assert hits.settle() == 0


def test_pages_keep_what_was_learnt() -> None:
    one, other = Hits(), Hits()
    one.learn(np.array([1, 1, 5]), np.array([0.0, 2.0, 0.0]), 2)
    other.load({name: array.copy() for name, array in one.arrays().items()})
    for hits in (one, other):
        hits.settle()
    assert one.ratios(np.arange(8)).tolist() == other.ratios(np.arange(8)).tolist()
