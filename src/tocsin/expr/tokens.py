"""Cut the text of a condition into tokens; what no condition has is refused, with its place and what to write."""

from __future__ import annotations

import keyword
import re
import unicodedata
from typing import NamedTuple, NoReturn

from tocsin.errors import ExprError
from tocsin.expr.nodes import JUNCTIONS

MAX_WORD = 100

_TOKEN = re.compile(
    r"(?P<space>[ \t\r\n]+)"
    r"|(?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"
    r"|(?P<name>[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*)"
    r"|(?P<op>\*\*|>=|<=|/(?!/)|<(?!>)|[-+*>(),])"
)
_GLUED = re.compile(r"[A-Za-z0-9_.]")
_REFUSED = re.compile(r"===?|!==?|<>|=[<>]|&&?|\|\|?|//|[\"'=!^%\[\]{}@:;?~$\\`#.]")

_EQUALITY = "is not a comparison of conditions; use `>=` and `<=`, equality of measured values is not stable"
_TEXT = "starts a text; conditions are about numbers only"
_INSTEAD = {
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
    "!": "is not an operator; turn the comparison round instead",
    "^": "is not an operator; write `**` for powers",
    "//": "is not an operator; write `floor(a / b)`",
    "%": "is not an operator; write `a - b * floor(a / b)`",
    "'": _TEXT,
    '"': _TEXT,
}
OPERAND = "expected a number, a stream, a function or `(`"


class Token(NamedTuple):
    """A piece of text: kind is `number`, `name`, `op` or `end`."""

    kind: str
    text: str
    start: int
    stop: int


def scan(text: str, place: int) -> Token:
    """Read the token at or after `place`; past the last one there is always another end."""
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None:
            _refuse(text, place)
        kind, word = str(match.lastgroup), match.group()
        if kind in ("number", "name"):
            _check_word(text, kind, word, place)
        if kind != "space":
            return Token("op" if word in JUNCTIONS else kind, word, place, match.end())
        place = match.end()
    return Token("end", "", place, place)


def _check_word(text: str, kind: str, word: str, start: int) -> None:
    stop = start + len(word)
    if len(word) > MAX_WORD:
        raise refusal(text, f"a {kind} must have at most {MAX_WORD} characters; got {len(word)}", start, stop)
    if _GLUED.match(text, stop):
        wanted = "an operator after the number" if kind == "number" else "a column name after the dot"
        raise refusal(text, f"expected {wanted}; got `{text[stop]}`", start, stop + 1)
    stream, *columns = word.split(".")
    if len(columns) > 1:
        raise refusal(text, f"expected `stream` or `stream.column`; got {len(columns)} dots", start, stop)
    if kind == "name" and (stream.startswith("__") or "".join(columns).startswith("__")):
        raise refusal(text, f"a name must not begin with two underscores; got `{word}`", start, stop)
    if word not in JUNCTIONS and word.lower() in JUNCTIONS:
        raise refusal(text, f"`{word}` is not an operator; write `{word.lower()}`", start, stop)
    if word == "not":
        raise refusal(text, "`not` is not an operator; turn the comparison round instead", start, stop)
    if word not in JUNCTIONS and keyword.iskeyword(stream):
        raise refusal(text, f"`{stream}` is a reserved word and cannot name a stream; {OPERAND}", start, stop)


def _refuse(text: str, place: int) -> NoReturn:
    match = _REFUSED.match(text, place)
    if match is not None:
        reason = _INSTEAD.get(match.group()[:2], "is not part of conditions")
        raise refusal(text, f"`{match.group()}` {reason}", place, match.end())
    char = text[place]
    name = unicodedata.name(char, "a control character")
    raise refusal(text, f"U+{ord(char):04X} ({name}) is not part of conditions; use plain ASCII", place, place + 1)


def refusal(text: str, message: str, start: int, stop: int) -> ExprError:
    """Make the error that marks a place of the text."""
    # What a terminal would not show, or obey, is drawn as a question mark of the same width.
    drawn = "".join(char if char.isprintable() or char == "\n" else "?" for char in text.replace("\t", " "))
    return ExprError(message, drawn, start, stop)
