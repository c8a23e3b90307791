"""Compiler: convert a condition to a program for the stack machine, and hoist parts that depend on one stream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tocsin.expr import stack_machine
from tocsin.expr.stack_machine import Float, Int
from tocsin.expr.syntax_tree import (
    Binary,
    Bool,
    Call,
    Compare,
    Key,
    Node,
    Number,
    Unary,
    Variable,
    child_nodes,
    find_variables,
    is_condition,
    replace_children,
)

_JOINS = {
    "+": stack_machine.ADD,
    "-": stack_machine.SUB,
    "*": stack_machine.MUL,
    "/": stack_machine.DIV,
    "**": stack_machine.POW,
    "pow": stack_machine.POW,
    "min": stack_machine.MIN,
    "max": stack_machine.MAX,
    ">": stack_machine.GT,
    ">=": stack_machine.GE,
    "<": stack_machine.LT,
    "<=": stack_machine.LE,
}
_JUNCTIONS = {"and": stack_machine.AND, "or": stack_machine.OR}
_FUNCTIONS = {
    "ln": stack_machine.LN,
    "log10": stack_machine.LOG10,
    "exp": stack_machine.EXP,
    "sqrt": stack_machine.SQRT,
    "abs": stack_machine.ABS,
    "floor": stack_machine.FLOOR,
    "ceil": stack_machine.CEIL,
    "sin": stack_machine.SIN,
    "cos": stack_machine.COS,
    "tanh": stack_machine.TANH,
}


@dataclass(frozen=True, eq=False)
class Program:
    """A compiled expression.

    Attributes
    ----------
    ops, args, consts
        Instructions and constants for `run_program`.
    stack
        The number of elements of the stack.
    slots
        The variable in each slot of `x`.
    """

    ops: Int
    args: Int
    consts: Float
    stack: int
    slots: tuple[Key, ...]

    def scratch(self) -> Float:
        """Return a stack for `run_program`. A thread can reuse it for any number of runs."""
        return np.zeros(self.stack)


def compile_expression(node: Node, slots: Sequence[Key]) -> Program:
    """Return the program of a condition or a number. `slots` is the order of the variables in `x`."""
    builder = _ProgramBuilder({key: slot for slot, key in enumerate(slots)})
    _emit_node(builder, node)
    ops, args = np.array(builder.ops, np.int64), np.array(builder.args, np.int64)
    consts = np.array(list(builder.consts), np.float64)
    return Program(ops, args, consts, builder.max_height + 1, tuple(slots))


def hoist_subexpressions(node: Node) -> tuple[Node, dict[Key, Node]]:
    """Replace the largest numeric subexpressions that read exactly one stream by variables.

    A join evaluates the hoisted subexpressions once per row and the residual tree once per combination. The operations
    and their order do not change, so all results are identical.

    Returns
    -------
    The residual tree, and the hoisted subexpression of each new variable. The new variables are the columns `#0`, `#1`
    and so on of the stream.
    """
    hoisted: dict[Node, Variable] = {}
    residual = _hoist(node, hoisted)
    return residual, {variable.key: part for part, variable in hoisted.items()}


def _hoist(node: Node, hoisted: dict[Node, Variable]) -> Node:
    parts = child_nodes(node)
    streams = {variable.stream for variable in find_variables(node)}
    if not parts or not streams:
        return node
    if len(streams) > 1 or is_condition(node):
        return replace_children(node, tuple(_hoist(part, hoisted) for part in parts))
    if node not in hoisted:
        stream = streams.pop()
        number = sum(variable.stream == stream for variable in hoisted.values())
        hoisted[node] = Variable(stream, f"#{number}", start=node.start, stop=node.stop)
    return hoisted[node]


@dataclass
class _ProgramBuilder:
    """A program under construction. It also simulates the height of the stack to find its maximum."""

    slots: dict[Key, int]
    ops: list[int] = field(default_factory=list)
    args: list[int] = field(default_factory=list)
    consts: dict[float, int] = field(default_factory=dict)
    height: int = 0
    max_height: int = 0

    def emit(self, op: int, arg: int, growth: int) -> None:
        """Append an instruction that adds `growth` elements to the stack."""
        self.ops.append(op)
        self.args.append(arg)
        self.grow_stack(growth)

    def grow_stack(self, elements: int) -> None:
        """Add elements to the simulated stack, or remove them if the number is negative."""
        self.height += elements
        self.max_height = max(self.max_height, self.height)

    def operand(self, node: Node) -> int:
        """Return the operand of an instruction that reads a constant or a variable; 0 for any other node."""
        if isinstance(node, Number):
            return -1 - self.consts.setdefault(node.value, len(self.consts))
        if not isinstance(node, Variable):
            return 0
        if node.key not in self.slots:
            message = f"`{node}` has no slot; the slots are {list(self.slots)!r}"
            raise ValueError(message)
        return 1 + self.slots[node.key]


def _emit_node(builder: _ProgramBuilder, node: Node) -> None:
    """Emit instructions that push the accumulator on the stack and load the result of the node."""
    operand = builder.operand(node)
    if operand:
        builder.emit(stack_machine.LOAD, operand, 1)
    elif isinstance(node, Unary):
        _emit_node(builder, node.operand)
        builder.emit(stack_machine.NEG, 0, 0)
    elif isinstance(node, Binary):
        _emit_joined(builder, node.op, (node.left, node.right))
    elif isinstance(node, Compare):
        _emit_joined(builder, node.op, (node.left, node.right))
        # The margin stays on the stack.
        builder.grow_stack(1)
    elif isinstance(node, Bool):
        _emit_node(builder, node.args[0])
        for part in node.args[1:]:
            _emit_node(builder, part)
            # The joined margin replaces both margins and the left truth.
            builder.emit(_JUNCTIONS[node.op], 0, -2)
    elif isinstance(node, Call) and node.name == "where":
        test, chosen, other = node.args
        _emit_node(builder, test)
        _emit_node(builder, chosen)
        _emit_with_right_operand(builder, stack_machine.WHERE, other)
        # Remove margin and truth of the test.
        builder.grow_stack(-2)
    elif isinstance(node, Call) and len(node.args) > 1:
        _emit_joined(builder, node.name, node.args)
    elif isinstance(node, Call):
        _emit_node(builder, node.args[0])
        builder.emit(_FUNCTIONS[node.name], 0, 0)


def _emit_joined(builder: _ProgramBuilder, op: str, parts: Sequence[Node]) -> None:
    """Emit an operation with two operands for all parts, from left to right."""
    _emit_node(builder, parts[0])
    for part in parts[1:]:
        _emit_with_right_operand(builder, _JOINS[op], part)


def _emit_with_right_operand(builder: _ProgramBuilder, op: int, part: Node) -> None:
    """Emit an operation whose right operand is `part`. The instruction itself reads a constant or a variable."""
    operand = builder.operand(part)
    if not operand:
        _emit_node(builder, part)
    builder.emit(op, operand, 0 if operand else -1)
