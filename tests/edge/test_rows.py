"""What is read from lines: times, values, keys, and which lines are malformed."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin import RuleError
from tocsin.edge.csvlines import Csv
from tocsin.edge.jsonlines import JsonLines
from tocsin.edge.lines import Lines
from tocsin.edge.rows import Format
from tocsin.edge.settings import Settings
from tocsin.edge.times import reader


def _settings(**given: Any) -> Settings:
    plain = {"time": "ts", "values": ("temp",), "keys": ("machine",), "interval_us": 10, "hold_us": 10}
    return Settings(**(plain | given))


def _csv(**given: Any) -> Csv:
    return Csv(_settings(format="csv", columns=("machine", "ts", "temp"), **given))


@pytest.mark.parametrize(
    ("unit", "time", "expected"),
    [
        ("s", 3, 3_000_000),
        ("s", 0.1, 100_000),
        ("s", 1_700_000_000.123456, 1_700_000_000_123_456),
        ("s", "1700000000.123456", 1_700_000_000_123_456),
        ("ms", 1_700_000_000_123, 1_700_000_000_123_000),
        ("ms", -1.5, -1_500),
        ("us", 17, 17),
        ("ns", 1_999, 1),
        ("ns", -1, -1),
        ("ns", 1_700_000_000_123_456_789, 1_700_000_000_123_456),
        ("s", "1970-01-01T00:00:01Z", 1_000_000),
        ("s", "1970-01-01 00:00:01", 1_000_000),
        ("s", "1970-01-01T01:00:00+01:00", 0),
        ("ms", "1970-01-01T00:00:00.0000019Z", 1),
        ("s", "19700101T000001Z", 1_000_000),
        ("s", " 1e-3 ", 1_000),
    ],
)
def test_a_time_is_whole_microseconds(unit: str, time: Any, expected: int) -> None:
    assert reader(unit)(time) == expected


@pytest.mark.parametrize("time", [None, True, [], float("nan"), float("inf"), 1e300, 10**30, "", "noon", "1_000", "١٢"])
def test_what_is_no_time_is_refused(time: Any) -> None:
    with pytest.raises((ValueError, OverflowError)):
        reader("s")(time)


@given(st.datetimes())
def test_iso_times_are_exact(time: datetime) -> None:
    expected = (time.replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    assert reader("s")(time.isoformat()) == expected


GOOD_JSON = [
    b'{"machine": "a", "ts": 1, "temp": 2.5}\n',
    b'  {"machine": "a", "ts": 1, "temp": 2, "more": {"x": [1, 2]}}  \r\n',
    b'{"machine": 1, "ts": 1.5, "temp": -3}\n',
    '{"machine": "Größe", "ts": "1970-01-01T00:00:01Z", "temp": 1e3}\n'.encode(),
    b'{"machine": true, "ts": 1, "temp": 2}\n',
]
NO_TIME = "`ts` is not a time: a number, or ISO 8601 such as 2015-02-02T14:19:59Z"
BAD_JSON = {
    b"\n": "not JSON",
    b"nonsense\n": "not JSON",
    b'{"machine": "a", "ts": 1, "temp": 2\n': "not JSON",
    b'{"machine": "a", "ts": 1, "temp": 2} {"machine": "a", "ts": 1, "temp": 2}\n': "not JSON",
    b"[" * 100_000 + b"\n": "not JSON",
    b"[1, 2]\n": "`ts` is missing",
    b"17\n": "`ts` is missing",
    b'"ts"\n': "`ts` is missing",
    b'{"machine": "a", "ts": 1}\n': "`temp` is missing",
    b'{"ts": 1, "temp": 1}\n': "`machine` is missing",
    b'{"machine": "a", "ts": 1, "temp": "hot"}\n': "`temp` is no finite number",
    b'{"machine": "a", "ts": 1, "temp": true}\n': "`temp` is no finite number",
    b'{"machine": "a", "ts": 1, "temp": null}\n': "`temp` is no finite number",
    b'{"machine": "a", "ts": 1, "temp": NaN}\n': "`temp` is no finite number",
    b'{"machine": "a", "ts": 1, "temp": -Infinity}\n': "`temp` is no finite number",
    b'{"machine": "a", "ts": 1, "temp": ' + b"9" * 400 + b"}\n": "`temp` is no finite number",
    b'{"machine": "a", "ts": "noon", "temp": 1}\n': NO_TIME,
    b'{"machine": "a", "ts": null, "temp": 1}\n': NO_TIME,
    b'{"machine": null, "ts": 1, "temp": 1}\n': "key is no text or number",
    b'{"machine": ["a"], "ts": 1, "temp": 1}\n': "key is no text or number",
    b'{"machine": "\xff", "ts": 1, "temp": 1}\n': "not UTF-8",
    b'{"machine": "' + b"a" * 200_000 + b'", "ts": 1, "temp": 1}\n': "line too long",
}
GOOD_CSV = [b"a,1.0,2.5\n", b'"a",1.5,"2"\r\n', b'"a, ""b""",2015-02-02 14:19:00, 2\n', b"a,1,1e3\n", b",1,0\n"]
BAD_CSV = {
    b"\n": "wrong number of fields",
    b"a,1\n": "wrong number of fields",
    b"a,1,2,3\n": "wrong number of fields",
    b'"a,1,2\n': "quotes do not match",
    b'"a"b,1,2\n': "quotes do not match",
    b"a,1,hot\n": "`temp` is no finite number",
    b"a,1,\n": "`temp` is no finite number",
    b"a,1,nan\n": "`temp` is no finite number",
    b"a,1,1_000\n": "`temp` is no finite number",
    "a,1,٣\n".encode(): "`temp` is no finite number",
    b"a,noon,1\n": NO_TIME,
    b"a,,1\n": NO_TIME,
    b"\xff,1,1\n": "not UTF-8",
}


