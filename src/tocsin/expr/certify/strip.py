"""Strip an expression of what does not change its shape along a variable, so that less is left to prove.

Idea: terms and factors without the variable, and functions on the outside that never fall, keep every shape of what is
inside; and where the variable stands in one part only, however often, the part may stand for it if it is monotone.
Guarantee: a shape that is proved of what is left holds of the whole. The reverse does not: a step may hide a peak.
Cost: a few visits of the tree.

Source: taking off monotone layers is common in disciplined programming; in one dimension it needs no convexity.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable

from tocsin.expr.nodes import (
    Binary,
    Call,
    Key,
    Node,
    Number,
    Unary,
    Variable,
    children,
    is_free,
    literal,
    with_children,
)

# Tells the sign of a part: 1, -1, or 0 where it is not known.
Sign = Callable[[Node], int]

_RISING = ("exp", "ln", "log10", "sqrt", "tanh", "floor", "ceil")


def stripped(tree: Node, along: Key, sign: Sign) -> Node:
    """What is left of a tree; it has a minus in front where it was turned over."""
    node, up = tree, True
    while True:
        inner, same = _inside(node, along, sign)
        if inner is None:
            return node if up else Unary(node)
        node, up = inner, up == same


def _inside(node: Node, along: Key, sign: Sign) -> tuple[Node | None, bool]:
    """What is inside the outermost layer, and whether that rises with it; None: there is none to take off."""
    if isinstance(node, Unary):
        return node.operand, False
    if isinstance(node, Binary) and node.op in "+-":
        if is_free(node.left, along):
            return node.right, node.op == "+"
        return (node.left, True) if is_free(node.right, along) else (None, True)
    if isinstance(node, Binary) and node.op in "*/":
        return _without_factors(node, along, sign)
    if isinstance(node, Call) and node.name in _RISING:
        return node.args[0], True
    if isinstance(node, Call) and node.name in ("min", "max"):
        moving = [arg for arg in node.args if not is_free(arg, along)]
        return (moving[0], True) if len(moving) == 1 else (None, True)
    if isinstance(node, Binary) or (isinstance(node, Call) and node.name == "pow"):
        base, exponent = children(node)
        index = literal(exponent)
        if index is not None and index > 0 and (index % 2 == 1 or sign(base) > 0):
            return base, True
    return None, True


def _without_factors(node: Binary, along: Key, sign: Sign) -> tuple[Node | None, bool]:
    """A product or quotient without the factors that the variable is not in, if their signs are known."""
    above, below = _factors(node)
    free = [part for part in (*above, *below) if is_free(part, along)]
    signs = [sign(part) for part in free]
    if not free or 0 in signs:
        return None, True
    top = _product([part for part in above if not is_free(part, along)])
    bottom = [part for part in below if not is_free(part, along)]
    rest = Binary("/", top, _product(bottom)) if bottom else top
    if rest == node:
        return None, True
    return rest, signs.count(-1) % 2 == 0


def _factors(node: Node) -> tuple[list[Node], list[Node]]:
    if not (isinstance(node, Binary) and node.op in "*/"):
        return [node], []
    above, below = _factors(node.left)
    top, bottom = _factors(node.right)
    if node.op == "/":
        top, bottom = bottom, top
    return above + top, below + bottom


def _product(parts: list[Node]) -> Node:
    if not parts:
        return Number(1.0)
    total = parts[0]
    for part in parts[1:]:
        total = Binary("*", total, part)
    return total


def common_part(tree: Node, along: Key) -> Node | None:
    """Return the largest part that holds every occurrence of a variable, but is neither the tree nor the variable."""
    kinds: dict[Hashable, int] = {}
    nodes, uses = list[tuple[Node, int]](), dict[int, int]()

    def number(node: Node) -> int:
        """Number a part: equal parts have equal numbers, and copies of a part never hold each other."""
        at = len(nodes)
        nodes.append((node, 0))
        parts = [number(part) for part in children(node)]
        label = getattr(node, "op", getattr(node, "name", "")) if parts else node
        kind = kinds.setdefault((type(node), label, *parts), len(kinds))
        uses[kind] = sum(uses[part] for part in parts) if parts else node == Variable(*along)
        nodes[at] = node, kind
        return kind

    total = uses[number(tree)]
    copies = Counter(kind for _, kind in nodes)
    for node, kind in nodes[1:]:
        if uses[kind] and copies[kind] * uses[kind] == total and not isinstance(node, Variable) and not _is_test(node):
            return node
    return None


def _is_test(node: Node) -> bool:
    return not isinstance(node, Unary | Binary | Call)


def replaced(tree: Node, part: Node, by: Node) -> Node:
    """A tree with another part in place of each occurrence of one."""
    if tree == part:
        return by
    parts = children(tree)
    return with_children(tree, tuple(replaced(node, part, by) for node in parts)) if parts else tree
