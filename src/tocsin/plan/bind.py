"""Bind: parse the condition of a rule, and find the column or the limit that each of its variables reads.

All errors of a rule are added to its diagnostics. A rule with an unknown name is checked as far as its other names
permit: no error is reported that can be a consequence of the unknown name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tocsin.errors import NAME, Diagnostics
from tocsin.expr.parser import ParseResult
from tocsin.expr.syntax_tree import Compare, Condition, Key, Node, Variable, format_variable, literal_value
from tocsin.plan.steps import Limit
from tocsin.rules.model import Rule
from tocsin.rules.scope import Scope, read_condition

MOST_STREAMS = 8


@dataclass(frozen=True)
class Bound:
    """A rule whose variables are columns or limits. Options of variables have the names that `expr` uses."""

    rule: Rule
    condition: Condition
    read: Mapping[Key, str]
    limits: tuple[Limit, ...]
    recovery: float | None

    @property
    def streams(self) -> list[str]:
        """Streams that the condition reads, in order of first appearance."""
        return list(dict.fromkeys(stream for stream, _ in self.read))

    @property
    def columns(self) -> frozenset[tuple[str, frozenset[str]]]:
        """Columns that the condition reads of each stream."""
        found: dict[str, set[str]] = {}
        for (stream, _), column in self.read.items():
            found.setdefault(stream, set()).add(column)
        return frozenset((stream, frozenset(names)) for stream, names in found.items())


def bind(rule: Rule, scope: Scope, diagnostics: Diagnostics) -> Bound | None:
    """Return a rule with its columns; None if a part of its condition is wrong or doubtful."""
    result = read_condition(rule.expr)
    for error in result.errors:
        span = (error.start, error.stop) if error.text else None
        diagnostics.add("invalid-condition", ["expr"], f"`expr`: {error.message}", quoted=error.text, span=span)
    for name in rule.limits:
        if name in scope.columns:
            message = f"`limits[{name!r}]` must not have the name of a stream"
            diagnostics.add("duplicate-name", ["limits", name], message)
    read, limits = _find_columns(rule, result, scope, diagnostics)
    scope.check_keys(diagnostics, rule.on, [variable.stream for variable in result.variables], "all streams of `expr`")
    is_whole = not result.errors and len(read) + len(limits) == len(result.variables)
    known = {*read, *(limit.variable for limit in limits)}
    recovery = _recovery(rule, result.condition, known, diagnostics)
    if not is_whole or result.condition is None:
        _check_possible_names(rule, scope, list(dict.fromkeys(stream for stream, _ in read)), diagnostics)
        return None
    bound = Bound(
        _by_own_names(rule.with_fields(recovery=recovery), read, diagnostics),
        result.condition,
        read,
        tuple(limits),
        recovery,
    )
    count = len(bound.streams)
    if 1 <= count <= MOST_STREAMS:
        return bound
    diagnostics.add("stream-count", ["expr"], f"`expr` must read 1 to {MOST_STREAMS} streams", str(count))
    return None


def _find_columns(
    rule: Rule, result: ParseResult, scope: Scope, diagnostics: Diagnostics
) -> tuple[dict[Key, str], list[Limit]]:
    """Return the columns and the limits that the variables read. Report the others."""
    read: dict[Key, str] = {}
    limits: list[Limit] = []
    for variable in result.variables:
        at: dict[str, Any] = {"path": ["expr"], "quoted": rule.expr, "span": (variable.start, variable.stop)}
        table = rule.limits.get(variable.stream, scope.tables.get(variable.stream))
        if table is None or variable.stream in scope.columns:
            column = scope.read_column(diagnostics, variable.key, rule.on, prefix="`expr`: ", **at)
            if column is not None:
                read[variable.key] = column
        elif table.check_column(diagnostics, variable, **at) and variable.stream in rule.limits:
            places = tuple(list(rule.on).index(key) for key in table.on)
            numbers = dict(zip(table.rows, table.column(str(variable.column)), strict=True))
            limits.append(Limit(variable.key, places, numbers))
    return read, limits


def _check_possible_names(rule: Rule, scope: Scope, read: Sequence[str], diagnostics: Diagnostics) -> None:
    """Report names that no condition over the streams could read, and missing time bounds of two known streams."""
    for field in ("shapes", "domains", "tolerance"):
        for name in getattr(rule, field):
            if not scope.may_read(name):
                message = f"`{field}` must name variables of `expr`"
                diagnostics.add("unknown-variable", [field, name, NAME], message, repr(name))
    if isinstance(rule.within, Mapping):
        for pair in rule.within:
            for name in pair:
                if not scope.may_read(name):
                    message = "`within` must name streams of `expr`"
                    diagnostics.add("unknown-stream", ["within", pair, name], message, repr(name))
    elif rule.within is None and len(read) > 1:
        diagnostics.add("missing-within", ["within"], f"`within` is needed to join {', '.join(read)}")


def _by_own_names(rule: Rule, read: Mapping[Key, str], diagnostics: Diagnostics) -> Rule:
    """Name the variables of options as `expr` does; a user can also name them with their columns, as plans do."""
    own = {f"{key[0]}.{column}": format_variable(key) for key, column in read.items()} | {
        format_variable(key): format_variable(key) for key in read
    }
    named: dict[str, Any] = {}
    for field in ("shapes", "domains", "tolerance"):
        mine = named.setdefault(field, {})
        for name, value in getattr(rule, field).items():
            if name not in own:
                names = ", ".join(sorted(map(format_variable, read)))
                message = f"`{field}` must name variables of `expr` ({names})"
                diagnostics.add("unknown-variable", [field, name, NAME], message, repr(name))
            elif own[name] in mine:
                message = f"`{field}` must name each variable once; it names `{own[name]}` twice"
                diagnostics.add("duplicate-name", [field, name, NAME], message, repr(name))
            else:
                mine[own[name]] = value
    return rule.with_fields(**named)


def _recovery(rule: Rule, condition: Condition | None, known: set[Key], diagnostics: Diagnostics) -> float | None:
    """Return the second threshold, which must not be on the firing side of any threshold."""
    if rule.recovery is None or condition is None:
        return None
    right = condition.right if isinstance(condition, Compare) else None
    # An unknown name alone on the right side can be meant as a limit.
    if isinstance(right, Variable) and right.key not in known:
        return None
    thresholds = [] if right is None else _thresholds(rule, right)
    if not thresholds or not isinstance(condition, Compare):
        message = "`recovery` needs one comparison with a number or a column of limits on its right side"
        diagnostics.add("invalid-recovery", ["recovery"], message, f"`{rule.expr}`")
        return None
    above = condition.op in {">", ">="}
    worst = min(thresholds) if above else max(thresholds)
    if (rule.recovery > worst) if above else (rule.recovery < worst):
        message = f"`recovery` must not be {'above' if above else 'below'} the threshold of `{condition.op}`"
        found = f"{rule.recovery:g} and the threshold {worst:g}"
        diagnostics.add("invalid-recovery", ["recovery"], message, found)
        return None
    return float(rule.recovery)


def _thresholds(rule: Rule, right: Node) -> list[float]:
    if isinstance(right, Variable) and right.stream in rule.limits and right.column:
        return rule.limits[right.stream].column(right.column)
    number = literal_value(right)
    return [] if number is None else [number]
