"""Suggestions: the known word that was probably meant, the new name of a renamed key, and paths as text.

RENAMED has the new name of every key, parameter and word of rules that has been renamed. The readers of rule files and
the classes of rules use it to name the new key in the error for an old key.
"""

from __future__ import annotations

import difflib
import functools
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import fields
from itertools import islice
from typing import Any, TypeVar

from tocsin.errors import Diagnostic, RuleError

MOST_CHARACTERS = 100
# Known words that are compared: each takes some microseconds, and a file can have a thousand errors.
MOST_WORDS = 500

# Old name -> new name. A dot separates a new block from a key in it.
RENAMED: Mapping[str, str] = {
    "ahead": "max_ahead",
    "cpu": "quality.cpu",
    "deadline": "quality.deadline",
    "every": "adapt_every",
    "grain": "step",
    "idle": "idle_timeout",
    "memory": "quality.memory",
    "model": "quality.model",
    "outage": "allowed_lateness",
    "over": "period",
    "prefer": "quality.prefer",
    "show_past": "max_age",
    "spread": "shards",
    "starting": "starting_offsets",
    "wait": "quality.wait",
    "weight": "quality.weight",
    "whole": "unreduced",
}

Rules = TypeVar("Rules")


def nearest(word: str, known: Iterable[str]) -> str:
    """Return a hint that names the closest known word, or an empty text if no word is close.

    A long word, or a word among more than 500 known words, gets no hint. A word that differs in case only is named
    first.

    >>> nearest("aler", ["alert", "expr"]), nearest("TEMP", ["temp", "time"])
    ('did you mean `alert`?', 'did you mean `temp`? Names are case-sensitive')
    """
    words = list(islice(known, MOST_WORDS + 1))
    if len(word) > MOST_CHARACTERS or len(words) > MOST_WORDS:
        return ""
    for one in words:
        if one.lower() == word.lower() and one != word:
            return f"did you mean `{one}`? Names are case-sensitive"
    near = difflib.get_close_matches(word, words, n=1, cutoff=0.7)
    return f"did you mean `{near[0]}`?" if near else ""


def nearest_clause(word: str, known: Iterable[str]) -> str:
    """Return the hint of `nearest` as the end of a sentence."""
    hint = nearest(word, known)
    return f"; {hint}" if hint else ""


def nearest_or_all(word: str, known: Iterable[str]) -> str:
    """Return a hint that names the new key of a renamed key, the closest known word, or else all known words."""
    words = list(known)
    return renamed_hint(word, words) or nearest(word, words) or f"expected one of {', '.join(words)}"


def renamed_hint(name: object, known: Container[str]) -> str:
    """Return the hint that names the new key, or an empty text if no key in `known` replaces `name`.

    >>> renamed_hint("outage", ["expr", "allowed_lateness"])
    'use `allowed_lateness`'
    >>> renamed_hint("outage", ["keys", "source"])
    ''
    """
    new = RENAMED.get(name, "") if isinstance(name, str) else ""
    return f"use `{new}`" if new.partition(".")[0] in known else ""


def reject_renamed_parameters(rules: type[Rules]) -> type[Rules]:
    """Decorate a dataclass of rules: its constructor raises a RuleError if a parameter has been renamed."""
    build = rules.__init__
    known = {field.name for field in fields(rules)}  # type: ignore[arg-type]

    @functools.wraps(build)
    def check_and_build(self: Rules, *args: Any, **given: Any) -> None:
        for name in given.keys() - known:
            if hint := renamed_hint(name, known):
                alert = args[0] if args else given.get("alert")
                message = f"`{name}` is not a parameter of {rules.__name__}"
                raise RuleError(Diagnostic("unknown-key", (name,), message, hint=hint, where=f'rule "{alert}"'))
        build(self, *args, **given)

    rules.__init__ = check_and_build  # type: ignore[assignment, method-assign]
    return rules


def format_path(path: Sequence[object]) -> str:
    """Return a path as Python would write it: `within[('a', 'b')]`."""
    return str(path[0]) + "".join(f"[{name!r}]" for name in path[1:])
