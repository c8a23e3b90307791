"""Parts of a test file that several of its readers share: lists, names in messages, keys that promtool knows."""

from __future__ import annotations

from collections.abc import Mapping

from tocsin.rules.compose import ListNode, MapNode, Node, Scalar
from tocsin.rules.context import Context, found


def list_items(context: Context, node: Node | None, where: str, name: str, *, least: str = "") -> list[Node]:
    """Give the items of a list; a key with nothing behind it has none, which is wrong if `least` names what must be."""
    if isinstance(node, ListNode) and node.items:
        return node.items
    empty = isinstance(node, ListNode) or (isinstance(node, Scalar) and node.is_nothing)
    if node is not None and not empty:
        context.report(node, where, f"`{name}` must be a list; got {found(node)}")
    elif node is not None and least:
        context.report(node, where, f"`{name}` must have at least {least}; it is empty")
    return []


def called(node: Node, key: str, kind: str, number: int) -> str:
    """How messages name a part: by its name, else by its number."""
    named = node.entries[key][1] if isinstance(node, MapNode) and key in node.entries else None
    return f'{kind} "{named.text[:100]}"' if isinstance(named, Scalar) and named.text else f"{kind} {number}"


def without(context: Context, node: Node, refused: Mapping[str, str], where: str) -> Node:
    """Report keys that have no meaning here, with what to use instead; give the mapping without them."""
    if not isinstance(node, MapNode):
        return node
    for name in node.entries.keys() & refused.keys():
        context.report(node.entries[name][0], where, f"`{name}` must not be given; {refused[name]}")
    entries = {name: entry for name, entry in node.entries.items() if name not in refused}
    return MapNode(node.line, node.column, node.size, entries)
