"""What all readers of one rule file share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tocsin.rules.compose import ListNode, MapNode, Node, Scalar, place_in
from tocsin.rules.mistakes import NOTE, WARNING, Mistakes


@dataclass
class Context:
    """What all readers of one file share: its text for places, where mistakes go, and what the environment holds."""

    mistakes: Mistakes
    folder: Path
    environment: Mapping[str, str]
    lines: list[str] = field(default_factory=list)

    def report(self, node: Node, where: str, message: str, *, offset: int | None = None) -> None:
        """Note a mistake at a node, or at a character of its text."""
        line, column = node.line, node.column
        if offset is not None and isinstance(node, Scalar):
            line, column = place_in(node, offset, self.lines)
        self.mistakes.add(line, column, where, message)

    def warn(self, node: Node, where: str, message: str) -> None:
        """Note a warning at a node."""
        self.mistakes.add(node.line, node.column, where, message, kind=WARNING)

    def note(self, node: Node, where: str, message: str) -> None:
        """Add a note at a node."""
        self.mistakes.add(node.line, node.column, where, message, kind=NOTE)


def found(node: Node) -> str:
    """Say what stands at a node, shortly."""
    if isinstance(node, ListNode):
        return "a list"
    if isinstance(node, MapNode):
        return "a mapping"
    assert isinstance(node, Scalar)
    return "nothing" if node.is_nothing else repr(node.text if len(node.text) <= 60 else f"{node.text[:57]}...")
