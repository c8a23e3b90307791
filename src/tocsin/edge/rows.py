"""Rows: what is read from lines, and which lines are malformed.

Idea. `one` is the definition: it reads one line or says why it cannot. `many` reads all lines of a piece column by
column, with a few calls per line, and gives up if anything is unusual; then each line is read by `one`.

*Guarantee*: the same rows either way. A malformed line stops nothing and spoils no other.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from math import isfinite, nan
from typing import Any, NamedTuple

from tocsin.edge.settings import Settings
from tocsin.edge.times import LIMIT_US, SCALE, iso, reader


class MalformedError(ValueError):
    """A line that is no row; its text is the reason, short and without values, so that it can be counted."""


class Unusual(Exception):
    """Something that reading column by column does not know; no error, the lines are read one by one."""


class Read(NamedTuple):
    """Rows in columns, the place of each among the lines, and the malformed lines with their reasons."""

    keys: list[Hashable]
    t: list[int]
    values: list[list[float]]
    places: list[int]
    malformed: list[tuple[int, str]]


class Format(ABC):
    """A way to read lines."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.time = reader(settings.time_unit)

    def read(self, lines: list[bytes]) -> Read:
        """Read lines that end with a line feed, or the last one without."""
        try:
            if max(map(len, lines), default=0) > self.settings.max_line:
                raise Unusual
            texts = b"".join(lines).decode().split("\n")
            return self._columns(self.many(texts[: len(lines)]), len(lines))
        except (Unusual, ValueError, TypeError, LookupError, OverflowError, RecursionError):
            return self._each(lines)

    @abstractmethod
    def many(self, texts: list[str]) -> list[tuple[Any, ...]]:
        """Give the fields of each line: time, values, keys. Raise if anything is unusual."""

    @abstractmethod
    def one(self, text: str) -> tuple[Any, ...]:
        """Give the same of one line, or raise MalformedError."""

    def number(self, found: Any) -> float:
        """Read a value, or raise ValueError."""
        if type(found) is not float and type(found) is not int:
            message = f"a value must be a number; got {type(found).__name__}"
            raise ValueError(message)
        return float(found)

    def numbers(self, column: Sequence[Any]) -> list[float]:
        """Read a column of values, or raise."""
        if not set(map(type, column)) <= {float, int}:
            raise Unusual
        return list(map(float, column))

    def _columns(self, rows: list[tuple[Any, ...]], count: int) -> Read:
        time, *rest = zip(*rows, strict=True) if rows else [()] * (1 + len(self.settings.values))
        values = [self.numbers(column) for column in rest[: len(self.settings.values)]]
        if not all(all(map(isfinite, column)) for column in values):
            raise Unusual
        return Read(_keys(rest[len(values) :]), self._times(time), values, list(range(count)), [])

    def _times(self, column: Sequence[Any]) -> list[int]:
        kinds, scale = set(map(type, column)), SCALE.get(self.settings.time_unit)
        if kinds == {str} and all(text[4:5] == "-" for text in column):
            found = list(map(iso, column))
        elif scale is not None and kinds <= {int, float}:
            found = [round(time * scale) for time in column]
        elif scale is not None and kinds == {str} and _are_decimals(column):
            found = [round(float(time) * scale) for time in column]
        else:
            found = list(map(self.time, column))
        if found and not (min(found) > -LIMIT_US and max(found) < LIMIT_US):
            raise Unusual
        return found

    def _each(self, lines: list[bytes]) -> Read:
        """Read line by line."""
        values: list[list[float]] = [[] for _ in self.settings.values]
        read = Read([], [], values, [], [])
        for place, line in enumerate(lines):
            try:
                self._row(line, place, read)
            except MalformedError as error:
                read.malformed.append((place, str(error)))
        return read

    def _row(self, line: bytes, place: int, read: Read) -> None:
        time, *rest = self.one(self._text(line))
        numbers = [self._number(*pair) for pair in zip(self.settings.values, rest, strict=False)]
        t = self._time(time)
        read.keys.extend(_keys([(part,) for part in rest[len(numbers) :]]))
        read.t.append(t)
        for column, number in zip(read.values, numbers, strict=True):
            column.append(number)
        read.places.append(place)

    def _text(self, line: bytes) -> str:
        if len(line) > self.settings.max_line:
            reason = "line too long"
            raise MalformedError(reason)
        try:
            return line.decode().rstrip("\r\n")
        except UnicodeDecodeError:
            reason = "not UTF-8"
            raise MalformedError(reason) from None

    def _time(self, found: Any) -> int:
        try:
            return self.time(found)
        except (ValueError, OverflowError):
            reason = f"`{self.settings.time}` is not a time: a number, or ISO 8601 such as 2015-02-02T14:19:59Z"
            raise MalformedError(reason) from None

    def _number(self, name: str, found: Any) -> float:
        try:
            number = self.number(found)
        except (ValueError, OverflowError):
            number = nan
        if not isfinite(number):
            reason = f"`{name}` is no finite number"
            raise MalformedError(reason)
        return number


def _are_decimals(column: Sequence[str]) -> bool:
    """Tell whether these are texts that Python reads as we do, with a decimal point each."""
    joined = "".join(column)
    return joined.isascii() and "_" not in joined and all("." in text for text in column)


def _keys(columns: Sequence[Sequence[Any]]) -> list[Hashable]:
    """Make one key per row; texts stand for themselves, others for their type and text: 1, 1.0 and true differ."""
    plain = [_key_column(column) for column in columns]
    if len(plain) == 1:
        return plain[0]
    return list(zip(*plain, strict=True))


def _key_column(column: Sequence[Any]) -> list[Hashable]:
    kinds = set(map(type, column))
    if kinds == {str}:
        return list(column)
    if not kinds <= {str, int, float, bool}:
        reason = "key is no text or number"
        raise MalformedError(reason)
    return [part if isinstance(part, str) else (type(part).__name__, repr(part)) for part in column]
