"""Parser: convert the text of a condition to a syntax tree.

Algorithm: precedence climbing. The parser accepts only the functions and operators of syntax_tree.py. It continues
after an error that does not hide the structure of the text, such as an unknown function. `PLACEHOLDER` then replaces
the wrong part in the tree.

Guarantee: length, nesting and depth are bounded, so the work grows at most linearly with the length of any text.
"""

from __future__ import annotations

import difflib
import math
from dataclasses import dataclass, replace
from typing import NoReturn

from tocsin.errors import ExprError
from tocsin.expr.syntax_tree import (
    COMPARISONS,
    FUNCTIONS,
    JUNCTIONS,
    PRECEDENCE,
    UNARY_PRECEDENCE,
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
    format_arity,
    is_condition,
    tree_depth,
)
from tocsin.expr.tokenizer import EXPECTED_OPERAND, Token, read_token, syntax_error

# Characters of a text.
MAX_LENGTH = 10_000
# Recursive calls of the parser: parentheses, calls, unary minus and right-associative operators.
MAX_NESTING = 100
# Levels of the tree. A chain such as `a + b + c` adds levels without nesting.
MAX_DEPTH = 200
MAX_ERRORS = 20

# Replaces a part with an error in the tree. No stream has this name.
PLACEHOLDER = Variable("")


@dataclass(frozen=True)
class ParseResult:
    """The result of parsing a condition.

    Attributes
    ----------
    condition
        The tree, possibly with placeholders; None if the structure of the text is wrong or the text is a number.
    variables
        The different variables in order of first appearance.
    errors
        The errors in the order in which the parser found them.
    """

    condition: Condition | None
    variables: tuple[Variable, ...]
    errors: tuple[ExprError, ...]


def parse_condition(text: str) -> Condition:
    """Parse a condition: comparisons of numbers, joined by `and` and `or`.

    If the text has errors, raise the first one.
    """
    result = parse_condition_with_errors(text)
    if result.errors:
        raise result.errors[0]
    assert result.condition is not None
    return result.condition


def parse_condition_with_errors(text: str) -> ParseResult:
    """Parse a condition and collect all errors. An error in the structure of the text hides later errors."""
    parser = _Parser(text)
    try:
        node = parser.parse_text()
        if not isinstance(node, Compare | Bool):
            parser.add_error("a condition needs a comparison such as `... > 0`; got a number", node.start, node.stop)
    except ExprError as error:
        return ParseResult(None, (), (*parser.errors, error))
    condition = node if isinstance(node, Compare | Bool) else None
    return ParseResult(condition, tuple(parser.variables.values()), tuple(parser.errors))


def parse_number(text: str) -> Node:
    """Parse an expression that is a number. If the text has errors, raise the first one."""
    parser = _Parser(text)
    node = parser.require_number(parser.parse_text())
    if parser.errors:
        raise parser.errors[0]
    return node


