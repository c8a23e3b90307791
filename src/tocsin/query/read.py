"""Read SQL into trees: bounded in length and nesting, so that hostile text gives one error and costs no more.

Nothing of the text is ever executed: a tree is looked through, and what is not known is refused.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NoReturn

from sqlglot import exp
from sqlglot.errors import SqlglotError, TokenError
from sqlglot.tokenizer_core import TokenType

from tocsin.errors import SqlError
from tocsin.query.dialect import CreateSummary, MistakeError, Tocsin, clause_of, span_of

# Enough for some hundred SELECTs.
MAX_LENGTH = 50_000
MAX_TOKENS = 10_000
MAX_NESTING = 50
_OPENING = (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE)
_CLOSING = (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE)
_OFFSET = re.compile(r"from \d+:(\d+)$")


@dataclass(frozen=True)
class Script:
    """Statements of one text: summaries that it declares, and what it asks; `select` is the one at hand."""

    text: str
    summaries: tuple[CreateSummary, ...]
    selects: tuple[exp.Select, ...]
    select: exp.Select

    def stream_names(self) -> list[str]:
        """The names that stand for streams, as they are written."""
        tables = [table.name for select in self.selects for table in select.find_all(exp.Table)]
        return list(dict.fromkeys([*tables, *(node.args["stream"].name for node in self.summaries)]))

    def refuse(self, message: str, node: exp.Expr) -> NoReturn:
        """Say that a part of it cannot be meant so."""
        raise SqlError(message, self.text, *_closed(self.text, *span_of(node)))

    def refuse_clause(self, message: str, node: exp.Expr) -> NoReturn:
        """Say that a clause cannot be meant so; the words that it begins with are marked."""
        raise SqlError(message, self.text, *clause_of(node))


def _closed(text: str, start: int, stop: int) -> tuple[int, int]:
    """Take in the parentheses that a place opens: a tree does not know where they close."""
    while text[start:stop].count("(") > text[start:stop].count(")"):
        at = text.find(")", stop)
        if at < 0 or text[stop:at].strip():
            break
        stop = at + 1
    return start, stop


def parse_sql(text: str) -> Script:
    """Read statements that are divided by semicolons: any number of CREATE SUMMARY, and what is asked.

    >>> parse_sql("SELECT a FROM s WHERE a > 5").select.sql()
    'SELECT a FROM s WHERE a > 5'
    >>> parse_sql("DROP TABLE s")
    Traceback (most recent call last):
    tocsin.errors.SqlError: 1:1: expected CREATE SUMMARY or SELECT; got `DROP`
      DROP TABLE s
      ^^^^
    """
    _check_text(text)
    try:
        trees = _trees(text)
    except MistakeError as error:
        raise SqlError(error.message, text, error.start, error.stop) from None
    except RecursionError:
        message = "the statement is nested too deeply"
        raise SqlError(message, text, 0, 1) from None
    except SqlglotError:
        message = "SQL must be CREATE SUMMARY or SELECT statements; this is another statement"
        raise SqlError(message, text, 0, 1) from None
    return _script(text, trees)


def _trees(text: str) -> list[exp.Expr]:
    dialect = Tocsin()
    try:
        tokens = dialect.tokenize(text)
    except TokenError as error:
        found = _OFFSET.search(str(error.__cause__ or error))
        start = min(int(found[1]), len(text) - 1) if found else 0
        message = f"unterminated `{text[start]}`: add the closing delimiter"
        raise MistakeError(message, start, start + 1) from None
    if len(tokens) > MAX_TOKENS:
        message = f"SQL must have at most {MAX_TOKENS:,} tokens; got {len(tokens):,}"
        raise MistakeError(message, tokens[MAX_TOKENS].start, tokens[MAX_TOKENS].end + 1)
    depth = 0
    for token in tokens:
        depth += (token.token_type in _OPENING) - (token.token_type in _CLOSING)
        if depth > MAX_NESTING:
            message = f"parentheses must be nested at most {MAX_NESTING} deep"
            raise MistakeError(message, token.start, token.end + 1)
    for comma, token in pairwise(tokens):
        if comma.token_type == TokenType.COMMA and token.token_type == TokenType.FROM:
            message = "unexpected comma before FROM"
            raise MistakeError(message, comma.start, comma.end + 1)
    # A statement behind the last semicolon that has nothing in it is none.
    while tokens and tokens[-1].token_type == TokenType.SEMICOLON:
        tokens.pop()
    return [tree for tree in dialect.parser().parse(tokens, text) if tree is not None]


def _check_text(text: str) -> None:
    if not isinstance(text, str):
        message = f"SQL must be text; got {type(text).__name__}"
        raise TypeError(message)
    if len(text) > MAX_LENGTH:
        message = f"SQL must have at most {MAX_LENGTH:,} characters; got {len(text):,}"
        raise SqlError(message, text[:MAX_LENGTH], 0, 1)
    for place, char in enumerate(text):
        if not char.isprintable() and char not in "\n\t\r":
            # Drawn as a question mark: a terminal would not show it, or obey it.
            drawn = "".join(c if c.isprintable() or c in "\n\t\r" else "?" for c in text)
            name = unicodedata.name(char, "a control character")
            message = f"SQL must be printable text; got U+{ord(char):04X} ({name})"
            raise SqlError(message, drawn, place, place + 1)


def _script(text: str, trees: Sequence[exp.Expr]) -> Script:
    summaries = [tree for tree in trees if isinstance(tree, CreateSummary)]
    others = [tree for tree in trees if not isinstance(tree, CreateSummary)]
    selects = [tree for tree in others if isinstance(tree, exp.Select)]
    for tree in others:
        if not isinstance(tree, exp.Select):
            message = "a statement must be CREATE SUMMARY or one plain SELECT"
            raise SqlError(message, text, *span_of(tree))
    if not selects:
        message = "expected a SELECT statement; got only CREATE SUMMARY"
        raise SqlError(message, text, len(text.rstrip()), len(text.rstrip()) + 1)
    return Script(text, tuple(summaries), tuple(selects), selects[0])
