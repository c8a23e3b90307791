"""Syntax tree: numbers, variables, arithmetic, functions, comparisons, `and` and `or`.

The nodes are frozen dataclasses. Two nodes are equal if their trees are equal, at any position of the text.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

# Name of a variable: stream and column. The column is None for a stream with a single value.
Key: TypeAlias = tuple[str, str | None]

ARITHMETIC = ("+", "-", "*", "/", "**")
COMPARISONS = (">", ">=", "<", "<=")
JUNCTIONS = ("and", "or")

# Minimum and maximum number of arguments by function; the maximum is None if there is no limit.
FUNCTIONS: Mapping[str, tuple[int, int | None]] = {
    "abs": (1, 1),
    "ceil": (1, 1),
    "cos": (1, 1),
    "exp": (1, 1),
    "floor": (1, 1),
    "ln": (1, 1),
    "log10": (1, 1),
    "max": (2, None),
    "min": (2, None),
    "pow": (2, 2),
    "sin": (1, 1),
    "sqrt": (1, 1),
    "tanh": (1, 1),
    "where": (3, 3),
}

# Operator precedence: an operator with a higher number is applied first.
PRECEDENCE = {"or": 1, "and": 2, ">": 3, ">=": 3, "<": 3, "<=": 3, "+": 4, "-": 4, "*": 5, "/": 5, "**": 7}
UNARY_PRECEDENCE = 6
_ATOM_PRECEDENCE = 8


@dataclass(frozen=True)
class Node:
    """A node of the syntax tree. Parsing `str(node)` returns an equal tree.

    Attributes
    ----------
    start, stop
        The position of the node in the text. They do not affect equality.
    """

    start: int = field(default=0, compare=False, repr=False, kw_only=True)
    stop: int = field(default=0, compare=False, repr=False, kw_only=True)

    def __str__(self) -> str:
        """Return the text of the tree with as few parentheses as possible."""
        return _format_node(self, 0)


@dataclass(frozen=True)
class Number(Node):
    """A literal. It is finite and not negative: a minus is a `Unary` node."""

    value: float

    def __post_init__(self) -> None:
        """Reject a value that no literal can have."""
        if not math.isfinite(self.value) or math.copysign(1.0, self.value) < 0:
            message = f"`value` of a Number must be finite and have no minus sign; got {self.value!r}"
            raise ValueError(message)


@dataclass(frozen=True)
class Variable(Node):
    """A column of a stream, or a stream with a single value (`column` is None)."""

    stream: str
    column: str | None = None

    @property
    def key(self) -> Key:
        """Stream and column of the variable."""
        return self.stream, self.column


@dataclass(frozen=True)
class Unary(Node):
    """A number with a minus in front of it."""

    operand: Node


@dataclass(frozen=True)
class Binary(Node):
    """Two numbers and one of `ARITHMETIC`."""

    op: str
    left: Node
    right: Node

    def __post_init__(self) -> None:
        """Reject an unknown operator."""
        _check_op(self.op, ARITHMETIC)


@dataclass(frozen=True)
class Call(Node):
    """A call of one of `FUNCTIONS`. The first argument of `where` is a condition, all other arguments are numbers."""

    name: str
    args: tuple[Node, ...]

    def __post_init__(self) -> None:
        """Reject an unknown function or a wrong number of arguments."""
        _check_op(self.name, tuple(FUNCTIONS))
        least, most = FUNCTIONS[self.name]
        if len(self.args) < least or (most is not None and len(self.args) > most):
            message = f"`{self.name}` got {len(self.args)} arguments; it takes {format_arity(self.name)}"
            raise ValueError(message)


@dataclass(frozen=True)
class Compare(Node):
    """Two numbers and one of `COMPARISONS`."""

    op: str
    left: Node
    right: Node

    def __post_init__(self) -> None:
        """Reject an unknown comparison."""
        _check_op(self.op, COMPARISONS)


@dataclass(frozen=True)
class Bool(Node):
    """Two or more conditions joined by one of `JUNCTIONS`."""

    op: str
    args: tuple[Node, ...]

    def __post_init__(self) -> None:
        """Reject an unknown word or too few conditions."""
        _check_op(self.op, JUNCTIONS)
        if len(self.args) < 2:
            message = f"`{self.op}` joins two or more conditions; got {len(self.args)}"
            raise ValueError(message)


Condition: TypeAlias = Compare | Bool


def is_condition(node: Node) -> bool:
    """Return whether a node is a condition. All other nodes are numbers."""
    return isinstance(node, Compare | Bool)


def format_arity(name: str) -> str:
    """Return the number of arguments of a function as text: `1`, `2` or `2 or more`."""
    least, most = FUNCTIONS[name]
    return f"{least} or more" if most is None else str(least)


def child_nodes(node: Node) -> tuple[Node, ...]:
    """Return the child nodes from left to right."""
    if isinstance(node, Binary | Compare):
        return node.left, node.right
    if isinstance(node, Call | Bool):
        return node.args
    return (node.operand,) if isinstance(node, Unary) else ()


def replace_children(node: Node, new: tuple[Node, ...]) -> Node:
    """Return a copy of a node with new children, from left to right."""
    if isinstance(node, Binary | Compare):
        return replace(node, left=new[0], right=new[1])
    if isinstance(node, Call | Bool):
        return replace(node, args=new)
    return replace(node, operand=new[0]) if isinstance(node, Unary) else node


def walk_nodes(tree: Node) -> Iterator[Node]:
    """Yield all nodes in preorder. The depth of the tree is not limited."""
    stack = [tree]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(child_nodes(node)))


def find_variables(tree: Node) -> tuple[Variable, ...]:
    """Return the different variables of a tree in order of first appearance."""
    found: dict[Key, Variable] = {}
    for node in walk_nodes(tree):
        if isinstance(node, Variable):
            found.setdefault(node.key, node)
    return tuple(found.values())


def format_variable(key: Key) -> str:
    """Return the name of a variable in the text of a condition."""
    return ".".join(part for part in key if part is not None)


def is_independent_of(node: Node, key: Key) -> bool:
    """Return whether a tree does not contain a variable."""
    return all(variable.key != key for variable in find_variables(node))


def literal_value(node: Node) -> float | None:
    """Return the value of a literal with or without a minus; None for any other node."""
    if isinstance(node, Unary) and isinstance(node.operand, Number):
        return -node.operand.value
    return node.value if isinstance(node, Number) else None


def tree_depth(tree: Node) -> int:
    """Return the number of nodes on the longest path from the root to a leaf."""
    levels, level = 0, [tree]
    while level:
        levels += 1
        level = [child for node in level for child in child_nodes(node)]
    return levels


def _check_op(op: str, known: tuple[str, ...]) -> None:
    if op not in known:
        message = f"{op!r} is not one of {', '.join(known)}"
        raise ValueError(message)


def _format_node(node: Node, min_precedence: int) -> str:
    """Return the text of a node, in parentheses if its precedence is below `min_precedence`."""
    precedence, text = _format_bare(node)
    return f"({text})" if precedence < min_precedence else text


def _format_bare(node: Node) -> tuple[int, str]:
    """Return precedence and text of a node without parentheses around it."""
    if isinstance(node, Number):
        is_integer = node.value.is_integer() and node.value < 1e15
        return _ATOM_PRECEDENCE, str(int(node.value)) if is_integer else repr(float(node.value))
    if isinstance(node, Variable):
        return _ATOM_PRECEDENCE, format_variable(node.key)
    if isinstance(node, Unary):
        return UNARY_PRECEDENCE, f"-{_format_node(node.operand, UNARY_PRECEDENCE)}"
    if isinstance(node, Call):
        return _ATOM_PRECEDENCE, f"{node.name}({', '.join(_format_node(arg, 0) for arg in node.args)})"
    if isinstance(node, Bool):
        precedence = PRECEDENCE[node.op]
        return precedence, f" {node.op} ".join(_format_node(arg, precedence + 1) for arg in node.args)
    assert isinstance(node, Binary | Compare)
    precedence = PRECEDENCE[node.op]
    # `**` is right-associative and accepts a minus on its right. Arithmetic is left-associative. Comparisons
    # need parentheses on both sides.
    left, right = (_ATOM_PRECEDENCE, UNARY_PRECEDENCE) if node.op == "**" else (precedence, precedence + 1)
    if isinstance(node, Compare):
        left = right
    return precedence, f"{_format_node(node.left, left)} {node.op} {_format_node(node.right, right)}"
