"""The known word that was probably meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

MOST_CHARACTERS = 100


def nearest(word: str, known: Iterable[str]) -> str:
    """Ask whether a known word was meant; nothing if none is near, or the word is too long to be a slip.

    >>> nearest("aler", ["alert", "expr"])
    '; did you mean `alert`?'
    """
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=0.7) if len(word) <= MOST_CHARACTERS else []
    return f"; did you mean `{near[0]}`?" if near else ""
