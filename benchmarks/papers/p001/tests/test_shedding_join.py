"""The shedding join against a plain one: counts and pairs, any policy, any budget, any cut into batches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.papers.p001 import baselines, policies
from benchmarks.papers.p001.policies import Policy
from benchmarks.papers.p001.shedding_join import Arrivals, SheddingJoin, Window, band, equi, open_window
from benchmarks.papers.p001.tests.test_window_memory import KEYS, ways
from benchmarks.papers.p001.window_memory import COUNT, ROW, Held, rows_held
from naive import memory as naive
from tocsin.runtime.state_codec import pack, unpack

SEED = 7
Streams = tuple[tuple[Any, Any], tuple[Any, Any]]


def baseline_ways(length: int) -> st.SearchStrategy[tuple[Policy, naive.Choose]]:
    """A baseline policy, and its definition."""
    return st.sampled_from(
        [(baselines.until_expiry(length), naive.drop_newest), (baselines.random(SEED), naive.drop_any(SEED))]
    )


@st.composite
def streams(draw: st.DrawFn) -> Streams:
    """Times and keys of two streams, with many ties."""
    times, keys = [], []
    for _ in range(2):
        steps = draw(st.lists(st.tuples(st.sampled_from([0, 0, 1, 1, 2, 5]), st.integers(0, KEYS)), max_size=30))
        times.append(np.cumsum([step for step, _ in steps], dtype=np.int64))
        keys.append(np.array([key for _, key in steps], np.int64))
    return (times[0], times[1]), (keys[0], keys[1])


@st.composite
def limited(draw: st.DrawFn) -> tuple[int, int, Any]:
    """A window: its length, its budget, and a policy with its definition."""
    length = draw(st.sampled_from([0, 1, 3, 8, 25]))
    return length, draw(st.integers(0, 6) | st.just(60)), draw(ways(length) | baseline_ways(length))


def opened(limits: list[tuple[int, int, Any]], keys: tuple[int, int], *, listing: bool) -> list[Window]:
    return [
        open_window(length, budget, policy, count, listing=listing)
        for (length, budget, (policy, _)), count in zip(limits, keys, strict=True)
    ]


def written_and_read(join: SheddingJoin) -> None:
    """Let the state be what pages give back."""
    for i, window in enumerate(join.windows):
        arrays = unpack(
            pack({**window.held._asdict(), **{n: getattr(window, n) for n in ("tally", "heads", "chained")}})
        )[0]
        held = Held(*(arrays.pop(name) for name in Held._fields))
        join.windows[i] = window._replace(held=held, **arrays)


def plain(arrivals: Arrivals, keys: list[int], limits: list[tuple[int, int, Any]], matches: Any) -> Any:
    rows = zip(arrivals.stream.tolist(), map(tuple, arrivals.clock.tolist()), keys, strict=True)
    return naive.shedding_join(list(rows), [(length, budget, way[1]) for length, budget, way in limits], matches)


@given(streams(), st.tuples(limited(), limited()), st.booleans(), st.booleans())
def test_every_row_sees_and_leaves_what_the_definition_says(
    given_: Streams, limits: Any, by_tuples: bool, listing: bool
) -> None:
    arrivals = equi(*given_, by_tuples=by_tuples)
    wanted, history = plain(arrivals, arrivals.key.tolist(), limits, lambda a, b: a == b)
    join = SheddingJoin(opened(limits, (KEYS + 1, KEYS + 1), listing=listing))
    found = []
    for i, held in enumerate(history):
        found += join.pairs(arrivals.between(i, i + 1)).tolist()
        for window, rows, (_, budget, _) in zip(join.windows, held, limits, strict=True):
            assert window.held.slots[rows_held(window.held), ROW].tolist() == rows
            assert window.held.state[COUNT] <= budget
        written_and_read(join)
    assert sorted(map(tuple, found)) == wanted
    assert all(most <= budget for most, (_, budget, _) in zip(join.most_held, limits, strict=True))


@given(streams(), st.tuples(limited(), limited()), st.integers(1, 20), st.booleans())
def test_no_cut_into_batches_shows(given_: Streams, limits: Any, size: int, ranges: bool) -> None:
    arrivals = band(*given_, -1, 1) if ranges else equi(*given_)
    counts = (KEYS + 1, KEYS + 1)
    whole, cut = (SheddingJoin(opened(limits, counts, listing=False), ranges=ranges) for _ in range(2))
    listed = SheddingJoin(opened(limits, counts, listing=not ranges), ranges=ranges)
    hits = whole.count(arrivals)
    parts, pairs = [np.zeros(0, np.int64)], []
    for begin in range(0, len(hits), size):
        parts.append(cut.count(arrivals.between(begin, begin + size)))
        pairs += listed.pairs(arrivals.between(begin, begin + size)).max(axis=1).tolist()
        written_and_read(cut)
        written_and_read(listed)
    assert np.concatenate(parts).tolist() == hits.tolist()
    assert np.bincount(pairs, minlength=len(hits)).tolist() == hits.tolist()
    assert whole.results.tolist() == cut.results.tolist() == listed.results.tolist()
    assert whole.results.tolist() == [int(hits[arrivals.stream == 1].sum()), int(hits[arrivals.stream == 0].sum())]


@given(streams(), st.tuples(limited(), limited()), st.tuples(st.integers(-3, 3), st.integers(-3, 3)), st.booleans())
def test_a_band_join_finds_values_in_the_band(
    given_: Streams, limits: Any, ends: tuple[int, int], by_tuples: bool
) -> None:
    # A policy by key sees the rank of a value here.
    (low, high), (times, values) = sorted(ends), given_
    arrivals = band(times, values, low, high, by_tuples=by_tuples)
    order = np.argsort(np.concatenate(times), kind="stable")
    known = [np.unique(column).tolist() for column in values]
    wanted, _ = plain(arrivals, arrivals.key.tolist(), limits, lambda a, b: low <= known[1][b] - known[0][a] <= high)
    assert [known[s][k] for s, k in zip(arrivals.stream.tolist(), arrivals.key.tolist(), strict=True)] == (
        np.concatenate(values)[order].tolist()
    )
    counts = (KEYS + 1, KEYS + 1)
    found = SheddingJoin(opened(limits, counts, listing=False), ranges=True).pairs(arrivals)
    assert sorted(map(tuple, found.tolist())) == wanted


@given(streams(), st.integers(0, 25), st.tuples(limited(), limited()))
def test_unlimited_memory_gives_the_exact_join_and_less_gives_a_part_of_it(
    given_: Streams, length: int, limits: Any
) -> None:
    arrivals = equi(*given_)
    time, stream, key = arrivals.clock[:, 0], arrivals.stream, arrivals.key
    exact = {
        (i, j)
        for i in np.flatnonzero(stream == 0).tolist()
        for j in np.flatnonzero(stream == 1).tolist()
        if key[i] == key[j] and abs(time[i] - time[j]) <= length
    }
    enough = [(length, 60, (policies.recent(length), None))] * 2
    whole = SheddingJoin(opened(enough, (KEYS + 1, KEYS + 1), listing=True)).pairs(arrivals)
    assert set(map(tuple, whole.tolist())) == exact
    assert len(whole) == len(exact)
    same = [(length, budget, (baselines.random(3), None)) for _, budget, _ in limits]
    part = SheddingJoin(opened(same, (KEYS + 1, KEYS + 1), listing=True)).pairs(arrivals)
    assert set(map(tuple, part.tolist())) <= exact


def test_a_stream_without_a_window_is_never_probed() -> None:
    arrivals = band((np.array([1, 2]), np.array([1, 3])), (np.array([5, 6]), np.array([5, 6])), 0, 0)
    policy = policies.recent(10)
    join = SheddingJoin([open_window(10, 5, policy, 2), None], ranges=True)
    assert join.count(arrivals).tolist() == [0, 1, 0, 1]
    assert (join.results.tolist(), join.most_held) == ([2, 0], (2, 0))


def test_windows_of_rows_expire_with_rows_of_their_own_stream() -> None:
    # S1 has rows of key 0 at times 1 and 2; the window holds the newest row and the one before.
    times, keys = (np.array([1, 2, 50]), np.array([40, 60])), (np.array([0, 0, 1]), np.array([0, 0]))
    windows = [open_window(1, 5, policies.recent(1), 2), None]
    assert SheddingJoin(windows).count(equi(times, keys, by_tuples=True)).tolist() == [0, 0, 2, 0, 1]


@pytest.mark.parametrize("listing", [True, False])
def test_there_is_always_room_for_the_results_of_one_row(listing: bool) -> None:
    n = 400
    times, keys = (np.arange(n), np.array([n])), (np.zeros(n, np.int64), np.zeros(1, np.int64))
    join = SheddingJoin([open_window(n, n, policies.recent(n), 1, listing=listing), None])
    assert len(join.pairs(equi(times, keys)).tolist()) == n


@pytest.mark.parametrize("keys", [1, 60])
@pytest.mark.parametrize("kind", ["prob", "random", "table"])
def test_a_long_stream_of_one_key_or_of_many_is_joined_as_defined(kind: str, keys: int) -> None:
    rng = np.random.default_rng(keys)
    times = tuple(np.cumsum(rng.integers(0, 3, 400)) for _ in range(2))
    arrivals = equi((times[0], times[1]), (rng.integers(0, keys, 400), rng.integers(0, keys, 400)))
    f, priority, length, budget = rng.permutation(keys) / 100, rng.permutation(20).astype(np.float64), 60, 20
    way = {
        "prob": (policies.prob(f), naive.drop_rarest(f.tolist())),
        "random": (baselines.random(3), naive.drop_any(3)),
        "table": (policies.by_age(priority, 3, length), naive.drop_by_age(priority.tolist(), 3)),
    }[kind]
    limits = [(length, budget, way)] * 2
    wanted, _ = plain(arrivals, arrivals.key.tolist(), limits, lambda a, b: a == b)
    for listing in (True, False):
        join = SheddingJoin(opened(limits, (keys, keys), listing=listing))
        assert sorted(map(tuple, join.pairs(arrivals).tolist())) == wanted
        assert join.most_held == (budget, budget)
