"""Bytes in, bytes out: any cut, malformed lines, headers, and state that is saved and taken up again."""

from __future__ import annotations

import json
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.edge.streams import Stream, streams
from tocsin import RunError
from tocsin.edge import state
from tocsin.edge.filter import Filter
from tocsin.edge.settings import Settings
from tocsin.pages import pack

CUTS = st.lists(st.integers(0, 400), max_size=6).map(sorted)
JUNK = st.lists(st.sampled_from([b"", b"nonsense", b"\xff", b'{"t": 1}', b"x" * 90]), max_size=3)


def _settings(**given: Any) -> Settings:
    plain = {"time": "t", "values": ("v",), "keys": ("k",), "interval_us": 10_000_000, "hold_us": 10_000_000}
    return Settings(**(plain | given))


def _json_of(stream: Stream) -> list[bytes]:
    """Write a stream as JSON lines."""
    lines = []
    for i, t in enumerate(stream.t):
        values = {f"v{place}": column[i] for place, column in enumerate(stream.values)}
        lines.append(json.dumps({"k": stream.keys[i] if stream.keys else "", "t": t, **values}).encode())
    return lines


def _settings_of(stream: Stream) -> Settings:
    return replace(stream.settings, keys=("k",), time_unit="us", max_line=80)


def _pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    ends = [min(cut, len(data)) for cut in cuts]
    return [data[start:stop] for start, stop in zip([0, *ends], [*ends, len(data)], strict=True)]


def _run(edge: Filter, pieces: list[bytes]) -> bytes:
    out = b""
    for piece in pieces:
        due = edge.take(piece)
        _count_as_sent(edge, due)
        out += b"".join(one.line for one in due)
        _adds_up(edge)
    due = edge.end()
    _count_as_sent(edge, due)
    assert edge.ledger.held == 0
    _adds_up(edge)
    return out + b"".join(one.line for one in due)


def _count_as_sent(edge: Filter, due: list[Any]) -> None:
    edge.ledger.sent += sum(one.number >= 0 for one in due)


def _adds_up(edge: Filter) -> None:
    counts = edge.ledger.counts()
    assert counts["received"] == counts["sent"] + counts["held"] + counts["omitted"] + counts["malformed"]


@given(streams(keys=2), JUNK, st.randoms(use_true_random=False), CUTS)
def test_any_cut_of_the_input_gives_the_same_bytes(
    stream: Stream, junk: list[bytes], random: Random, cuts: list[int]
) -> None:
    lines = _json_of(stream)
    for line in junk:
        lines.insert(random.randint(0, len(lines)), line)
    data, settings = b"\n".join(lines), _settings_of(stream)
    whole, cut = Filter(settings), Filter(settings)
    expected = _run(whole, [data])
    assert _run(cut, _pieces(data, cuts)) == expected
    assert cut.ledger.counts() == whole.ledger.counts()
    # What goes out are lines that came in, each at most as often; malformed ones all.
    assert all(expected.splitlines().count(line) <= lines.count(line) for line in expected.splitlines())
    assert whole.ledger.malformed == sum(line in junk for line in lines) - (bool(lines) and lines[-1] == b"")


@given(streams(keys=2), CUTS, st.integers(0, 400))
def test_state_saved_and_taken_up_at_any_point_changes_nothing(stream: Stream, cuts: list[int], at: int) -> None:
    data, settings = b"\n".join(_json_of(stream)), _settings_of(stream)
    expected = _run(Filter(settings), [data])
    before, after = Filter(settings), Filter(settings)
    out = b""
    for piece in _pieces(data[:at], cuts):
        due = before.take(piece)
        _count_as_sent(before, due)
        out += b"".join(one.line for one in due)
    assert state.load(state.dump(before, [], {"at": 3}), after, 0.0) == ([], {"at": 3})
    assert after.ledger.counts() == before.ledger.counts()
    assert out + _run(after, [data[at:]]) == expected


def test_what_waits_for_the_output_is_in_the_state_in_its_order() -> None:
    edge, again = Filter(_settings()), Filter(_settings())
    edge.ledger.lines |= {5: b"five\n", -1: b"\xff\n", 2: b"two\n"}
    edge.ledger.begun.append((1, b"one\n"))
    queue, _ = state.load(state.dump(edge, [5, -1, 2], {}), again, 0.0)
    assert queue == [1, 5, -1, 2]
    assert b"".join(again.ledger.lines[number] for number in queue) == b"one\nfive\n\xff\ntwo\n"
    assert again.ledger.held == edge.ledger.held == 3


