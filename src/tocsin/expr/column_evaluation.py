"""Column evaluation: evaluate an expression for all rows of some columns.

The expression runs on the stack machine in a compiled loop, or with NumPy if compilation is disabled.

Guarantee: both ways return identical bits, except for `ln`, `log10`, `exp`, `sin`, `cos`, `tanh` and powers. For these,
the functions of NumPy can differ by 4 units in the last place. Undefined results are NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tocsin import jit
from tocsin.expr.compiler import Program, compile_expression
from tocsin.expr.stack_machine import LARGEST, Float, Int, run_program
from tocsin.expr.syntax_tree import (
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
    find_variables,
    format_variable,
)

Columns = Mapping[Key, Float]
Truth = NDArray[np.bool_]

_JOINS: Mapping[str, Callable[[Any, Any], Any]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.divide,
    "min": np.minimum,
    "max": np.maximum,
}
_FUNCTIONS: Mapping[str, Callable[[Any], Any]] = {
    "abs": np.abs,
    "ceil": np.ceil,
    "cos": np.cos,
    "exp": np.exp,
    "floor": np.floor,
    "ln": np.log,
    "log10": np.log10,
    "sin": np.sin,
    "sqrt": np.sqrt,
    "tanh": np.tanh,
}


def evaluate_columns(node: Condition, columns: Columns) -> tuple[Float, Truth, Float]:
    """Return margin, truth and value of a condition for each row.

    `columns` contains arrays of equal length by (stream, column). Columns that the condition does not read are ignored.
    """
    rows = _count_rows(columns)
    if jit.enabled():
        out = _run_compiled(compile_expression(node, _variable_keys(node)), columns, rows)
        return out[0], out[1] != 0.0, out[2]
    with np.errstate(all="ignore"):
        margin, truth = _evaluate_condition(node, columns)
        value = margin if isinstance(node, Bool) else _evaluate_node(node.left, columns) + 0.0
    return _broadcast_to_rows(margin, rows), _broadcast_to_rows(truth, rows), _broadcast_to_rows(value, rows)


def evaluate_number(node: Node, columns: Columns) -> Float:
    """Return the value of an expression that is a number for each row."""
    if jit.enabled():
        out = _run_compiled(compile_expression(node, _variable_keys(node)), columns, _count_rows(columns))
        return np.asarray(out[2])
    return evaluate_number_with_numpy(node, columns)


def evaluate_number_with_numpy(node: Node, columns: Columns) -> Float:
    """Return the value of an expression that is a number for each row, without compiling or loading a kernel."""
    with np.errstate(all="ignore"):
        return np.asarray(_broadcast_to_rows(_evaluate_node(node, columns) + 0.0, _count_rows(columns)))


def _count_rows(columns: Columns) -> int:
    lengths = {len(column) for column in columns.values()}
    if len(lengths) != 1:
        message = f"`columns` must be arrays of equal length; got lengths {sorted(lengths)!r}"
        raise ValueError(message)
    return lengths.pop()


def _variable_keys(node: Node) -> tuple[Key, ...]:
    return tuple(variable.key for variable in find_variables(node))


def _column_of(key: Key, columns: Columns) -> Float:
    if key not in columns:
        message = f"`{format_variable(key)}` has no column; the columns are {list(columns)!r}"
        raise ValueError(message)
    return np.asarray(columns[key], np.float64)


def _broadcast_to_rows(values: Any, rows: int) -> Any:
    """Return a writable array with one element per row, also for a scalar."""
    return np.array(np.broadcast_to(values, (rows,)))


def _run_compiled(program: Program, columns: Columns, rows: int) -> Float:
    """Return an array of margins, truths and values: three rows, one column per row of the input."""
    x = np.empty((rows, len(program.slots)))
    for slot, key in enumerate(program.slots):
        x[:, slot] = _column_of(key, columns)
    out = np.empty((3, rows))
    _run_rows(program.ops, program.args, program.consts, x, out)
    return out


@jit.kernel
def _run_rows(ops: Int, args: Int, consts: Float, x: Float, out: Float) -> None:
    # An instruction adds at most two elements to the stack.
    stack = np.zeros(2 * len(ops) + 1)
    for row in range(x.shape[0]):
        margin, truth, value = run_program(ops, args, consts, stack, x[row])
        out[0, row] = margin
        out[1, row] = truth
        out[2, row] = value


def _nan_unless_finite(values: Any) -> Any:
    """Return the values with NaN instead of infinities."""
    return np.where(np.isfinite(values), values, np.nan)


def _evaluate_node(node: Node, columns: Columns) -> Any:
    """Return the value of a number node: an array, or a scalar if the node contains no variable."""
    if isinstance(node, Number):
        return np.float64(node.value)
    if isinstance(node, Variable):
        return _nan_unless_finite(_column_of(node.key, columns))
    if isinstance(node, Unary):
        return -_evaluate_node(node.operand, columns)
    if isinstance(node, Binary):
        return _evaluate_joined(node.op, (node.left, node.right), columns)
    assert isinstance(node, Call)
    if node.name == "where":
        _, truth = _evaluate_condition(node.args[0], columns)
        return np.where(truth, _evaluate_node(node.args[1], columns), _evaluate_node(node.args[2], columns))
    if len(node.args) > 1:
        return _evaluate_joined(node.name, node.args, columns)
    return _nan_unless_finite(_FUNCTIONS[node.name](_evaluate_node(node.args[0], columns)))


def _evaluate_joined(op: str, parts: tuple[Node, ...], columns: Columns) -> Any:
    """Apply an operation with two operands to the parts, from left to right."""
    total = _evaluate_node(parts[0], columns)
    join = _power if op in ("**", "pow") else _JOINS[op]
    for part in parts[1:]:
        total = _nan_unless_finite(join(total, _evaluate_node(part, columns)))
    return total


def _power(base: Any, exponent: Any) -> Any:
    """Return a power as the stack machine computes it: a square is a product, and a power with a NaN is NaN."""
    defined = ~(np.isnan(base) | np.isnan(exponent))
    power = np.where(np.equal(exponent, 2.0), np.multiply(base, base), np.power(base, exponent))
    return np.where(defined, power, np.nan)


def _evaluate_condition(node: Node, columns: Columns) -> tuple[Any, Any]:
    """Return margin and truth of a condition node."""
    if isinstance(node, Bool):
        margins, truths = zip(*(_evaluate_condition(arg, columns) for arg in node.args), strict=True)
        join_margins, join_truths = (np.minimum, np.logical_and) if node.op == "and" else (np.maximum, np.logical_or)
        return reduce(join_margins, margins), reduce(join_truths, truths)
    assert isinstance(node, Compare)
    left, right = _evaluate_node(node.left, columns), _evaluate_node(node.right, columns)
    margin = left - right if node.op in (">", ">=") else right - left
    truth = margin >= 0 if node.op in (">=", "<=") else margin > 0
    # If both sides are finite, a difference that overflows keeps its sign. If a side is undefined, the margin is -inf.
    return np.where(np.isnan(margin), -np.inf, np.clip(margin, -LARGEST, LARGEST)) + 0.0, truth
