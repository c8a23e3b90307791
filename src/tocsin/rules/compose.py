"""Read YAML into nodes that know their place, and nothing else: no objects are built, no tags are obeyed.

Idea: libyaml's events are put together here rather than by PyYAML, so that hostile files are refused while they are
read: depth, size, and what aliases expand to are bounded, and no recursion follows the file. A scalar stays the text
that was written; its reader decides what it means, so `on` is a word and `1:30` is no number.

Cost: linear in the file; 200,000 events take about 0.5 s with libyaml, and 20 times as long with PyYAML alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import yaml

MOST_BYTES = 16 * 1024 * 1024
MOST_NODES = 500_000
MOST_DEPTH = 50

# What YAML allows in a file; the rest would end up in terminals and labels.
_REFUSED = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_BREAK = re.compile("\r\n|[\r\n\x85\u2028\u2029]")
_PROPERTIES = re.compile(r"(?:[&!]\S*\s+)+")
_NOTHING = {"", "~", "null", "Null", "NULL"}
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

# Line, column, code, message, and optionally found value and hint.
Report = Callable[..., None]


@dataclass(eq=False, slots=True)
class Node:
    """A part of a file; line and column count from 1. `size` counts the nodes below, aliases expanded."""

    line: int
    column: int
    size: int = field(default=1, repr=False)


@dataclass(eq=False, slots=True)
class Scalar(Node):
    """A text as YAML reads it, and how it was quoted: nothing, `'`, `"`, `|` or `>`."""

    text: str = ""
    style: str = ""

    @property
    def is_nothing(self) -> bool:
        """Whether this stands for no value at all."""
        return not self.style and self.text in _NOTHING


@dataclass(eq=False, slots=True)
class ListNode(Node):
    """Nodes in order."""

    items: list[Node] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class MapNode(Node):
    """Nodes by name, each with the scalar that names it."""

    entries: dict[str, tuple[Scalar, Node]] = field(default_factory=dict)


class _Unreadable(Exception):
    """The file cannot be read further. The arguments are those of `Report`."""


def compose(text: str, report: Report) -> Node | None:
    """Read the one document of a text; what is wrong is reported, and None says that nothing could be read."""
    found = _REFUSED.search(text)
    if found:
        breaks = [0, *(match.end() for match in _BREAK.finditer(text, 0, found.start()))]
        shown = f"U+{ord(found.group()):04X}"
        message = "a file must contain only printable characters"
        report(len(breaks), found.start() - breaks[-1] + 1, "invalid-character", message, shown)
        return None
    try:
        return _Composer(report).document(text)
    except _Unreadable as error:
        report(*error.args)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        lines = split_lines(text)
        if line > len(lines):
            # What is missing at the end of a file is missing at the end of its last line.
            line, column = len(lines), len(lines[-1]) + 1
        reason = ", ".join(part for part in (error.context, error.problem) if part)
        hint = "indent with spaces, not with tabs" if "\t" in lines[line - 1][: column + 1] else ""
        report(line, column, "invalid-yaml", f"invalid YAML: {reason}", hint=hint)
    return None


class _Composer:
    """Put events together; open containers are a stack, and a key that waits for its value stands beside its map."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._open: list[tuple[ListNode | MapNode, str | None]] = []
        self._keys: list[Node | None] = []
        self._anchors: dict[str, Node] = {}
        self._nodes = 0
        self._root: Node | None = None

    def document(self, text: str) -> Node | None:
        """Read all events; a second document is refused where it begins."""
        documents = 0
        for event in _events(text):
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    message = "a file must contain one YAML document; a second one begins here"
                    raise _Unreadable(*_place(event), "unsupported-yaml", message)
            elif isinstance(event, yaml.AliasEvent):
                self._put(self._aliased(event))
            elif isinstance(event, yaml.NodeEvent):
                self._node(event)
            elif isinstance(event, yaml.CollectionEndEvent):
                self._close()
        return self._root

    def _node(self, event: yaml.NodeEvent) -> None:
        line, column = _place(event)
        tag = getattr(event, "tag", None)
        if tag is not None:
            self._report(line, column, "unsupported-yaml", "a file must not use tags", f"`{tag}`")
        if isinstance(event, yaml.ScalarEvent):
            node = Scalar(line, column, text=event.value, style=event.style or "")
            self._count(node)
            if event.anchor is not None:
                self._anchors[event.anchor] = node
            self._put(node)
            return
        kind = MapNode if isinstance(event, yaml.MappingStartEvent) else ListNode
        opened: ListNode | MapNode = kind(line, column)
        self._count(opened)
        if len(self._open) == MOST_DEPTH:
            raise _Unreadable(line, column, "file-limit", f"a file must be nested at most {MOST_DEPTH} deep")
        if event.anchor is not None:
            # Until it is closed an anchor has nothing to give: an alias inside it would have no end.
            self._anchors.pop(event.anchor, None)
        self._open.append((opened, event.anchor))
        self._keys.append(None)

    def _close(self) -> None:
        node, anchor = self._open.pop()
        self._keys.pop()
        if anchor is not None:
            self._anchors[anchor] = node
        self._put(node)

    def _aliased(self, event: yaml.AliasEvent) -> Node:
        line, column = _place(event)
        node = self._anchors.get(str(event.anchor))
        if node is None:
            message = f"an alias must follow the end of its anchor; `*{event.anchor}` has no anchor before it"
            raise _Unreadable(line, column, "unsupported-yaml", message)
        self._nodes += node.size
        if self._nodes > MOST_NODES:
            message = (
                f"a file must have at most {MOST_NODES:,} nodes after the expansion of aliases; this file has more"
            )
            raise _Unreadable(line, column, "file-limit", message)
        return node

    def _count(self, node: Node) -> None:
        self._nodes += 1
        if self._nodes > MOST_NODES:
            message = f"a file must have at most {MOST_NODES:,} nodes; this file has more"
            raise _Unreadable(node.line, node.column, "file-limit", message)

    def _put(self, node: Node) -> None:
        """Give a finished node to the container that is open."""
        if not self._open:
            self._root = node
            return
        container, key = self._open[-1][0], self._keys[-1]
        container.size += node.size
        if isinstance(container, ListNode):
            container.items.append(node)
        elif key is None:
            self._keys[-1] = node
        else:
            self._keys[-1] = None
            self._enter(container, key, node)

    def _enter(self, container: MapNode, key: Node, value: Node) -> None:
        if not isinstance(key, Scalar):
            message = "a key must be a scalar"
            self._report(key.line, key.column, "unsupported-yaml", message, "a list or a mapping")
        elif key.text in container.entries:
            first = container.entries[key.text][0].line
            message = f"keys must be unique; `{key.text}` is already in line {first}"
            self._report(key.line, key.column, "duplicate-name", message)
        elif key.text == "<<" and not key.style:
            message = "merge keys (`<<`) are not supported; write the keys, or use an alias as a value"
            self._report(key.line, key.column, "unsupported-yaml", message)
        else:
            container.entries[key.text] = (key, value)


