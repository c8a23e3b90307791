"""Context of the readers of one file: the text, the positions of its parts, and the diagnostics."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tocsin.errors import ERROR, NAME, NOTE, WARNING, Diagnostic, RuleError, printable
from tocsin.rules.compose import ListNode, MapNode, Node, Scalar, place_in

# Reported errors of a file.
MOST_ERRORS = 1000
# Parts of a file whose text is not quoted.
SECRETS = frozenset({"username", "password", "url", "headers"})

_KEY = re.compile(r"(?:[\w$.-]+\s*:\s+)?$")
_WORD = re.compile(r"[\w$.-]+|.")


class RuleFileError(RuleError):
    """A rule file with errors: all of them, in the order of their positions."""


class TooManyErrors(Exception):
    """The limit of errors is reached."""


class FileDiagnostics:
    """Diagnostics of one file and of the tables that it names. A thousand errors end the check."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.errors = 0
        self._found: dict[tuple[object, ...], Diagnostic] = {}

    def add(self, one: Diagnostic) -> None:
        """Add a diagnostic. The same one at the same position, seen through an alias, is added once."""
        message, found, hint = printable(one.message), printable(one.found), printable(one.hint)
        file, where = printable(one.file or self.file), printable(one.where)
        one = replace(one, file=file, where=where, message=message, found=found, hint=hint)
        key = (*_order(one), one.severity)
        if key in self._found:
            return
        if self.errors == MOST_ERRORS and one.severity == ERROR:
            message = f"only the first {MOST_ERRORS:,} errors are reported; the rest of the file is not checked"
            end = Diagnostic("too-many-errors", (), message, file=one.file, line=one.line, column=one.column)
            self._found[*_order(end), ERROR] = end
            raise TooManyErrors
        self._found[key] = one
        self.errors += one.severity == ERROR

    def sorted(self, severity: str = ERROR) -> tuple[Diagnostic, ...]:
        """Return the diagnostics of a severity by position, the file itself before its tables."""
        return sort_diagnostics((one for one in self._found.values() if one.severity == severity), printable(self.file))


def sort_diagnostics(diagnostics: Iterable[Diagnostic], file: str) -> tuple[Diagnostic, ...]:
    """Return diagnostics by position, a file before all other files."""
    return tuple(sorted(diagnostics, key=lambda one: (one.file != file, _order(one))))


def _order(one: Diagnostic) -> tuple[str, int, int, str, str]:
    return one.file, one.line, one.column, one.where, one.sentence


@dataclass
class Context:
    """Text of a file for positions, the collector of its diagnostics, and the environment."""

    diagnostics: FileDiagnostics
    folder: Path
    environment: Mapping[str, str]
    lines: list[str] = field(default_factory=list)
    root: Node | None = None
    _paths: dict[int, tuple[object, ...]] = field(default_factory=dict)

    @property
    def errors(self) -> int:
        """Number of errors so far."""
        return self.diagnostics.errors

    def report(
        self,
        node: Node,
        where: str,
        code: str,
        message: str,
        found: str = "",
        hint: str = "",
        *,
        span: tuple[int, int] | None = None,
        severity: str = ERROR,
    ) -> None:
        """Add a diagnostic at a node, or at a range of characters of its text."""
        self.place(Diagnostic(code, (), message, found, hint, severity, where, span=span), node)

    def warn(self, node: Node, where: str, code: str, message: str) -> None:
        """Add a warning at a node."""
        self.report(node, where, code, message, severity=WARNING)

    def note(self, node: Node, where: str, code: str, message: str) -> None:
        """Add a note at a node."""
        self.report(node, where, code, message, severity=NOTE)

    def place(self, one: Diagnostic, node: Node) -> None:
        """Add a diagnostic with the position of a node; its span is a range of characters of the text of the node."""
        path = self._path_of(node)
        line, column = node.line, node.column
        if one.span is not None and isinstance(node, Scalar):
            line, column = place_in(node, one.span[0], self.lines)
        quoted, span = self._quote(node, path, line, column, one.span)
        self.diagnostics.add(
            replace(one, path=path, line=line, column=column, quoted=printable(quoted) if quoted else "", span=span)
        )

    def _path_of(self, node: Node) -> tuple[object, ...]:
        """Return the path that leads to a node. The paths of all nodes are computed for the first diagnostic."""
        if not self._paths and self.root is not None:
            open_nodes: list[tuple[Node, tuple[object, ...]]] = [(self.root, ())]
            while open_nodes:
                one, path = open_nodes.pop()
                if id(one) in self._paths:
                    continue
                self._paths[id(one)] = path
                if isinstance(one, ListNode):
                    open_nodes += [(item, (*path, i)) for i, item in enumerate(one.items)]
                elif isinstance(one, MapNode):
                    for name, (key, value) in one.entries.items():
                        open_nodes += [(key, (*path, name, NAME)), (value, (*path, name))]
        return self._paths.get(id(node), ())

    def _quote(
        self, node: Node, path: Sequence[object], line: int, column: int, span: tuple[int, int] | None
    ) -> tuple[str, tuple[int, int] | None]:
        """Return the text to underline, from the key of the node, and the range of characters of the error.

        Only the node itself is quoted, because other parts of the line can be secret.
        """
        if not SECRETS.isdisjoint(map(str, path)) or line > len(self.lines):
            return "", None
        text, start = self.lines[line - 1], column - 1
        if not isinstance(node, Scalar) or path[-1:] == (NAME,):
            word = _WORD.match(text, start)
            return (word[0], (0, len(word[0]))) if word else ("", None)
        first = node.column - 1 if line == node.line else 0
        begin = first
        if line == node.line and (key := _KEY.search(text, 0, first)):
            begin = key.start()
        quotes = 2 if node.style in {"'", '"'} else 0
        end = len(text) if line != node.line else min(len(text), first + len(node.text) + quotes)
        stop = min(end, start + span[1] - span[0]) if span is not None else end
        return text[begin : max(end, stop)], (start - begin, max(stop, start + 1) - begin)


def found(node: Node) -> str:
    """Return the value of a node for a message."""
    if isinstance(node, ListNode):
        return "a list"
    if isinstance(node, MapNode):
        return "a mapping"
    assert isinstance(node, Scalar)
    return "nothing" if node.is_nothing else repr(node.text if len(node.text) <= 60 else f"{node.text[:57]}...")
