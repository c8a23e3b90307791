"""Find the streams and columns that a query names; upper and lower case are alike where that is clear, as in Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from sqlglot import exp

from tocsin.query.model import Kind
from tocsin.query.read import Script
from tocsin.rules.suggestions import nearest_clause


@dataclass(frozen=True)
class Streams:
    """The streams that there are, with their columns, which of these has the time, and what is known of their kinds."""

    columns: Mapping[str, Sequence[str]]
    time: str
    kinds: Mapping[str, Mapping[str, Kind]] = field(default_factory=dict)

    def stream(self, script: Script, node: exp.Expr) -> str:
        """The stream that is meant."""
        return _find(script, node, list(self.columns), "stream")

    def column_of(self, script: Script, stream: str, node: exp.Expr) -> str:
        """The column of a stream that is meant."""
        return _find(script, node, list(self.columns[stream]), f"column of `{stream}`")


def _find(script: Script, node: exp.Expr, known: Sequence[str], what: str) -> str:
    name = node.name
    found = [one for one in known if one == name] or [one for one in known if one.lower() == name.lower()]
    if not found:
        listed = ", ".join(known[:20]) or "none"
        script.refuse(f"`{name}` must be a {what}; expected one of {listed}{nearest_clause(name, known)}", node)
    if len(found) > 1:
        script.refuse(f"`{name}` is ambiguous; the matching names are {', '.join(found)}", node)
    return found[0]


def twice(names: Sequence[str]) -> str | None:
    """A name that stands more than once, if one does."""
    return next((name for at, name in enumerate(names) if name in names[:at]), None)


@dataclass(frozen=True)
class Named:
    """The streams of one query by the names that it gives them, in the order of FROM."""

    script: Script
    streams: Streams
    aliases: tuple[str, ...]
    names: tuple[str, ...]

    def find(self, node: exp.Column) -> tuple[int, str]:
        """The stream and the column that are meant."""
        if node.args.get("db") or node.args.get("catalog"):
            self.script.refuse("a column must be written `column` or `stream.column`", node)
        table = node.args.get("table")
        if table is not None:
            number = self.aliases.index(_find(self.script, table, self.aliases, "stream of FROM"))
            return number, self.streams.column_of(self.script, self.names[number], node.this)
        holders = [
            number
            for number, name in enumerate(self.names)
            if any(column.lower() == node.name.lower() for column in self.streams.columns[name])
        ]
        if len(holders) > 1:
            self.script.refuse(
                f"`{node.name}` is ambiguous: both streams have this column; write `stream.{node.name}`", node
            )
        number = holders[0] if holders else 0
        return number, self.streams.column_of(self.script, self.names[number], node.this)

    def kind(self, number: int, column: str) -> Kind | None:
        """What a column of a stream holds, if that is known."""
        return self.streams.kinds.get(self.names[number], {}).get(column)

    def number(self, node: exp.Column) -> tuple[int, str]:
        """The stream and the column that are meant, which must hold numbers."""
        number, column = self.find(node)
        self.check_number(number, column, node)
        return number, column

    def check_number(self, number: int, column: str, node: exp.Expr) -> None:
        """Refuse a column that holds something else than numbers."""
        kind = self.kind(number, column)
        if kind is not None and not kind.is_number:
            self.script.refuse(f"`{column}` must hold numbers here; it holds {kind.name}", node)

    def is_time(self, column: str) -> bool:
        """Whether a column has the time."""
        return column == self.streams.time


def literal_number(node: exp.Expr | None) -> int | float:
    """The number that stands there; NaN if it is none.

    >>> literal_number(exp.Neg(this=exp.Literal.number("2.5")))
    -2.5
    """
    if isinstance(node, exp.Neg):
        return -literal_number(node.this)
    if isinstance(node, exp.Paren):
        return literal_number(node.this)
    if not isinstance(node, exp.Literal) or node.is_string:
        return float("nan")
    text = node.this
    try:
        return int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else float(text)
    except ValueError:
        return float("nan")


def literal_decimal(node: exp.Expr) -> Decimal | None:
    """The number that stands there to its last digit, as Spark reads one without an exponent; others are doubles.

    >>> literal_decimal(exp.Neg(this=exp.Literal.number("2.50")))
    Decimal('-2.50')
    """
    if isinstance(node, exp.Neg | exp.Paren):
        inner = literal_decimal(node.this)
        return inner.copy_negate() if isinstance(node, exp.Neg) and inner is not None else inner
    return None if "e" in node.this.lower() else Decimal(node.this)
