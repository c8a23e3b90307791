"""JSON reader: one object per line. A path with dots, such as `body.temp`, names a field of a nested object."""

from __future__ import annotations

from collections.abc import Callable
from json import JSONDecoder
from operator import itemgetter
from typing import Any

from tocsin.edge.row_parser import MalformedError, RowParser, UnusualInput
from tocsin.edge.settings import Settings

_decode = JSONDecoder().raw_decode


class JsonReader(RowParser):
    """Parser of JSON lines.

    Attributes
    ----------
    fields
        Names of the fields that are read: time, values, keys.
    pick
        Function that selects these fields from an object.
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.fields = (settings.time, *settings.values, *settings.keys)
        self.pick: Callable[[Any], tuple[Any, ...]]
        if any("." in field for field in self.fields):
            self.pick = lambda row: tuple(_get_path(row, field) for field in self.fields)
        else:
            self.pick = itemgetter(*self.fields)

    def parse_lines(self, texts: list[str]) -> list[tuple[Any, ...]]:
        """Return the fields of all lines, or raise."""
        if texts and texts[0].endswith("\r"):
            texts = [text.rstrip() for text in texts]
        decoded = [_decode(text) for text in texts]
        # Text after an object is an error.
        if [end for _, end in decoded] != list(map(len, texts)):
            raise UnusualInput
        return [self.pick(row) for row, _ in decoded]

    def parse_line(self, text: str) -> tuple[Any, ...]:
        """Return the fields of one line, or raise MalformedError."""
        text = text.strip()
        try:
            row, end = _decode(text)
        except (ValueError, RecursionError):
            end = -1
        if end != len(text):
            reason = "not JSON"
            raise MalformedError(reason)
        for field in self.fields:
            try:
                _get_path(row, field)
            except (LookupError, TypeError):
                reason = f"`{field}` is missing"
                raise MalformedError(reason) from None
        return self.pick(row)


def _get_path(row: Any, field: str) -> Any:
    """Return the value at a path. A field whose own name has dots takes precedence."""
    if field in row:
        return row[field]
    for name in field.split("."):
        row = row[name]
    return row
