"""Read the text of a condition into a tree.

A tokenizer and a precedence-climbing parser over a whitelist: what is not named here is refused, with its place. Length
and nesting are bounded, so hostile text gives an error and costs no more than an honest one.
"""

from __future__ import annotations

import difflib
import keyword
import math
import re
import unicodedata
from dataclasses import replace
from typing import NamedTuple, NoReturn

from tocsin.errors import ExprError
from tocsin.expr.nodes import (
    COMPARISONS,
    FUNCTIONS,
    JUNCTIONS,
    Binary,
    Bool,
    Call,
    Compare,
    Condition,
    Node,
    Number,
    Unary,
    Variable,
    arity_text,
    depth,
    is_condition,
)

MAX_LENGTH = 10_000
MAX_NESTING = 100
MAX_DEPTH = 200
MAX_WORD = 100

_TOKEN = re.compile(
    r"(?P<space>[ \t\r\n]+)"
    r"|(?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"
    r"|(?P<name>[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*)"
    r"|(?P<op>\*\*|>=|<=|/(?!/)|<(?!>)|[-+*>(),])"
)
_GLUED = re.compile(r"[A-Za-z0-9_.]")
_REFUSED = re.compile(r"===?|!==?|<>|=[<>]|&&?|\|\|?|//|[\"'=!^%\[\]{}@:;?~$\\`#.]")
_BINDING = {"or": 1, "and": 2, ">": 3, ">=": 3, "<": 3, "<=": 3, "+": 4, "-": 4, "*": 5, "/": 5, "**": 7}
_UNARY_BINDING = 6

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
_OPERAND = "expected a number, a stream, a function or `(`"


class _Token(NamedTuple):
    """A piece of text: kind is `number`, `name`, `op` or `end`."""

    kind: str
    text: str
    start: int
    stop: int


def parse_condition(text: str) -> Condition:
    """Read a condition: comparisons of numbers, joined by `and` and `or`."""
    node = _Parser(text).whole()
    if isinstance(node, Compare | Bool):
        return node
    message = "a condition needs a comparison such as `... > 0`; got a number"
    raise ExprError(message, text, node.start, node.stop)


def parse_number(text: str) -> Node:
    """Read an expression that is a number."""
    node = _Parser(text).whole()
    if not is_condition(node):
        return node
    message = "expected a number; got a condition"
    raise ExprError(message, text, node.start, node.stop)


