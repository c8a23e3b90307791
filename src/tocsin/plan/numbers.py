"""Numbers beside the condition: the threshold of recovery, and limits that differ per key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tocsin.errors import RuleError
from tocsin.expr import find_variables
from tocsin.expr.syntax_tree import Compare, Condition, Variable, literal_value
from tocsin.plan.steps import Limit
from tocsin.rules.model import Rule


def limits_of(rule: Rule, condition: Condition, streams: Mapping[str, Sequence[str]]) -> tuple[Limit, ...]:
    """The limits that a condition reads, each once."""
    limits = []
    for name in rule.limits:
        if name in streams:
            message = f"{rule.location}: `limits[{name!r}]` must not have the name of a stream"
            raise RuleError(message)
    for stream, column in dict.fromkeys(variable.key for variable in find_variables(condition)):
        if stream not in rule.limits:
            continue
        table = rule.limits[stream]
        if message := table.mistake(stream, column):
            message = f"{rule.location}: {message}"
            raise RuleError(message)
        at = tuple(list(rule.on).index(key) for key in table.on)
        numbers = dict(zip(table.rows, table.column(str(column)), strict=True))
        limits.append(Limit((stream, column), at, numbers))
    return tuple(limits)


def check_recovery(rule: Rule, condition: Condition) -> float | None:
    """The threshold of recovery, if there is one: it must lie on the quiet side of every threshold."""
    if rule.recovery is None:
        return None
    thresholds = _thresholds(rule, condition)
    if not thresholds or not isinstance(condition, Compare):
        message = "`recovery` needs one comparison with a number or a column of limits on its right side"
        message = f"{rule.location}: {message}; got `{condition}`"
        raise RuleError(message)
    above = condition.op in {">", ">="}
    worst = min(thresholds) if above else max(thresholds)
    if (rule.recovery > worst) if above else (rule.recovery < worst):
        side = "above" if above else "below"
        message = f"{rule.location}: `recovery` must not be {side} the threshold of `{condition.op}`"
        message = f"{message}; got {rule.recovery:g} and the threshold {worst:g}"
        raise RuleError(message)
    return float(rule.recovery)


def _thresholds(rule: Rule, condition: Condition) -> list[float]:
    if not isinstance(condition, Compare):
        return []
    right = condition.right
    if isinstance(right, Variable) and right.stream in rule.limits and right.column:
        return rule.limits[right.stream].column(right.column)
    number = literal_value(right)
    return [] if number is None else [number]
