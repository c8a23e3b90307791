"""Read a rule of a rule file that has `ranges` in place of `expr`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tocsin.rules.built import UNNAMED, built, place_entries
from tocsin.rules.compose import Node
from tocsin.rules.context import Context
from tocsin.rules.field_error import FieldErrors
from tocsin.rules.fields import Fields, read_fields
from tocsin.rules.options import RANGES
from tocsin.rules.ranges import RangeRule
from tocsin.rules.references import TIME, Known, Placed
from tocsin.rules.rulefile import Stream
from tocsin.rules.streams import item_named


def read_ranges(
    context: Context,
    node: Node,
    where: str,
    known: Known,
    group_labels: Mapping[str, str],
    group_node: Node | None,
) -> RangeRule | None:
    """Read a rule; None if there is a mistake in it. `group_labels` are the group's, which the rule's own hide."""
    before = context.mistakes.count
    fields = read_fields(context, node, RANGES, where, "a rule with `ranges`")
    if fields is None:
        return None
    placed = Placed(context, _places(fields, group_node), fields.node, where)
    rule = built(_make, _given(fields, group_labels), placed)
    read = {name.partition(".")[0] for name in (*(fields["ranges"] or ()), *filter(None, [fields["weight"]]))}
    streams = dict.fromkeys([*sorted(read), *filter(None, [fields["requests"]])])
    known.used.update(streams)
    _check_keys(placed, rule, known, streams)
    _check_plan(placed, rule, known)
    return rule if context.mistakes.count == before else None


def _make(**given: Any) -> RangeRule:
    """Build a rule; what is left out because of a mistake is stood in for, so that the rest is checked."""
    return RangeRule(**({"values": (UNNAMED,), "requests": UNNAMED} | given))


def _given(fields: Fields, group_labels: Mapping[str, str]) -> dict[str, Any]:
    """The arguments of a RangeRule."""
    given: dict[str, Any] = {
        "alert": fields["alert"] or UNNAMED,
        "values": (UNNAMED,) if fields["ranges"] is None else fields["ranges"],
        "requests": UNNAMED if fields["requests"] is None else fields["requests"],
        "on": fields["on"] or (),
        "annotations": dict(fields["annotations"] or {}),
        "labels": {**group_labels, **(fields["labels"] or {})},
    }
    given |= {name: fields[name] for name in ("weight", "within", "rearm", "shards") if fields[name] is not None}
    return given


def _places(fields: Fields, group_node: Node | None) -> dict[tuple[object, ...], Node]:
    """Where each part stands, by the path that a mistake names."""
    places: dict[tuple[object, ...], Node] = {}
    place_entries(places, "labels", group_node)
    for name in ("labels", "annotations"):
        place_entries(places, name, fields.nodes.get(name))
    places |= {("on", name): item_named(fields.at("on"), name) for name in fields["on"] or ()}
    places |= {(name,): node for name, node in fields.nodes.items()}
    if "ranges" in fields.nodes:
        places["values",] = fields.nodes["ranges"]
        places |= {("values", name): item_named(fields.at("ranges"), name) for name in fields["ranges"] or ()}
    return places


def _check_keys(placed: Placed, rule: RangeRule, known: Known, names: Mapping[str, Any]) -> None:
    """Check that both streams have the key columns."""
    found: list[Stream] = [stream for name in names if (stream := known.streams.get(name)) is not None]
    for column in rule.on:
        for stream in found:
            if column not in stream.keys:
                has = ", ".join(stream.keys) or "none"
                message = (
                    f"`on` must name key columns of both streams; the keys of {stream.name!r} are {has}; got {column!r}"
                )
                placed.report(message, "on", column)
                break


def _check_plan(placed: Placed, rule: RangeRule, known: Known) -> None:
    """Plan a rule; what the planner refuses is a mistake, told at the part that it names."""
    columns = {name: [*rule.on, TIME, *(stream.values if stream else ())] for name, stream in known.streams.items()}
    try:
        known.plan(rule, columns, time=TIME)
    except FieldErrors as several:
        for error in several.errors:
            if not any(name == UNNAMED or known.is_unsure(name) for name in _streams_of(rule, error.path)):
                # What files call `ranges` are the `values` of a RangeRule.
                placed.report(error.sentence.replace("`values`", "`ranges`"), *error.path)


def _streams_of(rule: RangeRule, path: Sequence[object]) -> set[str]:
    """The streams that a mistake in some field may be about."""
    if path[0] == "requests":
        return {rule.requests}
    names = [rule.weight or ""] if path[0] == "weight" else [str(name) for name in path[1:] or rule.values]
    return {name.partition(".")[0] for name in names}
