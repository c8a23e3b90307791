"""What is sent, against the definition and against brute force over all windows."""

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
from tocsin.edge.reducer import Reducer

CUTS = st.lists(st.integers(0, 16), max_size=5).map(sorted)


def sent_by(stream: Stream, cuts: list[int]) -> list[int]:
    """Run a reducer over the pieces; give the numbers that are sent, in their order."""
    reducer, sent = Reducer(stream.settings), []
    ends = [*(min(cut, len(stream.t)) for cut in cuts), len(stream.t)]
    for start, stop in zip([0, *ends], ends, strict=False):
        sent += [due.number for due in reducer.take(stream.rows(start, stop))]
        for track in reducer.tracks.values():
            track._check()
    sent += [due.number for due in reducer.release()]
    assert reducer.ledger.lines == {}
    assert reducer.ledger.received == len(sent) + reducer.ledger.omitted
    return sent


def keeps_every_extreme(stream: Stream, sent: list[int]) -> bool:
    """Tell whether each window of each key has its extremes among what was sent."""
    keys = stream.keys or [""] * len(stream.t)
    for key in set(keys):
        own = [i for i, name in enumerate(keys) if name == key]
        kept = {place for place, i in enumerate(own) if i in set(sent)}
        for column, shape in zip(stream.values, stream.settings.shapes, strict=True):
            asked = demands([stream.t[i] for i in own], [column[i] for i in own], sides(_length(stream), shape))
            if not met(kept, asked):
                return False
    return True


def _length(stream: Stream) -> int:
    return stream.settings.interval_us


@given(streams(), CUTS)
def test_what_is_sent_is_what_the_definition_sends_whatever_the_cut(stream: Stream, cuts: list[int]) -> None:
    oracle, expected = OneKey(_length(stream), stream.settings.hold_us, stream.settings.shapes), []
    for number, t in enumerate(stream.t):
        expected += oracle.arrive(t, [column[number] for column in stream.values], number)
    assert sent_by(stream, cuts) == expected + oracle.end()


@given(streams(keys=3), CUTS)
def test_every_window_keeps_its_extremes_for_any_hold_order_and_cut(stream: Stream, cuts: list[int]) -> None:
    sent = sent_by(stream, cuts)
    assert len(sent) == len(set(sent))
    assert keeps_every_extreme(stream, sent)


@given(streams(keys=3), CUTS)
def test_the_cut_into_pieces_does_not_show(stream: Stream, cuts: list[int]) -> None:
    assert sent_by(stream, cuts) == sent_by(stream, list(range(17)))


@given(streams(most=40, in_order=True, whole=True), CUTS)
def test_in_order_and_held_for_the_interval_the_fewest_rows_are_sent(stream: Stream, cuts: list[int]) -> None:
    shape = stream.settings.shapes[0]
    mask = retained(np.array(stream.t, np.int64), np.array(stream.values[0]), _length(stream), shape=shape)
    assert sorted(sent_by(stream, cuts)) == np.flatnonzero(mask).tolist()


@given(streams(in_order=True, keys=3))
def test_rows_of_a_key_that_come_in_order_go_in_order(stream: Stream) -> None:
    sent = sent_by(stream, [])
    for key in set(stream.keys):
        times = [stream.t[i] for i in sent if stream.keys[i] == key]
        assert times == sorted(times)


@given(streams(in_order=True))
def test_with_no_hold_and_distinct_times_everything_is_sent_at_once(stream: Stream) -> None:
    t = [i * 2 for i in range(len(stream.t))]
    at_once = Stream([], t, stream.values, _with(stream, hold_us=0))
    reducer = Reducer(at_once.settings)
    for number in range(len(t)):
        assert [due.number for due in reducer.take(at_once.rows(number, number + 1))] == [number]


@given(streams())
def test_no_row_is_held_longer_than_it_may_be(stream: Stream) -> None:
    reducer, newest = Reducer(stream.settings), None
    for number, t in enumerate(stream.t):
        reducer.take(stream.rows(number, number + 1))
        newest = t if newest is None or t < newest - 2 * _length(stream) else max(t, newest)
        assert all(stream.t[held] > newest - stream.settings.hold_us for held in _held(reducer))


def _held(reducer: Reducer) -> list[int]:
    reducer.omit_gone()
    return list(reducer.ledger.lines)


@given(streams(keys=3), st.data())
def test_what_waits_for_a_blocked_output_is_reduced_and_no_extreme_is_lost(stream: Stream, data: st.DataObject) -> None:
    reducer, queue, sent = Reducer(stream.settings), [], []
    for number in range(len(stream.t)):
        for due in reducer.take(stream.rows(number, number + 1), blocked=bool(queue)):
            reducer.ledger.lines[due.number] = due.line
            queue.append(due.number)
        if data.draw(st.booleans()):
            reducer.omit_gone()
            for waiting in queue[: data.draw(st.integers(0, 4))]:
                queue.remove(waiting)
                if reducer.ledger.lines.pop(waiting, None):
                    sent.append(waiting)
    sent += [waiting for waiting in queue if reducer.ledger.lines.pop(waiting, None)]
    sent += [due.number for due in reducer.release()]
    assert reducer.ledger.received == len(sent) + reducer.ledger.omitted
    assert keeps_every_extreme(stream, sent)


