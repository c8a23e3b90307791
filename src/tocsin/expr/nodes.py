"""The expression tree: numbers, variables, arithmetic, functions, comparisons, `and` and `or`.

A node is a frozen dataclass. `start` and `stop` say where it stood in the text and take no part in equality.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

# A column of a stream; None is the only value of a stream that has no columns.
Key: TypeAlias = tuple[str, str | None]

ARITHMETIC = ("+", "-", "*", "/", "**")
COMPARISONS = (">", ">=", "<", "<=")
JUNCTIONS = ("and", "or")

# Name -> least and largest number of arguments; None: any number.
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

# How tightly a node holds together when it is written without parentheses.
_BINDING = {"or": 1, "and": 2, ">": 3, ">=": 3, "<": 3, "<=": 3, "+": 4, "-": 4, "*": 5, "/": 5, "**": 7}
_UNARY_BINDING = 6
_ATOM_BINDING = 8


@dataclass(frozen=True)
class Node:
    """A part of an expression; `str(node)` is text that parses to an equal tree."""

    start: int = field(default=0, compare=False, repr=False, kw_only=True)
    stop: int = field(default=0, compare=False, repr=False, kw_only=True)

    def __str__(self) -> str:
        """Write the tree with as few parentheses as it needs."""
        return _write(self, 0)


@dataclass(frozen=True)
class Number(Node):
    """A literal. It is finite and has no sign: minus is an operation."""

    value: float

    def __post_init__(self) -> None:
        """Refuse what no literal can stand for."""
        if not math.isfinite(self.value) or math.copysign(1.0, self.value) < 0:
            message = f"`value` of a Number must be finite and without a sign; got {self.value!r}"
            raise ValueError(message)


@dataclass(frozen=True)
class Variable(Node):
    """A column of a stream, or the stream itself if it carries one value."""

    stream: str
    column: str | None = None

    @property
    def key(self) -> Key:
        """What names this variable in slots and columns."""
        return self.stream, self.column


@dataclass(frozen=True)
class Unary(Node):
    """Minus in front of a number."""

    operand: Node


@dataclass(frozen=True)
class Binary(Node):
    """Two numbers joined by one of `ARITHMETIC`."""

    op: str
    left: Node
    right: Node

    def __post_init__(self) -> None:
        """Refuse an unknown operator."""
        _check_op(self.op, ARITHMETIC)


@dataclass(frozen=True)
class Call(Node):
    """One of `FUNCTIONS`; the first argument of `where` is a condition, all others are numbers."""

    name: str
    args: tuple[Node, ...]

    def __post_init__(self) -> None:
        """Refuse an unknown function or a wrong number of arguments."""
        _check_op(self.name, tuple(FUNCTIONS))
        least, most = FUNCTIONS[self.name]
        if len(self.args) < least or (most is not None and len(self.args) > most):
            message = f"`{self.name}` got {len(self.args)} arguments; it takes {arity_text(self.name)}"
            raise ValueError(message)


@dataclass(frozen=True)
class Compare(Node):
    """Two numbers and one of `COMPARISONS`."""

    op: str
    left: Node
    right: Node

    def __post_init__(self) -> None:
        """Refuse an unknown comparison."""
        _check_op(self.op, COMPARISONS)


@dataclass(frozen=True)
class Bool(Node):
    """Two or more conditions joined by the same of `JUNCTIONS`."""

    op: str
    args: tuple[Node, ...]

    def __post_init__(self) -> None:
        """Refuse an unknown word or too few conditions."""
        _check_op(self.op, JUNCTIONS)
        if len(self.args) < 2:
            message = f"`{self.op}` joins two or more conditions; got {len(self.args)}"
            raise ValueError(message)


Condition: TypeAlias = Compare | Bool


def is_condition(node: Node) -> bool:
    """Tell whether a node is true or false rather than a number."""
    return isinstance(node, Compare | Bool)


def arity_text(name: str) -> str:
    """Say how many arguments a function takes: `1`, `2`, `2 or more`."""
    least, most = FUNCTIONS[name]
    return f"{least} or more" if most is None else str(least)


def children(node: Node) -> tuple[Node, ...]:
    """Give the parts of a node from left to right."""
    if isinstance(node, Binary | Compare):
        return node.left, node.right
    if isinstance(node, Call | Bool):
        return node.args
    return (node.operand,) if isinstance(node, Unary) else ()


def with_children(node: Node, parts: tuple[Node, ...]) -> Node:
    """Copy a node with other parts, given from left to right."""
    if isinstance(node, Binary | Compare):
        return replace(node, left=parts[0], right=parts[1])
    if isinstance(node, Call | Bool):
        return replace(node, args=parts)
    return replace(node, operand=parts[0]) if isinstance(node, Unary) else node


def walk(tree: Node) -> Iterator[Node]:
    """Give every node, a node before its parts, from left to right; any depth is fine."""
    rest = [tree]
    while rest:
        node = rest.pop()
        yield node
        rest.extend(reversed(children(node)))


def variables(tree: Node) -> tuple[Variable, ...]:
    """Give the different variables of a tree in order of first appearance."""
    found: dict[Key, Variable] = {}
    for node in walk(tree):
        if isinstance(node, Variable):
            found.setdefault(node.key, node)
    return tuple(found.values())


def is_free(node: Node, key: Key) -> bool:
    """Tell whether a variable is not in a tree."""
    return all(variable.key != key for variable in variables(node))


def literal(node: Node) -> float | None:
    """The number that a node is, written out with or without a minus; None: it is something else."""
    if isinstance(node, Unary) and isinstance(node.operand, Number):
        return -node.operand.value
    return node.value if isinstance(node, Number) else None


def depth(tree: Node) -> int:
    """Count the nodes on the longest way from the root to a leaf."""
    deepest, level = 0, [tree]
    while level:
        deepest += 1
        level = [part for node in level for part in children(node)]
    return deepest


def _check_op(op: str, known: tuple[str, ...]) -> None:
    if op not in known:
        message = f"{op!r} is not one of {', '.join(known)}"
        raise ValueError(message)


def _write(node: Node, least: int) -> str:
    """Write a node, in parentheses if it holds together less tightly than `least`."""
    binding, text = _written(node)
    return f"({text})" if binding < least else text


def _written(node: Node) -> tuple[int, str]:
    if isinstance(node, Number):
        whole = node.value.is_integer() and node.value < 1e15
        return _ATOM_BINDING, str(int(node.value)) if whole else repr(float(node.value))
    if isinstance(node, Variable):
        return _ATOM_BINDING, node.stream if node.column is None else f"{node.stream}.{node.column}"
    if isinstance(node, Unary):
        return _UNARY_BINDING, f"-{_write(node.operand, _UNARY_BINDING)}"
    if isinstance(node, Call):
        return _ATOM_BINDING, f"{node.name}({', '.join(_write(arg, 0) for arg in node.args)})"
    if isinstance(node, Bool):
        binding = _BINDING[node.op]
        return binding, f" {node.op} ".join(_write(arg, binding + 1) for arg in node.args)
    assert isinstance(node, Binary | Compare)
    binding = _BINDING[node.op]
    # `**` groups to the right and takes a minus there; all other operators group to the left.
    left, right = (_ATOM_BINDING, _UNARY_BINDING) if node.op == "**" else (binding, binding + 1)
    if isinstance(node, Compare):
        left = right
    return binding, f"{_write(node.left, left)} {node.op} {_write(node.right, right)}"
