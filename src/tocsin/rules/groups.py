"""Read the section `groups` of a rule file: each rule becomes a `Rule` or a `RangeRule`, and is planned."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from tocsin.errors import Diagnostics
from tocsin.expr.parser import ParseResult
from tocsin.expr.syntax_tree import Variable
from tocsin.rules.compose import ListNode, MapNode, Node, Scalar, place_in
from tocsin.rules.context import Context, found
from tocsin.rules.fields import Fields, read_fields
from tocsin.rules.lint import Read, add_warnings
from tocsin.rules.model import UNREDUCED, Rule
from tocsin.rules.no_data import AnyRule, NoData
from tocsin.rules.options import GROUP, PAIR, RULE
from tocsin.rules.placed import UNNAMED, FileScope, Placed, item_named
from tocsin.rules.ranges import RangeRule
from tocsin.rules.read_quality import read_quality_block
from tocsin.rules.read_ranges import read_ranges
from tocsin.rules.rulefile import DOUBTFUL, Group
from tocsin.rules.scope import read_condition
from tocsin.rules.streams import MICROSECOND, good_labels
from tocsin.rules.suggestions import nearest
from tocsin.rules.template import Template, read_template
from tocsin.rules.values import MOST_NAMES

# Name, labels, key columns.
_Identity = tuple[str, tuple[tuple[str, str], ...], tuple[str, ...]]

_DURATIONS = ("for", "keep_firing_for", "stale", "allowed_lateness", "hop")


def read_groups(
    context: Context, node: Node, known: FileScope, report: Callable[[int, int], None] | None = None
) -> tuple[Group, ...]:
    """Read all groups; rules with mistakes are left out of them. Call `report` with each number of read rules."""
    groups: list[Group] = []
    taken = {
        _identity(watch): f"`no_data` of stream {name!r}"
        for name, stream in known.streams.items()
        if stream is not None and (watch := stream.no_data) is not None
    }
    names: dict[str, int] = {}
    begin_rule = _counting(node, report)
    for number, item in enumerate(_items(context, node, "rule file", "groups"), 1):
        where = _called(item, "name", "group", number)
        fields = read_fields(context, item, GROUP, where, "a group")
        if fields is None:
            continue
        name = fields["name"] or ""
        if name in names:
            message = f"`name` must be unique in the file; the group in line {names[name]} has the same name"
            context.report(fields.at("name"), where, "duplicate-name", message)
        elif name:
            names[name] = item.line
        groups.append(_group(context, fields, where, known, taken, begin_rule))
    return tuple(groups)


def _identity(rule: AnyRule) -> _Identity:
    """What tells the alerts of rules apart; the key columns are labels too."""
    labels = rule.all_labels if isinstance(rule, NoData) else rule.labels
    return rule.alert, tuple(sorted(labels.items())), tuple(rule.on)


def _number(text: str) -> float | str:
    """A number, or what stands in its place, which the rule will refuse."""
    try:
        return float(text)
    except ValueError:
        return text


def _called(node: Node, key: str, kind: str, number: int) -> str:
    """How messages name a group or a rule: by its name, else by its number."""
    named = node.entries[key][1] if isinstance(node, MapNode) and key in node.entries else None
    return f'{kind} "{named.text[:100]}"' if isinstance(named, Scalar) and named.text else f"{kind} {number}"


def _items(context: Context, node: Node, where: str, name: str) -> list[Node]:
    if isinstance(node, ListNode):
        return node.items
    context.report(node, where, "wrong-type", f"`{name}` must be a list", found(node))
    return []


def _counting(node: Node, report: Callable[[int, int], None] | None) -> Callable[[], None]:
    """Return a function that reports one more rule of all rules of the groups."""
    if report is None:
        return lambda: None
    groups = [item for item in node.items if isinstance(item, MapNode)] if isinstance(node, ListNode) else []
    rules = [group.entries["rules"][1] for group in groups if "rules" in group.entries]
    total = sum(len(one.items) for one in rules if isinstance(one, ListNode))
    done = itertools.count()
    return lambda: report(next(done), total)


def _group(
    context: Context,
    fields: Fields,
    where: str,
    known: FileScope,
    taken: dict[_Identity, str],
    begin_rule: Callable[[], None],
) -> Group:
    labels = good_labels(context, fields, where)
    rules: list[Rule | RangeRule] = []
    seen: dict[Any, int] = {}
    items = _items(context, fields.nodes["rules"], where, "rules") if "rules" in fields.nodes else []
    for number, item in enumerate(items, 1):
        begin_rule()
        place = f"{where}: {_called(item, 'alert', 'rule', number)}"
        shared = labels, fields.nodes.get("labels")
        rule: Rule | RangeRule | None
        if isinstance(item, MapNode) and not item.entries.keys().isdisjoint({"ranges", "requests"}):
            rule = read_ranges(context, item, place, known, *shared)
        else:
            rule = _RuleReader(context, known, *shared).read(item, place)
        if rule is None:
            continue
        rules.append(rule)
        identity = _identity(rule)
        twin = ""
        if identity[:2] in seen:
            twin = f"in the group; rule {seen[identity[:2]]} has the same"
        elif identity in taken:
            twin = f"among rules with the same `on`; {taken[identity]} has the same"
        if twin:
            at = item.entries["alert"][1] if isinstance(item, MapNode) else item
            message = f"`alert` and `labels` together must be unique {twin}"
            context.report(at, f"{where}: {rule.location}", "duplicate-alert", message)
        seen.setdefault(identity[:2], number)
        taken.setdefault(identity, f"rule {number} of {where}")
    interval = fields["interval"]
    return Group(
        fields["name"] or "",
        0 if interval is None else interval // MICROSECOND,
        labels,
        tuple(rule for rule in rules if isinstance(rule, Rule)),
        tuple(rule for rule in rules if isinstance(rule, RangeRule)),
    )


@dataclass
class _RuleReader:
    """Read one rule; `group_labels` are the group's, which the rule's own hide."""

    context: Context
    known: FileScope
    group_labels: Mapping[str, str]
    group_node: Node | None
    # Positions of the parts of the rule, by the paths of its diagnostics.
    places: dict[tuple[object, ...], Node] = field(default_factory=dict)
    is_joined: bool = True

    def read(self, node: Node, where: str) -> Rule | None:
        """Read a rule; return None if it has an error."""
        before = self.context.errors
        fields = read_fields(self.context, node, RULE, where, "a rule")
        if fields is None:
            return None
        placed = Placed(self.context, self.places, fields.node, where)
        given = self._given(fields, where, placed)
        parsed = read_condition(given["expr"]) if given["expr"] else ParseResult(None, (), ())
        read = self._read(parsed)
        given |= self._settings(parsed, read)
        given |= {"alert": given["alert"] or UNNAMED, "expr": given["expr"] or ""}
        rule, diagnostics = placed.build(Rule, given)
        _check_values(placed, rule, read, self.known)
        if fields["expr"] is None:
            return None
        plan = self._plan(placed, rule, read, diagnostics)
        if self.context.errors != before:
            return None
        if plan is not None:
            add_warnings(placed, rule, read, plan, shared=self.known.shares_memory)
        return replace(rule)

    def _read(self, parsed: ParseResult) -> Read:
        """Find the streams and the columns that a condition reads, without any error."""
        scope, streams = self.known.scope, {}
        variables: list[Variable] = []
        for variable in parsed.variables:
            name = variable.stream
            self.known.used.add(name)
            stream, table = self.known.streams.get(name), scope.tables.get(name)
            if stream is not None:
                streams[name] = stream
            is_limit = table is not None and name not in scope.columns and variable.column in table.columns
            if is_limit or scope.find_column(variable.key, ()) is not None:
                variables.append(variable)
        is_whole = bool(parsed.variables) and not parsed.errors and len(variables) == len(parsed.variables)
        return Read(tuple(variables), streams, is_whole)

    def _settings(self, parsed: ParseResult, read: Read) -> dict[str, Any]:
        """Return the arguments from streams and tables: domains, limits, the longest `idle_timeout`."""
        domains, tables = {}, {}
        for variable in parsed.variables:
            domain, table = read.domain(variable), self.known.scope.tables.get(variable.stream)
            if domain is not None and domain is not DOUBTFUL:
                domains[str(variable)] = domain.ends
            if variable.stream not in read.streams and table is not None:
                tables[variable.stream] = table
                self.places["limits", variable.stream] = self._spot(variable)
        idle = [stream.idle_timeout_us for stream in read.streams.values() if stream.idle_timeout_us is not None]
        timeout = {"idle_timeout": timedelta(microseconds=max(idle))} if idle else {}
        return {"domains": domains, "limits": tables} | timeout

    def _spot(self, variable: Variable) -> Node:
        """Return a node at the position of a variable in the file."""
        node = self.places["expr",]
        assert isinstance(node, Scalar)
        return Node(*place_in(node, variable.start, self.context.lines))

    def _plan(self, placed: Placed, rule: Rule, read: Read, diagnostics: Diagnostics) -> Any:
        """Plan a rule and report the errors that are not consequences of reported ones; return its plan."""
        without = {one.path[0] for one in diagnostics}
        if not self.is_joined or "within" in without:
            rule = rule.with_fields(within="1s", hop=None)
        # A shape holds on a domain. If the domain has an error, nothing is known about the shape.
        doubtful = [variable for variable in read.variables if read.domain(variable) is DOUBTFUL]
        vague = {str(variable) for variable in doubtful}
        vague |= {f"{v.stream}.{read.streams[v.stream].column(v.column)}" for v in doubtful}
        shapes = {name: None if word == UNREDUCED else word for name, word in rule.shapes.items() if name not in vague}
        planned = self.known.plan((rule.with_fields(shapes=shapes),), self.known.scope)
        placed.report(planned.diagnostics)
        return planned.plan

    def _given(self, fields: Fields, where: str, placed: Placed) -> dict[str, Any]:
        """Return the arguments of a Rule, and add their positions."""
        plain = ("alert", "expr", "recovery", "emit", "closed")
        given: dict[str, Any] = {name: fields[name] for name in plain}
        given |= {"for_" if name == "for" else name: fields[name] for name in _DURATIONS}
        given = {name: value for name, value in given.items() if value is not None or name in plain[:3]}
        given["on"] = fields["on"] or ()
        count = self.context.errors
        given["within"] = self._within(fields, where)
        self.is_joined = self.context.errors == count
        for name in ("shapes", "annotations", "tolerance"):
            given[name] = dict(fields[name] or {})
            placed.place_entries(name, fields.nodes.get(name))
        given["tolerance"] = {name: _number(text) for name, text in given["tolerance"].items()}
        given["quality"] = read_quality_block(self.context, fields.nodes.get("quality"), where, self.places)
        given["labels"] = {**self.group_labels, **(fields["labels"] or {})}
        placed.place_entries("labels", self.group_node)
        placed.place_entries("labels", fields.nodes.get("labels"))
        self.places |= {("on", name): item_named(fields.at("on"), name) for name in given["on"]}
        self.places |= {(name,): node for name, node in fields.nodes.items()}
        return given

    def _within(self, fields: Fields, where: str) -> Any:
        node = fields.nodes.get("within")
        if node is None:
            return None
        if not isinstance(node, ListNode):
            return self._one_within(node, where)
        pairs: dict[tuple[str, str], tuple[str, str]] = {}
        if len(node.items) > MOST_NAMES:
            message = f"`within` must have at most {MOST_NAMES} pairs"
            self.context.report(node, where, "too-many-entries", message, f"{len(node.items):,}")
            return pairs
        for item in node.items:
            inner = read_fields(self.context, item, PAIR, f"{where}: within", "a pair")
            pair = self._two(inner, "between", where) if inner else None
            bounds = self._two(inner, "bounds", where) if inner else None
            if pair in pairs:
                message = f"`within` must have one bound per pair; {pair[0]} and {pair[1]} have two"
                self.context.report(item, where, "duplicate-name", message)
            elif pair and bounds and inner:
                pairs[pair] = bounds
                self.places["within", pair] = item
                self.places |= {("within", pair, name): item_named(inner.at("between"), name) for name in pair}
        return pairs

    def _one_within(self, node: Node, where: str) -> str | None:
        if isinstance(node, Scalar) and not node.is_nothing:
            return node.text
        message = (
            "`within` must be a duration, or a list of pairs such as {between: [air, surface], bounds: [-5s, 10s]}"
        )
        self.context.report(node, where, "wrong-type", message, found(node))
        return None

    def _two(self, fields: Fields, name: str, where: str) -> tuple[str, str] | None:
        if name not in fields.nodes:
            return None
        node = fields.nodes[name]
        items = node.items if isinstance(node, ListNode) else []
        if len(items) == 2 and all(isinstance(item, Scalar) and not item.is_nothing for item in items):
            first, second = (item.text for item in items if isinstance(item, Scalar))
            return first, second
        wanted = "two streams" if name == "between" else "[lower, upper] in durations"
        self.context.report(node, f"{where}: within", "wrong-type", f"`{name}` must be {wanted}", found(node))
        return None


def _check_values(placed: Placed, rule: Rule, read: Read, known: FileScope) -> None:
    """Report templates with a value that no witness has."""
    columns: dict[str, set[str]] = {name: set() for name in read.streams}
    for variable in read.variables if read.is_whole else ():
        if variable.stream in columns:
            columns[variable.stream].add(read.streams[variable.stream].column(variable.column) or "")
    names = sorted(f"{stream}.{column}" for stream, own in columns.items() for column in own)
    near = [*columns, *names] if read.is_whole else known.streams
    for name, text in rule.annotations.items():
        template = read_template(text, lambda error: None) if "$values" in text else Template(())
        for action in template.actions:
            if action.term[0] != "values":
                continue
            value = ".".join(action.term[1:])
            if not (_is_read(action.term[1:], columns) if read.is_whole else known.scope.may_read(value)):
                listed = f" ({', '.join(names)})" if read.is_whole else ""
                message = f"`annotations[{name!r}]` must name values that `expr` reads{listed}"
                path, hint = ("annotations", name), nearest(value, near)
                placed.add("unknown-value", path, message, f"`$values.{value}`", hint, span=action.span)


def _is_read(term: tuple[str, ...], columns: Mapping[str, set[str]]) -> bool:
    """Return whether a term names one value: a column, or the only column or `value` of a stream."""
    names = columns.get(term[0], set())
    return term[1] in names if len(term) > 1 else len(names) == 1 or "value" in names
