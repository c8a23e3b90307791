"""Check what a rule says about streams and tables: the variables of its condition, keys, templates, recovery, its plan.

What the planner knows is asked of the planner, which stands above and is handed in; here its answers get their places.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Protocol

from tocsin.errors import ExprError, TocsinError
from tocsin.expr.nodes import Condition, Key, Variable, variables
from tocsin.expr.parse import parse_condition
from tocsin.rules import compose
from tocsin.rules.compose import ListNode, MapNode, Scalar
from tocsin.rules.context import Context
from tocsin.rules.limits import Limits
from tocsin.rules.model import Rule
from tocsin.rules.nearest import nearest
from tocsin.rules.rulefile import Stream
from tocsin.rules.template import parse_template

# No column of a file can have this name, so it is never taken for a value.
TIME = " time"

_FIELD = re.compile(r"`(\w+)")
_GOT = re.compile(r"got '([^']*)'$")


class Planner(Protocol):
    """Plan a rule over columns of streams, or raise what is wrong with it."""

    def __call__(self, rules: Rule, columns: Mapping[str, Sequence[str]], *, time: str) -> object:
        """Plan a rule."""


@dataclass
class Known:
    """The streams and tables of a file, and who plans. None stands for one that has a mistake of its own."""

    streams: Mapping[str, Stream | None]
    limits: Mapping[str, Limits | None]
    plan: Planner
    # Whether both sections could be read at all; if not, a name that is not there may be meant.
    is_whole: bool = True
    used: set[str] = field(default_factory=set)
    _answers: dict[Key, str] = field(default_factory=dict)
    _columns: dict[str, list[str]] = field(default_factory=dict)

    def is_unsure(self, name: str) -> bool:
        """Whether a name is there, but not what it stands for."""
        return self.streams.get(name, self.limits.get(name, 0 if self.is_whole else None)) is None

    def mistake(self, variable: Variable) -> str:
        """Say what is wrong with a variable; the planner is asked once for each."""
        key = variable.key
        if key not in self._answers:
            table = None if variable.stream in self.streams else self.limits.get(variable.stream)
            self._answers[key] = self._planned(variable) if table is None else table.mistake(*key)
        return self._answers[key]

    def _planned(self, variable: Variable) -> str:
        if not self._columns:
            self._columns = {name: [TIME] for name in self.limits}
            self._columns |= {name: [TIME, *(stream.values if stream else ())] for name, stream in self.streams.items()}
        probe = Rule("probe", f"{variable} > 0")
        try:
            self.plan(probe, self._columns, time=TIME)
        except TocsinError as error:
            return str(error).removeprefix(f"{probe.place}: ")
        return ""


@dataclass(frozen=True)
class Read:
    """A condition, its variables, and the streams they read."""

    condition: Condition
    variables: tuple[Variable, ...]
    streams: Mapping[str, Stream]


@dataclass
class Placed:
    """A rule on its way: where its parts stand, by the paths that mistakes name."""

    context: Context
    places: dict[tuple[object, ...], compose.Node]
    node: compose.Node
    where: str
    is_joined: bool = True

    def report(self, message: str, *path: object, offset: int | None = None) -> None:
        """Note a mistake at the nearest part that is there; one in the bounds leaves open what is joined."""
        self.is_joined &= path[:1] != ("within",)
        while path and path not in self.places:
            path = path[:-1]
        self.context.report(self.places.get(path, self.node), self.where, message, offset=offset)


def read_condition(placed: Placed, text: str, known: Known) -> Read | None:
    """Parse a condition and check its variables; None if there is a mistake, or a stream that has one of its own."""
    try:
        condition = parse_condition(text)
    except ExprError as error:
        placed.report(f"`expr`: {str(error).splitlines()[0]}", "expr", offset=error.start)
        return None
    good, read = True, variables(condition)
    for variable in read:
        known.used.add(variable.stream)
        if known.is_unsure(variable.stream):
            good = False
        elif message := known.mistake(variable):
            placed.report(f"`expr`: {message}", "expr", offset=variable.start)
            good = False
    streams = {v.stream: stream for v in read if (stream := known.streams.get(v.stream)) is not None}
    return Read(condition, read, streams) if good else None


def settings(placed: Placed, read: Read, known: Known) -> dict[str, Any]:
    """What a rule takes from the streams and tables that it reads: domains, tables, the longest `idle`."""
    domains, tables = {}, {}
    for variable in read.variables:
        stream, table = read.streams.get(variable.stream), known.limits.get(variable.stream)
        if stream is not None:
            column = stream.column(variable.column)
            domain = stream.values[column].domain if column else None
            if domain is not None:
                domains[str(variable)] = domain.ends
        elif table is not None:
            tables[variable.stream] = table
            placed.places["limits", variable.stream] = _spot(placed, variable)
    idle = [stream.idle_us for stream in read.streams.values() if stream.idle_us is not None]
    return {"domains": domains, "limits": tables} | ({"idle": timedelta(microseconds=max(idle))} if idle else {})


def _spot(placed: Placed, variable: Variable) -> compose.Node:
    """Where a variable stands in the file."""
    node = placed.places["expr",]
    assert isinstance(node, Scalar)
    return compose.Node(*compose.place_in(node, variable.start, placed.context.lines))


def check_rule(placed: Placed, rule: Rule, read: Read, known: Known) -> None:
    """Check a rule that is right by itself against the streams that it reads."""
    for column in rule.on:
        without = [stream for stream in read.streams.values() if column not in stream.keys]
        if without:
            has = ", ".join(without[0].keys) or "none"
            message = (
                f"`on` must name key columns of all streams of `expr`; {without[0].name!r} has {has}, not {column!r}"
            )
            placed.report(message, "on", column)
    _check_values(placed, rule, read)
    if not placed.is_joined:
        rule = replace(rule, within="1s", hop=None)
    _check_plan(placed, rule, read, known)


def _check_values(placed: Placed, rule: Rule, read: Read) -> None:
    """Refuse templates that name a value which no witness will have."""
    columns: dict[str, set[str]] = {name: set() for name in read.streams}
    for variable in read.variables:
        if variable.stream in columns:
            columns[variable.stream].add(read.streams[variable.stream].column(variable.column) or "")
    for name, text in rule.annotations.items():
        if "$values" not in text:
            continue
        for action in parse_template(text).actions:
            if action.term[0] == "values" and not _is_read(action.term[1:], columns):
                known = [f"{stream}.{column}" for stream, names in columns.items() for column in names]
                got = ".".join(action.term[1:])
                message = f"`annotations[{name!r}]` must name values that `expr` reads ({', '.join(sorted(known))})"
                hint = nearest(got, [*columns, *known])
                placed.report(f"{message}; got `$values.{got}`{hint}", "annotations", name, offset=action.offset)


def _is_read(term: tuple[str, ...], columns: Mapping[str, set[str]]) -> bool:
    """Whether a term leads to one value: that of a column, or the only one, or `value`, of a stream."""
    names = columns.get(term[0], set())
    return term[1] in names if len(term) > 1 else len(names) == 1 or "value" in names


def _check_plan(placed: Placed, rule: Rule, read: Read, known: Known) -> None:
    """Plan the rule; what the planner says is reported at the field that it names first."""
    if any(name not in read.streams and name not in rule.limits for name in (v.stream for v in read.variables)):
        return  # A table whose mistake was reported already.
    columns = {name: [*rule.on, TIME, *stream.values] for name, stream in read.streams.items()}
    while True:
        try:
            known.plan(rule, columns, time=TIME)
            return
        except TocsinError as error:
            message = str(error).splitlines()[0].removeprefix(f"{rule.place}: ")
        field, found = _report_planner(placed, message)
        if field == "shapes" and found in rule.shapes:
            rule = replace(rule, shapes={name: word for name, word in rule.shapes.items() if name != found})
        elif field == "recovery" and rule.recovery is not None:
            rule = replace(rule, recovery=None)
        else:
            return


def _report_planner(placed: Placed, message: str) -> tuple[str, str]:
    """Report what the planner said; give the field that it names, and what it found there."""
    named, got = _FIELD.match(message), _GOT.search(message)
    name, found = named[1] if named else "", got[1] if got else ""
    node = _below(placed.places.get((name,)), found)
    if (name, found) not in placed.places and node is not None:
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
