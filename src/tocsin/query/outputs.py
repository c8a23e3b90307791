"""What SELECT and FROM name: the columns of the answer, and the streams with the rows that count."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from tocsin.query.model import Column, Filter, Source
from tocsin.query.names import Named, twice


def sources_of(named: Named, filters: Sequence[tuple[int, Filter]]) -> tuple[Source, ...]:
    """The streams of FROM, each with its filters."""
    pairs = enumerate(zip(named.names, named.aliases, strict=True))
    return tuple(Source(name, alias, tuple(one for at, one in filters if at == i)) for i, (name, alias) in pairs)


def outputs_of(named: Named) -> tuple[Column, ...]:
    """The columns of the answer; `*` stands for all."""
    found: list[Column] = []
    for item in named.script.select.expressions:
        node = item.this if isinstance(item, exp.Alias) else item
        star = node.this if isinstance(node, exp.Column) else node
        if isinstance(star, exp.Star) and (any(star.args.values()) or item is not node):
            named.script.refuse("`*` must not be combined with AS or other words", item)
        elif isinstance(node, exp.Star):
            found += _all(named, range(len(named.names)), node)
        elif isinstance(star, exp.Star):
            number = named.aliases.index(_alias(named, node))
            found += _all(named, [number], node)
        elif isinstance(node, exp.Column):
            number, column = named.find(node)
            _check_shown(named, number, column, item)
            found.append(Column(item.alias or node.name, number, column))
        else:
            named.script.refuse("SELECT must list columns, or aggregates (AVG, SUM, COUNT, MEDIAN) of one stream", item)
    return tuple(found)


def _alias(named: Named, node: exp.Column) -> str:
    wanted = node.args["table"]
    for alias in named.aliases:
        if wanted is not None and alias.lower() == wanted.name.lower():
            return alias
    named.script.refuse(f"`{node.sql()}` must name a stream of FROM", node)


def _all(named: Named, numbers: Sequence[int], node: exp.Expr) -> list[Column]:
    found = []
    for i in numbers:
        names = named.streams.columns[named.names[i]]
        if (name := twice(names)) is not None:
            named.script.refuse(
                f"`*` needs columns with different names; `{named.names[i]}` has several columns `{name}`", node
            )
        for name in names:
            _check_shown(named, i, name, node)
            found.append(Column(name, i, name))
    return found


def _check_shown(named: Named, number: int, column: str, node: exp.Expr) -> None:
    kind = named.kind(number, column)
    if kind is not None and not kind.is_shown:
        named.script.refuse(f"`{column}` cannot be a column of the result: its type {kind.name} is not supported", node)
