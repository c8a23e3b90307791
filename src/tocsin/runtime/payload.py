"""Payload: the unread columns of a row as one JSON text.

The text is encoded once for all rules. It can therefore hold columns that a rule reads. These columns are not part of
the payload for this rule, so the functions of this module remove them.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

from numpy.typing import NDArray

from tocsin.hashing import text_digests
from tocsin.runtime.contract import Int

_DECODER = json.JSONDecoder()


def unread_columns(text: str | None, read: Collection[str]) -> dict[str, str | None] | None:
    """Return the columns of a row that the rule does not read, as texts, or None if there are no columns.

    >>> unread_columns('{"note": "wet", "temp": 0.5}', ["temp"]), unread_columns('{"temp": 0.5}', ["temp"])
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


def normalized_payload(text: str | None, read: Collection[str]) -> str | None:
    """Return a text that is equal for rows with equal unread columns, or None if there are no columns.

    >>> a, b = normalized_payload('{"temp": 0.0}', ["temp"]), normalized_payload('{"temp": -0.0}', ["temp"])
    >>> a == b == normalized_payload(None, ())
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
    return fingerprints ^ text_digests((normalized_payload(text, read) for text in texts), len(texts))


def _may_hold(text: str, name: str) -> bool:
    """Return whether a text can contain a column. Names with special characters have several JSON spellings."""
    return name in text or not name.isascii() or not name.isprintable() or not {'"', "\\", "/"}.isdisjoint(name)


def _unread(text: str | None, read: Collection[str]) -> dict[str, Any]:
    if text is None:
        return {}
    return {name: value for name, value in _read_object(text).items() if name not in read}


def _read_object(text: str) -> dict[str, Any]:
    """Parse a JSON object as `json.loads` does, but without its search for white space around the object."""
    if text.startswith("{"):
        found, end = _DECODER.raw_decode(text)
        if end == len(text):
            return found  # type: ignore[no-any-return]
    return json.loads(text)  # type: ignore[no-any-return]