class _Parser:
    """The state of the parser for one text: the next token, the variables and errors so far, and the nesting."""

    def __init__(self, text: str) -> None:
        if not isinstance(text, str):
            message = f"an expression must be a str; got {type(text).__name__}"
            raise TypeError(message)
        self.variables: dict[Key, Variable] = {}
        self.errors: list[ExprError] = []
        self._text = text
        self._nesting = 0
        self._token = Token("end", "", 0, 0)

    def parse_text(self) -> Node:
        """Parse the whole text as one expression."""
        if len(self._text) > MAX_LENGTH:
            message = f"an expression must have at most {MAX_LENGTH} characters; got {len(self._text)}"
            raise ExprError(message)
        self._next()
        node = self._parse_expression(0)
        token = self._token
        if token.kind != "end":
            self._fail(f"expected an operator or the end; got {_format_token(token)}", token.start, token.stop)
        if tree_depth(node) > MAX_DEPTH:
            message = f"a chain of operators must be at most {MAX_DEPTH} deep; group its parts with parentheses"
            self._fail(message, node.start, node.stop)
        return node

    def _parse_expression(self, min_precedence: int) -> Node:
        """Parse an operand and the operators after it whose precedence is at least `min_precedence`."""
        self._nesting += 1
        if self._nesting > MAX_NESTING:
            token = self._token
            self._fail(f"an expression must be nested at most {MAX_NESTING} deep", token.start, token.stop)
        left = self._parse_operand()
        # `a and b and c` is one node, `(a and b) and c` is two nodes: extend only a node that this loop created.
        created = False
        while (token := self._token).kind == "op" and PRECEDENCE.get(token.text, -1) >= min_precedence:
            self._next()
            # `**` is right-associative and accepts a minus on its right; all other operators are left-associative.
            right = self._parse_expression(UNARY_PRECEDENCE if token.text == "**" else PRECEDENCE[token.text] + 1)
            extend = created and isinstance(left, Bool) and left.op == token.text
            left = self._join(left, token, right, extend=extend)
            created = True
        self._nesting -= 1
        return left

    def _join(self, left: Node, token: Token, right: Node, *, extend: bool) -> Node:
        op, start, stop = token.text, left.start, right.stop
        if op in JUNCTIONS:
            args = left.args if extend and isinstance(left, Bool) else (self._require_condition(left, op),)
            return Bool(op, (*args, self._require_condition(right, op)), start=start, stop=stop)
        if op not in COMPARISONS:
            return Binary(op, self.require_number(left), self.require_number(right), start=start, stop=stop)
        if isinstance(left, Compare):
            middle = self._text[left.right.start : left.right.stop]
            middle = middle if len(middle) <= 30 else "..."
            example = f"... {left.op} {middle} and {middle} {op} ..."
            self._fail(f"comparisons are not chained; write `{example}`", token.start, token.stop)
        return Compare(op, self.require_number(left), self.require_number(right), start=start, stop=stop)

    def _parse_operand(self) -> Node:
        token = self._next()
        if token.kind == "number":
            value = float(token.text)
            if not math.isfinite(value):
                message = f"`{token.text}` is too large for a number; expected a finite number"
                self._fail(message, token.start, token.stop)
            return Number(value, start=token.start, stop=token.stop)
        if token.kind == "name":
            return self._parse_call(token) if self._token.text == "(" else self._parse_variable(token)
        if token.text == "-":
            operand = self.require_number(self._parse_expression(UNARY_PRECEDENCE))
            return Unary(operand, start=token.start, stop=operand.stop)
        if token.text == "(":
            inner = self._parse_expression(0)
            end = self._expect_closing(token)
            return replace(inner, start=token.start, stop=end.stop)
        self._fail(f"{EXPECTED_OPERAND}; got {_format_token(token)}", token.start, token.stop)

    def _parse_call(self, name: Token) -> Node:
        if name.text not in FUNCTIONS:
            near = difflib.get_close_matches(name.text.lower(), FUNCTIONS, 1)
            near = ["ln"] if name.text == "log" else near  # `log` is the natural logarithm in many languages.
            hint = f"did you mean `{near[0]}`?" if near else f"the functions are {', '.join(FUNCTIONS)}"
            self.add_error(f"`{name.text}` is not a function; {hint}", name.start, name.stop)
        opening = self._next()
        args: list[Node] = []
        while not args or self._token.text == ",":
            if args:
                self._next()
            elif self._token.text == ")":
                break
            arg = self._parse_expression(0)
            is_test = name.text == "where" and not args
            args.append(self._require_condition(arg, "where") if is_test else self.require_number(arg))
        end = self._expect_closing(opening)
        if name.text not in FUNCTIONS:
            return replace(PLACEHOLDER, start=name.start, stop=end.stop)
        least, most = FUNCTIONS[name.text]
        if len(args) < least or (most is not None and len(args) > most):
            message = f"`{name.text}` takes {format_arity(name.text)} arguments; got {len(args)}"
            return self.add_error(message, name.start, end.stop)
        return Call(name.text, tuple(args), start=name.start, stop=end.stop)

    def _parse_variable(self, token: Token) -> Node:
        stream, dot, column = token.text.partition(".")
        if stream in FUNCTIONS:
            message = f"`{stream}` is a function and cannot name a stream; expected `{stream}(...)`"
            return self.add_error(message, token.start, token.stop)
        variable = Variable(stream, column if dot else None, start=token.start, stop=token.stop)
        self.variables.setdefault(variable.key, variable)
        return variable

    def require_number(self, node: Node) -> Node:
        """Return a node that is a number. Replace a condition by a placeholder and add an error."""
        if is_condition(node):
            return self.add_error("expected a number; got a condition", node.start, node.stop)
        return node

    def _require_condition(self, node: Node, operator: str) -> Node:
        """Return a node that is a condition. Replace a number by a placeholder and add an error."""
        if is_condition(node):
            return node
        message = f"`{operator}` expected a comparison such as `... > 0`; got a number"
        placeholder = self.add_error(message, node.start, node.stop)
        return Compare(">", placeholder, placeholder, start=node.start, stop=node.stop)

    def _expect_closing(self, opening: Token) -> Token:
        token = self._next()
        if token.text == ")":
            return token
        if token.kind == "end":
            self._fail("expected `)` for this `(`; got the end", opening.start, opening.stop)
        self._fail(f"expected an operator or `)`; got {_format_token(token)}", token.start, token.stop)

    def _next(self) -> Token:
        """Return the current token and read the next one."""
        token = self._token
        self._token = read_token(self._text, token.stop)
        return token

    def add_error(self, message: str, start: int, stop: int) -> Variable:
        """Add an error after which parsing continues, and return the placeholder for the part."""
        if len(self.errors) == MAX_ERRORS:
            self._fail(f"more than {MAX_ERRORS} errors; the rest of the condition was not checked", start, stop)
        self.errors.append(syntax_error(self._text, message, start, stop))
        return replace(PLACEHOLDER, start=start, stop=stop)

    def _fail(self, message: str, start: int, stop: int) -> NoReturn:
        raise syntax_error(self._text, message, start, stop)


def _format_token(token: Token) -> str:
    return "the end" if token.kind == "end" else f"`{token.text}`"
