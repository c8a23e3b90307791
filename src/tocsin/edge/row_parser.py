"""Row parser: parses lines to rows in columns, and finds the malformed lines.

Algorithm: the fast path parses all lines of a read column by column, with a few calls per line. It fails as a whole if
any line is unusual. Then the slow path parses each line on its own; it defines the result.

Guarantee: both paths return the same rows. A malformed line changes no other row.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from math import isfinite, nan
from typing import Any, NamedTuple

from tocsin.edge.settings import Settings
from tocsin.times import LIMIT_US, UNIT_US, build_time_parser, parse_iso_time


class MalformedError(ValueError):
    """A line that is not a row. Its text is the reason; it contains no values, so that reasons can be counted."""


class UnusualInput(Exception):
    """Signal that the fast path does not support the lines. It is not an error: the slow path parses them."""


class ParsedRows(NamedTuple):
    """Rows in columns.

    Attributes
    ----------
    keys
        Key of each row; empty if no key fields are configured.
    t
        Event times in microseconds.
    values
        A list of numbers for each value field.
    line_indexes
        Index of the line of each row.
    malformed
        Index and reason of each malformed line.
    """

    keys: list[Hashable]
    t: list[int]
    values: list[list[float]]
    line_indexes: list[int]
    malformed: list[tuple[int, str]]


class RowParser(ABC):
    """Base class of the input formats."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.parse_time = build_time_parser(settings.time_unit)

    def parse(self, lines: list[bytes]) -> ParsedRows:
        """Parse lines. Each line ends with a line feed; only the last line may lack it."""
        try:
            if max(map(len, lines), default=0) > self.settings.max_line:
                raise UnusualInput
            texts = b"".join(lines).decode().split("\n")
            return self._parse_columns(self.parse_lines(texts[: len(lines)]), len(lines))
        except (UnusualInput, ValueError, TypeError, LookupError, OverflowError, RecursionError):
            return self._parse_each(lines)

    @abstractmethod
    def parse_lines(self, texts: list[str]) -> list[tuple[Any, ...]]:
        """Return the fields of each line: time, values, keys. Raise any error if a line is unusual."""

    @abstractmethod
    def parse_line(self, text: str) -> tuple[Any, ...]:
        """Return the fields of one line: time, values, keys. Raise MalformedError if it is not a row."""

    def parse_value(self, field: Any) -> float:
        """Return the number in a field, or raise ValueError."""
        if type(field) is not float and type(field) is not int:
            message = f"a value must be a number; got {type(field).__name__}"
            raise ValueError(message)
        return float(field)

    def parse_values(self, column: Sequence[Any]) -> list[float]:
        """Return the numbers in a column, or raise."""
        if not set(map(type, column)) <= {float, int}:
            raise UnusualInput
        return list(map(float, column))

    def _parse_columns(self, rows: list[tuple[Any, ...]], count: int) -> ParsedRows:
        time, *rest = zip(*rows, strict=True) if rows else [()] * (1 + len(self.settings.values))
        values = [self.parse_values(column) for column in rest[: len(self.settings.values)]]
        if not all(all(map(isfinite, column)) for column in values):
            raise UnusualInput
        return ParsedRows(_build_keys(rest[len(values) :]), self._parse_times(time), values, list(range(count)), [])

    def _parse_times(self, column: Sequence[Any]) -> list[int]:
        types, unit_us = set(map(type, column)), UNIT_US.get(self.settings.time_unit)
        if types == {str} and all(text[4:5] == "-" for text in column):
            times = list(map(parse_iso_time, column))
        elif unit_us is not None and types <= {int, float}:
            times = [round(time * unit_us) for time in column]
        elif unit_us is not None and types == {str} and _are_decimals(column):
            times = [round(float(time) * unit_us) for time in column]
        else:
            times = list(map(self.parse_time, column))
        if times and not (min(times) > -LIMIT_US and max(times) < LIMIT_US):
            raise UnusualInput
        return times

    def _parse_each(self, lines: list[bytes]) -> ParsedRows:
        """Parse each line on its own."""
        rows = ParsedRows([], [], [[] for _ in self.settings.values], [], [])
        for index, line in enumerate(lines):
            try:
                self._append_row(line, index, rows)
            except MalformedError as error:
                rows.malformed.append((index, str(error)))
        return rows

    def _append_row(self, line: bytes, index: int, rows: ParsedRows) -> None:
        time, *rest = self.parse_line(self._decode_line(line))
        numbers = [self._parse_number(*pair) for pair in zip(self.settings.values, rest, strict=False)]
        t = self._parse_one_time(time)
        rows.keys.extend(_build_keys([(field,) for field in rest[len(numbers) :]]))
        rows.t.append(t)
        for column, number in zip(rows.values, numbers, strict=True):
            column.append(number)
        rows.line_indexes.append(index)

    def _decode_line(self, line: bytes) -> str:
        if len(line) > self.settings.max_line:
            reason = "line too long"
            raise MalformedError(reason)
        try:
            return line.decode().rstrip("\r\n")
        except UnicodeDecodeError:
            reason = "not UTF-8"
            raise MalformedError(reason) from None

    def _parse_one_time(self, field: Any) -> int:
        try:
            return self.parse_time(field)
        except (ValueError, OverflowError):
            reason = f"`{self.settings.time}` is not a time: a number, or ISO 8601 such as 2015-02-02T14:19:59Z"
            raise MalformedError(reason) from None

    def _parse_number(self, name: str, field: Any) -> float:
        try:
            number = self.parse_value(field)
        except (ValueError, OverflowError):
            number = nan
        if not isfinite(number):
            reason = f"`{name}` is not a finite number"
            raise MalformedError(reason)
        return number


def _are_decimals(column: Sequence[str]) -> bool:
    """Return whether all texts have a decimal point and no digits or underscores that only Python accepts."""
    joined = "".join(column)
    return joined.isascii() and "_" not in joined and all("." in text for text in column)


def _build_keys(columns: Sequence[Sequence[Any]]) -> list[Hashable]:
    """Return the key of each row; empty without key columns. Keys of different types differ: 1, 1.0, true and "1"."""
    encoded = [_encode_column(column) for column in columns]
    if len(encoded) == 1:
        return encoded[0]
    return list(zip(*encoded, strict=True))


def _encode_column(column: Sequence[Any]) -> list[Hashable]:
    """Return texts unchanged, and other values as a pair of type and text."""
    types = set(map(type, column))
    if types == {str}:
        return list(column)
    if not types <= {str, int, float, bool}:
        reason = "key is not a text or a number"
        raise MalformedError(reason)
    return [field if isinstance(field, str) else (type(field).__name__, repr(field)) for field in column]
