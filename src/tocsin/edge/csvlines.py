"""CSV: one row per line, with quotes; the names of the columns come from a header, or from the user.

A line is a row: a line break inside quotes is not supported, and makes its lines malformed.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from operator import itemgetter
from typing import Any

from tocsin.edge.rows import Format, MalformedError, Unusual
from tocsin.edge.settings import Settings
from tocsin.errors import RuleError


class Csv(Format):
    """Fields by position, once the columns are known."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.header = b""
        self.width = 0
        self.pick: Callable[[Any], tuple[Any, ...]] | None = None
        if settings.columns:
            self._name(list(settings.columns))

    @property
    def needs_header(self) -> bool:
        """Whether the next line is the header."""
        return self.pick is None

    def take_header(self, line: bytes) -> None:
        """Learn the columns from the first line, or refuse it: without columns nothing can be read."""
        try:
            names = self._split([line.decode("utf-8-sig").rstrip("\r\n")])[0]
        except (ValueError, Unusual):
            message = f"line 1: the header must be one line of CSV in UTF-8; got {line[:60]!r}"
            raise RuleError(message) from None
        self._name(names)
        self.header = line

    def many(self, texts: list[str]) -> list[tuple[Any, ...]]:
        """Split all lines, then pick."""
        assert self.pick is not None
        if texts and texts[0].endswith("\r"):
            texts = [text.rstrip("\r") for text in texts]
        rows = self._split(texts)
        if not set(map(len, rows)) <= {self.width}:
            raise Unusual
        return list(map(self.pick, rows))

    def one(self, text: str) -> tuple[Any, ...]:
        """Split one line, then pick."""
        assert self.pick is not None
        try:
            (row,) = self._split([text])
        except Unusual:
            reason = "quotes do not match"
            raise MalformedError(reason) from None
        if len(row) != self.width:
            reason = "wrong number of fields"
            raise MalformedError(reason)
        return self.pick(row)

    def number(self, found: Any) -> float:
        """Read a value from text; Python's underscores and foreign digits are no numbers here."""
        if "_" in found or not found.isascii():
            message = f"a value must be a number; got {found!r}"
            raise ValueError(message)
        return float(found)

    def numbers(self, column: Any) -> list[float]:
        """Read a column of values."""
        joined = "".join(column)
        if "_" in joined or not joined.isascii():
            raise Unusual
        return list(map(float, column))

    def _split(self, texts: list[str]) -> list[list[str]]:
        """Split lines into fields."""
        delimiter = self.settings.delimiter
        if not any('"' in text for text in texts):
            return [text.split(delimiter) for text in texts]
        try:
            rows = list(csv.reader(texts, delimiter=delimiter, strict=True))
        except csv.Error as error:
            raise Unusual from error
        if len(rows) != len(texts):
            raise Unusual
        return rows

    def _name(self, names: list[str]) -> None:
        settings = self.settings
        fields = (settings.time, *settings.values, *settings.keys)
        missing = [field for field in fields if field not in names]
        if missing:
            message = f"line 1: the header must have the column `{missing[0]}`; it has {', '.join(names)}"
            raise RuleError(message)
        twice = [field for field in fields if names.count(field) > 1]
        if twice:
            message = f"line 1: the header must have the column `{twice[0]}` once; it has {', '.join(names)}"
            raise RuleError(message)
        self.width = len(names)
        self.pick = itemgetter(*map(names.index, fields))
