"""Fuzzed input: seeded rows that no sane device sends, and an oracle that says which of them can be used.

The oracle reads bytes with Python's own parsers and the definition on docs/how-to/read-sources.md; it shares nothing
with the engine. Per line it gives None (no row), DEAD, or what a usable row holds: (key, microseconds, values).
"""

from __future__ import annotations

import json
import math
import random
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from fractions import Fraction
from typing import Any

VALUES = ("temp", "hum")
DEAD = "dead"
NONE = object()
FIRST_US, LAST_US = -62_135_596_800_000_000, 253_402_300_799_999_999
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Row = Any  # None, DEAD or (key, micros, (value, ...))

KEYS = [
    '"m1"',
    '"m2"',
    '"m3"',
    '"m1"',
    "5",
    "true",
    "null",
    "",
    '""',
    '"ü\\u00e9\\n"',
    '"' + "k" * 3000 + '"',
    "1.5",
    "[1]",
]
TIMES = [
    "1767225600000000", "1767225600000001", '"2026-01-01T00:00:00Z"', '"2026-01-01 00:00:00.25+02:00"', '"2026-01-01"',
    '"2026-01-01T10:11:12"', "0", "4102444800000000", '"1970-01-01T00:00:00Z"', '"2100-01-01T00:00:00Z"', "-1",
    "-62135596800000001", "253402300800000000", "1e30", "-1e300", "1e400", "1.9", '"1.9e3"', '"1e-999999999"', '"soon"',
    '"12:30"', '"T12:30"', '"2026-02-30"', '"2026-01-01T24:30:00Z"', '""', '" "', "null", "", "true", "[1]", "{}",
    '"' + "9" * 500 + '"', "1" * 60, '"0x10"', '"2026"', '"1767225600000000 "', '"١٢"',
]  # fmt: skip
NUMBERS = [
    "1.5", "-3", "0", "-0.0", "7e2", "5e-324", "1e308", "1e309", "-1e309", "1" * 25, '"2.5"', '" 7 "', '"+.5e1"',
    '"3."', '"NaN"', "NaN", "Infinity", "-Infinity", '"inf"', '"1e999"', '"abc"', '""', '"1d"', '"1f"', '"0x1p3"',
    '"1_0"', "true", "[1]", '{"a":1}', "null", "", '"' + "1" * 2000 + '"', '"' + "1" * 2000 + 'x"', '"٣"', '"1,5"',
]  # fmt: skip
GARBAGE = [
    b"nonsense", b"{", b"}", b"[]", b"null", b"1", b'"x"', b"{]", b'{"machine"', b"\xff\xfe\x00", b"\x00", b"\xc3(",
    b"\t", b'[{"machine":"m1","ts":1,"temp":1}]', b"\xed\xa0\x80", b'{"machine":"m1","ts":1,"temp":1', b"{machine:1}",
    b'{"machine":"m1",,"ts":1}', b'{"machine":"a\x01b","ts":1,"temp":1}', b"<xml/>", b"a,b,c",
    b'{"machine":01,"ts":1,"temp":1}',
]  # fmt: skip


def json_lines(rows: int, seed: int) -> Iterator[bytes]:
    """Make lines that are meant to be JSON objects; some are empty, none has a line break inside."""
    draw = random.Random(seed)
    for _ in range(rows):
        yield _json_line(draw)


def _json_line(draw: random.Random) -> bytes:
    kind = draw.random()
    if kind < 0.04:
        return draw.choice(GARBAGE)
    if kind < 0.05:
        return draw.choice([b"", b"   "])
    fields = [("machine", draw.choice(KEYS[:6] if draw.random() < 0.8 else KEYS))]
    fields.append(("ts", draw.choice(TIMES[:10] if draw.random() < 0.7 else TIMES)))
    fields += [(name, draw.choice(NUMBERS[:8] if draw.random() < 0.6 else NUMBERS)) for name in VALUES]
    if draw.random() < 0.1:
        fields.append((draw.choice(["machine", "ts", *VALUES]), draw.choice(["1", '"x"', "null", "[]"])))
    if draw.random() < 0.1:
        depth = draw.choice([1, 10, 100, 100, 3000])
        fields.append(("deep", "[" * depth + "]" * depth))
    if draw.random() < 0.05:
        fields.append(("note", json.dumps("n" * draw.choice([10, 1000, 50_000]) + "😀", ensure_ascii=False)))
    if draw.random() < 0.3:
        draw.shuffle(fields)
    line = "{" + ",".join(f'"{name}":{text}' for name, text in fields if text) + "}"
    return _bent(draw, line.encode())


def _bent(draw: random.Random, line: bytes) -> bytes:
    """Now and then cut a line, spoil a byte, or put something around it."""
    kind = draw.random()
    if kind < 0.02:
        return line[: draw.randrange(len(line))]
    if kind < 0.04:
        place = draw.randrange(len(line))
        return line[:place] + draw.choice([b"\xff", b"\xc0\xaf", b"\x80", b"\xf5"]) + line[place:]
    if kind < 0.05:
        return b"  " + line + b" \t"
    if kind < 0.06:
        return b"\xef\xbb\xbf" + line
    if kind < 0.07:
        return line + draw.choice([b" garbage", b"}", line])
    return line