@pytest.mark.parametrize(("line", "reason"), BAD_JSON.items(), ids=lambda x: repr(x)[:40])
def test_a_line_that_is_no_row_is_told_from_the_others_in_json(line: bytes, reason: str) -> None:
    _check_one_bad(JsonLines(_settings(max_line=150_000)), line, reason, GOOD_JSON)


@pytest.mark.parametrize(("line", "reason"), BAD_CSV.items(), ids=lambda x: repr(x)[:40])
def test_a_line_that_is_no_row_is_told_from_the_others_in_csv(line: bytes, reason: str) -> None:
    _check_one_bad(_csv(), line, reason, GOOD_CSV)


def _check_one_bad(form: Format, line: bytes, reason: str, good: list[bytes]) -> None:
    read = form.read([*good[:2], line, *good[2:]])
    alone = form.read(good)
    assert read.malformed == [(2, reason)]
    assert read.places == [0, 1, 3, 4, 5]
    assert (read.t, read.values, read.keys) == (alone.t, alone.values, alone.keys)
    assert alone.malformed == []


@given(st.lists(st.sampled_from([*GOOD_JSON, *(line for line in BAD_JSON if len(line) < 1000)]), max_size=8))
def test_lines_of_json_are_read_alike_one_by_one_and_together(lines: list[bytes]) -> None:
    form = JsonLines(_settings())
    assert form.read(lines) == form._each(lines)


TIMES = ["1.5", "-1.5", "17", "1e3", "1.5e-3", " 2.5 ", "2015-02-02 14:19:00", "2015-02-02T14:19:00.5Z", "1_0.5", "nan"]


@given(st.lists(st.sampled_from(TIMES), max_size=4), st.sampled_from(["s", "ms", "us", "ns"]))
def test_times_of_csv_are_read_alike_one_by_one_and_together(times: list[str], unit: str) -> None:
    form, lines = _csv(time_unit=unit), [f"a,{time},1\n".encode() for time in times]
    assert form.read(lines) == form._each(lines)


