"""Payload: what travels along with a row as one JSON text, and what of it is a rule's own.

The text is made once for all rules, so it may hold columns that one of them reads; these are no payload for that rule.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

from numpy.typing import NDArray

from tocsin.hashing import text_digests
from tocsin.runtime.contract import Int

_DECODER = json.JSONDecoder()


def shown_payload(text: str | None, read: Collection[str]) -> dict[str, str | None] | None:
    """The columns of a row that are not read, as texts; None where there are none.

    >>> shown_payload('{"note": "wet", "temp": 0.5}', ["temp"]), shown_payload('{"temp": 0.5}', ["temp"])
    ({'note': 'wet'}, None)
    """
    if text is None:
        return None
    columns = {
        name: value if value is None or type(value) is str else str(value)
        for name, value in _read_object(text).items()
        if name not in read
    }
    return columns or None


def payload_alike(text: str | None, read: Collection[str]) -> str | None:
    """Give a text that is equal for rows that are equal in the columns that are not read.

    >>> payload_alike('{"temp": 0.0}', ["temp"]) == payload_alike('{"temp": -0.0}', ["temp"]) == payload_alike(None, ())
    True
    """
    if text is None or not any(_may_hold(text, name) for name in read):
        return None if text == "{}" else text
    columns = _unread(text, read)
    return json.dumps(columns) if columns else None


def with_payload_digests(fingerprints: Int, texts: NDArray[Any] | None, read: Collection[str]) -> Int:
    """Return row fingerprints that also depend on the payload columns that the rule does not read."""
    if texts is None:
        return fingerprints
    return fingerprints ^ text_digests((payload_alike(text, read) for text in texts), len(texts))


def _may_hold(text: str, name: str) -> bool:
    """Tell whether a text may hold a column, without reading it; odd signs may be written in several ways."""
    return name in text or not name.isascii() or not name.isprintable() or not {'"', "\\", "/"}.isdisjoint(name)


def _unread(text: str | None, read: Collection[str]) -> dict[str, Any]:
    if text is None:
        return {}
    return {name: value for name, value in _read_object(text).items() if name not in read}


def _read_object(text: str) -> dict[str, Any]:
    """Parse a JSON object. This is `json.loads` without its search for white space around the object."""
    if text.startswith("{"):
        found, end = _DECODER.raw_decode(text)
        if end == len(text):
            return found  # type: ignore[no-any-return]
    return json.loads(text)  # type: ignore[no-any-return]
