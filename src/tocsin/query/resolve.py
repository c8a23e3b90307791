"""Say what a script asks, given the columns of streams: a join, a selection or aggregates; all else is refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sqlglot import exp

from tocsin.query.clauses import slide_clause
from tocsin.query.declare import Summary, declared
from tocsin.query.dialect import clause_of
from tocsin.query.model import MOMENT, NUMBER, WHOLE, Aggregates, JoinQuery, Kind, Selection
from tocsin.query.names import Named, Streams
from tocsin.query.of_one import kind_of, resolve_aggregates, resolve_selection
from tocsin.query.of_pairs import resolve_join
from tocsin.query.read import Script
from tocsin.query.where import read_where

_KNOWN = ("expressions", "from_", "joins", "where", "tocsin_with", "tocsin_fade", "tocsin_window", "tocsin_budget")
_FORM = "SELECT ... FROM ... WHERE ... WITH PREFERENCE ... FADE FACTOR ... WINDOW ... BUDGET ..."
# Clauses that are not supported, and the method of the resulting DataFrame that replaces them.
_INSTEAD = {
    "distinct": ("DISTINCT", "distinct()"),
    "group": ("GROUP BY", "groupBy()"),
    "having": ("HAVING", "filter()"),
    "qualify": ("QUALIFY", "filter()"),
    "order": ("ORDER BY", "orderBy()"),
    "sort": ("SORT BY", "orderBy()"),
    "limit": ("LIMIT", "limit()"),
    "offset": ("OFFSET", "offset()"),
}


def resolve(
    script: Script,
    columns: Mapping[str, Sequence[str]],
    time: str = "ts",
    kinds: Mapping[str, Mapping[str, Kind]] | None = None,
) -> JoinQuery | Selection | Aggregates:
    """Say what a script asks of streams with these columns, of which `time` has the event time.

    Where it is told what kinds of columns they are, what these cannot be used for is refused.
    """
    if len(script.selects) > 1:
        singles = [replace(script, selects=(select,), select=select) for select in script.selects]
        return _together(script, [resolve(single, columns, time, kinds) for single in singles])
    summaries, named = begun(script, Streams(columns, time, kinds or {}))
    where = read_where(named, script.select.args.get("where"))
    aggregates = [one for one in script.select.expressions if kind_of(one)]
    if len(named.names) < 2 and aggregates:
        return resolve_aggregates(named, summaries, where)
    if (slide := slide_clause(script)) is not None:
        script.refuse("`SLIDE` needs aggregates: the window of a join or a selection moves with each row", slide)
    return resolve_join(named, summaries, where) if len(named.names) > 1 else resolve_selection(named, summaries, where)


def begun(script: Script, streams: Streams) -> tuple[list[Summary], Named]:
    """Read what a script declares, and of which streams it asks; clauses that only other SQL has are refused."""
    summaries = declared(script, streams)
    _check_form(script)
    named = _from(script, streams)
    for one in summaries:
        if one.stream not in named.names:
            script.refuse(
                f"a summary must belong to a stream of FROM; `{one.stream}` is not in FROM",
                one.node.args["stream"],
            )
    return summaries, named


def _together(script: Script, asked: Sequence[JoinQuery | Selection | Aggregates]) -> Selection:
    """Several selections as one, so that they share the work; they may differ in their ranges alone."""
    first, found = asked[0], list[Selection]()
    for one, select in zip(asked, script.selects, strict=True):
        if not isinstance(one, Selection) or not isinstance(first, Selection):
            script.refuse(
                "a script with several SELECTs supports only selections of one stream; this SELECT is not a selection",
                select,
            )
        if replace(one, queries=first.queries) != first:
            script.refuse(
                "several SELECTs may differ only in the ranges of the summarised column and of the time; "
                "this SELECT differs from the first in other parts",
                select,
            )
        if any(column.name.lower() == NUMBER for column in one.outputs):
            script.refuse(
                f"a script with several SELECTs must not have a column `{NUMBER}`: the result uses this name for the "
                "SELECT of a row",
                select,
            )
        found.append(one)
    return replace(found[0], queries=tuple(query for one in found for query in one.queries))


def _check_form(script: Script) -> None:
    """Refuse clauses that only other SQL has."""
    odd = [(_first(script, value), name) for name, value in script.select.args.items() if name not in _KNOWN and value]
    if odd:
        part, name = min(odd, key=lambda one: clause_of(one[0]))
        words, instead = _INSTEAD.get(name, (name.rstrip("_").upper(), ""))
        advice = f"; use {instead} of the resulting DataFrame" if instead else ""
        script.refuse_clause(f"a query must have the form {_FORM}; got `{words}`{advice}", part)
    if not script.select.expressions:
        script.refuse("SELECT must list columns or aggregates; the list is empty", script.select)


def _first(script: Script, value: object) -> exp.Expr:
    """The first part of a clause, or all that is asked where it has none."""
    parts = value if isinstance(value, list) else [value]
    return next((part for part in parts if isinstance(part, exp.Expr)), script.select)


def _from(script: Script, streams: Streams) -> Named:
    head = script.select.args.get("from_")
    if head is None:
        script.refuse("FROM is missing: name the streams of the query", script.select)
    tables = [head.this]
    for join in script.select.args.get("joins") or []:
        # A comma is a join of this kind; others, as ANTI, ask for something else.
        odd = [name for name, value in join.args.items() if value and name not in ("this", "kind")]
        if odd or join.kind != "CROSS":
            script.refuse("streams must be separated by commas; write join conditions in WHERE", join)
        tables.append(join.this)
    for table in tables:
        odd = [name for name, value in table.args.items() if value and name not in ("this", "alias")]
        alias = table.args.get("alias")
        odd += [alias] if isinstance(alias, exp.TableAlias) and not _is_plain(alias) else []
        if not isinstance(table, exp.Table) or odd or not isinstance(table.this, exp.Identifier):
            script.refuse("FROM must list names of streams; use an alias if a stream is joined with itself", table)
    if len(tables) > 2:
        script.refuse("a query must read one or two streams; this is the third", tables[2])
    names = tuple(streams.stream(script, table.this) for table in tables)
    for table, name in zip(tables, names, strict=True):
        _check_time(script, streams, name, table)
    aliases = tuple(table.alias or table.name for table in tables)
    if len({alias.lower() for alias in aliases}) < len(aliases):
        script.refuse(f"names in FROM must be unique; got `{aliases[0]}` twice", tables[1])
    return Named(script, streams, aliases, names)


def _is_plain(alias: exp.TableAlias) -> bool:
    """Whether another name of a stream is one, and no version (`s@v1`) or list of columns."""
    return isinstance(alias.this, exp.Identifier) and not alias.columns


def _check_time(script: Script, streams: Streams, name: str, table: exp.Expr) -> None:
    """Refuse a stream without a column of time, or with one that holds something else."""
    if list(streams.columns[name]).count(streams.time) != 1:
        listed = ", ".join(streams.columns[name])
        script.refuse(
            f"stream `{name}` must have exactly one time column {streams.time!r}; its columns are {listed}", table
        )
    kind = streams.kinds.get(name, {}).get(streams.time)
    if kind is not None and kind.group not in (MOMENT, WHOLE):
        script.refuse(
            f"stream `{name}`: column {streams.time!r} must be a timestamp or integer microseconds; its type is "
            f"{kind.name}",
            table,
        )
