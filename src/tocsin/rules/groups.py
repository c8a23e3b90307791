"""Read the section `groups` of a rule file: each rule becomes a `Rule`, which checks itself; mistakes get a place."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tocsin.rules.agreement import check_rule
from tocsin.rules.built import UNNAMED, built, place_entries
from tocsin.rules.compose import ListNode, MapNode, Node, Scalar
from tocsin.rules.context import Context, found
from tocsin.rules.fields import Fields, read_fields
from tocsin.rules.model import Rule
from tocsin.rules.no_data import AnyRule, NoData
from tocsin.rules.options import GROUP, PAIR, RULE
from tocsin.rules.ranges import RangeRule
from tocsin.rules.read_quality import read_quality_block
from tocsin.rules.read_ranges import read_ranges
from tocsin.rules.references import Known, Placed, read_condition, settings
from tocsin.rules.rulefile import Group
from tocsin.rules.streams import MICROSECOND, good_labels, item_named
from tocsin.rules.traps import warn_of_traps
from tocsin.rules.values import MOST_NAMES

# Name, labels, key columns.
_Identity = tuple[str, tuple[tuple[str, str], ...], tuple[str, ...]]

_DURATIONS = ("for", "keep_firing_for", "stale", "allowed_lateness", "hop")


def read_groups(
    context: Context, node: Node, known: Known, report: Callable[[int, int], None] | None = None
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
            context.report(fields.at("name"), where, message)
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
    context.report(node, where, f"`{name}` must be a list; got {found(node)}")
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
    known: Known,
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
            context.report(at, f"{where}: {rule.location}", f"`alert` and `labels` together must be unique {twin}")
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
    known: Known
    group_labels: Mapping[str, str]
    group_node: Node | None
    # Where each part of the rule stands, by the path that a FieldError names.
    places: dict[tuple[object, ...], Node] = field(default_factory=dict)
    is_joined: bool = True

    def read(self, node: Node, where: str) -> Rule | None:
        """Read a rule; None if there is a mistake in it."""
        before = self.context.mistakes.count
        fields = read_fields(self.context, node, RULE, where, "a rule")
        if fields is None:
            return None
        placed = Placed(self.context, self.places, fields.node, where)
        given = self._given(fields, where)
        placed.is_joined = self.is_joined
        read = read_condition(placed, given["expr"], self.known)
        given |= settings(placed, read, self.known)
        rule = built(Rule, given | {"alert": given["alert"] or UNNAMED, "expr": given["expr"] or ""}, placed)
        plan = check_rule(placed, rule, read, self.known)
        if self.context.mistakes.count != before:
            return None
        if read.is_whole:
            warn_of_traps(placed, rule, read, plan, shared=self.known.shares_memory)
        return rule

    def _given(self, fields: Fields, where: str) -> dict[str, Any]:
        """The arguments of a Rule, each with its place."""
        plain = ("alert", "expr", "recovery")
        given: dict[str, Any] = {name: fields[name] for name in plain}
        words = ("emit", "closed")
        given |= {name: fields[name] for name in words if fields[name] is not None}
        for name in _DURATIONS:
            if fields[name] is not None:
                given["for_" if name == "for" else name] = fields[name]
        given["on"] = fields["on"] or ()
        count = self.context.mistakes.count
        given["within"] = self._within(fields, where)
        self.is_joined = self.context.mistakes.count == count
        for name in ("shapes", "annotations", "tolerance"):
            given[name] = dict(fields[name] or {})
            place_entries(self.places, name, fields.nodes.get(name))
        given["tolerance"] = {name: _number(text) for name, text in given["tolerance"].items()}
        given["quality"] = read_quality_block(self.context, fields.nodes.get("quality"), where, self.places)
        given["labels"] = {**self.group_labels, **(fields["labels"] or {})}
        place_entries(self.places, "labels", self.group_node)
        place_entries(self.places, "labels", fields.nodes.get("labels"))
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
            message = f"`within` must have at most {MOST_NAMES} pairs; got {len(node.items):,}"
            self.context.report(node, where, message)
            return pairs
        for item in node.items:
            inner = read_fields(self.context, item, PAIR, f"{where}: within", "a pair")
            pair = self._two(inner, "between", where) if inner else None
            bounds = self._two(inner, "bounds", where) if inner else None
            if pair in pairs:
                self.context.report(
                    item, where, f"`within` must have one bound per pair; {pair[0]} and {pair[1]} have two"
                )
            elif pair and bounds:
                pairs[pair] = bounds
                self.places["within", pair] = item
        return pairs

    def _one_within(self, node: Node, where: str) -> str | None:
        if isinstance(node, Scalar) and not node.is_nothing:
            return node.text
        message = (
            "`within` must be a duration, or a list of pairs such as {between: [air, surface], bounds: [-5s, 10s]}"
        )
        self.context.report(node, where, f"{message}; got {found(node)}")
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
        self.context.report(node, f"{where}: within", f"`{name}` must be {wanted}; got {found(node)}")
        return None
