"""A selection from one stream, or aggregates of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from sqlglot import exp

from tocsin.query.clauses import budget_of, check_summary, clause, layout_for, prefer_of, preference_of, slide_us_of
from tocsin.query.declare import Summary
from tocsin.query.model import ENDS, ERROR, Aggregate, Aggregates, Filter, Selection, Source
from tocsin.query.names import Named, twice
from tocsin.query.outputs import outputs_of, sources_of
from tocsin.query.prefer import expression_text
from tocsin.query.where import Range, Where
from tocsin.stages.promising.histogram import Histogram
from tocsin.stages.promising.layout import Layout
from tocsin.stages.promising.preference import Preference
from tocsin.stages.promising.selection import PROMISES, Query, StandingSelection

_KINDS: dict[type[exp.Expr], str] = {exp.Avg: "avg", exp.Sum: "sum", exp.Count: "count", exp.Median: "median"}
# How a preference of one stream calls it and its column.
_STREAM, _VALUE = "s", "value"
_CLOSED = {"<": "<=", ">": ">="}


def _summary_of(named: Named, summaries: Sequence[Summary], where: Where) -> Summary | None:
    """The summary that a query of one stream goes by: that of its preference, else of a column in WHERE, else any.

    Where all is done and nothing preferred, there need be none.
    """
    script, prefer = named.script, prefer_of(named.script)
    mine = [one for one in summaries if one.stream == named.names[0]]
    owners = (
        []
        if prefer is None
        else [node.this.this.name.lower() for node in prefer.find_all(exp.Dot) if isinstance(node.this, exp.Dot)]
    )
    ranged = {one.column for _, one, _ in where.filters}
    if not mine and prefer is None and budget_of(script).is_unlimited:
        return None
    for group in (
        [one for one in mine if one.name.lower() in owners],
        [one for one in mine if one.attribute in ranged],
        mine,
    ):
        if len(group) == 1:
            return group[0]
    script.refuse(
        "a query of one stream with a budget or a preference needs exactly one summary, for example "
        f"CREATE SUMMARY name ON {named.names[0]}(column) WITH HISTOGRAM(low, high, bins); got {len(mine)}",
        script.select.args["from_"],
    )


def _ranged(
    named: Named, summary: Summary | None, where: Where, promise: str, *, needs_window: bool = True
) -> tuple[tuple[Source, ...], Layout, Preference | None, Query]:
    """What a selection and aggregates have in common; without a summary nothing is preferred."""
    script, span, rest = named.script, Range(), list[tuple[int, Filter]]()
    for number, one, _ in where.filters:
        ranged = summary is not None and one.column == summary.attribute
        taken = _narrowed(named, span, one) if ranged else False
        if not taken and not (named.is_time(one.column) and span.narrow_time(one)):
            rest.append((number, one))
    if not (span.low <= span.high and span.since_us < span.until_us):
        script.refuse(
            "WHERE must allow at least one value and time; these ranges are empty", script.select.args["where"]
        )
    if (fade := clause(script, "fade")) is not None:
        script.refuse("`FADE FACTOR` needs a join; this query reads one stream", fade)
    query = Query(span.low, span.high, span.since_us, span.until_us)
    if summary is None:
        layout = layout_for(script, None) if needs_window or clause(script, "window") else Layout()
        layout = replace(layout, variant="T3", scheme=Histogram(0.0, 1.0, 1))
        return sources_of(named, rest), layout, None, query
    named.check_number(0, summary.attribute, summary.node)
    if not isinstance(summary.settings.get("scheme"), Histogram):
        script.refuse("the summary of a query of one stream must be a HISTOGRAM(low, high, bins)", summary.node)
    layout = layout_for(script, summary)
    preference = _preference_of_one(named, summary) or PROMISES[promise]
    try:
        StandingSelection(layout, [query], preference)
    except ValueError as error:
        script.refuse(f"the summary does not fit this query: {error}", summary.node)
    return sources_of(named, rest), layout, preference, query


def _narrowed(named: Named, span: Range, one: Filter) -> bool:
    """Take a filter of the summarised column into its range; False: it must be decided by itself as well.

    The range is one of doubles. Where the column has numbers that are none it is the wider one.
    """
    kind = named.kind(0, one.column)
    if kind is None or all(kind.is_exact_at(value) for value in one.values):
        return span.narrow(one)
    span.narrow(replace(one, op=_CLOSED.get(one.op, one.op)))
    return False


def _preference_of_one(named: Named, summary: Summary) -> Preference | None:
    script, prefer = named.script, prefer_of(named.script)
    if prefer is None:
        return None

    def check(part: exp.Column) -> None:
        if named.find(part)[1] != summary.attribute:
            script.refuse(
                f"the preference of a query of one stream must use only the summarised column `{summary.attribute}`",
                part,
            )

    def column(part: exp.Column) -> str:
        check(part)
        return f"{_STREAM}.{_VALUE}"

    def estimate(owner: exp.Expr, part: exp.Column | None) -> str:
        if part is not None:
            check(part)
        check_summary(script, owner, part, [summary])
        return f"count({_STREAM}.{_VALUE})"

    text = expression_text(script, prefer.this, column, estimate)
    return preference_of(script, prefer, text, {_STREAM: [_VALUE]})


def resolve_selection(named: Named, summaries: Sequence[Summary], where: Where) -> Selection:
    """Say what a selection asks."""
    outputs = outputs_of(named)
    summary = _summary_of(named, summaries, where)
    sources, layout, preference, query = _ranged(named, summary, where, "tuples", needs_window=False)
    column = None if summary is None else summary.attribute
    return Selection(sources, layout, preference, budget_of(named.script), outputs, column, (query,))


def kind_of(item: exp.Expr) -> str | None:
    """Which aggregate an item of SELECT is, if it is one."""
    return _KINDS.get(type(item.this if isinstance(item, exp.Alias) else item))


def _check_names(named: Named, outputs: Sequence[Aggregate], item: exp.Expr) -> None:
    """Refuse the newest aggregate if a column of the answer has its name, or that of its error."""
    ours = [name.lower() for one in outputs for name in (one.name, one.name + ERROR)]
    if (name := twice([*ENDS, *ours])) is not None:
        named.script.refuse(
            f"columns of the result must have different names; `{name}` is used twice (the result also has "
            f"{', '.join(ENDS)} "
            f"and an error column for each aggregate): rename one with AS",
            item,
        )


class _Of(NamedTuple):
    """What an aggregate is of: a column, or all rows."""

    column: str | None
    kind: str
    node: exp.Expr


def _aggregates_of(named: Named) -> tuple[list[Aggregate], list[_Of]]:
    """What SELECT names, and what each is of."""
    script, outputs, of = named.script, list[Aggregate](), list[_Of]()
    for item in script.select.expressions:
        node, kind = item.this if isinstance(item, exp.Alias) else item, kind_of(item)
        if kind is None:
            script.refuse("SELECT must list either columns or aggregates of one stream, not both", item)
        if node.expressions:
            script.refuse("an aggregate must have one column as its argument, or be COUNT(*)", node)
        if isinstance(node.this, exp.Star) and kind == "count":
            of.append(_Of(None, kind, node))
        elif isinstance(node.this, exp.Column) and not isinstance(node.this.this, exp.Star):
            of.append(_Of(named.number(node.this)[1], kind, node))
        else:
            script.refuse("the argument of an aggregate must be a column, or `*` for COUNT", node)
        outputs.append(Aggregate(item.alias or node.sql().lower(), kind))
        _check_names(named, outputs, item)
    return outputs, of


def _check_columns(named: Named, of: Sequence[_Of], columns: Sequence[str], ranged: str | None) -> None:
    """Refuse aggregates of several columns, and what is not known of another column than that of the range."""
    is_other = any(column != ranged for column in columns)
    # Of another column only what can be added up is known.
    odd = [one.node for one in of if is_other and (one.column is None or one.kind == "median")]
    if len(columns) > 1 or odd:
        place = odd[0] if odd else next(one.node for one in of if one.column == columns[1])
        named.script.refuse(
            "all aggregates must read the same column; MEDIAN and COUNT(*) work only on the summarised column "
            f"`{ranged}`",
            place,
        )


def resolve_aggregates(named: Named, summaries: Sequence[Summary], where: Where) -> Aggregates:
    """Say what aggregates ask."""
    outputs, of = _aggregates_of(named)
    summary = _summary_of(named, summaries, where)
    columns = list(dict.fromkeys(one.column for one in of if one.column is not None))
    # Without a summary that of the aggregated column would do, with one bin.
    ranged = summary.attribute if summary is not None else next(iter(columns), None)
    _check_columns(named, of, columns, ranged)
    promise = next((one.kind for one in outputs if one.kind in PROMISES), "tuples")
    sources, layout, preference, query = _ranged(named, summary, where, promise)
    terms = sources, layout, preference, budget_of(named.script)
    of_column = columns[0] if columns else None
    return Aggregates(*terms, tuple(outputs), ranged, query, of_column, slide_us_of(named.script))
