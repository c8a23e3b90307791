"""Edge filter from bytes to bytes: batch boundaries, malformed lines, headers, and saved state."""

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
from tocsin.edge import state_file
from tocsin.edge.edge_filter import EdgeFilter
from tocsin.edge.settings import Settings
from tocsin.runtime.state_codec import pack

BOUNDARIES = st.lists(st.integers(0, 400), max_size=6).map(sorted)
MALFORMED = st.lists(st.sampled_from([b"", b"nonsense", b"\xff", b'{"t": 1}', b"x" * 90]), max_size=3)


def _settings(**options: Any) -> Settings:
    plain = {"time": "t", "values": ("v",), "keys": ("k",), "interval_us": 10_000_000, "max_delay_us": 10_000_000}
    return Settings(**(plain | options))


def _json_lines(stream: Stream) -> list[bytes]:
    """Return the rows of a stream as JSON."""
    lines = []
    for i, t in enumerate(stream.t):
        values = {f"v{index}": column[i] for index, column in enumerate(stream.values)}
        lines.append(json.dumps({"k": stream.keys[i] if stream.keys else "", "t": t, **values}).encode())
    return lines


def _settings_of(stream: Stream) -> Settings:
    return replace(stream.settings, keys=("k",), time_unit="us", max_line=80)


def _split(data: bytes, boundaries: list[int]) -> list[bytes]:
    ends = [min(end, len(data)) for end in boundaries]
    return [data[start:stop] for start, stop in zip([0, *ends], [*ends, len(data)], strict=True)]


def _run(edge: EdgeFilter, reads: list[bytes]) -> bytes:
    out = b""
    for read in reads:
        due = edge.process(read)
        _count_as_sent(edge, due)
        out += b"".join(one.line for one in due)
        _check_counts(edge)
    due = edge.end()
    _count_as_sent(edge, due)
    assert edge.buffer.held == 0
    _check_counts(edge)
    return out + b"".join(one.line for one in due)


def _count_as_sent(edge: EdgeFilter, due: list[Any]) -> None:
    edge.buffer.sent += sum(one.number >= 0 for one in due)


def _check_counts(edge: EdgeFilter) -> None:
    counts = edge.buffer.counts()
    assert counts["received"] == counts["sent"] + counts["held"] + counts["omitted"] + counts["malformed"]


@given(streams(keys=2), MALFORMED, st.randoms(use_true_random=False), BOUNDARIES)
def test_output_is_independent_of_the_boundaries_of_reads(
    stream: Stream, malformed: list[bytes], random: Random, boundaries: list[int]
) -> None:
    lines = _json_lines(stream)
    for line in malformed:
        lines.insert(random.randint(0, len(lines)), line)
    data, settings = b"\n".join(lines), _settings_of(stream)
    once, divided = EdgeFilter(settings), EdgeFilter(settings)
    expected = _run(once, [data])
    assert _run(divided, _split(data, boundaries)) == expected
    assert divided.buffer.counts() == once.buffer.counts()
    # Each line of the output is a line of the input, and appears at most as often. All malformed lines are sent.
    assert all(expected.splitlines().count(line) <= lines.count(line) for line in expected.splitlines())
    assert once.buffer.malformed == sum(line in malformed for line in lines) - (bool(lines) and lines[-1] == b"")


@given(streams(keys=2), BOUNDARIES, st.integers(0, 400))
def test_output_is_unchanged_when_the_state_is_saved_and_restored(
    stream: Stream, boundaries: list[int], at: int
) -> None:
    data, settings = b"\n".join(_json_lines(stream)), _settings_of(stream)
    expected = _run(EdgeFilter(settings), [data])
    before, after = EdgeFilter(settings), EdgeFilter(settings)
    out = b""
    for read in _split(data[:at], boundaries):
        due = before.process(read)
        _count_as_sent(before, due)
        out += b"".join(one.line for one in due)
    assert state_file.restore_state(state_file.encode_state(before, [], {"at": 3}), after, 0.0) == ([], {"at": 3})
    assert after.buffer.counts() == before.buffer.counts()
    assert out + _run(after, [data[at:]]) == expected


def test_queued_lines_keep_their_order_when_the_state_is_restored() -> None:
    edge, again = EdgeFilter(_settings()), EdgeFilter(_settings())
    edge.buffer.lines |= {5: b"five\n", -1: b"\xff\n", 2: b"two\n"}
    edge.buffer.in_progress.append((1, b"one\n"))
    queue, _ = state_file.restore_state(state_file.encode_state(edge, [5, -1, 2], {}), again, 0.0)
    assert queue == [1, 5, -1, 2]
    assert b"".join(again.buffer.lines[number] for number in queue) == b"one\nfive\n\xff\ntwo\n"
    assert again.buffer.held == edge.buffer.held == 3


