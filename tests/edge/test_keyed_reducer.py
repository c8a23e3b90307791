"""Sent rows, compared with the definition and with brute force over all windows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.edge.oracle import OneKey, sides
from tests.edge.streams import Stream, streams
from tests.naive.retained import demands, met
from tocsin import retained
from tocsin.edge.keyed_reducer import KeyedReducer

BOUNDARIES = st.lists(st.integers(0, 16), max_size=5).map(sorted)


def sent_numbers(stream: Stream, boundaries: list[int]) -> list[int]:
    """Run a reducer over batches; return the numbers of the sent rows in order."""
    reducer, sent = KeyedReducer(stream.settings), []
    ends = [*(min(end, len(stream.t)) for end in boundaries), len(stream.t)]
    for start, stop in zip([0, *ends], ends, strict=False):
        sent += [due.number for due in reducer.process(stream.rows(start, stop))]
        for key_reducer in reducer.key_reducers.values():
            key_reducer._check_invariants()
    sent += [due.number for due in reducer.release()]
    assert reducer.buffer.lines == {}
    assert reducer.buffer.received == len(sent) + reducer.buffer.omitted
    return sent


def has_all_extremes(stream: Stream, sent: list[int]) -> bool:
    """Return whether the sent rows have the extremes of each window of each key."""
    keys = stream.keys or [""] * len(stream.t)
    for key in set(keys):
        own = [i for i, name in enumerate(keys) if name == key]
        kept = {index for index, i in enumerate(own) if i in set(sent)}
        for column, shape in zip(stream.values, stream.settings.shapes, strict=True):
            required = demands([stream.t[i] for i in own], [column[i] for i in own], sides(_length(stream), shape))
            if not met(kept, required):
                return False
    return True


def _length(stream: Stream) -> int:
    return stream.settings.interval_us


@given(streams(), BOUNDARIES)
def test_sent_rows_match_the_definition_for_any_batch_boundaries(stream: Stream, boundaries: list[int]) -> None:
    oracle, expected = OneKey(_length(stream), stream.settings.max_delay_us, stream.settings.shapes), []
    for number, t in enumerate(stream.t):
        expected += oracle.arrive(t, [column[number] for column in stream.values], number)
    assert sent_numbers(stream, boundaries) == expected + oracle.end()


@given(streams(keys=3), BOUNDARIES)
def test_sent_rows_have_all_extremes_for_any_delay_order_and_batch_boundaries(
    stream: Stream, boundaries: list[int]
) -> None:
    sent = sent_numbers(stream, boundaries)
    assert len(sent) == len(set(sent))
    assert has_all_extremes(stream, sent)


@given(streams(keys=3), BOUNDARIES)
def test_sent_rows_are_independent_of_batch_boundaries(stream: Stream, boundaries: list[int]) -> None:
    assert sent_numbers(stream, boundaries) == sent_numbers(stream, list(range(17)))


@given(streams(max_rows=40, in_order=True, is_full_delay=True), BOUNDARIES)
def test_fewest_rows_are_sent_when_rows_are_in_order_and_the_delay_is_the_interval(
    stream: Stream, boundaries: list[int]
) -> None:
    shape = stream.settings.shapes[0]
    mask = retained(np.array(stream.t, np.int64), np.array(stream.values[0]), _length(stream), shape=shape)
    assert sorted(sent_numbers(stream, boundaries)) == np.flatnonzero(mask).tolist()


@given(streams(in_order=True, keys=3))
def test_rows_of_a_key_are_sent_in_order_when_they_arrive_in_order(stream: Stream) -> None:
    sent = sent_numbers(stream, [])
    for key in set(stream.keys):
        times = [stream.t[i] for i in sent if stream.keys[i] == key]
        assert times == sorted(times)


@given(streams(in_order=True))
def test_each_row_is_sent_at_once_when_the_delay_is_zero_and_times_are_distinct(stream: Stream) -> None:
    t = [i * 2 for i in range(len(stream.t))]
    at_once = Stream([], t, stream.values, _with(stream, max_delay_us=0))
    reducer = KeyedReducer(at_once.settings)
    for number in range(len(t)):
        assert [due.number for due in reducer.process(at_once.rows(number, number + 1))] == [number]


@given(streams())
def test_no_row_is_held_longer_than_the_maximum_delay(stream: Stream) -> None:
    reducer, newest = KeyedReducer(stream.settings), None
    for number, t in enumerate(stream.t):
        reducer.process(stream.rows(number, number + 1))
        newest = t if newest is None or t < newest - 2 * _length(stream) else max(t, newest)
        assert all(stream.t[held] > newest - stream.settings.max_delay_us for held in _held(reducer))


def _held(reducer: KeyedReducer) -> list[int]:
    reducer.omit_covered()
    return list(reducer.buffer.lines)


@given(streams(keys=3), st.data())
def test_no_extreme_is_lost_when_rows_that_wait_for_a_blocked_output_are_omitted(
    stream: Stream, data: st.DataObject
) -> None:
    reducer, queue, sent = KeyedReducer(stream.settings), [], []
    for number in range(len(stream.t)):
        for due in reducer.process(stream.rows(number, number + 1), blocked=bool(queue)):
            reducer.buffer.lines[due.number] = due.line
            queue.append(due.number)
        if data.draw(st.booleans()):
            reducer.omit_covered()
            for waiting in queue[: data.draw(st.integers(0, 4))]:
                queue.remove(waiting)
                if reducer.buffer.lines.pop(waiting, None):
                    sent.append(waiting)
    sent += [waiting for waiting in queue if reducer.buffer.lines.pop(waiting, None)]
    sent += [due.number for due in reducer.release()]
    assert reducer.buffer.received == len(sent) + reducer.buffer.omitted
    assert has_all_extremes(stream, sent)


def test_fewest_rows_wait_when_the_output_is_blocked() -> None:
    t = list(range(200))
    values = np.round(np.cumsum(np.random.default_rng(5).normal(0, 1, 200))).tolist()
    stream = Stream([], t, [values], _settings(interval_us=20, max_delay_us=0))
    reducer = KeyedReducer(stream.settings)
    # The output is blocked after the first row.
    waiting = [due for part in ((0, 1), (1, 200)) for due in reducer.process(stream.rows(*part), blocked=part[0] > 0)]
    assert {due.number for due in waiting} == set(np.flatnonzero(retained(t, values, 20)).tolist())


def test_state_of_a_key_is_reset_when_a_row_is_two_intervals_old() -> None:
    t = [1_000_000, *range(100)]
    stream = Stream([], t, [[1.0] * 101], _settings(interval_us=50, max_delay_us=50))
    assert sent_numbers(stream, []) == [0, 1, 51, 100]


def test_state_has_at_most_the_rows_of_two_intervals() -> None:
    reducer, n = KeyedReducer(_settings(interval_us=100, max_delay_us=100)), 20_000
    values = np.random.default_rng(3).normal(0, 1, n).tolist()
    stream = Stream([], list(range(n)), [values], _settings(interval_us=100, max_delay_us=100))
    largest = 0
    for start in range(0, n, 10):
        reducer.process(stream.rows(start, start + 10))
        largest = max(largest, len(reducer.key_reducers[""].t))
    is_retained = retained(np.arange(n), np.array(values), 100)
    most = max(int(is_retained[i : i + 200].sum()) for i in range(0, n, 10))
    # Rows of the open window are not decided yet and count too.
    assert largest <= 2 * (most + 100) + 64 + 10


def test_longest_idle_key_is_removed_and_its_rows_are_sent_when_there_are_too_many_keys() -> None:
    settings = _settings(interval_us=10, max_delay_us=10, max_keys=2)
    stream = Stream(["a", "b", "a", "c"], [0, 0, 1, 0], [[1.0, 2.0, 3.0, 4.0]], settings)
    reducer = KeyedReducer(settings)
    assert [due.number for part in range(4) for due in reducer.process(stream.rows(part, part + 1))] == [1]
    assert list(reducer.key_reducers) == ["a", "c"]


def test_held_rows_of_an_idle_key_are_released_by_processing_time() -> None:
    settings = _settings(interval_us=10, max_delay_us=10)
    stream = Stream(["a", "b", "a"], [0, 0, 1], [[1.0, 2.0, 3.0]], settings)
    reducer = KeyedReducer(settings)
    for number, now in enumerate((0.0, 1.0, 2.0)):
        assert reducer.process(stream.rows(number, number + 1), now) == []
    assert reducer.idle_since() == 1.0
    assert [due.number for due in reducer.release(before=1.5)] == [1]
    assert reducer.idle_since() == 2.0


def test_out_of_order_row_is_sent_at_once_when_newer_rows_were_released() -> None:
    settings = _settings(interval_us=10, max_delay_us=10)
    stream = Stream([], [0, 5, 3, 6], [[1.0, 2.0, 9.0, 1.0]], settings)
    reducer = KeyedReducer(settings)
    reducer.process(stream.rows(0, 2))
    assert [due.number for due in reducer.release()] == [0, 1]
    assert [due.number for due in reducer.process(stream.rows(2, 4))] == [2]
    reducer.key_reducers[""]._check_invariants()
    assert [due.number for due in reducer.release()] == [3]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_delay_us": 11}, "`--max-delay` must be between 0 and the interval; got 11us for an interval of 10us"),
        ({"shapes": ("convex",)}, "`--shape` must be one of"),
        ({"shapes": ("increasing",) * 3}, "`--shape` must be given once, or once per `--value`; got 3 for 1"),
        ({"values": ()}, "`--value` must name at least one field"),
        ({"values": ("x", "x")}, "`--value` must name different fields"),
        ({"format": "xml"}, "`--format` must be one of"),
        ({"time_unit": "min"}, "`--time-unit` must be one of"),
        ({"columns": ("t",)}, "`--columns` must have every field that is read"),
    ],
)
def test_settings_are_rejected_when_they_are_invalid(options: dict[str, Any], message: str) -> None:
    from tocsin import RuleError

    with pytest.raises(RuleError, match=message):
        _settings(**options)


def _settings(**options: Any) -> Any:
    from tocsin.edge.settings import Settings

    return Settings(**({"time": "t", "values": ("v",), "interval_us": 10, "max_delay_us": 10} | options))


def _with(stream: Stream, **options: Any) -> Any:
    from dataclasses import replace

    return replace(stream.settings, **options)
