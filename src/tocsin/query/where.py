"""WHERE as what a query is made of: equal keys, ranges, times, filters, and what must hold of a pair."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf, isfinite, isnan, nextafter

from sqlglot import exp

from tocsin.errors import RuleError
from tocsin.query.model import Filter, Kind, Value
from tocsin.query.names import Named, literal_decimal, literal_number
from tocsin.query.prefer import condition_text, expression_text, plain
from tocsin.rules.durations import time_us
from tocsin.runtime.contract import FIRST_US, LAST_US
from tocsin.stages.promising.layout import FOREVER

_OPS: dict[type[exp.Expr], str] = {exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="}
_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_OF_PAIRS = ("<", "<=", ">", ">=")
_MOST_WHOLE = 1 << 63
# Of a number that is compared: as many as Spark's have.
_MOST_DIGITS = 38


@dataclass
class Where:
    """What WHERE says: equalities of columns, filters by stream with the nodes that they stand in, conditions."""

    keys: list[tuple[tuple[str, str], exp.Expr]] = field(default_factory=list)
    filters: list[tuple[int, Filter, exp.Expr]] = field(default_factory=list)
    conditions: list[str] = field(default_factory=list)
    read: list[tuple[int, str]] = field(default_factory=list)


def read_where(named: Named, node: exp.Where | None) -> Where:
    """Take WHERE apart; `AND` alone may join its parts."""
    found = Where()
    for part in _parts(node.this) if node is not None else ():
        _read(named, part, found)
    return found


def _parts(node: exp.Expr) -> Iterator[exp.Expr]:
    """The parts that AND joins, in order; a chain of thousands must not be as many calls deep."""
    waiting = [node]
    while waiting:
        part = waiting.pop()
        if isinstance(part, exp.And):
            waiting += [part.expression, part.this]
        elif isinstance(part, exp.Paren):
            waiting.append(part.this)
        else:
            yield part


def _read(named: Named, node: exp.Expr, found: Where) -> None:
    op = _OPS.get(type(node))
    if op is not None and isinstance(node, exp.Binary):
        _compare(named, node, op, found)
    elif isinstance(node, exp.Between) and not node.args.get("symmetric"):
        _filter(named, node.this, ">=", [node.args["low"]], node, found)
        _filter(named, node.this, "<=", [node.args["high"]], node, found)
    elif isinstance(node, exp.In) and node.expressions and not node.args.get("query"):
        _filter(named, node.this, "in", node.expressions, node, found)
    elif isinstance(node, exp.Is) and isinstance(node.expression, exp.Null):
        _filter(named, node.this, "is null", [], node, found)
    elif isinstance(node, exp.Not) and isinstance(node.this, exp.Is) and isinstance(node.this.expression, exp.Null):
        _filter(named, node.this.this, "is not null", [], node, found)
    else:
        named.script.refuse(
            "WHERE must consist of comparisons joined by AND: a column with a value (=, <>, <, <=, >, >=, BETWEEN, IN, "
            "IS NULL), or columns of two streams with each other",
            node,
        )


def _compare(named: Named, node: exp.Binary, op: str, found: Where) -> None:
    left, right = node.this, node.expression
    one, two = (named.find(side) if _is_column(side) else None for side in (left, right))
    if one and two and one[0] != two[0] and op == "=":
        first, second = sorted([one, two])
        found.keys.append(((first[1], second[1]), node))
    elif one and _is_value(right):
        _filter(named, left, op, [right], node, found)
    elif two and _is_value(left):
        _filter(named, right, _TURNED.get(op, op), [left], node, found)
    elif op in _OF_PAIRS and len(named.aliases) > 1:
        text = f"{_text(named, left, found)} {op} {_text(named, right, found)}"
        found.conditions.append(condition_text(named.script, [text], node))
    else:
        named.script.refuse(
            "a comparison must be between a column and a value, or between two streams with <, <=, >, >=", node
        )


def _text(named: Named, node: exp.Expr, found: Where) -> str:
    def column(part: exp.Column) -> str:
        number, name, text = plain(named, part)
        found.read.append((number, name))
        return text

    return expression_text(named.script, node, column, None)


def _is_column(node: exp.Expr) -> bool:
    return isinstance(node, exp.Column) and not isinstance(node.this, exp.Star)


def _is_value(node: exp.Expr) -> bool:
    is_cast = isinstance(node, exp.Cast) and isinstance(node.this, exp.Literal)
    return is_cast or isinstance(node, exp.Literal | exp.Boolean) or not isnan(literal_number(node))


def _filter(named: Named, column: exp.Expr, op: str, values: list[exp.Expr], node: exp.Expr, found: Where) -> None:
    if not isinstance(column, exp.Column) or not _is_column(column):
        named.script.refuse("the left side of a comparison with values must be a column", node)
    number, name = named.find(column)
    kind = named.kind(number, name)
    read = tuple(_time(named, value) if named.is_time(name) else _of_kind(named, value, name, kind) for value in values)
    found.filters.append((number, Filter(name, op, read), node))


def _of_kind(named: Named, node: exp.Expr, column: str, kind: Kind | None) -> Value:
    value = _value(named, node)
    if kind is not None and not kind.fits(value):
        message = f"`{column}` must be compared with a value of its type, {kind.name}; got {node.sql()}"
        named.script.refuse(message, node)
    return value


def _value(named: Named, node: exp.Expr) -> Value:
    """A value as it is compared; a number without an exponent to its last digit."""
    if isinstance(node, exp.Boolean):
        return bool(node.this)
    if isinstance(node, exp.Literal) and node.is_string:
        return str(node.this)
    number = literal_number(node)
    if not isfinite(number):
        named.script.refuse("a column must be compared with a finite number, a string, TRUE or FALSE", node)
    if isinstance(number, int) and abs(number) < _MOST_WHOLE:
        return number
    exact = literal_decimal(node)
    if exact is not None and max(len(exact.as_tuple().digits), -int(exact.as_tuple().exponent)) > _MOST_DIGITS:
        named.script.refuse(f"a number must have at most {_MOST_DIGITS} digits", node)
    return number if exact is None else exact


def _time(named: Named, node: exp.Expr) -> int:
    text = node.this if isinstance(node, exp.Cast) and isinstance(node.this, exp.Literal) else node
    is_stamp = not isinstance(node, exp.Cast) or node.to.this.name.startswith("TIMESTAMP")
    if not isinstance(text, exp.Literal) or not text.is_string or not is_stamp:
        named.script.refuse("the time must be compared with a time such as TIMESTAMP '2026-01-01 00:00:00'", node)
    try:
        micros = time_us(str(text.this), "the time")
    except (RuleError, OverflowError):
        micros = LAST_US + 1
    if not FIRST_US <= micros <= LAST_US:
        named.script.refuse(
            "a time must be in ISO 8601 and in the years 1 to 9999, such as '2026-01-01 00:00:00'", node
        )
    return micros


@dataclass
class Range:
    """A closed range of numbers, and one of times whose end is exclusive."""

    low: float = -inf
    high: float = inf
    since_us: int = -FOREVER
    until_us: int = FOREVER

    def narrow(self, one: Filter) -> bool:
        """Take a filter of the ranged column in; False if it is no range of numbers.

        An end that a double cannot be is rounded.
        """
        if len(one.values) != 1 or isinstance(one.values[0], bool | str):
            return False
        value = float(one.values[0])
        if one.op in ("=", ">=", ">"):
            self.low = max(self.low, nextafter(value, inf) if one.op == ">" else value)
        if one.op in ("=", "<=", "<"):
            self.high = min(self.high, nextafter(value, -inf) if one.op == "<" else value)
        return one.op in ("=", "<", "<=", ">", ">=")

    def narrow_time(self, one: Filter) -> bool:
        """Take a filter of the time in; False if it is no stretch of time."""
        if len(one.values) != 1:
            return False
        micros = int(one.values[0])
        if one.op in ("=", ">=", ">"):
            self.since_us = max(self.since_us, micros + (one.op == ">"))
        if one.op in ("=", "<=", "<"):
            self.until_us = min(self.until_us, micros + (one.op != "<"))
        return one.op in ("=", "<", "<=", ">", ">=")