class _Parser:
    def __init__(self, text: str) -> None:
        if not isinstance(text, str):
            message = f"an expression must be a str; got {type(text).__name__}"
            raise TypeError(message)
        if len(text) > MAX_LENGTH:
            message = f"an expression must have at most {MAX_LENGTH} characters; got {len(text)}"
            raise ExprError(message)
        self._text = text
        self._nesting = 0
        self._token = self._scan(0)

    def whole(self) -> Node:
        """Read the whole text as one expression."""
        node = self._expression(0)
        token = self._peek()
        if token.kind != "end":
            self._fail(f"expected an operator or the end; got {_named(token)}", token.start, token.stop)
        if depth(node) > MAX_DEPTH:
            message = f"a chain of operators must be at most {MAX_DEPTH} deep; group its parts with parentheses"
            self._fail(message, node.start, node.stop)
        return node

    def _expression(self, power: int) -> Node:
        """Read operators that bind at least as tightly as `power`."""
        self._nesting += 1
        if self._nesting > MAX_NESTING:
            token = self._peek()
            self._fail(f"an expression must be nested at most {MAX_NESTING} deep", token.start, token.stop)
        left = self._operand()
        # `a and b and c` is one node, `(a and b) and c` are two: only what was joined here is extended.
        joined = False
        while (token := self._peek()).kind == "op" and _BINDING.get(token.text, -1) >= power:
            self._next()
            binding = _BINDING[token.text]
            right = self._expression(_UNARY_BINDING if token.text == "**" else binding + 1)
            extend = joined and isinstance(left, Bool) and left.op == token.text
            left = self._join(left, token, right, extend=extend)
            joined = True
        self._nesting -= 1
        return left

    def _join(self, left: Node, token: _Token, right: Node, *, extend: bool) -> Node:
        op, start, stop = token.text, left.start, right.stop
        if op in JUNCTIONS:
            args = left.args if extend and isinstance(left, Bool) else (self._condition(left, op),)
            return Bool(op, (*args, self._condition(right, op)), start=start, stop=stop)
        if op not in COMPARISONS:
            return Binary(op, self._number(left), self._number(right), start=start, stop=stop)
        if isinstance(left, Compare):
            middle = self._text[left.right.start : left.right.stop]
            middle = middle if len(middle) <= 30 else "..."
            example = f"... {left.op} {middle} and {middle} {op} ..."
            self._fail(f"comparisons are not chained; write `{example}`", token.start, token.stop)
        return Compare(op, self._number(left), self._number(right), start=start, stop=stop)

    def _operand(self) -> Node:
        token = self._next()
        if token.kind == "number":
            return Number(self._value(token), start=token.start, stop=token.stop)
        if token.kind == "name":
            is_call = self._peek().text == "("
            return self._call(token) if is_call else self._variable(token)
        if token.text == "-":
            operand = self._number(self._expression(_UNARY_BINDING))
            return Unary(operand, start=token.start, stop=operand.stop)
        if token.text == "(":
            inner = self._expression(0)
            end = self._expect(")", token)
            return replace(inner, start=token.start, stop=end.stop)
        self._fail(f"{_OPERAND}; got {_named(token)}", token.start, token.stop)

    def _call(self, name: _Token) -> Node:
        if name.text not in FUNCTIONS:
            near = difflib.get_close_matches(name.text.lower(), FUNCTIONS, 1)
            near = ["ln"] if name.text == "log" else near  # Many languages call the natural logarithm so.
            known = f"did you mean `{near[0]}`?" if near else f"known are {', '.join(FUNCTIONS)}"
            self._fail(f"`{name.text}` is not a function; {known}", name.start, name.stop)
        opening = self._next()
        args: list[Node] = []
        while not args or self._peek().text == ",":
            if args:
                self._next()
            elif self._peek().text == ")":
                break
            arg = self._expression(0)
            is_test = name.text == "where" and not args
            args.append(self._condition(arg, "where") if is_test else self._number(arg))
        end = self._expect(")", opening)
        least, most = FUNCTIONS[name.text]
        if len(args) < least or (most is not None and len(args) > most):
            message = f"`{name.text}` takes {arity_text(name.text)} arguments; got {len(args)}"
            self._fail(message, name.start, end.stop)
        return Call(name.text, tuple(args), start=name.start, stop=end.stop)

    def _variable(self, token: _Token) -> Node:
        stream, dot, column = token.text.partition(".")
        if stream in FUNCTIONS:
            message = f"`{stream}` is a function and cannot name a stream; expected `{stream}(...)`"
            self._fail(message, token.start, token.stop)
        return Variable(stream, column if dot else None, start=token.start, stop=token.stop)

    def _value(self, token: _Token) -> float:
        value = float(token.text)
        if not math.isfinite(value):
            self._fail(f"`{token.text}` is too large for a number; expected a finite one", token.start, token.stop)
        return value

    def _number(self, node: Node) -> Node:
        if is_condition(node):
            self._fail("expected a number; got a condition", node.start, node.stop)
        return node

    def _condition(self, node: Node, user: str) -> Node:
        if not is_condition(node):
            self._fail(f"`{user}` expected a comparison such as `... > 0`; got a number", node.start, node.stop)
        return node

    def _expect(self, text: str, opening: _Token) -> _Token:
        token = self._next()
        if token.text == text:
            return token
        if token.kind == "end":
            self._fail(f"expected `{text}` for this `(`; got the end", opening.start, opening.stop)
        self._fail(f"expected an operator or `{text}`; got {_named(token)}", token.start, token.stop)

    def _peek(self) -> _Token:
        return self._token

    def _next(self) -> _Token:
        token = self._token
        self._token = self._scan(token.stop)
        return token

    def _scan(self, place: int) -> _Token:
        """Read the token at or after `place`; past the last one there is always another end."""
        while place < len(self._text):
            match = _TOKEN.match(self._text, place)
            if match is None:
                self._refuse(place)
            kind, word = str(match.lastgroup), match.group()
            if kind in ("number", "name"):
                self._check_word(kind, word, place)
            if kind != "space":
                return _Token("op" if word in JUNCTIONS else kind, word, place, match.end())
            place = match.end()
        return _Token("end", "", place, place)

    def _check_word(self, kind: str, word: str, start: int) -> None:
        stop = start + len(word)
        if len(word) > MAX_WORD:
            self._fail(f"a {kind} must have at most {MAX_WORD} characters; got {len(word)}", start, stop)
        if _GLUED.match(self._text, stop):
            wanted = "an operator after the number" if kind == "number" else "a column name after the dot"
            self._fail(f"expected {wanted}; got `{self._text[stop]}`", start, stop + 1)
        stream, *columns = word.split(".")
        if len(columns) > 1:
            self._fail(f"expected `stream` or `stream.column`; got {len(columns)} dots", start, stop)
        if kind == "name" and (stream.startswith("__") or "".join(columns).startswith("__")):
            self._fail(f"a name must not begin with two underscores; got `{word}`", start, stop)
        if word not in JUNCTIONS and word.lower() in JUNCTIONS:
            self._fail(f"`{word}` is not an operator; write `{word.lower()}`", start, stop)
        if word == "not":
            self._fail("`not` is not an operator; turn the comparison round instead", start, stop)
        if word not in JUNCTIONS and keyword.iskeyword(stream):
            self._fail(f"`{stream}` is a reserved word and cannot name a stream; {_OPERAND}", start, stop)

    def _refuse(self, place: int) -> NoReturn:
        match = _REFUSED.match(self._text, place)
        if match is not None:
            reason = _INSTEAD.get(match.group()[:2], "is not part of conditions")
            self._fail(f"`{match.group()}` {reason}", place, match.end())
        char = self._text[place]
        name = unicodedata.name(char, "a control character")
        self._fail(f"U+{ord(char):04X} ({name}) is not part of conditions; use plain ASCII", place, place + 1)

    def _fail(self, message: str, start: int, stop: int) -> NoReturn:
        # What a terminal would not show, or obey, is drawn as a question mark of the same width.
        drawn = "".join(char if char.isprintable() or char == "\n" else "?" for char in self._text.replace("\t", " "))
        raise ExprError(message, drawn, start, stop)


def _named(token: _Token) -> str:
    return "the end" if token.kind == "end" else f"`{token.text}`"