def test_keys_keep_their_types_when_the_state_is_restored() -> None:
    settings = _settings(keys=("k", "l"))
    keys = [(1, "a"), ("1", "a"), (True, "a"), (1.0, "a"), ("1", 2)]
    data = b"".join(json.dumps({"k": k, "l": other, "t": 1, "v": 1}).encode() + b"\n" for k, other in keys)
    edge, again = EdgeFilter(settings), EdgeFilter(settings)
    edge.process(data)
    state_file.restore_state(state_file.encode_state(edge, [], {}), again, 0.0)
    assert len(edge.reducer.key_reducers) == 5
    assert list(again.reducer.key_reducers) == list(edge.reducer.key_reducers)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"something else", "state page is damaged or was not written by Tocsin"),
        (pack({}, kind="page"), "the state file must be from `tocsin edge`"),
        (pack({}, kind="edge", version=2), "the state file must have version 1 or older; it has version 2"),
        (state_file.encode_state(EdgeFilter(_settings()), [], {})[:-1] + b"\0", "state page is damaged"),
        (
            state_file.encode_state(EdgeFilter(_settings(interval_us=5, max_delay_us=0)), [], {}),
            "the state file must have the settings of this run; `interval_us` was 5 and is now 10000000",
        ),
        (state_file.encode_state(EdgeFilter(_settings(keys=())), [], {}), "`keys` was \\[\\] and is now \\['k'\\]"),
    ],
)
def test_state_is_rejected_when_it_is_damaged_or_has_other_settings(data: bytes, message: str) -> None:
    with pytest.raises(RunError, match=message):
        state_file.restore_state(data, EdgeFilter(_settings()), 0.0)


def test_state_is_restored_when_the_maximum_delay_differs() -> None:
    edge = EdgeFilter(_settings(max_delay_us=0))
    state_file.restore_state(state_file.encode_state(EdgeFilter(_settings()), [], {}), edge, 0.0)


def test_malformed_lines_are_counted_when_they_are_sent_or_diverted() -> None:
    data = b'{"k": 1, "t": 1, "v": 1}\nnonsense\n\xff\n' + b"x" * 100 + b"\n"
    diverted: list[bytes] = []
    passing, diverting = EdgeFilter(_settings(max_line=50)), EdgeFilter(_settings(max_line=50), diverted.append)
    assert _run(passing, [data[:60], data[60:]]) == data[25:] + data[:25]
    assert _run(diverting, [data[:60], data[60:]]) == data[:25]
    assert b"".join(diverted) == data[25:]
    for edge in (passing, diverting):
        assert edge.buffer.reasons == {"not JSON": 1, "not UTF-8": 1, "line too long": 1}


def test_csv_header_is_sent_once_and_rows_are_unchanged() -> None:
    header, first, second = b'"k",t,v,note\r\n', b'a,1,5,"x, ""y"""\r\n', b"a,2,1,\r\n"
    edge = EdgeFilter(_settings(format="csv", max_delay_us=0))
    assert _run(edge, [header + first + header + second]) == header + first + second
    assert edge.buffer.received == 2
    again = EdgeFilter(_settings(format="csv", max_delay_us=0))
    state_file.restore_state(state_file.encode_state(edge, [], {}), again, 0.0)
    third = b"a,3,2,\r\n"
    assert _run(again, [header + third]) == third


def test_csv_rows_are_read_without_a_header_when_columns_are_configured() -> None:
    edge = EdgeFilter(_settings(format="csv", columns=("t", "k", "v"), shapes=("increasing",)))
    assert _run(edge, [b"1,a,3\n2,a,1\n3,a,2\n4,a,4\n"]) == b"1,a,3\n4,a,4\n"


def test_row_outside_its_domain_is_sent_at_once_and_covers_no_other_row() -> None:
    rows = [(0, 9999), (1, 20), (2, 21), (3, 9999), (4, 5), (5, 22)]
    data = b"".join(b'{"k": "a", "t": %d, "v": %d}\n' % row for row in rows)
    plain = EdgeFilter(_settings(shapes=("increasing",)))
    bounded = EdgeFilter(_settings(shapes=("increasing",), domains=((-40.0, 60.0),)))
    assert [json.loads(line)["t"] for line in _run(plain, [data]).splitlines()] == [0, 3, 5]
    # The rows outside the domain are due first. The first and the last of the other rows are extremes of windows.
    assert [json.loads(line)["t"] for line in _run(bounded, [data]).splitlines()] == [0, 3, 1, 2, 5]
    assert bounded.buffer.out_of_domain == 2


def test_row_is_omitted_only_when_all_its_values_are_covered() -> None:
    rows = [(0, 5, 5), (1, 3, 3), (2, 3, 9), (3, 5, 5)]
    data = b"".join(b'{"k": "a", "t": %d, "v": %d, "w": %d}\n' % row for row in rows)
    one = EdgeFilter(_settings(shapes=("increasing",)))
    both = EdgeFilter(_settings(values=("v", "w"), shapes=("increasing", "increasing")))
    falling = EdgeFilter(_settings(values=("v", "w"), shapes=("increasing", "decreasing")))
    assert [json.loads(line)["t"] for line in _run(one, [data]).splitlines()] == [0, 3]
    assert [json.loads(line)["t"] for line in _run(both, [data]).splitlines()] == [0, 2, 3]
    assert [json.loads(line)["t"] for line in _run(falling, [data]).splitlines()] == [0, 1, 3]
