"""Read the fields of a mapping by their table: unknown and missing keys, and what the others hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tocsin.rules.compose import MapNode, Node, Scalar
from tocsin.rules.context import Context, found
from tocsin.rules.options import Field, Kind
from tocsin.rules.suggestions import nearest_or_all
from tocsin.rules.values import default_value, read_value


@dataclass
class Fields:
    """What a mapping holds: values of its fields, and the nodes of those that were given."""

    node: Node
    values: dict[str, Any] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        return self.values.get(name)

    def at(self, name: str) -> Node:
        """The node of a field, or of the whole where the field is not given."""
        return self.nodes.get(name, self.node)


def read_fields(context: Context, node: Node, table: Sequence[Field], where: str, what: str) -> Fields | None:
    """Read a mapping by its table; `what` names it in messages. None: it is no mapping."""
    if not isinstance(node, MapNode):
        context.report(node, where, "wrong-type", f"{what} must be a mapping", found(node))
        return None
    known = {entry.name: entry for entry in table}
    _check_keys(context, node, known, where, what)
    fields = Fields(node)
    for name, entry in known.items():
        if name in node.entries:
            fields.nodes[name] = node.entries[name][1]
            if entry.kind != "part":
                fields.values[name] = read_value(context, fields.nodes[name], entry, where)
        elif entry.default is not None:
            fields.values[name] = default_value(entry)
    return fields


def _check_keys(context: Context, node: MapNode, known: Mapping[str, Field], where: str, what: str) -> None:
    for name, (key, _) in node.entries.items():
        if name not in known:
            hint = nearest_or_all(name, known) if known else "it has no keys"
            context.report(key, where, "unknown-key", f"`{name[:60]}` is not a key of {what}", hint=hint)
    missing = [name for name, entry in known.items() if entry.required and name not in node.entries]
    for name in missing:
        message = f"`{name}` must be given; found {', '.join(node.entries)[:200] or 'nothing'}"
        context.report(node, where, "missing-key", message)


def read_kind(
    context: Context, node: Node, kinds: Mapping[str, Kind], where: str, what: str
) -> tuple[str, dict[str, Any]] | None:
    """Read a source or a sink: a mapping with exactly one kind, which has its options."""
    if not isinstance(node, MapNode) or len(node.entries) != 1:
        given = ", ".join(node.entries) if isinstance(node, MapNode) and node.entries else found(node)
        context.report(node, where, "wrong-type", f"a {what} must have exactly one kind of {', '.join(kinds)}", given)
        return None
    name, (key, options) = next(iter(node.entries.items()))
    if name not in kinds:
        message, hint = f"`{name[:60]}` is not a kind of {what}", nearest_or_all(name, kinds)
        context.report(key, where, "unknown-word", message, hint=hint)
        return None
    if isinstance(options, Scalar) and options.is_nothing:
        options = MapNode(key.line, key.column)
    fields = read_fields(context, options, kinds[name].fields, f"{where}: {name}", f"{what} `{name}`")
    return None if fields is None else (name, _plain(fields.values))


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
