"""Quality blocks of a rule file: plain values for `parse_quality`, and the position of each option."""

from __future__ import annotations

from typing import Any

from tocsin.errors import Diagnostics
from tocsin.rules.compose import MapNode, Node, Scalar
from tocsin.rules.context import Context, found
from tocsin.rules.placed import Placed
from tocsin.rules.quality import EXAMPLE, NO_QUALITY, RUN_KEYS, Quality, read_quality


class _NotText:
    """A value of a rule file that is empty, a list or a mapping. `parse_quality` rejects it and shows its kind."""

    def __init__(self, node: Node) -> None:
        self._kind = found(node)

    def __repr__(self) -> str:
        return self._kind


def read_quality_block(
    context: Context, node: Node | None, where: str, places: dict[tuple[object, ...], Node]
) -> dict[str, Any] | None:
    """Return the values of a quality block, or None without a block. Add the positions of its options to `places`."""
    if node is None:
        return None
    if not isinstance(node, MapNode):
        context.report(node, where, "wrong-type", f"`quality` must be a mapping such as {EXAMPLE}", found(node))
        return None
    places["quality",] = node
    block = _read_entries(node, ("quality",), places)
    inner = node.entries["model"][1] if "model" in node.entries else None
    if isinstance(inner, MapNode):
        block["model"] = _read_entries(inner, ("quality", "model"), places)
    return block


def read_run_quality(context: Context, node: Node | None, where: str) -> Quality:
    """Return the quality block of a rule file. Report all its errors."""
    places: dict[tuple[object, ...], Node] = {}
    block = read_quality_block(context, node, where, places)
    if node is None or block is None:
        return NO_QUALITY
    diagnostics = Diagnostics()
    quality = read_quality(block, diagnostics, RUN_KEYS)
    Placed(context, places, node, where).report(diagnostics)
    return quality


def _read_entries(node: MapNode, path: tuple[object, ...], places: dict[tuple[object, ...], Node]) -> dict[str, Any]:
    entries: dict[str, Any] = {}
    for name, (key, value) in node.entries.items():
        places[*path, name], places[*path, name, "name"] = value, key
        entries[name] = value.text if isinstance(value, Scalar) and not value.is_nothing else _NotText(value)
    return entries
