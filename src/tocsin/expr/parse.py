"""Read the text of a condition into a tree.

A precedence-climbing parser over a whitelist: what is not named here is refused, with its place. Length and nesting are
bounded, so hostile text gives an error and costs no more than an honest one. Reading goes on behind a mistake that
leaves clear how the text is built, such as an unknown function; `UNREAD` stands in its place.
"""

from __future__ import annotations

import difflib
import math
from dataclasses import dataclass, replace
from typing import NoReturn

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
    Key,
    Node,
    Number,
    Unary,
    Variable,
    arity_text,
    depth,
    is_condition,
)
from tocsin.expr.tokens import OPERAND, Token, refusal, scan

MAX_LENGTH = 10_000
MAX_NESTING = 100
MAX_DEPTH = 200
MAX_MISTAKES = 20

# A number that could not be read; no stream has this name.
UNREAD = Variable("")

_BINDING = {"or": 1, "and": 2, ">": 3, ">=": 3, "<": 3, "<=": 3, "+": 4, "-": 4, "*": 5, "/": 5, "**": 7}
_UNARY_BINDING = 6


@dataclass(frozen=True)
class Draft:
    """A condition as far as it can be read: its variables in order of appearance, and its mistakes as they were found.

    There is no condition where the text breaks off, or is a number.
    """

    condition: Condition | None
    variables: tuple[Variable, ...]
    mistakes: tuple[ExprError, ...]


def parse_condition(text: str) -> Condition:
    """Read a condition: comparisons of numbers, joined by `and` and `or`; the first mistake is raised."""
    draft = draft_condition(text)
    if draft.mistakes:
        raise draft.mistakes[0]
    assert draft.condition is not None
    return draft.condition


def draft_condition(text: str) -> Draft:
    """Read a condition and find all its mistakes; one in how the text is built hides what follows it."""
    parser = _Parser(text)
    try:
        node = parser.whole()
        if not isinstance(node, Compare | Bool):
            parser.note("a condition needs a comparison such as `... > 0`; got a number", node.start, node.stop)
    except ExprError as error:
        return Draft(None, (), (*parser.mistakes, error))
    condition = node if isinstance(node, Compare | Bool) else None
    return Draft(condition, tuple(parser.variables.values()), tuple(parser.mistakes))


def parse_number(text: str) -> Node:
    """Read an expression that is a number."""
    parser = _Parser(text)
    node = parser.number(parser.whole())
    if parser.mistakes:
        raise parser.mistakes[0]
    return node


