"""Evaluate expressions on columns: the machine in a compiled loop, or NumPy where nothing is compiled.

Guarantee: both give the same results, bit by bit, but for `ln`, `log10`, `exp`, `sin`, `cos`, `tanh` and powers, where
NumPy's own versions may differ by 4 units in the last place. Undefined is NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tocsin import jit
from tocsin.expr.machine import LARGEST, Float, Int, run_program
from tocsin.expr.nodes import Binary, Bool, Call, Compare, Condition, Key, Node, Number, Unary, Variable, variables
from tocsin.expr.program import Program, compile_condition, compile_number

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
    """Give margin, truth and value of a condition for every row.

    `columns` holds arrays of one length by (stream, column); those that the condition does not read are left alone.
    """
    rows = _rows(columns)
    if jit.enabled():
        out = _run(compile_condition(node, _keys(node)), columns, rows)
        return out[0], out[1] != 0.0, out[2]
    with np.errstate(all="ignore"):
        margin, truth = _condition(node, columns)
        value = margin if isinstance(node, Bool) else _number(node.left, columns) + 0.0
    return _full(margin, rows), _full(truth, rows).astype(np.bool_), _full(value, rows)


def evaluate_number(node: Node, columns: Columns) -> Float:
    """Give an expression that is a number for every row; undefined is NaN."""
    rows = _rows(columns)
    if jit.enabled():
        out = _run(compile_number(node, _keys(node)), columns, rows)
        return np.asarray(out[2])
    return number_on_arrays(node, columns)


def number_on_arrays(node: Node, columns: Columns) -> Float:
    """Give an expression that is a number for every row, by NumPy alone: nothing is compiled, or loaded for it."""
    with np.errstate(all="ignore"):
        return np.asarray(_full(_number(node, columns) + 0.0, _rows(columns)))


def _rows(columns: Columns) -> int:
    lengths = {len(column) for column in columns.values()}
    if len(lengths) != 1:
        message = f"`columns` must be arrays of one length; got lengths {sorted(lengths)!r}"
        raise ValueError(message)
    return lengths.pop()


def _keys(node: Node) -> tuple[Key, ...]:
    return tuple(variable.key for variable in variables(node))


def _column(key: Key, columns: Columns) -> Float:
    if key not in columns:
        name = ".".join(part for part in key if part is not None)
        message = f"`{name}` has no column; there are {list(columns)!r}"
        raise ValueError(message)
    return np.asarray(columns[key], np.float64)


def _full(values: Any, rows: int) -> Any:
    """Give a writable column, also of what does not depend on the row."""
    return np.array(np.broadcast_to(values, (rows,)))


def _run(program: Program, columns: Columns, rows: int) -> Float:
    x = np.empty((rows, len(program.slots)))
    for place, key in enumerate(program.slots):
        x[:, place] = _column(key, columns)
    out = np.empty((3, rows))
    _run_rows(program.ops, program.args, program.consts, x, out)
    return out


@jit.kernel
def _run_rows(ops: Int, args: Int, consts: Float, x: Float, out: Float) -> None:
    # No instruction takes more than two places of the stack.
    stack = np.zeros(2 * len(ops) + 1)
    for row in range(x.shape[0]):
        margin, truth, value = run_program(ops, args, consts, stack, x[row])
        out[0, row] = margin
        out[1, row] = truth
        out[2, row] = value


def _finite(values: Any) -> Any:
    """Make what is not finite undefined."""
    return np.where(np.isfinite(values), values, np.nan)


def _number(node: Node, columns: Columns) -> Any:
    if isinstance(node, Number):
        return np.float64(node.value)
    if isinstance(node, Variable):
        return _finite(_column(node.key, columns))
    if isinstance(node, Unary):
        return -_number(node.operand, columns)
    if isinstance(node, Binary):
        return _join(node.op, (node.left, node.right), columns)
    assert isinstance(node, Call)
    if node.name == "where":
        _, truth = _condition(node.args[0], columns)
        return np.where(truth, _number(node.args[1], columns), _number(node.args[2], columns))
    if len(node.args) > 1:
        return _join(node.name, node.args, columns)
    return _finite(_FUNCTIONS[node.name](_number(node.args[0], columns)))


def _join(op: str, parts: tuple[Node, ...], columns: Columns) -> Any:
    total = _number(parts[0], columns)
    join = _power if op in ("**", "pow") else _JOINS[op]
    for part in parts[1:]:
        total = _finite(join(total, _number(part, columns)))
    return total


def _power(base: Any, exponent: Any) -> Any:
    """Raise to a power; 1 ** NaN and NaN ** 0, which NumPy calls 1, stay undefined. A square is a product."""
    defined = ~(np.isnan(base) | np.isnan(exponent))
    power = np.where(np.equal(exponent, 2.0), np.multiply(base, base), np.power(base, exponent))
    return np.where(defined, power, np.nan)


def _condition(node: Node, columns: Columns) -> tuple[Any, Any]:
    if isinstance(node, Bool):
        margins, truths = zip(*(_condition(arg, columns) for arg in node.args), strict=True)
        least, all_hold = (np.minimum, np.logical_and) if node.op == "and" else (np.maximum, np.logical_or)
        return _reduce(least, margins), _reduce(all_hold, truths)
    assert isinstance(node, Compare)
    left, right = _number(node.left, columns), _number(node.right, columns)
    margin = left - right if node.op in (">", ">=") else right - left
    truth = margin >= 0 if node.op in (">=", "<=") else margin > 0
    # Both sides finite: a difference beyond the floats keeps its sign. One side undefined: never true.
    return np.where(np.isnan(margin), -np.inf, np.clip(margin, -LARGEST, LARGEST)) + 0.0, truth


def _reduce(join: Callable[[Any, Any], Any], parts: tuple[Any, ...]) -> Any:
    total = parts[0]
    for part in parts[1:]:
        total = join(total, part)
    return total