def _events(text: str) -> Iterator[yaml.Event]:
    loader = _LOADER(text)
    try:
        while loader.check_event():
            yield loader.get_event()
    finally:
        loader.dispose()


def _place(event: yaml.Event) -> tuple[int, int]:
    mark = event.start_mark
    return (1, 1) if mark is None else (mark.line + 1, mark.column + 1)


def place_in(scalar: Scalar, offset: int, lines: list[str]) -> tuple[int, int]:
    """Find line and column of a character of a scalar's text; where the file writes it otherwise, those of its start.

    >>> place_in(Scalar(1, 7, text="air > 3", style="'"), 4, ["expr: 'air > 3'"])
    (1, 12)
    """
    text = scalar.text
    if scalar.style in {"|", ">"}:
        row = text.count("\n", 0, offset)
        begin = text.rfind("\n", 0, offset) + 1
        end = text.find("\n", begin)
        content = text[begin : end if end >= 0 else len(text)]
        line = scalar.line + 1 + row
        if line <= len(lines) and content and lines[line - 1].strip(" ") == content.strip(" "):
            return line, lines[line - 1].find(content) + offset - begin + 1
        return scalar.line, scalar.column
    raw = lines[scalar.line - 1]
    properties = _PROPERTIES.match(raw, scalar.column - 1)
    start = (properties.end() if properties else scalar.column - 1) + bool(scalar.style)
    before = text[:offset].replace("'", "''") if scalar.style == "'" else text[:offset]
    if raw.startswith(before, start):
        return scalar.line, start + len(before) + 1
    return scalar.line, scalar.column


def split_lines(text: str) -> list[str]:
    r"""Cut a text where YAML counts lines.

    >>> split_lines("a: 1\r\nb: 2")
    ['a: 1', 'b: 2']
    """
    return _BREAK.split(text)