def test_keys_of_any_type_are_the_same_after_a_restart() -> None:
    settings = _settings(keys=("k", "l"))
    keys = [(1, "a"), ("1", "a"), (True, "a"), (1.0, "a"), ("1", 2)]
    data = b"".join(json.dumps({"k": k, "l": other, "t": 1, "v": 1}).encode() + b"\n" for k, other in keys)
    edge, again = Filter(settings), Filter(settings)
    edge.take(data)
    state.load(state.dump(edge, [], {}), again, 0.0)
    assert len(edge.reducer.tracks) == 5
    assert list(again.reducer.tracks) == list(edge.reducer.tracks)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"something else", "state page must begin with Tocsin's mark"),
        (pack({}, kind="page"), "the state must be that of an edge"),
        (pack({}, kind="edge", version=2), "the state must be of version 1 or older; it has version 2"),
        (state.dump(Filter(_settings()), [], {})[:-1] + b"\0", "state page must be whole"),
        (
            state.dump(Filter(_settings(interval_us=5, hold_us=0)), [], {}),
            "the state must be of the same settings; `interval_us` was 5 and is now 10000000",
        ),
        (state.dump(Filter(_settings(keys=())), [], {}), "`keys` was \\[\\] and is now \\['k'\\]"),
    ],
)
def test_state_that_cannot_be_taken_up_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(RunError, match=message):
        state.load(data, Filter(_settings()), 0.0)


def test_state_of_another_hold_is_taken_up() -> None:
    edge = Filter(_settings(hold_us=0))
    state.load(state.dump(Filter(_settings()), [], {}), edge, 0.0)


def test_malformed_lines_go_where_they_are_told_to_and_are_counted() -> None:
    data = b'{"k": 1, "t": 1, "v": 1}\nnonsense\n\xff\n' + b"x" * 100 + b"\n"
    aside: list[bytes] = []
    passing, setting_aside = Filter(_settings(max_line=50)), Filter(_settings(max_line=50), aside.append)
    assert _run(passing, [data[:60], data[60:]]) == data[25:] + data[:25]
    assert _run(setting_aside, [data[:60], data[60:]]) == data[:25]
    assert b"".join(aside) == data[25:]
    for edge in (passing, setting_aside):
        assert edge.ledger.why == {"not JSON": 1, "not UTF-8": 1, "line too long": 1}


def test_the_header_of_csv_goes_out_once_and_rows_as_they_came() -> None:
    header, first, second = b'"k",t,v,note\r\n', b'a,1,5,"x, ""y"""\r\n', b"a,2,1,\r\n"
    edge = Filter(_settings(format="csv", hold_us=0))
    assert _run(edge, [header + first + header + second]) == header + first + second
    assert edge.ledger.received == 2
    again = Filter(_settings(format="csv", hold_us=0))
    state.load(state.dump(edge, [], {}), again, 0.0)
    third = b"a,3,2,\r\n"
    assert _run(again, [header + third]) == third


def test_csv_without_a_header_has_its_columns_told() -> None:
    edge = Filter(_settings(format="csv", columns=("t", "k", "v"), shapes=("increasing",)))
    assert _run(edge, [b"1,a,3\n2,a,1\n3,a,2\n4,a,4\n"]) == b"1,a,3\n4,a,4\n"


def test_a_value_outside_its_domain_is_sent_at_once_and_excuses_no_other() -> None:
    rows = [(0, 9999), (1, 20), (2, 21), (3, 9999), (4, 5), (5, 22)]
    data = b"".join(b'{"k": "a", "t": %d, "v": %d}\n' % row for row in rows)
    plain = Filter(_settings(shapes=("increasing",)))
    bounded = Filter(_settings(shapes=("increasing",), domains=((-40.0, 60.0),)))
    assert [json.loads(line)["t"] for line in _run(plain, [data]).splitlines()] == [0, 3, 5]
    # The glitches leave first; of the others the first and the last are the extremes of windows.
    assert [json.loads(line)["t"] for line in _run(bounded, [data]).splitlines()] == [0, 3, 1, 2, 5]
    assert bounded.ledger.out_of_domain == 2


def test_a_row_goes_only_when_every_watched_value_lets_it_go() -> None:
    rows = [(0, 5, 5), (1, 3, 3), (2, 3, 9), (3, 5, 5)]
    data = b"".join(b'{"k": "a", "t": %d, "v": %d, "w": %d}\n' % row for row in rows)
    one = Filter(_settings(shapes=("increasing",)))
    both = Filter(_settings(values=("v", "w"), shapes=("increasing", "increasing")))
    falling = Filter(_settings(values=("v", "w"), shapes=("increasing", "decreasing")))
    assert [json.loads(line)["t"] for line in _run(one, [data]).splitlines()] == [0, 3]
    assert [json.loads(line)["t"] for line in _run(both, [data]).splitlines()] == [0, 2, 3]
    assert [json.loads(line)["t"] for line in _run(falling, [data]).splitlines()] == [0, 1, 3]
