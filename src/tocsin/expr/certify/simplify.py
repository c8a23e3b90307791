"""Simplify: remove parts of an expression that do not change its shape along a variable.

Algorithm: terms and factors without the variable, and increasing functions outside do not change the shape of the rest.
If one monotone part contains all occurrences of the variable, a new variable can replace the part.

Guarantee: a shape that is proved for the rest is a shape of the whole expression. The reverse is not true: a
counterexample for the rest is not always a counterexample for the expression.

Complexity: a few visits of the tree.

References: removing monotone layers is common in disciplined programming. In one dimension it does not need convexity.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from functools import reduce

from tocsin.expr.syntax_tree import (
    Binary,
    Call,
    Key,
    Node,
    Number,
    Unary,
    Variable,
    child_nodes,
    is_independent_of,
    literal_value,
    replace_children,
)

# Returns the sign of a node: 1, -1, or 0 if it is not known.
Sign = Callable[[Node], int]

_INCREASING = ("exp", "ln", "log10", "sqrt", "tanh", "floor", "ceil")


def strip_layers(tree: Node, along: Key, sign: Sign) -> Node:
    """Return the tree without its outer monotone layers, with a minus in front if the layers reverse the direction."""
    node, increasing = tree, True
    while True:
        inner, same_direction = _strip_layer(node, along, sign)
        if inner is None:
            return node if increasing else Unary(node)
        node, increasing = inner, increasing == same_direction


def _strip_layer(node: Node, along: Key, sign: Sign) -> tuple[Node | None, bool]:
    """Return the node inside the outermost layer, or None, and whether the layer keeps the direction."""
    if isinstance(node, Unary):
        return node.operand, False
    if isinstance(node, Binary) and node.op in "+-":
        if is_independent_of(node.left, along):
            return node.right, node.op == "+"
        return (node.left, True) if is_independent_of(node.right, along) else (None, True)
    if isinstance(node, Binary) and node.op in "*/":
        return _strip_factors(node, along, sign)
    if isinstance(node, Call) and node.name in _INCREASING:
        return node.args[0], True
    if isinstance(node, Call) and node.name in ("min", "max"):
        dependent = [arg for arg in node.args if not is_independent_of(arg, along)]
        return (dependent[0], True) if len(dependent) == 1 else (None, True)
    if isinstance(node, Binary) or (isinstance(node, Call) and node.name == "pow"):
        base, exponent = child_nodes(node)
        index = literal_value(exponent)
        if index is not None and index > 0 and (index % 2 == 1 or sign(base) > 0):
            return base, True
    return None, True


def _strip_factors(node: Binary, along: Key, sign: Sign) -> tuple[Node | None, bool]:
    """Strip the factors without the variable from a product or quotient if their signs are known."""
    numerator, denominator = _list_factors(node)
    signs = [sign(part) for part in (*numerator, *denominator) if is_independent_of(part, along)]
    if not signs or 0 in signs:
        return None, True
    top = _multiply_nodes([part for part in numerator if not is_independent_of(part, along)])
    bottom = [part for part in denominator if not is_independent_of(part, along)]
    rest = Binary("/", top, _multiply_nodes(bottom)) if bottom else top
    if rest == node:
        return None, True
    return rest, signs.count(-1) % 2 == 0


def _list_factors(node: Node) -> tuple[list[Node], list[Node]]:
    """Return the factors of the numerator and of the denominator."""
    if not (isinstance(node, Binary) and node.op in "*/"):
        return [node], []
    numerator, denominator = _list_factors(node.left)
    top, bottom = _list_factors(node.right)
    if node.op == "/":
        top, bottom = bottom, top
    return numerator + top, denominator + bottom


def _multiply_nodes(nodes: list[Node]) -> Node:
    return reduce(lambda left, right: Binary("*", left, right), nodes) if nodes else Number(1.0)


def find_common_part(tree: Node, along: Key) -> Node | None:
    """Return the largest part that contains all occurrences of a variable, in one or more equal copies.

    The tree itself and the variable are not candidates. Return None if no part qualifies.
    """
    class_ids: dict[Hashable, int] = {}
    nodes: list[tuple[Node, int]] = []
    # Occurrences of the variable in a node of each class.
    occurrences: dict[int, int] = {}

    def classify(node: Node) -> int:
        """Return the id of the class of equal nodes. Append all nodes to `nodes` in preorder."""
        position = len(nodes)
        nodes.append((node, 0))
        children = [classify(child) for child in child_nodes(node)]
        label = getattr(node, "op", getattr(node, "name", "")) if children else node
        class_id = class_ids.setdefault((type(node), label, *children), len(class_ids))
        occurrences[class_id] = sum(occurrences[c] for c in children) if children else node == Variable(*along)
        nodes[position] = node, class_id
        return class_id

    total = occurrences[classify(tree)]
    # Equal nodes cannot contain each other, so the occurrences in all copies add up.
    copies = Counter(class_id for _, class_id in nodes)
    for node, class_id in nodes[1:]:
        contains_all = occurrences[class_id] and copies[class_id] * occurrences[class_id] == total
        if contains_all and isinstance(node, Unary | Binary | Call):
            return node
    return None


def replace_part(tree: Node, part: Node, replacement: Node) -> Node:
    """Return a copy of the tree with another node for each occurrence of a part."""
    if tree == part:
        return replacement
    children = child_nodes(tree)
    if not children:
        return tree
    return replace_children(tree, tuple(replace_part(child, part, replacement) for child in children))
