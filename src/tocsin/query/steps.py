"""Queries as steps of a plan: a join is a rule that emits every pair, a query of one stream a `Select`.

A join so has all that joins of rules have: the operator, its state and counts, and where its budget is limited the
anytime join that `quality.cpu` of a rule has.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from tocsin.plan import Plan, Select, Watch, make_plan
from tocsin.query.model import KEY, ONE, ROW, TIME, Aggregates, JoinQuery, Selection
from tocsin.rules.durations import MOST_US
from tocsin.rules.model import Rule

ALERT = "query"


def rule_of(asked: JoinQuery) -> Rule:
    """A rule that is true of every pair that a join asks for."""
    aliases = [source.alias for source in asked.streams]
    terms = [f"{alias}.{ONE}" for alias in aliases]
    if not asked.is_exact:
        # Read for what is preferred, and decides nothing. An exact join needs no summaries, and no order of work.
        terms += [
            f"0 * {alias}.{name}" for alias, names in zip(aliases, asked.preferred, strict=True) for name in names
        ]
    always = f"{' + '.join(terms)} > 0"
    expr = f"{always} and {asked.condition}" if asked.condition else always
    # Where all of a stream counts, the rows of a pair may be as far apart as can be said.
    within_us = MOST_US if asked.layout.window_us is None else asked.layout.window_us
    # A share is given below; that there is one makes it an anytime join.
    quality = None if asked.is_exact else {"cpu": "100%"}
    return Rule(ALERT, expr, within=timedelta(microseconds=within_us), on=[KEY], emit="all", quality=quality)


def plan_of(asked: JoinQuery, *, bounded: bool) -> Plan:
    """The plan of a join.

    Rows of a bounded one come in order of time, so none need be kept for those behind; where units are limited rows
    are kept for another window, in which what they have to probe may still be done.
    """
    rule = rule_of(asked)
    columns = {
        source.alias: [KEY, TIME, ONE, ROW, *dict.fromkeys([*read, *preferred])]
        for source, read, preferred in zip(asked.streams, asked.read, asked.preferred, strict=True)
    }
    if (bounded and asked.is_exact) or asked.layout.window_us is None:
        rule = replace(rule, allowed_lateness=0)
    plan = make_plan(rule, columns, time=TIME)
    return replace(plan, watches=tuple(_spending(asked, watch) for watch in plan.watches))


def _spending(asked: JoinQuery, watch: Watch) -> Watch:
    """Let a join spend what was asked; rows go with their window, though their keys be silent."""
    planned = watch.anytime
    if planned is None:
        return watch
    summary = asked.layout if asked.is_declared else None
    cores, units = asked.budget.cores, asked.budget.units
    anytime = replace(planned, cores=cores, units=units, preference=asked.preference, summary=summary)
    return replace(watch, anytime=anytime, key_ttl_us=anytime.window_us)


def select_of(asked: Selection | Aggregates) -> Select:
    """The step of a query of one stream; what it reads has the names that `read_of` gives."""
    columns = dict.fromkeys(one.column for one in asked.outputs) if isinstance(asked, Selection) else {}
    ranged, *others = read_of(asked)
    return Select(
        asked.streams[0].alias,
        ranged,
        asked.layout,
        asked.queries if isinstance(asked, Selection) else (asked.query,),
        asked.preference or Select.preference,
        asked.budget.cores,
        asked.budget.units,
        aggregates=isinstance(asked, Aggregates),
        of=others[0] if others else None,
        slide_us=asked.slide_us if isinstance(asked, Aggregates) else None,
        rows=repr((asked.streams[0].name, asked.streams[0].filters, list(columns), read_of(asked))),
    )


def read_of(asked: Selection | Aggregates) -> dict[str, str | None]:
    """The columns that a query of one stream reads as numbers, by plain names: a user's may have any signs.

    None is a number that all rows have.
    """
    of = asked.of if isinstance(asked, Aggregates) else None
    found = {"ranged": asked.column}
    if of is not None and of != asked.column:
        found["of"] = of
    return found
