"""CSV reader: one row per line, with quoted fields. A header line or `--columns` names the columns.

A line break inside quotes is not supported. Each of the lines that it divides is malformed.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from operator import itemgetter
from typing import Any

from tocsin.edge.row_parser import MalformedError, RowParser, UnusualInput
from tocsin.edge.settings import Settings
from tocsin.errors import RuleError


class CsvReader(RowParser):
    """Parser of CSV lines.

    Attributes
    ----------
    header
        Bytes of the header line; empty before it is read, and with `--columns`.
    width
        Number of columns.
    pick
        Function that selects the fields that are read from a row; None before the columns are known.
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.header = b""
        self.width = 0
        self.pick: Callable[[Any], tuple[Any, ...]] | None = None
        if settings.columns:
            self._set_columns(list(settings.columns))

    @property
    def needs_header(self) -> bool:
        """Whether the next line is the header."""
        return self.pick is None

    def read_header(self, line: bytes) -> None:
        """Read the column names from the header line. Raise RuleError if a field is missing or the line is not CSV."""
        try:
            names = self._split([line.decode("utf-8-sig").rstrip("\r\n")])[0]
        except (ValueError, UnusualInput):
            message = f"line 1: the header must be one line of CSV in UTF-8; got {line[:60]!r}"
            raise RuleError(message) from None
        self._set_columns(names)
        self.header = line

    def parse_lines(self, texts: list[str]) -> list[tuple[Any, ...]]:
        """Return the fields of all lines, or raise UnusualInput."""
        assert self.pick is not None
        if texts and texts[0].endswith("\r"):
            texts = [text.rstrip("\r") for text in texts]
        rows = self._split(texts)
        if not set(map(len, rows)) <= {self.width}:
            raise UnusualInput
        return list(map(self.pick, rows))

    def parse_line(self, text: str) -> tuple[Any, ...]:
        """Return the fields of one line, or raise MalformedError."""
        assert self.pick is not None
        try:
            (row,) = self._split([text])
        except UnusualInput:
            reason = "quotes do not match"
            raise MalformedError(reason) from None
        if len(row) != self.width:
            reason = "wrong number of fields"
            raise MalformedError(reason)
        return self.pick(row)

    def parse_value(self, field: Any) -> float:
        """Parse a text to a number. Underscores and digits of other scripts, which Python accepts, are errors."""
        if "_" in field or not field.isascii():
            message = f"a value must be a number; got {field!r}"
            raise ValueError(message)
        return float(field)

    def parse_values(self, column: Any) -> list[float]:
        """Parse a column of texts to numbers, or raise."""
        joined = "".join(column)
        if "_" in joined or not joined.isascii():
            raise UnusualInput
        return list(map(float, column))

    def _split(self, texts: list[str]) -> list[list[str]]:
        """Split lines into fields."""
        delimiter = self.settings.delimiter
        if not any('"' in text for text in texts):
            return [text.split(delimiter) for text in texts]
        try:
            rows = list(csv.reader(texts, delimiter=delimiter, strict=True))
        except csv.Error as error:
            raise UnusualInput from error
        # A quoted line break joins two lines.
        if len(rows) != len(texts):
            raise UnusualInput
        return rows

    def _set_columns(self, names: list[str]) -> None:
        settings = self.settings
        fields = (settings.time, *settings.values, *settings.keys)
        missing = [field for field in fields if field not in names]
        if missing:
            message = f"line 1: the header must have the column `{missing[0]}`; it has {', '.join(names)}"
            raise RuleError(message)
        repeated = [field for field in fields if names.count(field) > 1]
        if repeated:
            message = f"line 1: the header must have the column `{repeated[0]}` once; it has {', '.join(names)}"
            raise RuleError(message)
        self.width = len(names)
        self.pick = itemgetter(*map(names.index, fields))
