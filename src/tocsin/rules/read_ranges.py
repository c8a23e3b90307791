"""Read a rule of a rule file that has `ranges` in place of `expr`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tocsin.rules.compose import Node
from tocsin.rules.context import Context
from tocsin.rules.fields import Fields, read_fields
from tocsin.rules.options import RANGES
from tocsin.rules.placed import UNNAMED, UNREAD, FileScope, Placed, item_named
from tocsin.rules.ranges import RangeRule


def read_ranges(
    context: Context,
    node: Node,
    where: str,
    known: FileScope,
    group_labels: Mapping[str, str],
    group_node: Node | None,
) -> RangeRule | None:
    """Read a rule; return None if it has an error. `group_labels` are the group's, which the rule's own hide."""
    before = context.errors
    fields = read_fields(context, node, RANGES, where, "a rule with `ranges`")
    if fields is None:
        return None
    if fields["ranges"] is not None and not all(name.strip() for name in fields["ranges"] or [""]):
        message = "`ranges` must list one or more columns"
        context.report(fields.at("ranges"), where, "wrong-type", message, f"{list(fields['ranges'])}")
        fields.values["ranges"] = None
    placed = Placed(context, {}, fields.node, where)
    _add_places(placed, fields, group_node)
    rule, _ = placed.build(RangeRule, _given(fields, group_labels))
    read = {name.partition(".")[0] for name in (*(fields["ranges"] or ()), *filter(None, [fields["weight"]]))}
    known.used.update([*read, *filter(None, [fields["requests"]])])
    scope = replace(known.scope, doubtful=known.scope.doubtful | {UNREAD})
    placed.report(known.plan((rule,), scope).diagnostics)
    return replace(rule) if context.errors == before else None


def _given(fields: Fields, group_labels: Mapping[str, str]) -> dict[str, Any]:
    """Return the arguments of a RangeRule."""
    given: dict[str, Any] = {
        "alert": fields["alert"] or UNNAMED,
        "values": (UNREAD,) if fields["ranges"] is None else fields["ranges"],
        "requests": UNREAD if fields["requests"] is None else fields["requests"],
        "on": fields["on"] or (),
        "annotations": dict(fields["annotations"] or {}),
        "labels": {**group_labels, **(fields["labels"] or {})},
    }
    given |= {name: fields[name] for name in ("weight", "within", "rearm", "shards") if fields[name] is not None}
    return given


def _add_places(placed: Placed, fields: Fields, group_node: Node | None) -> None:
    """Add the positions of all parts."""
    placed.place_entries("labels", group_node)
    for name in ("labels", "annotations"):
        placed.place_entries(name, fields.nodes.get(name))
    placed.places |= {("on", name): item_named(fields.at("on"), name) for name in fields["on"] or ()}
    placed.places |= {(name,): node for name, node in fields.nodes.items()}
    if "ranges" in fields.nodes:
        placed.places["values",] = fields.nodes["ranges"]
        names = fields["ranges"] or ()
        placed.places |= {("values", name): item_named(fields.at("ranges"), name) for name in names}
