"""Rules that sample their results where memory is short: unbiased, within the budget, and the laws."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.driver import plan_of, watch_logics
from tests.test_memory import Columns, matches, run, zipf_streams
from tocsin import Rule, RuleError
from tocsin.hashing import row_fingerprints, unit_numbers
from tocsin.operators.retention.cluster_sampling import PPS_CLUSTER
from tocsin.operators.retention.duplicate_filter import DuplicateFilter
from tocsin.operators.retention.sample_policy import SamplePolicy
from tocsin.operators.retention.utility import row_utility
from tocsin.operators.retention.utility.stream_monitor import Monitor
from tocsin.plan import make_plan


def chance(row: dict[str, Any]) -> float:
    word, *number = row["quality"].split()
    assert word in {"exact", "sample"}
    return float(number[0]) if word == "sample" else 1.0


def test_what_a_sample_has_found_in_the_end_does_not_depend_on_calls() -> None:
    """Two keys, and pieces of up to 50 rows: a watched row that does not stay would meet others of its piece."""
    streams = zipf_streams(1500, 2, 4)
    rule = Rule(
        "pair", "a + b > 3", within="1s", on="machine", emit="all", quality={"memory": "800 rows", "prefer": "sample"}
    )
    (_, once), (_, split) = (run(streams, rule, cuts, through_pages=False) for cuts in ((), range(0, 3000, 5)))
    found = watch_logics(once.session)[0].operators.budget.found
    assert watch_logics(split.session)[0].operators.budget.found == found
    reached = found["memory_reached"]
    assert reached is not None
    assert 0 < reached < 1


def sampling(rule: Rule, **options: Any) -> Rule:
    """The same rule with a sample and other options."""
    return replace(rule, quality={**(rule.quality or {}), "prefer": "sample", **options})


def check_unbiased(runs: Iterable[Columns], rule: Rule, memory: str, error: float) -> None:
    """Horvitz and Thompson: over many streams the estimated number of results is the true one, within its error."""
    ratios = []
    for streams in runs:
        exact, _ = run(streams, rule, through_pages=False)
        sampled, _ = run(streams, sampling(rule, memory=memory), through_pages=False)
        assert not matches(sampled) - matches(exact)
        assert len(sampled.alert_rows()) < 0.9 * len(exact.alert_rows())
        assert sampled.metrics.section("memory")["pair"]["predicted"] is None
        ratios.append(sum(1 / chance(row) for row in sampled.alert_rows()) / len(exact.alert_rows()))
    found = float(np.std(ratios, ddof=1)) / len(ratios) ** 0.5
    assert found < error
    assert abs(float(np.mean(ratios)) - 1) < 3 * found


@pytest.mark.parametrize("memory", ["20 rows", pytest.param("40 rows", marks=pytest.mark.slow)])
def test_the_sample_is_a_part_of_the_results_and_its_weights_add_up_to_them(memory: str) -> None:
    rule = Rule("pair", "a + b > -9", within="60ms", on="machine", emit="all", allowed_lateness="0s")
    # With so small an error a bias of a tenth would show.
    check_unbiased((zipf_streams(180, 12, seed) for seed in range(30)), rule, memory, 0.034)


def test_weights_add_up_to_the_results_where_rows_are_taken_by_the_results_of_their_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(row_utility, "EVERY", 300)
    stated: dict[str, Any] = {"within": "100ms", "on": "machine", "emit": "all", "allowed_lateness": "0s"}
    rule = Rule("pair", "a + b > 0", quality={"model": {"by": "key"}}, **stated)
    # The standard error of a run is some 0.06.
    check_unbiased((zipf_streams(1200, 100, 100 + seed) for seed in range(10)), rule, "40 rows", 0.034)


def repeated(seed: int, *, notes: bool, rows: int = 180) -> Columns:
    """Times in whole tens of milliseconds and few values: most rows are equal to others, but for a note."""
    draw, streams = np.random.default_rng(seed), {}
    for name in ("a", "b"):
        time = 1_000_000 * seed + np.sort(draw.integers(0, 18, rows)) * 10_000
        machine = np.array([f"k{key}" for key in draw.integers(0, 4, rows)], dtype=object)
        streams[name] = {"ts": time, "machine": machine, "value": draw.integers(1, 3, rows) * 1.0}
        streams[name]["arrival"] = np.arange(rows) * 2 + (name == "b")
        if notes:
            streams[name]["note"] = np.array([f"n{number}" for number in draw.integers(0, 2, rows)], dtype=object)
    return streams


# Rows with notes include rows that are equal in all columns.
@pytest.mark.parametrize("notes", [pytest.param(False, marks=pytest.mark.slow), True])
def test_rows_that_come_again_count_once_as_they_do_without_a_limit(notes: bool) -> None:
    rule = Rule("pair", "a + b > 0", within="40ms", on="machine", emit="all", allowed_lateness="0s")
    check_unbiased((repeated(seed, notes=notes) for seed in range(16)), rule, "16 rows", 0.08)


def came_again(room: int, steps: Sequence[tuple[int, bool]], before: Sequence[int] = ()) -> list[bool]:
    """By the definition, row by row: the last `room` marks of rows that went are known."""
    known, told = deque([0] * room + list(before), maxlen=room), []
    for mark, refused in steps:
        told.append(mark in known)
        if refused and not told[-1]:
            known.append(mark)
    return told


def test_a_trace_is_pushed_out_by_those_that_are_noted_after_it_in_the_same_call() -> None:
    steps = [(mark, True) for mark in (1, 2, 3, 4, 100, 1, 1)]
    expected = [False, False, False, False, False, False, True]
    assert came_again(4, steps, [100]) == expected
    for cuts in ([], [4], range(1, 7)):
        rows = DuplicateFilter(4)
        rows.process(0, np.array([100]), np.ones(1, np.bool_), np.zeros(1, np.bool_))
        parts = [np.array(part) for part in np.split(np.array([mark for mark, _ in steps]), cuts)]
        again = [rows.process(0, part, np.ones(len(part), np.bool_), np.ones(len(part), np.bool_)) for part in parts]
        assert np.concatenate(again).tolist() == expected


@given(
    st.integers(1, 6),
    st.lists(st.tuples(st.integers(1, 9), st.booleans()), max_size=40),
    st.lists(st.integers(0, 40), max_size=6).map(sorted),
    st.lists(st.integers(1, 9), max_size=8),
)
def test_rows_that_come_again_are_known_as_if_they_came_one_by_one(
    room: int, steps: list[tuple[int, bool]], cuts: list[int], before: list[int]
) -> None:
    rows, told = DuplicateFilter(room), []
    gone = np.array(before, np.int64)
    rows.process(1, gone, np.ones(len(gone), np.bool_), np.zeros(len(gone), np.bool_))
    for begin, end in zip([0, *cuts], [*cuts, 40], strict=True):
        mark, refused = (np.array([step[i] for step in steps[begin:end]], kind) for i, kind in ((0, int), (1, bool)))
        told += rows.process(1, mark, refused, np.ones(len(mark), np.bool_)).tolist()
        again = DuplicateFilter(room)
        again.restore_state(rows.marks)
        rows = again
    assert told == came_again(room, steps, before)
    assert not rows.marks[0].any()


def test_where_keys_tell_how_many_results_come_rows_are_taken_by_that() -> None:
    draw, rows, keys = np.random.default_rng(9), 60_000, 3000
    chance_of = 1 / np.arange(1, keys + 1)
    lane, time = np.arange(rows) % 2, np.arange(rows) * 500
    monitor = Monitor((2_000_000, 2_000_000))
    monitor.take(lane, time, draw.choice(keys, rows, p=chance_of / chance_of.sum()))
    sampler = SamplePolicy(monitor)
    sampler.judge(400.0, [1.0, 1.0])
    assert sampler.kind == PPS_CLUSTER
    some = np.arange(keys)
    sizes = sampler.sizes(0, some)
    assert sizes[0] > 10 * float(np.median(sizes))
    memory, error = sampler.points.T
    assert (np.diff(memory) > 0).all()
    assert (np.diff(error) < 0).all()
    # A window has 2,000 rows of either stream: with all of them there is no error, with a tenth there is one.
    assert 4000 < memory[-1] < 5000
    assert error[-1] == 0
    assert np.interp(400.0, memory, error) == pytest.approx(sampler.errors[0], rel=0.1)
    again = SamplePolicy(monitor)
    again.restore_state(sampler.state_arrays())
    assert again.errors == sampler.errors
    assert again.results == sampler.results > 2000
    # What was known when the way was chosen holds until it is chosen anew, whatever comes.
    monitor.take(lane[:2000], time[:2000] + time[-1], np.full(2000, keys))
    assert (sampler.sizes(0, some) == sizes).all()
    assert (again.sizes(0, some) == sampler.sizes(0, some)).all()
    sampler.judge(400.0, [1.0, 1.0])
    assert not (again.sizes(0, some) == sampler.sizes(0, some)).any()


def test_what_is_drawn_for_a_row_is_even_and_its_own() -> None:
    number = np.arange(40_000)
    columns = (number % 2, number // 8, number // 4, number.astype(np.float64))
    drawn = unit_numbers(row_fingerprints(columns, len(number)))
    counts = np.bincount((drawn * 20).astype(np.int64), minlength=20)
    assert drawn.min() >= 0
    assert drawn.max() < 1
    # Chi-square with 19 degrees of freedom exceeds 43.8 once in a thousand times.
    assert float(((counts - 2000) ** 2 / 2000).sum()) < 43.8
    assert (drawn[7:9] == unit_numbers(row_fingerprints([column[7:9] for column in columns], 2))).all()
    assert len(np.unique(drawn)) == len(drawn)


def test_more_than_two_streams_are_not_sampled() -> None:
    streams = zipf_streams(1, 1, 0)
    streams["c"] = streams["a"]
    rule = Rule(
        "x", "a + b + c > 0", within="1s", on="machine", emit="all", quality={"memory": "1MB", "prefer": "sample"}
    )
    with pytest.raises(RuleError, match=r'rule "x": `quality.prefer: sample` needs two streams; `expr` reads 3'):
        plan_of(streams, rule, arrival="arrival")


def test_rows_that_may_come_behind_take_nothing_from_a_sample_unless_that_is_asked_for() -> None:
    stated: dict[str, Any] = {"within": "100ms", "on": "machine", "emit": "all"}
    columns = {"a": ["ts", "machine", "value"], "b": ["ts", "machine", "value"]}
    sample = {"memory": "50KB", "prefer": "sample"}
    lateness_us = [
        make_plan([Rule("pair", "a + b > 0", **stated, **more, quality=quality)], columns)
        .watches[0]
        .allowed_lateness_us
        for quality, more in ((sample, {}), (sample, {"allowed_lateness": "5m"}), ({"memory": "50KB"}, {}))
    ]
    assert lateness_us == [100_000, 300_000_000, 3_600_000_000]
