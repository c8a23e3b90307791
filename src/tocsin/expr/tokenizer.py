"""Tokenizer: split the text of a condition into tokens.

Text that is not part of the language raises an `ExprError` with its position and, where there is one, the replacement.
"""

from __future__ import annotations

import keyword
import re
import unicodedata
from typing import NamedTuple, NoReturn

from tocsin.errors import ExprError
from tocsin.expr.syntax_tree import JUNCTIONS

MAX_TOKEN_LENGTH = 100

_TOKEN = re.compile(
    r"(?P<space>[ \t\r\n]+)"
    r"|(?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"
    r"|(?P<name>[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*)"
    r"|(?P<op>\*\*|>=|<=|/(?!/)|<(?!>)|[-+*>(),])"
)
# A number or a name must not be followed directly by one of these characters.
_WORD_CHARACTER = re.compile(r"[A-Za-z0-9_.]")
# Operators and characters of other languages.
_UNSUPPORTED = re.compile(r"===?|!==?|<>|=[<>]|&&?|\|\|?|//|[\"'=!^%\[\]{}@:;?~$\\`#.]")

_EQUALITY = "is not supported; use `>=` and `<=`, because equality of measured values is not stable"
_TEXT = "starts a text; a condition can only use numbers"
# Replacements, by the first two characters of the unsupported text.
_REPLACEMENTS = {
    "==": _EQUALITY,
    "=": _EQUALITY,
    "!=": _EQUALITY,
    "<>": _EQUALITY,
    "=<": "is not an operator; write `<=`",
    "=>": "is not an operator; write `>=`",
    "&": "is not an operator; write `and`",
    "&&": "is not an operator; write `and`",
    "|": "is not an operator; write `or`",
    "||": "is not an operator; write `or`",
    "!": "is not an operator; reverse the comparison instead",
    "^": "is not an operator; write `**` for powers",
    "//": "is not an operator; write `floor(a / b)`",
    "%": "is not an operator; write `a - b * floor(a / b)`",
    "'": _TEXT,
    '"': _TEXT,
}
EXPECTED_OPERAND = "expected a number, a stream, a function or `(`"


class Token(NamedTuple):
    """A token of a condition.

    Attributes
    ----------
    kind
        `number`, `name`, `op` or `end`.
    text
        The text of the token; empty for `end`.
    start, stop
        The index of the first character and the index after the last one.
    """

    kind: str
    text: str
    start: int
    stop: int


def read_token(text: str, position: int) -> Token:
    """Return the first token at or after `position`; an `end` token if only spaces are left."""
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            _raise_unsupported(text, position)
        kind, word = str(match.lastgroup), match.group()
        if kind in ("number", "name"):
            _check_word(text, kind, word, position)
        if kind != "space":
            return Token("op" if word in JUNCTIONS else kind, word, position, match.end())
        position = match.end()
    return Token("end", "", position, position)


def _check_word(text: str, kind: str, word: str, start: int) -> None:
    stop = start + len(word)
    stream, *columns = word.split(".")
    if len(word) > MAX_TOKEN_LENGTH:
        message = f"a {kind} must have at most {MAX_TOKEN_LENGTH} characters; got {len(word)}"
    elif _WORD_CHARACTER.match(text, stop):
        expected = "an operator after the number" if kind == "number" else "a column name after the dot"
        raise syntax_error(text, f"expected {expected}; got `{text[stop]}`", start, stop + 1)
    elif len(columns) > 1:
        message = f"expected `stream` or `stream.column`; got {len(columns)} dots"
    elif kind == "name" and (stream.startswith("__") or "".join(columns).startswith("__")):
        message = f"a name must not begin with two underscores; got `{word}`"
    elif word not in JUNCTIONS and word.lower() in JUNCTIONS:
        message = f"`{word}` is not an operator; write `{word.lower()}`"
    elif word == "not":
        message = "`not` is not an operator; reverse the comparison instead"
    elif word not in JUNCTIONS and keyword.iskeyword(stream):
        message = f"`{stream}` is a reserved word and cannot name a stream; {EXPECTED_OPERAND}"
    else:
        return
    raise syntax_error(text, message, start, stop)


def _raise_unsupported(text: str, position: int) -> NoReturn:
    match = _UNSUPPORTED.match(text, position)
    if match is not None:
        reason = _REPLACEMENTS.get(match.group()[:2], "is not supported in conditions")
        raise syntax_error(text, f"`{match.group()}` {reason}", position, match.end())
    char = text[position]
    name = unicodedata.name(char, "a control character")
    message = f"U+{ord(char):04X} ({name}) is not supported in conditions; use plain ASCII"
    raise syntax_error(text, message, position, position + 1)


def syntax_error(text: str, message: str, start: int, stop: int) -> ExprError:
    """Return an error that underlines a part of the text."""
    # Replace characters that a terminal hides or interprets by question marks of the same width.
    shown = "".join(char if char.isprintable() or char == "\n" else "?" for char in text.replace("\t", " "))
    return ExprError(message, shown, start, stop)
