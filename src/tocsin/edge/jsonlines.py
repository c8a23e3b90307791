"""JSON lines: one object per line; a field inside an object is named by a path with dots."""

from __future__ import annotations

from collections.abc import Callable
from json import JSONDecoder
from operator import itemgetter
from typing import Any

from tocsin.edge.rows import Format, MalformedError, Unusual
from tocsin.edge.settings import Settings

_decode = JSONDecoder().raw_decode


class JsonLines(Format):
    """Objects, from which the asked fields are picked."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.fields = (settings.time, *settings.values, *settings.keys)
        self.pick: Callable[[Any], tuple[Any, ...]]
        if any("." in field for field in self.fields):
            self.pick = lambda found: tuple(_at(found, field) for field in self.fields)
        else:
            self.pick = itemgetter(*self.fields)

    def many(self, texts: list[str]) -> list[tuple[Any, ...]]:
        """Parse all lines, then pick."""
        if texts and texts[0].endswith("\r"):
            texts = [text.rstrip() for text in texts]
        found = [_decode(text) for text in texts]
        if [end for _, end in found] != list(map(len, texts)):
            raise Unusual
        return [self.pick(whole) for whole, _ in found]

    def one(self, text: str) -> tuple[Any, ...]:
        """Parse one line, then pick."""
        text = text.strip()
        try:
            found, end = _decode(text)
        except (ValueError, RecursionError):
            end = -1
        if end != len(text):
            reason = "not JSON"
            raise MalformedError(reason)
        for field in self.fields:
            try:
                _at(found, field)
            except (LookupError, TypeError):
                reason = f"`{field}` is missing"
                raise MalformedError(reason) from None
        return self.pick(found)


def _at(found: Any, field: str) -> Any:
    """Follow a path; a field whose own name has dots comes first."""
    if field in found:
        return found[field]
    for name in field.split("."):
        found = found[name]
    return found