def test_a_backlog_is_reduced_as_if_it_had_been_held_for_the_interval() -> None:
    t = list(range(200))
    values = np.round(np.cumsum(np.random.default_rng(5).normal(0, 1, 200))).tolist()
    stream = Stream([], t, [values], _settings(interval_us=20, hold_us=0))
    reducer = Reducer(stream.settings)
    # The first row finds the output free; from then on it is blocked.
    waiting = [due for part in ((0, 1), (1, 200)) for due in reducer.take(stream.rows(*part), blocked=part[0] > 0)]
    assert {due.number for due in waiting} == set(np.flatnonzero(retained(t, values, 20)).tolist())


def test_a_row_far_behind_starts_its_key_anew_and_later_rows_are_reduced_again() -> None:
    t = [1_000_000, *range(100)]
    stream = Stream([], t, [[1.0] * 101], _settings(interval_us=50, hold_us=50))
    assert sent_by(stream, []) == [0, 1, 51, 100]


def test_memory_is_that_of_two_intervals() -> None:
    reducer, n = Reducer(_settings(interval_us=100, hold_us=100)), 20_000
    values = np.random.default_rng(3).normal(0, 1, n).tolist()
    stream = Stream([], list(range(n)), [values], _settings(interval_us=100, hold_us=100))
    largest = 0
    for start in range(0, n, 10):
        reducer.take(stream.rows(start, start + 10))
        largest = max(largest, len(reducer.tracks[""].t))
    stays = retained(np.arange(n), np.array(values), 100)
    most = max(int(stays[i : i + 200].sum()) for i in range(0, n, 10))
    # Rows of the open window that are not settled yet come on top of those that stay.
    assert largest <= 2 * (most + 100) + 64 + 10


def test_the_key_that_was_silent_longest_is_forgotten_and_what_it_held_is_sent() -> None:
    settings = _settings(interval_us=10, hold_us=10, max_keys=2)
    stream = Stream(["a", "b", "a", "c"], [0, 0, 1, 0], [[1.0, 2.0, 3.0, 4.0]], settings)
    reducer = Reducer(settings)
    assert [due.number for part in range(4) for due in reducer.take(stream.rows(part, part + 1))] == [1]
    assert list(reducer.tracks) == ["a", "c"]


def test_what_is_held_of_a_silent_key_is_sent_by_the_clock() -> None:
    settings = _settings(interval_us=10, hold_us=10)
    stream = Stream(["a", "b", "a"], [0, 0, 1], [[1.0, 2.0, 3.0]], settings)
    reducer = Reducer(settings)
    for number, now in enumerate((0.0, 1.0, 2.0)):
        assert reducer.take(stream.rows(number, number + 1), now) == []
    assert reducer.quiet_since() == 1.0
    assert [due.number for due in reducer.release(before=1.5)] == [1]
    assert reducer.quiet_since() == 2.0


def test_a_row_that_comes_behind_rows_sent_by_the_clock_is_sent_at_once() -> None:
    settings = _settings(interval_us=10, hold_us=10)
    stream = Stream([], [0, 5, 3, 6], [[1.0, 2.0, 9.0, 1.0]], settings)
    reducer = Reducer(settings)
    reducer.take(stream.rows(0, 2))
    assert [due.number for due in reducer.release()] == [0, 1]
    assert [due.number for due in reducer.take(stream.rows(2, 4))] == [2]
    reducer.tracks[""]._check()
    assert [due.number for due in reducer.release()] == [3]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"hold_us": 11}, "`--hold` must be between 0 and the interval; got 11us for an interval of 10us"),
        ({"shapes": ("convex",)}, "`--shape` must be one of"),
        ({"shapes": ("increasing",) * 3}, "`--shape` must be given once, or once per `--value`; got 3 for 1"),
        ({"values": ()}, "`--value` must name at least one field"),
        ({"values": ("x", "x")}, "`--value` must name different fields"),
        ({"format": "xml"}, "`--format` must be one of"),
        ({"time_unit": "min"}, "`--time-unit` must be one of"),
        ({"columns": ("t",)}, "`--columns` must have every field that is read"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(given: dict[str, Any], message: str) -> None:
    from tocsin import RuleError

    with pytest.raises(RuleError, match=message):
        _settings(**given)


def _settings(**given: Any) -> Any:
    from tocsin.edge.settings import Settings

    return Settings(**({"time": "t", "values": ("v",), "interval_us": 10, "hold_us": 10} | given))


def _with(stream: Stream, **given: Any) -> Any:
    from dataclasses import replace

    return replace(stream.settings, **given)
