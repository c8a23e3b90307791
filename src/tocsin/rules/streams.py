"""Read the sections `streams` and `limits` of a rule file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from tocsin.errors import Diagnostic, Diagnostics, ExprError
from tocsin.expr.parser import parse_number
from tocsin.expr.syntax_tree import Variable
from tocsin.rules.compose import ListNode, MapNode, Node, Scalar
from tocsin.rules.context import Context, found
from tocsin.rules.fields import Fields, read_fields, read_kind
from tocsin.rules.labels import check_label, check_label_name
from tocsin.rules.limits import Limits, read_limits
from tocsin.rules.no_data import NoData
from tocsin.rules.options import LIMITS, NO_DATA, SOURCES, STREAM, VALUE
from tocsin.rules.placed import Placed, item_named
from tocsin.rules.rulefile import DOUBTFUL, Domain, Source, Stream, Value
from tocsin.rules.values import MOST_ENTRIES, read_number

MICROSECOND = timedelta(microseconds=1)

_DOMAIN = re.compile(r"([\[(])\s*([^,\s]+)\s*,\s*([^,\s]+)\s*([\])])")


def read_streams(context: Context, node: Node) -> dict[str, Stream | None]:
    """Read all streams; None stands for one whose columns are in doubt, so that rules which read it are not blamed."""
    streams: dict[str, Stream | None] = {}
    for name, key, value in _named(context, node, "streams"):
        where = f'stream "{name}"'
        _check_name(context, key, name, where)
        streams[name] = _stream(context, value, name, where)
    return streams


def _named(context: Context, node: Node, section: str) -> list[tuple[str, Scalar, Node]]:
    if not isinstance(node, MapNode):
        context.report(node, "rule file", "wrong-type", f"`{section}` must be a mapping by name", found(node))
        return []
    if len(node.entries) > MOST_ENTRIES:
        message = f"`{section}` must have at most {MOST_ENTRIES:,} entries"
        context.report(node, "rule file", "too-many-entries", message)
        return []
    return [(name, key, value) for name, (key, value) in node.entries.items()]


def _check_name(context: Context, key: Scalar, name: str, where: str) -> None:
    if not _is_variable(name, Variable(name)):
        message = "a name must consist of letters, digits and `_` and must not be a function or a reserved word"
        context.report(key, where, "invalid-name", message, found(key))


def _is_variable(text: str, wanted: Variable) -> bool:
    try:
        return parse_number(text) == wanted
    except ExprError:
        return False


def _stream(context: Context, node: Node, name: str, where: str) -> Stream | None:
    fields = read_fields(context, node, STREAM, where, "a stream")
    if fields is None:
        return None
    source = None
    if "source" in fields.nodes:
        source = read_kind(context, fields.nodes["source"], SOURCES, where, "source")
    keys, before = fields["keys"] or (), context.errors
    _check_key_names(context, fields, keys, where)
    columns: Mapping[str, Node | None] = {"value": None}
    if "values" in fields.nodes:
        columns = _value_columns(context, fields.nodes["values"], where)
    stream = Stream(
        name,
        Source(*source) if source else Source(""),
        keys=keys,
        time=fields["time"] or "ts",
        time_unit=fields["time_unit"] or "us",
        arrival=fields["arrival"],
        values={name: Value(name) for name in columns},
        idle_timeout_us=None if fields["idle_timeout"] is None else fields["idle_timeout"] // MICROSECOND,
        max_ahead_us=fields["max_ahead"] // MICROSECOND,
    )
    _check_columns(context, fields, stream, where)
    is_clear = context.errors == before and _is_whole(fields, keys)
    # What is wrong with the settings of a value leaves its name clear.
    values = {name: _value(context, node, name, f"{where}: value {name!r}") for name, node in columns.items()}
    no_data = _no_data(context, fields, stream, where, is_clear=is_clear)
    return replace(stream, values=values, no_data=no_data) if is_clear else None


def _is_whole(fields: Fields, keys: tuple[str, ...]) -> bool:
    """Whether all keys were read, and no misspelt one may have said more."""
    given = fields.nodes.get("keys")
    items = len(given.items) if isinstance(given, ListNode) else int(given is not None)
    known = {field.name for field in STREAM}
    return items == len(keys) and isinstance(fields.node, MapNode) and known >= set(fields.node.entries)


def _check_key_names(context: Context, fields: Fields, keys: tuple[str, ...], where: str) -> None:
    diagnostics = Diagnostics()
    for name in keys:
        check_label_name(diagnostics, name, "keys", name)
    for one in diagnostics:
        context.place(replace(one, where=where), item_named(fields.at("keys"), str(one.path[1])))


def _check_columns(context: Context, fields: Fields, stream: Stream, where: str) -> None:
    """Refuse a column in two roles."""
    roles = {name: "a key column" for name in stream.keys}
    for role, name in (("time", stream.time), ("arrival", stream.arrival)):
        if name in roles:
            message = f"`{role}` must be a separate column; {name!r} is also {roles[name]}"
            context.report(fields.at(role), where, "column-conflict", message)
        elif name is not None:
            roles[name] = f"the column of `{role}`"
    node = fields.at("values")
    for name in stream.values:
        if name in roles:
            at = node.entries[name][0] if isinstance(node, MapNode) and name in node.entries else node
            message = f"a value must be a separate column; {name!r} is also {roles[name]}"
            context.report(at, where, "column-conflict", message)


def _value_columns(context: Context, node: Node, where: str) -> dict[str, Node | None]:
    """Read the names of values, each with the node of its settings."""
    if not isinstance(node, MapNode) or not node.entries:
        context.report(node, where, "wrong-type", "`values` must map at least one column to its settings", found(node))
        return {"value": None}
    for name, (key, _) in node.entries.items():
        if not _is_variable(f"s.{name}", Variable("s", name)):
            message = "the name of a column must consist of letters, digits and `_`"
            context.report(key, f"{where}: value {name!r}", "invalid-name", message, found(key))
    return {name: settings for name, (_, settings) in node.entries.items()}


def _value(context: Context, node: Node | None, name: str, where: str) -> Value:
    if node is None or (isinstance(node, Scalar) and node.is_nothing):
        return Value(name)
    fields = read_fields(context, node, VALUE, where, "a value")
    if fields is None:
        return Value(name)
    domain = _domain(context, fields.nodes["domain"], where) if "domain" in fields.nodes else None
    return Value(name, domain, fields["unit"])


def _domain(context: Context, node: Node, where: str) -> Domain:
    """Read `[low, high]`, or the same as text with round brackets where an end does not belong to it."""
    left, low, high, right = "[", "", "", "]"
    if isinstance(node, ListNode) and len(node.items) == 2:
        low, high = (item.text if isinstance(item, Scalar) else "" for item in node.items)
    elif isinstance(node, Scalar) and (match := _DOMAIN.fullmatch(node.text.strip())):
        left, low, high, right = match.groups()
    ends = read_number(low), read_number(high)
    if ends[0] is not None and ends[1] is not None and ends[0] < ends[1]:
        domain = Domain(ends[0], ends[1], left == "(", right == ")")
        if domain.ends[0] < domain.ends[1]:
            return domain
    shown = f"[{low}, {high}]" if low and high and isinstance(node, ListNode) else found(node)
    message = '`domain` must be [low, high] with low < high, or text such as "[0, 100)"'
    context.report(node, where, "invalid-domain", message, shown)
    return DOUBTFUL


def _no_data(context: Context, fields: Fields, stream: Stream, where: str, *, is_clear: bool) -> NoData | None:
    """Read what is said of silence; what it says of labels and keys is left to NoData itself, if keys are clear."""
    if "no_data" not in fields.nodes:
        return None
    here = f"{where}: no_data"
    inner = read_fields(context, fields.nodes["no_data"], NO_DATA, here, "`no_data`")
    if inner is None:
        return None
    labels = good_labels(context, inner, here)
    if inner["for"] is None or not is_clear:
        return None
    placed = Placed(context, {("on",): fields.at("keys")}, inner.node, here)
    placed.place_entries("labels", inner.nodes.get("labels"))
    placed.places |= {("on", name): item_named(fields.at("keys"), name) for name in stream.keys}
    given = {"stream": stream.name, "for_": inner["for"], "on": stream.keys, "labels": labels}
    silence, diagnostics = placed.build(NoData, given)
    return None if any(one.path[0] == "on" for one in diagnostics) else silence


def good_labels(context: Context, fields: Fields, where: str) -> dict[str, str]:
    """Return the valid labels of a group or of `no_data`; report the others."""
    placed, diagnostics = Placed(context, {}, fields.node, where), Diagnostics()
    placed.place_entries("labels", fields.nodes.get("labels"))
    labels = fields["labels"] or {}
    for name, value in labels.items():
        check_label(diagnostics, name, value)
    placed.report(diagnostics)
    wrong = {one.path[1] for one in diagnostics}
    return {name: value for name, value in labels.items() if name not in wrong}


def read_tables(context: Context, node: Node, streams: Mapping[str, object]) -> dict[str, Limits | None]:
    """Read the tables of limits; None stands for one that could not be read."""
    tables = {}
    for name, key, value in _named(context, node, "limits"):
        where = f'limits "{name}"'
        _check_name(context, key, name, where)
        if name in streams:
            context.report(key, where, "duplicate-name", "a table must not have the name of a stream", repr(name))
        tables[name] = _table(context, value, where)
    return tables


def _table(context: Context, node: Node, where: str) -> Limits | None:
    fields = read_fields(context, node, LIMITS, where, "limits")
    if fields is None or not fields["file"] or not fields["on"]:
        return None
    path = Path(fields["file"])
    before = context.errors

    def report(line: int, column: int, message: str) -> None:
        one = Diagnostic("invalid-table", (), message, where=where, file=str(path), line=line, column=column)
        context.diagnostics.add(one)

    try:
        table = read_limits(path, fields["on"], report)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "no such path"
        message = f"`file` cannot be read; {path}: {reason.lower()}"
        context.report(fields.at("file"), where, "unreadable-file", message)
        return None
    return table if context.errors == before else None