def of_json(line: bytes | None, *, blank_is_row: bool = False) -> Row:
    """What a line or message of JSON means."""
    if line is None or not line.strip(b" "):
        return DEAD if blank_is_row else None
    try:
        pairs = json.loads(line.decode("utf-8"), object_pairs_hook=_Pairs, parse_int=Fraction, parse_float=_number)
    except (ValueError, RecursionError):
        return DEAD
    return _row(pairs) if isinstance(pairs, _Pairs) and not _is_deep(line) else DEAD


class _Pairs(list):  # type: ignore[type-arg]
    def first(self, name: str) -> Any:
        return next((value for found, value in self if found == name), None)


def _number(text: str) -> Fraction | float:
    exponent = text.lower().partition("e")[2]
    return Fraction(text) if abs(int(exponent or 0)) < 400 else (0.0 if exponent.startswith("-") else math.inf)


def _is_deep(line: bytes) -> bool:
    """Whether brackets lie more than 1,000 deep, for lines whose texts have no brackets."""
    return line.count(b"[") + line.count(b"{") > 1_000


def _row(fields: _Pairs) -> Row:
    key, time = fields.first("machine"), _micros(fields.first("ts"))
    values = tuple(_value(fields.first(name)) for name in VALUES)
    if key is None or time is None or DEAD in values or all(value is None for value in values):
        return DEAD
    return _key(key), time, values


def _key(key: Any) -> Any:
    """The text of a key; NONE where the definition leaves the text to the format."""
    if isinstance(key, bool):
        return "true" if key else "false"
    if isinstance(key, str):
        return key
    return str(key) if isinstance(key, Fraction) and key.denominator == 1 else NONE


def _micros(time: Any) -> int | None:
    found: Any = None
    if isinstance(time, bool) or time is None:
        return None
    if isinstance(time, (Fraction, float)):
        found = time if math.isfinite(time) else None
    elif isinstance(time, str):
        text = time.strip(" ")
        if re.fullmatch(r"[+-]?([0-9]{1,30}(\.[0-9]{0,30})?|\.[0-9]{1,30})([eE][+-]?[0-9]{1,2})?", text):
            found = Fraction(text)
        else:
            return _iso(text)
    if found is None or not FIRST_US - 1 < found < LAST_US + 1:
        return None
    return math.floor(found) if FIRST_US <= math.floor(found) <= LAST_US else None


def _iso(text: str) -> int | None:
    shape = r"(\d{4})-(\d{2})-(\d{2})(?:[T ](\d{2}):(\d{2})(?::(\d{2})(?:\.(\d{1,9}))?)?(Z|[+-]\d{2}(?::?\d{2})?)?)?"
    found = re.fullmatch(shape, text, re.ASCII)
    if not found:
        return None
    year, month, day, hour, minute, second = (int(part or 0) for part in found.groups()[:6])
    zone = found[8] or "Z"
    ahead = timedelta() if zone == "Z" else timedelta(hours=int(zone[1:3]), minutes=int(zone[3:].lstrip(":") or 0))
    try:
        offset = timezone(-ahead if zone[0] == "-" else ahead)
        stamp = datetime(year, month, day, hour, minute, second, tzinfo=offset)
    except ValueError:
        return None
    return (stamp - EPOCH) // timedelta(microseconds=1) + int(f"{found[7] or 0:0<6}"[:6])


def _value(value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (Fraction, float, str)):
        return DEAD
    if isinstance(value, str):
        if not re.fullmatch(r"\s*[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?\s*", value, re.ASCII):
            return DEAD
        value = float(value)
    try:
        number = float(value)
    except OverflowError:
        return DEAD
    return number if math.isfinite(number) else DEAD


def csv_lines(rows: int, seed: int) -> Iterator[tuple[bytes, Row]]:
    """Make lines of CSV, each with what it means; `HEADER` is the header of all."""
    draw = random.Random(seed)
    for _ in range(rows):
        yield _csv_line(draw)


HEADER = "machine,ts,temp,note,hum"


def _csv_line(draw: random.Random) -> tuple[bytes, Row]:
    kind = draw.random()
    if kind < 0.02:
        return draw.choice([(b"", None), (b"  ", None), (HEADER.encode(), None), (b"nonsense", DEAD), (b",,,,", DEAD)])
    texts = [_plain(draw, KEYS[:6] + KEYS[6:10]), _plain(draw, TIMES), _plain(draw, NUMBERS)]
    texts += [draw.choice(["", "note", "a,b", "ü", "n" * 5_000]), _plain(draw, NUMBERS)]
    line = ",".join(f'"{text}"' if "," in text or draw.random() < 0.05 else text for text in texts).encode()
    fields = [text if text else None for text in texts]
    meant = _row(_Pairs(zip(("machine", "ts", "temp", "note", "hum"), fields, strict=True)))
    if not line.strip(b" "):
        return line, None
    if kind < 0.04:
        return line + b",more", DEAD
    if kind < 0.06:
        return b",".join(line.split(b",")[: draw.randint(1, 3)]).replace(b'"', b"") or b"x", DEAD
    if kind < 0.08:
        place = draw.randrange(len(line))
        return line[:place] + b"\xff" + line[place:], DEAD
    if kind < 0.0805:
        return b"m1,1,1" + b"," * draw.choice([30, 30_000]), DEAD
    return line, meant


def _plain(draw: random.Random, texts: list[str]) -> str:
    """A token of JSON as a field of CSV has it."""
    text = draw.choice(texts[:6] if draw.random() < 0.7 else texts)
    if not text or text == "null":
        return ""
    value = json.loads(text) if text[0] == '"' else text
    return str(value).replace("\n", " ").replace('"', "'")