class _Parser:
    def __init__(self, text: str) -> None:
        if not isinstance(text, str):
            message = f"an expression must be a str; got {type(text).__name__}"
            raise TypeError(message)
        self.variables: dict[Key, Variable] = {}
        self.mistakes: list[ExprError] = []
        self._text = text
        self._nesting = 0
        self._token = Token("end", "", 0, 0)

    def whole(self) -> Node:
        """Read the whole text as one expression."""
        if len(self._text) > MAX_LENGTH:
            message = f"an expression must have at most {MAX_LENGTH} characters; got {len(self._text)}"
            raise ExprError(message)
        self._next()
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

    def _join(self, left: Node, token: Token, right: Node, *, extend: bool) -> Node:
        op, start, stop = token.text, left.start, right.stop
        if op in JUNCTIONS:
            args = left.args if extend and isinstance(left, Bool) else (self._condition(left, op),)
            return Bool(op, (*args, self._condition(right, op)), start=start, stop=stop)
        if op not in COMPARISONS:
            return Binary(op, self.number(left), self.number(right), start=start, stop=stop)
        if isinstance(left, Compare):
            middle = self._text[left.right.start : left.right.stop]
            middle = middle if len(middle) <= 30 else "..."
            example = f"... {left.op} {middle} and {middle} {op} ..."
            self._fail(f"comparisons are not chained; write `{example}`", token.start, token.stop)
        return Compare(op, self.number(left), self.number(right), start=start, stop=stop)

    def _operand(self) -> Node:
        token = self._next()
        if token.kind == "number":
            return Number(self._value(token), start=token.start, stop=token.stop)
        if token.kind == "name":
            is_call = self._peek().text == "("
            return self._call(token) if is_call else self._variable(token)
        if token.text == "-":
            operand = self.number(self._expression(_UNARY_BINDING))
            return Unary(operand, start=token.start, stop=operand.stop)
        if token.text == "(":
            inner = self._expression(0)
            end = self._expect(")", token)
            return replace(inner, start=token.start, stop=end.stop)
        self._fail(f"{OPERAND}; got {_named(token)}", token.start, token.stop)

    def _call(self, name: Token) -> Node:
        if name.text not in FUNCTIONS:
            near = difflib.get_close_matches(name.text.lower(), FUNCTIONS, 1)
            near = ["ln"] if name.text == "log" else near  # Many languages call the natural logarithm so.
            known = f"did you mean `{near[0]}`?" if near else f"known are {', '.join(FUNCTIONS)}"
            self.note(f"`{name.text}` is not a function; {known}", name.start, name.stop)
        opening = self._next()
        args: list[Node] = []
        while not args or self._peek().text == ",":
            if args:
                self._next()
            elif self._peek().text == ")":
                break
            arg = self._expression(0)
            is_test = name.text == "where" and not args
            args.append(self._condition(arg, "where") if is_test else self.number(arg))
        end = self._expect(")", opening)
        if name.text not in FUNCTIONS:
            return replace(UNREAD, start=name.start, stop=end.stop)
        least, most = FUNCTIONS[name.text]
        if len(args) < least or (most is not None and len(args) > most):
            message = f"`{name.text}` takes {arity_text(name.text)} arguments; got {len(args)}"
            return self.note(message, name.start, end.stop)
        return Call(name.text, tuple(args), start=name.start, stop=end.stop)

    def _variable(self, token: Token) -> Node:
        stream, dot, column = token.text.partition(".")
        if stream in FUNCTIONS:
            message = f"`{stream}` is a function and cannot name a stream; expected `{stream}(...)`"
            return self.note(message, token.start, token.stop)
        variable = Variable(stream, column if dot else None, start=token.start, stop=token.stop)
        self.variables.setdefault(variable.key, variable)
        return variable

    def _value(self, token: Token) -> float:
        value = float(token.text)
        if not math.isfinite(value):
            self._fail(f"`{token.text}` is too large for a number; expected a finite one", token.start, token.stop)
        return value

    def number(self, node: Node) -> Node:
        """Give a part that is a number; it is a mistake if it is none."""
        if is_condition(node):
            return self.note("expected a number; got a condition", node.start, node.stop)
        return node

    def _condition(self, node: Node, user: str) -> Node:
        if is_condition(node):
            return node
        message = f"`{user}` expected a comparison such as `... > 0`; got a number"
        unread = self.note(message, node.start, node.stop)
        return Compare(">", unread, unread, start=node.start, stop=node.stop)

    def _expect(self, text: str, opening: Token) -> Token:
        token = self._next()
        if token.text == text:
            return token
        if token.kind == "end":
            self._fail(f"expected `{text}` for this `(`; got the end", opening.start, opening.stop)
        self._fail(f"expected an operator or `{text}`; got {_named(token)}", token.start, token.stop)

    def _peek(self) -> Token:
        return self._token

    def _next(self) -> Token:
        token = self._token
        self._token = scan(self._text, token.stop)
        return token

    def note(self, message: str, start: int, stop: int) -> Variable:
        """Keep a mistake behind which reading goes on, and give what stands in its place."""
        if len(self.mistakes) == MAX_MISTAKES:
            self._fail(f"more than {MAX_MISTAKES} mistakes; the rest is not read", start, stop)
        self.mistakes.append(refusal(self._text, message, start, stop))
        return replace(UNREAD, start=start, stop=stop)

    def _fail(self, message: str, start: int, stop: int) -> NoReturn:
        raise refusal(self._text, message, start, stop)


def _named(token: Token) -> str:
    return "the end" if token.kind == "end" else f"`{token.text}`"