@given(st.lists(st.sampled_from([*GOOD_CSV, *BAD_CSV]), max_size=8))
def test_lines_of_csv_are_read_alike_one_by_one_and_together(lines: list[bytes]) -> None:
    form = _csv()
    assert form.read(lines) == form._each(lines)


@given(
    st.lists(
        st.tuples(
            st.one_of(st.text(max_size=3), st.integers(-2, 2), st.booleans(), st.none(), st.just(1.0)),
            st.one_of(st.integers(-(10**20), 10**20), st.floats(), st.just("2020-01-01T00:00:00Z"), st.none()),
            st.one_of(st.floats(), st.integers(), st.booleans(), st.text(max_size=2)),
        ),
        max_size=5,
    ),
    st.sampled_from(["s", "ms", "us", "ns"]),
)
def test_any_json_is_read_alike_one_by_one_and_together(rows: list[tuple[Any, ...]], unit: str) -> None:
    lines = [json.dumps(dict(zip(("machine", "ts", "temp"), row, strict=True))).encode() + b"\n" for row in rows]
    form = JsonLines(_settings(time_unit=unit))
    together, each = form.read(lines), form._each(lines)
    assert together == each
    assert len(together.places) + len(together.malformed) == len(lines)


def test_keys_that_differ_in_type_alone_are_different_streams() -> None:
    lines = [json.dumps({"machine": key, "ts": 1, "temp": 1}).encode() + b"\n" for key in ("1", 1, 1.0, True)]
    assert len(set(JsonLines(_settings()).read(lines).keys)) == 4


def test_a_field_inside_an_object_is_named_by_a_path() -> None:
    settings = _settings(time="head.at", values=("body.temp", "body.x.y"), keys=("head.id", "a.b"))
    line = b'{"head": {"at": 5, "id": "m"}, "body": {"temp": 1, "x": {"y": 2}}, "a.b": "plain"}\n'
    read = JsonLines(settings).read([line])
    assert read[:3] == ([("m", "plain")], [5_000_000], [[1.0], [2.0]])


def test_the_columns_of_csv_come_from_the_header_wherever_they_stand() -> None:
    form = Csv(_settings(format="csv", delimiter="\t"))
    assert form.needs_header
    form.take_header(b'\xef\xbb\xbf"temp"\tother\tts\tmachine\r\n')
    assert form.read([b"1.5\t\t2\ta\r\n"])[:3] == (["a"], [2_000_000], [[1.5]])


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (b"machine,ts\n", "line 1: the header must have the column `temp`; it has machine, ts"),
        (b"machine,ts,temp,temp\n", "line 1: the header must have the column `temp` once"),
        (b"\xff\n", "line 1: the header must be one line of CSV in UTF-8"),
        (b'"machine,ts\n', "line 1: the header must be one line of CSV in UTF-8"),
    ],
)
def test_a_header_that_cannot_serve_is_refused(header: bytes, message: str) -> None:
    with pytest.raises(RuleError, match=message):
        Csv(_settings(format="csv")).take_header(header)


@given(st.lists(st.sampled_from([b"a", b"bc\r", b"\r", b"", b"x" * 12]), max_size=8), st.lists(st.integers(0, 40)))
def test_bytes_come_out_of_lines_as_they_went_in(parts: list[bytes], cuts: list[int]) -> None:
    data, lines, out = b"\n".join(parts), Lines(max_line=8), []
    ends = sorted(min(cut, len(data)) for cut in cuts)
    for start, stop in zip([0, *ends], [*ends, len(data)], strict=True):
        tail, whole, head = lines.take(data[start:stop])
        assert all(line.endswith(b"\n") and line.count(b"\n") == 1 for line in whole)
        assert len(lines.rest) <= 8
        out += [tail, *whole, head]
    tail, whole, _ = lines.end()
    out += [tail, *whole]
    assert b"".join(out) == (data if data.endswith(b"\n") or not data else data + b"\n")
