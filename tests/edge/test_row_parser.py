"""Row parsing: times, values, keys, and malformed lines."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin import RuleError
from tocsin.edge.csv_reader import CsvReader
from tocsin.edge.json_reader import JsonReader
from tocsin.edge.line_splitter import LineSplitter
from tocsin.edge.row_parser import RowParser
from tocsin.edge.settings import Settings
from tocsin.times import build_time_parser


def _settings(**options: Any) -> Settings:
    plain = {"time": "ts", "values": ("temp",), "keys": ("machine",), "interval_us": 10, "max_delay_us": 10}
    return Settings(**(plain | options))


def _csv(**options: Any) -> CsvReader:
    return CsvReader(_settings(format="csv", columns=("machine", "ts", "temp"), **options))


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
def test_time_is_parsed_to_integer_microseconds(unit: str, time: Any, expected: int) -> None:
    assert build_time_parser(unit)(time) == expected


@pytest.mark.parametrize("time", [None, True, [], float("nan"), float("inf"), 1e300, 10**30, "", "noon", "1_000", "١٢"])
def test_time_is_rejected_when_it_is_not_a_number_or_iso_8601(time: Any) -> None:
    with pytest.raises((ValueError, OverflowError)):
        build_time_parser("s")(time)


@given(st.datetimes())
def test_iso_time_is_exact_for_any_datetime(time: datetime) -> None:
    expected = (time.replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    assert build_time_parser("s")(time.isoformat()) == expected


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
    b'{"machine": "a", "ts": 1, "temp": "hot"}\n': "`temp` is not a finite number",
    b'{"machine": "a", "ts": 1, "temp": true}\n': "`temp` is not a finite number",
    b'{"machine": "a", "ts": 1, "temp": null}\n': "`temp` is not a finite number",
    b'{"machine": "a", "ts": 1, "temp": NaN}\n': "`temp` is not a finite number",
    b'{"machine": "a", "ts": 1, "temp": -Infinity}\n': "`temp` is not a finite number",
    b'{"machine": "a", "ts": 1, "temp": ' + b"9" * 400 + b"}\n": "`temp` is not a finite number",
    b'{"machine": "a", "ts": "noon", "temp": 1}\n': NO_TIME,
    b'{"machine": "a", "ts": null, "temp": 1}\n': NO_TIME,
    b'{"machine": null, "ts": 1, "temp": 1}\n': "key is not a text or a number",
    b'{"machine": ["a"], "ts": 1, "temp": 1}\n': "key is not a text or a number",
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
    b"a,1,hot\n": "`temp` is not a finite number",
    b"a,1,\n": "`temp` is not a finite number",
    b"a,1,nan\n": "`temp` is not a finite number",
    b"a,1,1_000\n": "`temp` is not a finite number",
    "a,1,٣\n".encode(): "`temp` is not a finite number",
    b"a,noon,1\n": NO_TIME,
    b"a,,1\n": NO_TIME,
    b"\xff,1,1\n": "not UTF-8",
}


@pytest.mark.parametrize(("line", "reason"), BAD_JSON.items(), ids=lambda x: repr(x)[:40])
def test_json_line_is_malformed_without_effect_on_other_rows_when_it_is_not_a_row(line: bytes, reason: str) -> None:
    _check_one_malformed(JsonReader(_settings(max_line=150_000)), line, reason, GOOD_JSON)


@pytest.mark.parametrize(("line", "reason"), BAD_CSV.items(), ids=lambda x: repr(x)[:40])
def test_csv_line_is_malformed_without_effect_on_other_rows_when_it_is_not_a_row(line: bytes, reason: str) -> None:
    _check_one_malformed(_csv(), line, reason, GOOD_CSV)


def _check_one_malformed(parser: RowParser, line: bytes, reason: str, good: list[bytes]) -> None:
    parsed = parser.parse([*good[:2], line, *good[2:]])
    alone = parser.parse(good)
    assert parsed.malformed == [(2, reason)]
    assert parsed.line_indexes == [0, 1, 3, 4, 5]
    assert (parsed.t, parsed.values, parsed.keys) == (alone.t, alone.values, alone.keys)
    assert alone.malformed == []


@given(st.lists(st.sampled_from([*GOOD_JSON, *(line for line in BAD_JSON if len(line) < 1000)]), max_size=8))
def test_fast_path_equals_slow_path_for_lines_of_json(lines: list[bytes]) -> None:
    parser = JsonReader(_settings())
    assert parser.parse(lines) == parser._parse_each(lines)


TIMES = ["1.5", "-1.5", "17", "1e3", "1.5e-3", " 2.5 ", "2015-02-02 14:19:00", "2015-02-02T14:19:00.5Z", "1_0.5", "nan"]


@given(st.lists(st.sampled_from(TIMES), max_size=4), st.sampled_from(["s", "ms", "us", "ns"]))
def test_fast_path_equals_slow_path_for_times_of_csv(times: list[str], unit: str) -> None:
    parser, lines = _csv(time_unit=unit), [f"a,{time},1\n".encode() for time in times]
    assert parser.parse(lines) == parser._parse_each(lines)


@given(st.lists(st.sampled_from([*GOOD_CSV, *BAD_CSV]), max_size=8))
def test_fast_path_equals_slow_path_for_lines_of_csv(lines: list[bytes]) -> None:
    parser = _csv()
    assert parser.parse(lines) == parser._parse_each(lines)


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
def test_fast_path_equals_slow_path_for_any_json_values(rows: list[tuple[Any, ...]], unit: str) -> None:
    lines = [json.dumps(dict(zip(("machine", "ts", "temp"), row, strict=True))).encode() + b"\n" for row in rows]
    parser = JsonReader(_settings(time_unit=unit))
    fast, slow = parser.parse(lines), parser._parse_each(lines)
    assert fast == slow
    assert len(fast.line_indexes) + len(fast.malformed) == len(lines)


def test_keys_differ_when_their_types_differ() -> None:
    lines = [json.dumps({"machine": key, "ts": 1, "temp": 1}).encode() + b"\n" for key in ("1", 1, 1.0, True)]
    assert len(set(JsonReader(_settings()).parse(lines).keys)) == 4


def test_nested_field_is_read_when_a_path_names_it() -> None:
    settings = _settings(time="head.at", values=("body.temp", "body.x.y"), keys=("head.id", "a.b"))
    line = b'{"head": {"at": 5, "id": "m"}, "body": {"temp": 1, "x": {"y": 2}}, "a.b": "plain"}\n'
    rows = JsonReader(settings).parse([line])
    assert rows[:3] == ([("m", "plain")], [5_000_000], [[1.0], [2.0]])


def test_csv_columns_are_found_by_the_header_in_any_order() -> None:
    parser = CsvReader(_settings(format="csv", delimiter="\t"))
    assert parser.needs_header
    parser.read_header(b'\xef\xbb\xbf"temp"\tother\tts\tmachine\r\n')
    assert parser.parse([b"1.5\t\t2\ta\r\n"])[:3] == (["a"], [2_000_000], [[1.5]])


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (b"machine,ts\n", "line 1: the header must have the column `temp`; it has machine, ts"),
        (b"machine,ts,temp,temp\n", "line 1: the header must have the column `temp` once"),
        (b"\xff\n", "line 1: the header must be one line of CSV in UTF-8"),
        (b'"machine,ts\n', "line 1: the header must be one line of CSV in UTF-8"),
    ],
)
def test_csv_header_is_rejected_when_a_field_is_missing_or_repeated(header: bytes, message: str) -> None:
    with pytest.raises(RuleError, match=message):
        CsvReader(_settings(format="csv")).read_header(header)


@given(st.lists(st.sampled_from([b"a", b"bc\r", b"\r", b"", b"x" * 12]), max_size=8), st.lists(st.integers(0, 40)))
def test_line_splitter_returns_the_input_bytes_for_any_boundaries(parts: list[bytes], boundaries: list[int]) -> None:
    data, splitter, out = b"\n".join(parts), LineSplitter(max_line=8), []
    ends = sorted(min(end, len(data)) for end in boundaries)
    for start, stop in zip([0, *ends], [*ends, len(data)], strict=True):
        tail, lines, head = splitter.split(data[start:stop])
        assert all(line.endswith(b"\n") and line.count(b"\n") == 1 for line in lines)
        assert len(splitter.rest) <= 8
        out += [tail, *lines, head]
    tail, lines, _ = splitter.end()
    out += [tail, *lines]
    assert b"".join(out) == (data if data.endswith(b"\n") or not data else data + b"\n")
