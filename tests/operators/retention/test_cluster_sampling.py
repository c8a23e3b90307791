"""The sampling join row by row: against the exact join, the rows that a sample needs by definition, cuts and copies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from naive import memory as naive
from tocsin.operators.retention.cluster_sampling import (
    EQ_CLUSTER,
    NEWER,
    OLDEST,
    PPS_CLUSTER,
    UNIFORM,
    Sampled,
    geometric,
    new_sampled,
    row_bytes,
)
from tocsin.operators.retention.uniform_sampling import Rows, Sample, SamplingJoin, State, joined
from tocsin.operators.retention.utility.age_model import AgeCurve
from tocsin.operators.retention.utility.sampling_fraction import uniform_use_by_age, uniform_use_by_frequency
from tocsin.runtime.state_codec import pack, unpack

KINDS = [UNIFORM, EQ_CLUSTER, PPS_CLUSTER]
# Room for every row of a small join.
ENOUGH = (100, 100)


class Case(NamedTuple):
    """Rows, with the exact number of results of each, and how they join."""

    rows: list[naive.Arrival]
    windows: tuple[int | None, int | None]
    band: tuple[int, int] | None
    by_tuples: bool

    @property
    def results(self) -> list[naive.Joined]:
        return naive.join_results(self.rows, self.windows, *(self.band or (0, 0)), by_tuples=self.by_tuples)

    @property
    def columns(self) -> Rows:
        stream, time, key = (np.array(column, np.int64) for column in zip(*self.rows, strict=True))
        n = np.zeros(len(self.rows))
        for _, _, held, _ in self.results:
            n[held] += 1
        return Rows(stream, time, key, n, np.arange(len(n)) * 1.5)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    steps = draw(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=40))
    rows, now = [], 0
    for stream, gap, key in steps:
        now += gap
        rows.append((stream, now, key))
    window = st.none() | st.integers(0, 30)
    band = draw(st.none() | st.sampled_from([(0, 1), (-2, 0), (1, 2)]))
    return Case(rows, (draw(window), draw(window)), band, draw(st.booleans()))


def join_of(case: Case, kind: int, p: float, seed: int, memory: tuple[int, int] = ENOUGH) -> SamplingJoin:
    return SamplingJoin(kind, case.windows, memory, (p, p), seed, case.band, by_tuples=case.by_tuples)


def tuples(sample: Sample) -> list[naive.Joined]:
    return list(zip(*(column.tolist() for column in sample[:4]), strict=True))


def held_rows(window: Sampled) -> list[int]:
    """The numbers of the rows held, oldest first."""
    found, slot = [], window.facts[OLDEST]
    while slot >= 0:
        found.append(int(window.number[slot]))
        slot = window.links[NEWER, slot]
    return found


def part(rows: Rows, begin: int, end: int) -> Rows:
    return Rows._make(column[begin:end] for column in rows)


def one_by_one(join: SamplingJoin, rows: Rows) -> list[tuple[Sample, set[int], list[float]]]:
    """The sample of each row, which rows are held after it, and p."""
    steps = []
    for at in range(len(rows.time)):
        taken = join.take(*part(rows, at, at + 1))
        held = [*held_rows(join.state.one), *held_rows(join.state.two)]
        assert len(held) == sum(join.held)
        steps.append((taken.sample, set(held), taken.fraction[0].tolist()))
    return steps


def copied(state: State) -> State:
    """Let the state be what pages give back."""

    def read(window: Sampled) -> Sampled:
        return Sampled(**unpack(pack(window._asdict()))[0])

    return State(read(state.one), read(state.two), state.received.copy())


def equal_states(one: State, other: State) -> bool:
    mine, its = [*one.one, *one.two, one.received], [*other.one, *other.two, other.received]
    return all(np.array_equal(a, b) for a, b in zip(mine, its, strict=True))


@given(st.floats(0, 1, exclude_max=True), st.floats(0.001, 1))
def test_a_geometric_number_is_the_first_whose_distribution_reaches_u(u: float, p: float) -> None:
    x = geometric(u, p)
    assert x >= 1
    assert 1 - (1 - p) ** x >= u - 1e-9
    assert x == 1 or 1 - (1 - p) ** (x - 1) <= u + 1e-9


@pytest.mark.parametrize("kind", KINDS)
@given(case=cases())
def test_with_memory_and_fraction_1_the_sample_is_the_exact_join(kind: int, case: Case) -> None:
    join = join_of(case, kind, 1.0, 3)
    sample = join.take(*case.columns).sample
    assert sorted(tuples(sample)) == sorted(case.results)
    assert (sample.probability == 1).all()
    values = case.columns.value
    assert np.array_equal(sample.held_value, values[sample.held])
    assert np.array_equal(sample.probe_value, values[sample.probe])


@given(cases(), st.floats(0.05, 1), st.integers(0, 1000))
def test_uniform_holds_exactly_the_rows_that_later_results_of_its_sample_need(case: Case, p: float, seed: int) -> None:
    steps = one_by_one(join_of(case, UNIFORM, p, seed), case.columns)
    sample = tuples(joined([found for found, _, _ in steps]))
    assert set(sample) <= set(case.results)
    assert len(set(sample)) == len(sample)
    for at, (_, held, _) in enumerate(steps):
        assert held == naive.rows_needed(sample, at)


@pytest.mark.parametrize("kind", [EQ_CLUSTER, PPS_CLUSTER])
@given(case=cases(), p=st.floats(0.05, 1), seed=st.integers(0, 1000))
def test_clusters_are_all_results_of_rows_that_are_chosen_on_arrival_and_kept(
    kind: int, case: Case, p: float, seed: int
) -> None:
    n = case.columns.n
    chances = [min(1.0, p * n[row]) if kind == PPS_CLUSTER else p for row in range(len(n))]
    chosen = {row for row, chance in enumerate(chances) if naive.random_number(seed, row, 0) < chance}
    steps = one_by_one(join_of(case, kind, p, seed), case.columns)
    sample = joined([found for found, _, _ in steps])
    assert sorted(tuples(sample)) == sorted(result for result in case.results if result[2] in chosen)
    assert sample.probability.tolist() == [chances[row] for row in sample.held]
    for at, (_, held, _) in enumerate(steps):
        alive = {
            row
            for row in range(at + 1)
            if naive.is_in_window(case.rows, case.windows, row, at, by_tuples=case.by_tuples)
        }
        assert held == chosen & alive


@pytest.mark.parametrize("kind", KINDS)
@given(case=cases(), memory=st.tuples(st.integers(0, 4), st.integers(0, 4)), p=st.floats(0.3, 1))
def test_memory_is_never_above_its_budget_and_p_falls_instead(
    kind: int, case: Case, memory: tuple[int, int], p: float
) -> None:
    join = join_of(case, kind, p, 11, memory)
    steps = one_by_one(join, case.columns)
    assert all(most <= budget for most, budget in zip(join.most_held, memory, strict=True))
    fractions = np.array([[p, p]] + [fraction for _, _, fraction in steps])
    assert (np.diff(fractions, axis=0) <= 0).all()
    if kind == UNIFORM:
        assert (fractions[:, 0] == fractions[:, 1]).all()
    enough = join_of(case, kind, p, 11)
    enough.take(*case.columns)
    if all(most <= budget for most, budget in zip(enough.most_held, memory, strict=True)):
        assert (fractions == p).all()


@pytest.mark.parametrize("kind", KINDS)
@given(case=cases(), memory=st.integers(0, 5), cuts=st.lists(st.integers(0, 40), max_size=5))
def test_neither_cuts_into_batches_nor_copies_of_the_state_show(
    kind: int, case: Case, memory: int, cuts: Sequence[int]
) -> None:
    rows = case.columns
    before = [column.copy() for column in rows]
    whole, cut = (join_of(case, kind, 0.8, 5, (memory, memory)) for _ in range(2))
    wanted = whole.take(*rows)
    samples, fractions = [], []
    for begin, end in zip([0, *sorted(cuts)], [*sorted(cuts), len(rows.time)], strict=True):
        cut.state = copied(cut.state)
        taken = cut.take(*part(rows, begin, end))
        samples.append(taken.sample)
        fractions.append(taken.fraction)
    for one, other in zip(wanted.sample, joined(samples), strict=True):
        assert np.array_equal(one, other)
    assert np.array_equal(wanted.fraction, np.concatenate(fractions))
    if len(whole.state.one.heads) == len(cut.state.one.heads):
        assert equal_states(whole.state, cut.state)
    assert all(np.array_equal(one, other) for one, other in zip(before, rows, strict=True))


@pytest.mark.parametrize("kind", KINDS)
@given(case=cases(), memory=st.tuples(st.integers(0, 4), st.integers(0, 4)), data=st.data())
def test_less_memory_thins_what_is_held_and_more_changes_nothing(
    kind: int, case: Case, memory: tuple[int, int], data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(case.rows)))
    rows, join, same = case.columns, join_of(case, kind, 0.9, 5), join_of(case, kind, 0.9, 5)
    join.take(*part(rows, 0, at))
    same.take(*part(rows, 0, at))
    same.set_memory((200, 300))
    before = [held_rows(window) for window in (join.state.one, join.state.two)]
    join.set_memory(memory)
    for window, held, budget in zip((join.state.one, join.state.two), before, memory, strict=True):
        left = held_rows(window)
        assert left == [row for row in held if row in left]
        assert len(left) == len(set(left)) <= budget
        assert window.fraction[0] == 0 if budget == 0 else window.fraction[0] <= 0.9
        # What is left was not thinned in vain: with the p before, it would not have fitted.
        if all(len(held) <= budget for held, budget in zip(before, memory, strict=True)) and budget:
            assert (left, window.fraction[0]) == (held, 0.9)
    steps = one_by_one(join, part(rows, at, len(rows.time)))
    assert all(most <= budget for most, budget in zip(join.most_held, memory, strict=True))
    assert all(fraction <= [0.9, 0.9] for _, _, fraction in steps)
    never = join_of(case, kind, 0.9, 5)
    never.take(*part(rows, 0, at))
    wanted = never.take(*part(rows, at, len(rows.time))).sample
    assert tuples(same.take(*part(rows, at, len(rows.time))).sample) == tuples(wanted)


def test_more_results_than_a_call_has_room_for_are_all_found() -> None:
    held = 3000
    stream, time = np.repeat([0, 1], [held, 2]), np.zeros(held + 2, np.int64)
    join = SamplingJoin(EQ_CLUSTER, (10, None), (held, 0), (1.0, 1.0))
    sample = join.take(stream, time, np.zeros_like(time), np.zeros(len(time))).sample
    assert len(sample.time) == 2 * held
    assert len(set(tuples(sample))) == 2 * held


def test_the_counters_of_uniform_are_part_of_its_memory() -> None:
    assert row_bytes(UNIFORM) == row_bytes(EQ_CLUSTER) + 16
    some = new_sampled(UNIFORM, 50, 0.5, 0)
    assert row_bytes(UNIFORM) * 50 == sum(column.nbytes for column in some) - some.facts.nbytes - some.fraction.nbytes


def average_held(join: SamplingJoin, rows: Rows) -> float:
    """The rows that S1 holds, on average over time: between arrivals nothing leaves."""
    held = []
    for at in range(len(rows.time)):
        join.take(*part(rows, at, at + 1))
        held.append(join.held[0])
    return float(np.sum(np.array(held[:-1]) * np.diff(rows.time)) / (rows.time[-1] - rows.time[0]))


def stream_of(arrivals: list[tuple[int, int, int]], n: Sequence[float]) -> Rows:
    """Rows of (time, order among equals, key): S2 where the order is 0; each row of S1 has results as its key says."""
    time, order, key = np.array(sorted(arrivals), np.int64).T
    return Rows(np.where(order == 0, 1, 0), time, key, np.array(n)[key], np.zeros(len(time)))


@pytest.mark.parametrize("p", [0.1, 0.5])
def test_the_memory_that_uniform_uses_is_that_of_theorem_4_3(p: float) -> None:
    curve, count = [0, 1, 3, 0, 2], 3000
    ages = [age + 1 for age, results in enumerate(curve) for _ in range(results)]
    arrivals = [(at, 1, at) for at in range(count)] + [(at + age, 0, at) for at in range(count) for age in ages]
    rows = stream_of(arrivals, [6.0] * count)
    average = average_held(SamplingJoin(UNIFORM, (5, None), (50, 0), (p, p), 2), rows)
    average *= (rows.time[-1] - rows.time[0]) / count
    mean, square = naive.expected_stay(ages, p), naive.expected_stay([age**2 for age in ages], p)
    assert uniform_use_by_age(AgeCurve(np.array(curve, np.float64)), 1.0, p) == pytest.approx(mean)
    assert abs(average - mean) < 3 * ((square - mean**2) / count) ** 0.5


def test_the_memory_that_uniform_uses_is_that_of_theorem_4_2() -> None:
    window, p, count, results = 60, 0.15, 500, [2, 4, 6, 12]
    arrivals = [(window * at, 1, key) for at in range(count) for key in range(4)]
    arrivals += [(window * at // n, 0, key) for key, n in enumerate(results) for at in range(1, n * (count + 1))]
    rows = stream_of(arrivals, [float(n) for n in results])
    average = average_held(SamplingJoin(UNIFORM, (window, None), (50, 0), (p, p), 4), rows)
    f_other, r_other = np.array(results) / 24, 24 / window
    wanted = uniform_use_by_frequency(np.full(4, 0.25), f_other, 4 / window, r_other, window, p)
    stays = [[window * i / n for i in range(1, n + 1)] for n in results]
    means = [naive.expected_stay(ages, p) for ages in stays]
    squares = [naive.expected_stay([age**2 for age in ages], p) for ages in stays]
    spread = sum(square - mean**2 for square, mean in zip(squares, means, strict=True))
    assert abs(average - wanted) < 3 * (spread / count) ** 0.5 / window + wanted / count
