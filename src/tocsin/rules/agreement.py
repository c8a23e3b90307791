"""Check a rule against the streams and tables that it reads: keys, templates, shapes, bounds, recovery, its plan.

Of a rule whose condition has a mistake only that is said which stays wrong however the mistake is mended.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from tocsin.errors import ExprError, TocsinError
from tocsin.expr.syntax_tree import Compare, Condition, Node, Variable, child_nodes, replace_children
from tocsin.rules import compose
from tocsin.rules.compose import ListNode, MapNode, Scalar
from tocsin.rules.model import Rule
from tocsin.rules.nearest import nearest
from tocsin.rules.references import TIME, Known, Placed, Read
from tocsin.rules.rulefile import DOUBTFUL
from tocsin.rules.template import parse_template

# A stream that a rule may read where nothing is known of those it does read.
_ANY = Variable("any_stream")

_FIELD = re.compile(r"`(\w+)((?:\.\w+)*)")
_GOT = re.compile(r"got '([^']*)'$")


def check_rule(placed: Placed, rule: Rule, read: Read, known: Known) -> Any:
    """Check a rule that is right by itself against the streams that it reads; give its plan if it has one."""
    for column in rule.on:
        without = [stream for stream in read.streams.values() if column not in stream.keys]
        if without:
            has = ", ".join(without[0].keys) or "none"
            message = (
                f"`on` must name key columns of all streams of `expr`; the keys of {without[0].name!r} are {has}; "
                f"got {column!r}"
            )
            placed.report(message, "on", column)
    if read.is_whole:
        columns = _columns_read(read)
        names = sorted(f"{stream}.{column}" for stream, names in columns.items() for column in names)
        _check_values(placed, rule, lambda term: _is_read(term, columns), [*columns, *names], f" ({', '.join(names)})")
    else:
        _check_values(placed, rule, lambda term: known.may_read(".".join(term)), known.streams)
        _check_names(placed, rule, known)
    if not placed.is_joined:
        rule = replace(rule, within="1s", hop=None)
    # A shape holds on a domain; where that is in doubt, so is what the planner would say of the shape.
    doubtful = [variable for variable in read.variables if read.domain(variable) is DOUBTFUL]
    vague = {str(variable) for variable in doubtful}
    vague |= {f"{v.stream}.{read.streams[v.stream].column(v.column)}" for v in doubtful}
    if vague:
        rule = replace(rule, shapes={name: word for name, word in rule.shapes.items() if name not in vague})
    return _check_plan(placed, rule, read, known)


def _columns_read(read: Read) -> dict[str, set[str]]:
    columns: dict[str, set[str]] = {name: set() for name in read.streams}
    for variable in read.variables:
        if variable.stream in columns:
            columns[variable.stream].add(read.streams[variable.stream].column(variable.column) or "")
    return columns


def _check_values(
    placed: Placed,
    rule: Rule,
    is_read: Callable[[tuple[str, ...]], bool],
    near: Iterable[str],
    listed: str = "",
) -> None:
    """Refuse templates that name a value which no witness will have."""
    for name, text in rule.annotations.items():
        if "$values" not in text:
            continue
        for action in parse_template(text).actions:
            if action.term[0] == "values" and not is_read(action.term[1:]):
                got = ".".join(action.term[1:])
                message = f"`annotations[{name!r}]` must name values that `expr` reads{listed}; got `$values.{got}`"
                placed.report(message + nearest(got, near), "annotations", name, offset=action.offset)


def _is_read(term: tuple[str, ...], columns: Mapping[str, set[str]]) -> bool:
    """Whether a term leads to one value: that of a column, or the only one, or `value`, of a stream."""
    names = columns.get(term[0], set())
    return term[1] in names if len(term) > 1 else len(names) == 1 or "value" in names


def _check_names(placed: Placed, rule: Rule, known: Known) -> None:
    """Refuse names that no condition over the streams of the file could read."""
    for name in rule.shapes:
        if not known.may_read(name):
            _report_planner(placed, f"`shapes` must name variables of `expr`; got {name!r}")
    pairs = rule.within if isinstance(rule.within, Mapping) else {}
    for name in dict.fromkeys(name for pair in pairs for name in pair):
        if not known.may_read(name):
            _report_planner(placed, f"`within` must name streams of `expr`; got {name!r}")


def _check_plan(placed: Placed, rule: Rule, read: Read, known: Known) -> Any:
    """Plan the rule; what the planner says is reported at the field that it names first."""
    columns = {name: [*rule.on, TIME, *stream.values] for name, stream in read.streams.items()}
    written = rule.expr
    # A table that was left out of the rule had its mistake reported already.
    known_names = columns.keys() | rule.limits.keys()
    is_mended = not read.is_whole or any(v.stream not in known_names for v in read.variables)
    if is_mended:
        if read.condition is None:
            return None
        rule = _mended(rule, read, read.condition)
        columns.setdefault(_ANY.stream, [*rule.on, TIME, "value"])
    while True:
        try:
            return known.plan(rule, columns, time=TIME)
        except TocsinError as error:
            if is_mended and isinstance(error, ExprError):
                return None  # A condition that was mended may have become too long.
            message = str(error).splitlines()[0].removeprefix(f"{rule.location}: ")
        field, found = _report_planner(placed, message.replace(f"`{rule.expr}`", f"`{written}`"))
        if field == "shapes" and found in rule.shapes:
            rule = replace(rule, shapes={name: word for name, word in rule.shapes.items() if name != found})
        elif field == "recovery" and rule.recovery is not None:
            rule = replace(rule, recovery=None)
        elif field == "within" and rule.within != "1s":
            rule = replace(rule, within="1s", hop=None)
        else:
            return None


def _mended(rule: Rule, read: Read, condition: Condition) -> Rule:
    """Put a known variable in the place of what is not known; what may then be wrong for that reason is left out."""
    good = {v.key for v in read.variables if v.stream in read.streams or v.stream in rule.limits}
    instead = next((v for v in read.variables if v.stream in read.streams), _ANY)

    def mend(node: Node) -> Node:
        if isinstance(node, Variable):
            return node if node.key in good else instead
        return replace_children(node, tuple(mend(part) for part in child_nodes(node)))

    # What stands alone on the right side may be meant as a limit.
    right = condition.right if isinstance(condition, Compare) else None
    is_open = isinstance(right, Variable) and right.key not in good
    within = "1s" if isinstance(rule.within, Mapping) else rule.within
    recovery = None if is_open else rule.recovery
    # The condition now reads fewer streams, which decides whether a budget is possible.
    changes: dict[str, Any] = {"within": within, "shapes": {}, "domains": {}, "recovery": recovery, "quality": None}
    return replace(rule, expr=str(mend(condition)), **changes)


def _report_planner(placed: Placed, message: str) -> tuple[str, str]:
    """Report what the planner said; give the field that it names, and what it found there."""
    named, got = _FIELD.match(message), _GOT.search(message)
    name, found = named[1] if named else "", got[1] if got else ""
    inner = named[2].split(".")[1:] if named else []
    node = _below(placed.places.get((name,)), found)
    if inner:
        placed.report(message, name, *inner)
    elif (name, found) not in placed.places and node is not None:
        placed.context.report(node, placed.where, message)
    else:
        placed.report(message, name, found, "name")
    return name, found


def _below(node: compose.Node | None, text: str) -> compose.Node | None:
    """Find the first scalar with a text at or below a node."""
    if isinstance(node, Scalar):
        return node if node.text == text else None
    inner = node.items if isinstance(node, ListNode) else []
    if isinstance(node, MapNode):
        inner = [value for _, value in node.entries.values()]
    return next((found for item in inner if (found := _below(item, text)) is not None), None)
