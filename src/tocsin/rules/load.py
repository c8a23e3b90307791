"""Load a rule file: return a RuleFile, or all errors at once, each with its position.

The environment is read for secrets only.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tocsin.errors import NOTE, WARNING, Diagnostic, RuleError
from tocsin.rules.compose import MOST_BYTES, ListNode, MapNode, Node, Scalar, compose, split_lines
from tocsin.rules.context import Context, FileDiagnostics, RuleFileError, TooManyErrors, found
from tocsin.rules.fields import Fields, read_fields, read_kind
from tocsin.rules.groups import read_groups
from tocsin.rules.options import ARCHIVE, FILE, SINKS
from tocsin.rules.placed import FileScope, Placed, Planner
from tocsin.rules.read_quality import read_run_quality
from tocsin.rules.rulefile import RuleFile, Sink
from tocsin.rules.streams import read_streams, read_tables

WHERE = "rule file"

# Makes a sink of its kind and options, or raises what is wrong with them together.
MakeSink = Callable[[str, Mapping[str, Any]], Any]


@dataclass(frozen=True)
class Checked:
    """A checked file: its errors, warnings and notes by position, and the RuleFile if there are no errors."""

    path: str
    file: RuleFile | None
    errors: tuple[Diagnostic, ...]
    warnings: tuple[Diagnostic, ...]
    notes: tuple[Diagnostic, ...] = ()


def load_rule_file(
    path: str | Path, plan: Planner, environment: Mapping[str, str], make_sink: MakeSink | None = None
) -> RuleFile:
    """Read a rule file. Raise all errors together, as a RuleFileError."""
    checked = check_rule_file(path, plan, environment, make_sink)
    if checked.file is None:
        raise RuleFileError(*checked.errors)
    return checked.file


def check_rule_file(
    path: str | Path,
    plan: Planner,
    environment: Mapping[str, str],
    make_sink: MakeSink | None = None,
    report: Callable[[int, int], None] | None = None,
) -> Checked:
    """Read a rule file and collect its diagnostics.

    Parameters
    ----------
    path
        The file; paths in it are taken from its folder.
    plan
        Function that plans rules, such as `tocsin.plan.plan_rules`.
    environment
        Values of `${VAR}`.
    make_sink
        Function that makes sinks, such as `tocsin.delivery.make_sink`.
    report
        Called before each rule with the number of checked rules and of all rules.
    """
    diagnostics = FileDiagnostics(str(path))
    context = Context(diagnostics, Path(path).parent, environment)
    file = None
    with contextlib.suppress(TooManyErrors):
        node = compose_file(context, Path(path))
        file = None if node is None else _read(context, node, plan, make_sink, report)
    file = None if diagnostics.errors else file
    return Checked(str(path), file, diagnostics.sorted(), diagnostics.sorted(WARNING), diagnostics.sorted(NOTE))


def compose_file(
    context: Context, path: Path, where: str = WHERE, sections: str = "`streams` and `groups`"
) -> Node | None:
    """Read the nodes of a file. Return None, with the reason among the errors, if that is impossible."""

    def report(line: int, column: int, code: str, message: str, found: str = "", hint: str = "") -> None:
        context.diagnostics.add(Diagnostic(code, (), message, found, hint, where=where, line=line, column=column))

    try:
        with path.open("rb") as file:
            raw = file.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "no such path"
        report(1, 1, "unreadable-file", f"the file cannot be read: {reason.lower()}")
        return None
    if len(raw) > MOST_BYTES:
        report(1, 1, "file-limit", f"a file must have at most {MOST_BYTES // 2**20} MiB; this file is larger")
        return None
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        begin = raw.rfind(b"\n", 0, error.start) + 1
        line = raw.count(b"\n", 0, error.start) + 1
        column = len(raw[begin : error.start].decode("utf-8-sig", "replace")) + 1
        report(line, column, "invalid-character", "a file must be in UTF-8", f"the byte 0x{raw[error.start]:02x}")
        return None
    context.lines = split_lines(text)
    context.root = compose(text, report)
    if context.root is None and not context.errors:
        report(1, 1, "missing-key", f"a file must have {sections}; this file is empty")
    return context.root


def _read(
    context: Context,
    node: Node,
    plan: Planner,
    make_sink: MakeSink | None,
    report: Callable[[int, int], None] | None,
) -> RuleFile | None:
    fields = read_fields(context, node, FILE, WHERE, "a rule file")
    if fields is None:
        return None
    nothing = MapNode(node.line, node.column)
    streams = read_streams(context, fields.nodes.get("streams", nothing))
    limits = read_tables(context, fields.nodes.get("limits", nothing), streams)
    sections = [fields.nodes.get(name, nothing) for name in ("streams", "limits")]
    block = fields.nodes.get("quality")
    quality = read_run_quality(context, block, WHERE)
    is_whole = all(isinstance(section, MapNode) for section in sections)
    known = FileScope(streams, limits, plan, is_whole, isinstance(block, MapNode) and "memory" in block.entries)
    groups = read_groups(context, fields.nodes["groups"], known, report) if "groups" in fields.nodes else ()
    sinks, archive = _sinks(context, fields, make_sink), _archive(context, fields)
    if context.errors:
        return None
    _warn_of_unused(context, fields, known)
    requests = {rule.requests for group in groups for rule in group.ranges}
    return RuleFile(
        context.diagnostics.file,
        {name: replace(s, is_requests=name in requests) for name, s in streams.items() if s is not None},
        {name: table for name, table in limits.items() if table is not None},
        groups,
        sinks,
        archive,
        quality,
    )


def _sinks(context: Context, fields: Fields, make_sink: MakeSink | None) -> tuple[Sink, ...]:
    node = fields.nodes.get("sinks")
    if node is None:
        return ()
    if not isinstance(node, ListNode):
        context.report(node, WHERE, "wrong-type", "`sinks` must be a list", found(node))
        return ()
    sinks: list[Sink] = []
    targets: dict[tuple[str, str], int] = {}
    for number, item in enumerate(node.items, 1):
        before = context.errors
        read = read_kind(context, item, SINKS, f"sink {number}", "sink")
        if read is not None and context.errors == before:
            kind, options = read
            if fields["dashboard"] and any(field.name == "dashboard" for field in SINKS[kind].fields):
                options = {**options, "dashboard": options.get("dashboard") or fields["dashboard"]}
            sinks.append(Sink(kind, options))
            if make_sink is not None:
                _check_sink(context, item, sinks[-1], make_sink, targets, number)
    return tuple(sinks)


def _check_sink(
    context: Context, node: Node, sink: Sink, make_sink: MakeSink, targets: dict[tuple[str, str], int], number: int
) -> None:
    """Make a sink; report its errors at their options."""
    where = f"sink {number}: {sink.kind}"
    options = next(iter(node.entries.values()))[1] if isinstance(node, MapNode) else node
    placed = Placed(context, {}, node, where)
    if isinstance(options, MapNode):
        placed.places |= {(name,): value for name, (_, value) in options.entries.items()}
    try:
        target = sink.kind, make_sink(sink.kind, sink.options).target
    except RuleError as error:
        placed.report(error.diagnostics)
        return
    if target in targets:
        message = f"sinks must have different targets; sink {targets[target]} has the same target"
        context.report(node, where, "duplicate-name", message)
    targets.setdefault(target, number)


def _archive(context: Context, fields: Fields) -> str | None:
    if "archive" not in fields.nodes:
        return None
    inner = read_fields(context, fields.nodes["archive"], ARCHIVE, "archive", "an archive")
    return inner["path"] if inner else None


def _warn_of_unused(context: Context, fields: Fields, known: FileScope) -> None:
    """Warn of streams and tables that no rule reads, except streams with `no_data`."""
    for section, names in (("streams", known.streams), ("limits", known.tables)):
        node = fields.nodes.get(section)
        for name, thing in names.items():
            watched = getattr(thing, "no_data", None) is not None
            if name not in known.used and not watched and isinstance(node, MapNode):
                key: Scalar = node.entries[name][0]
                kind = "stream" if section == "streams" else "limits"
                context.warn(key, f'{kind} "{name}"', "unused-name", "no rule reads it")
