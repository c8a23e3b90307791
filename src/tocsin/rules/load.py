"""Rule file -> RuleFile: every mistake at once, each with its place.

The file is composed once, and each condition parsed once here and once by the planner. The environment is asked for
secrets only.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tocsin.errors import RuleError
from tocsin.rules.compose import MOST_BYTES, ListNode, MapNode, Node, Scalar, compose, split_lines
from tocsin.rules.context import Context, found
from tocsin.rules.fields import Fields, read_fields, read_kind
from tocsin.rules.groups import read_groups
from tocsin.rules.mistakes import NOTE, WARNING, Mistake, Mistakes, RuleFileError, TooManyMistakes
from tocsin.rules.options import ARCHIVE, FILE, SINKS
from tocsin.rules.read_quality import read_run_quality
from tocsin.rules.references import Known, Planner
from tocsin.rules.rulefile import RuleFile, Sink
from tocsin.rules.streams import read_streams, read_tables

WHERE = "rule file"

# Makes a sink of its kind and options, or raises what is wrong with them together.
MakeSink = Callable[[str, Mapping[str, Any]], Any]


@dataclass(frozen=True)
class Checked:
    """A checked file: its mistakes, warnings and notes by place, and the RuleFile if there are no mistakes."""

    path: str
    file: RuleFile | None
    mistakes: tuple[Mistake, ...]
    warnings: tuple[Mistake, ...]
    notes: tuple[Mistake, ...] = ()


def load_rule_file(
    path: str | Path, plan: Planner, environment: Mapping[str, str], make_sink: MakeSink | None = None
) -> RuleFile:
    """Read a rule file; mistakes are raised together, as a RuleFileError."""
    checked = check_rule_file(path, plan, environment, make_sink)
    if checked.file is None:
        raise RuleFileError(checked.mistakes)
    return checked.file


def check_rule_file(
    path: str | Path,
    plan: Planner,
    environment: Mapping[str, str],
    make_sink: MakeSink | None = None,
    report: Callable[[int, int], None] | None = None,
) -> Checked:
    """Read a rule file and say all that is wrong with it.

    Parameters
    ----------
    path
        The file; paths in it are taken from its folder.
    plan
        Who plans a rule, such as `tocsin.plan.make_plan`; what it refuses is a mistake of the file.
    environment
        Where `${VAR}` is looked up.
    make_sink
        Who makes sinks, such as `tocsin.delivery.make_sink`; what it refuses is a mistake too.
    report
        Called before each rule with the number of checked rules and of all rules.
    """
    mistakes = Mistakes(str(path))
    context = Context(mistakes, Path(path).parent, environment)
    file = None
    with contextlib.suppress(TooManyMistakes):
        node = compose_file(context, Path(path))
        file = None if node is None else _read(context, node, plan, make_sink, report)
    file = None if mistakes.count else file
    return Checked(str(path), file, mistakes.sorted(), mistakes.sorted(WARNING), mistakes.sorted(NOTE))


def compose_file(context: Context, path: Path) -> Node | None:
    """Read the nodes of a file; None, with the reason among the mistakes, if that cannot be done."""

    def report(line: int, column: int, message: str) -> None:
        context.mistakes.add(line, column, WHERE, message)

    try:
        with path.open("rb") as file:
            raw = file.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "no such path"
        report(1, 1, f"the file cannot be read: {reason.lower()}")
        return None
    if len(raw) > MOST_BYTES:
        report(1, 1, f"a file must have at most {MOST_BYTES // 2**20} MiB; this file is larger")
        return None
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        begin = raw.rfind(b"\n", 0, error.start) + 1
        column = len(raw[begin : error.start].decode("utf-8-sig", "replace")) + 1
        report(
            raw.count(b"\n", 0, error.start) + 1,
            column,
            f"a file must be in UTF-8; got the byte 0x{raw[error.start]:02x}",
        )
        return None
    context.lines = split_lines(text)
    node = compose(text, report)
    if node is None and not context.mistakes.count:
        report(1, 1, "a file must have `streams` and `groups`; this file is empty")
    return node


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
    known = Known(streams, limits, plan, is_whole, isinstance(block, MapNode) and "memory" in block.entries)
    groups = read_groups(context, fields.nodes["groups"], known, report) if "groups" in fields.nodes else ()
    sinks, archive = _sinks(context, fields, make_sink), _archive(context, fields)
    if context.mistakes.count:
        return None
    _warn_of_unused(context, fields, known)
    requests = {rule.requests for group in groups for rule in group.ranges}
    return RuleFile(
        context.mistakes.file,
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
        context.report(node, WHERE, f"`sinks` must be a list; got {found(node)}")
        return ()
    sinks: list[Sink] = []
    targets: dict[tuple[str, str], int] = {}
    for number, item in enumerate(node.items, 1):
        before = context.mistakes.count
        read = read_kind(context, item, SINKS, f"sink {number}", "sink")
        if read is not None and context.mistakes.count == before:
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
    """Make a sink; what is wrong is reported at the option that is named first."""
    where = f"sink {number}: {sink.kind}"
    try:
        target = sink.kind, make_sink(sink.kind, sink.options).target
    except RuleError as error:
        sentence = str(error).removeprefix(f"sink `{sink.kind}`: ")
        context.report(_option(node, sentence), where, sentence)
        return
    if target in targets:
        context.report(node, where, f"sinks must have different targets; sink {targets[target]} has the same target")
    targets.setdefault(target, number)


def _option(node: Node, sentence: str) -> Node:
    """The node of the option that a sentence names first, else that of the sink."""
    options = next(iter(node.entries.values()))[1] if isinstance(node, MapNode) else node
    named = sentence.split("`")[1::2]
    found = [options.entries[name][1] for name in named if isinstance(options, MapNode) and name in options.entries]
    return found[0] if found else node


def _archive(context: Context, fields: Fields) -> str | None:
    if "archive" not in fields.nodes:
        return None
    inner = read_fields(context, fields.nodes["archive"], ARCHIVE, "archive", "an archive")
    return inner["path"] if inner else None


def _warn_of_unused(context: Context, fields: Fields, known: Known) -> None:
    """Warn of streams and tables that no rule reads; a stream that is watched for silence is of use."""
    for section, names in (("streams", known.streams), ("limits", known.limits)):
        node = fields.nodes.get(section)
        for name, thing in names.items():
            watched = getattr(thing, "no_data", None) is not None
            if name not in known.used and not watched and isinstance(node, MapNode):
                key: Scalar = node.entries[name][0]
                kind = "stream" if section == "streams" else "limits"
                context.warn(key, f'{kind} "{name}"', "no rule reads it")
