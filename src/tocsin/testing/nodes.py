"""Helpers for the readers of test files: lists, names of parts in messages, unsupported keys of promtool."""

from __future__ import annotations

from collections.abc import Mapping

from tocsin.rules.compose import ListNode, MapNode, Node, Scalar
from tocsin.rules.context import Context, found


def list_items(context: Context, node: Node | None, where: str, name: str, *, least: str = "") -> list[Node]:
    """Return the items of a list. An empty list is an error if `least` describes the required content."""
    if isinstance(node, ListNode) and node.items:
        return node.items
    empty = isinstance(node, ListNode) or (isinstance(node, Scalar) and node.is_nothing)
    if node is not None and not empty:
        context.report(node, where, "wrong-type", f"`{name}` must be a list", found(node))
    elif node is not None and least:
        context.report(node, where, "missing-key", f"`{name}` must have at least {least}; it is empty")
    return []


def called(node: Node, key: str, kind: str, number: int) -> str:
    """Return the name of a part in messages: its own name, or its number."""
    named = node.entries[key][1] if isinstance(node, MapNode) and key in node.entries else None
    return f'{kind} "{named.text[:100]}"' if isinstance(named, Scalar) and named.text else f"{kind} {number}"


def without(context: Context, node: Node, unsupported: Mapping[str, str], where: str) -> Node:
    """Report unsupported keys with their replacement; return the mapping without them."""
    if not isinstance(node, MapNode):
        return node
    for name in node.entries.keys() & unsupported.keys():
        context.report(
            node.entries[name][0], where, "unknown-key", f"`{name}` is not supported", hint=unsupported[name]
        )
    entries = {name: entry for name, entry in node.entries.items() if name not in unsupported}
    return MapNode(node.line, node.column, node.size, entries)
