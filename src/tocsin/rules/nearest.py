"""The known word that was probably meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from itertools import islice

MOST_CHARACTERS = 100
# Known words that are compared: each takes some microseconds, and a file may have a thousand mistakes.
MOST_WORDS = 500


def nearest(word: str, known: Iterable[str]) -> str:
    """Return a hint that names the closest known word, or an empty text if no word is close.

    A long word, or a word among more than 500 known words, gets no hint.

    >>> nearest("aler", ["alert", "expr"])
    '; did you mean `alert`?'
    """
    words = list(islice(known, MOST_WORDS + 1))
    if len(word) > MOST_CHARACTERS or len(words) > MOST_WORDS:
        return ""
    near = difflib.get_close_matches(word, words, n=1, cutoff=0.7)
    return f"; did you mean `{near[0]}`?" if near else ""
