"""Find what is wrong with a script whatever columns its streams have, so that it is told before any is opened.

Each SELECT is resolved as if its streams had just the columns that the text names, each of a kind that serves for all.
What is refused even then could be meant of no columns. Nothing is refused that some columns would make right: where the
text does not say which stream a column is of, or names two that differ in case alone, only its clauses are looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from tocsin.query.clauses import budget_of, fade_of, slide_us_of, window_us_of
from tocsin.query.model import WHOLE, Kind, Value
from tocsin.query.names import Streams
from tocsin.query.read import Script
from tocsin.query.resolve import begun, resolve


@dataclass(frozen=True)
class _Any(Kind):
    """A kind of which nothing is known: it may be any, and have numbers that are no doubles."""

    def fits(self, value: Value) -> bool:
        """It may be of the kind of the value."""
        return True

    def is_exact_at(self, value: Value) -> bool:
        """It need not be."""
        return False


_ANY = _Any("unknown", WHOLE)


def check_script(script: Script, streams: Sequence[str], time: str = "ts") -> None:
    """Refuse what no columns of these streams could make right; `time` names that of the event time."""
    columns = {name: [time] for name in streams}
    clear = [_assume(select, columns) for select in script.selects]
    for node in script.summaries:
        _add(columns, node.args["stream"].name, node.args["attribute"].name)
    alike = any(len({name.lower() for name in names}) < len(names) for names in columns.values())
    kinds = {stream: dict.fromkeys(names, _ANY) for stream, names in columns.items()}
    for select, is_clear in zip(script.selects, clear, strict=True):
        single = replace(script, selects=(select,), select=select)
        begun(single, Streams(columns, time, kinds))
        _check_clauses(single)
        if is_clear and not alike:
            resolve(single, columns, time, kinds)


def _check_clauses(script: Script) -> None:
    for read in (window_us_of, slide_us_of, fade_of, budget_of):
        read(script)


def _assume(select: exp.Select, columns: dict[str, list[str]]) -> bool:
    """Give streams the columns that a SELECT names; False if it does not say of one which stream it is of."""
    tables = {(table.alias or table.name).lower(): table.name for table in select.find_all(exp.Table)}
    only, clear = next(iter(tables.values()), ""), True
    for node in _columns(select):
        if node.table:
            _add(columns, tables.get(node.table.lower(), ""), node.name)
        else:
            clear = clear and len(tables) < 2
            _add(columns, only, node.name)
    return clear


def _columns(select: exp.Select) -> Iterator[exp.Column]:
    """The columns that a SELECT names; what stands before `.Estimate` is a summary, and a star no name."""
    for node in select.find_all(exp.Column):
        if not isinstance(node.parent, exp.Dot) and not isinstance(node.this, exp.Star):
            yield node


def _add(columns: dict[str, list[str]], stream: str, column: str) -> None:
    """Give a stream a column; one that is not there is refused later, by who asks for it."""
    meant = [stream] if stream in columns else [name for name in columns if name.lower() == stream.lower()]
    for name in meant:
        if column not in columns[name]:
            columns[name].append(column)
