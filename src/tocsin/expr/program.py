"""Compile a condition to a program for the machine that kernels run, and split off what one row decides alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tocsin.expr import machine
from tocsin.expr.machine import Float, Int
from tocsin.expr.nodes import (
    Binary,
    Bool,
    Call,
    Compare,
    Condition,
    Key,
    Node,
    Number,
    Unary,
    Variable,
    children,
    is_condition,
    variables,
    with_children,
)

_JOINS = {
    "+": machine.ADD,
    "-": machine.SUB,
    "*": machine.MUL,
    "/": machine.DIV,
    "**": machine.POW,
    "pow": machine.POW,
    "min": machine.MIN,
    "max": machine.MAX,
    ">": machine.GT,
    ">=": machine.GE,
    "<": machine.LT,
    "<=": machine.LE,
}
_JUNCTIONS = {"and": machine.AND, "or": machine.OR}
_FUNCTIONS = {
    "ln": machine.LN,
    "log10": machine.LOG10,
    "exp": machine.EXP,
    "sqrt": machine.SQRT,
    "abs": machine.ABS,
    "floor": machine.FLOOR,
    "ceil": machine.CEIL,
    "sin": machine.SIN,
    "cos": machine.COS,
    "tanh": machine.TANH,
}


@dataclass(frozen=True, eq=False)
class Program:
    """A compiled expression: arrays for `run_program`, the size of its scratch stack, what each slot of `x` holds."""

    ops: Int
    args: Int
    consts: Float
    stack: int
    slots: tuple[Key, ...]

    def scratch(self) -> Float:
        """Make a stack for `run_program`; one per thread may serve any number of runs."""
        return np.zeros(self.stack)


def compile_condition(node: Condition, slots: Sequence[Key]) -> Program:
    """Compile a condition whose variables are found in `x` in the order of `slots`."""
    return _compile(node, slots)


def compile_number(node: Node, slots: Sequence[Key]) -> Program:
    """Compile an expression that is a number; `run_program` gives it as the value."""
    return _compile(node, slots)


def hoist(node: Node) -> tuple[Node, dict[Key, Node]]:
    """Take out what can be computed once per row: the largest numbers that read one stream and contain an operation.

    Returns the residual tree and, for each new variable in it (columns `#0`, `#1`, ... of the stream), the expression
    that it stands for. The operations and their order stay the same, so do all bits of the result.
    """
    names: dict[Node, Variable] = {}
    residual = _residual(node, names)
    return residual, {variable.key: part for part, variable in names.items()}


def _residual(node: Node, names: dict[Node, Variable]) -> Node:
    parts = children(node)
    streams = {variable.stream for variable in variables(node)}
    if not parts or not streams:
        return node
    if len(streams) > 1 or is_condition(node):
        return with_children(node, tuple(_residual(part, names) for part in parts))
    if node not in names:
        stream = streams.pop()
        number = sum(variable.stream == stream for variable in names.values())
        names[node] = Variable(stream, f"#{number}", start=node.start, stop=node.stop)
    return names[node]


@dataclass
class _Code:
    """The program while it is written: `height` is how full the stack is after the last instruction."""

    slots: dict[Key, int]
    ops: list[int] = field(default_factory=list)
    args: list[int] = field(default_factory=list)
    consts: dict[float, int] = field(default_factory=dict)
    height: int = 0
    highest: int = 0

    def put(self, op: int, arg: int, grows: int) -> None:
        """Write an instruction that leaves the stack `grows` places higher."""
        self.ops.append(op)
        self.args.append(arg)
        self.grow(grows)

    def grow(self, places: int) -> None:
        """Count places of the stack that the last instruction took, or gave back if negative."""
        self.height += places
        self.highest = max(self.highest, self.height)

    def leaf(self, node: Node) -> int:
        """Say where a constant or variable is; 0 if the node is neither."""
        if isinstance(node, Number):
            return -1 - self.consts.setdefault(node.value, len(self.consts))
        if not isinstance(node, Variable):
            return 0
        if node.key not in self.slots:
            message = f"`{node}` has no slot; there are {list(self.slots)!r}"
            raise ValueError(message)
        return 1 + self.slots[node.key]


def _compile(node: Node, slots: Sequence[Key]) -> Program:
    code = _Code({key: place for place, key in enumerate(slots)})
    _write(code, node)
    ops, args = np.array(code.ops, np.int64), np.array(code.args, np.int64)
    consts = np.array(list(code.consts), np.float64)
    return Program(ops, args, consts, code.highest + 1, tuple(slots))


def _write(code: _Code, node: Node) -> None:
    """Append the instructions that leave the node's result in the accumulator, and what was there on the stack."""
    place = code.leaf(node)
    if place:
        code.put(machine.LOAD, place, 1)
    elif isinstance(node, Unary):
        _write(code, node.operand)
        code.put(machine.NEG, 0, 0)
    elif isinstance(node, Binary):
        _join(code, node.op, (node.left, node.right))
    elif isinstance(node, Compare):
        _join(code, node.op, (node.left, node.right))
        # The margin stays on the stack.
        code.grow(1)
    elif isinstance(node, Bool):
        _write_junction(code, node)
    elif isinstance(node, Call) and node.name == "where":
        _write_where(code, node)
    elif isinstance(node, Call) and len(node.args) > 1:
        _join(code, node.name, node.args)
    elif isinstance(node, Call):
        _write(code, node.args[0])
        code.put(_FUNCTIONS[node.name], 0, 0)


def _join(code: _Code, op: str, parts: Sequence[Node]) -> None:
    """Join numbers from left to right; a leaf on the right is read by the instruction itself."""
    _write(code, parts[0])
    for part in parts[1:]:
        _right(code, _JOINS[op], part)


def _right(code: _Code, op: int, part: Node) -> None:
    place = code.leaf(part)
    if not place:
        _write(code, part)
    code.put(op, place, 0 if place else -1)


def _write_junction(code: _Code, node: Bool) -> None:
    _write(code, node.args[0])
    for part in node.args[1:]:
        _write(code, part)
        # Two margins and the left truth give place to one margin.
        code.put(_JUNCTIONS[node.op], 0, -2)


def _write_where(code: _Code, node: Call) -> None:
    test, chosen, other = node.args
    _write(code, test)
    _write(code, chosen)
    _right(code, machine.WHERE, other)
    # Margin and truth of the test are used up.
    code.grow(-2)
