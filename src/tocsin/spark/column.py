"""Write a condition as Columns of Spark, by walking the tree; no text of the user reaches SQL.

Undefined is NaN in numbers. A guard written as `when(finite(r), r)` would name r twice, so a chain of n operations
would have 2^n parts. The guards here name their operand once, so every part of the tree appears once in a Column:

- `r % inf` is r if r is finite, else NaN;
- `try_divide` and `ln` give NULL where they are not defined; `greatest(r, -inf)` passes over NULL, and `% inf` follows;
- NaN is above all numbers for Spark, so `greatest` keeps it and `R - L < 0` is false with it.

`coalesce`, `when` and `nanvl` must not nest: Spark's search for common parts takes twice as long with each of them
inside another. Hence `where` picks from an array of two.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from pyspark.sql import Column
from pyspark.sql import functions as F

from tocsin.expr.nodes import Binary, Bool, Call, Compare, Condition, Key, Node, Number, Unary, Variable

Columns: TypeAlias = Mapping[Key, Column]

_LARGEST = sys.float_info.max
# From here on every float is whole, and the whole numbers before it fit into Spark's result of floor.
_ALL_WHOLE = 2.0**53

_FUNCTIONS: Mapping[str, Callable[[Column], Column]] = {
    "abs": F.abs,
    "cos": F.cos,
    "exp": F.exp,
    "ln": F.ln,
    "log10": F.log10,
    "sin": F.sin,
    "sqrt": F.sqrt,
    "tanh": F.tanh,
}


def to_column(node: Condition, columns: Columns) -> tuple[Column, Column, Column]:
    """Give margin, truth and value of a condition; truth is never NULL and margin neither NULL nor NaN."""
    margin = _margin(node, columns)
    value = margin if isinstance(node, Bool) else _number(node.left, columns) + F.lit(0.0)
    return margin, _truth(node, columns), value


def _number(node: Node, columns: Columns) -> Column:
    """Write a number: finite or NaN, never NULL."""
    if isinstance(node, Number):
        return F.lit(float(node.value))
    if isinstance(node, Variable):
        return _defined(_column(node, columns).cast("double"))
    if isinstance(node, Unary):
        return -_number(node.operand, columns)
    if isinstance(node, Binary):
        return _binary(node.op, node.left, node.right, columns)
    assert isinstance(node, Call)
    return _call(node, columns)


def _column(node: Variable, columns: Columns) -> Column:
    if node.key not in columns:
        message = f"`{node}` has no column; there are {list(columns)!r}"
        raise ValueError(message)
    return columns[node.key]


def _finite(column: Column) -> Column:
    """Keep a finite number as it is; the remainder of an infinite one is NaN."""
    return column % F.lit(math.inf)


def _defined(column: Column) -> Column:
    """Make NULL and what is not finite NaN."""
    return _finite(F.greatest(column, F.lit(-math.inf)))


def _binary(op: str, left: Node, right: Node, columns: Columns) -> Column:
    if op == "**":
        return _finite(_power(left, right, columns))
    a, b = _number(left, columns), _number(right, columns)
    if op == "/":
        return _defined(F.try_divide(a, b))
    return _finite({"+": a + b, "-": a - b, "*": a * b}[op])


def _power(left: Node, right: Node, columns: Columns) -> Column:
    """Raise to a power; NaN ** 0, which Spark calls 1, stays undefined."""
    base, exponent = _number(left, columns), _number(right, columns)
    literal = right.operand if isinstance(right, Unary) else right
    if isinstance(literal, Number) and literal.value != 0:
        return F.pow(base, exponent)
    if isinstance(left, Number | Variable):
        return F.pow(base, exponent) + base * F.lit(0.0)
    # The lambda names its arguments twice, but they are bound once.
    powers = F.zip_with(F.array(base), F.array(exponent), lambda a, b: F.pow(a, b) + a * F.lit(0.0))
    return powers[0]


def _call(node: Call, columns: Columns) -> Column:
    if node.name == "where":
        chosen, other = (_number(arg, columns) for arg in node.args[1:])
        return F.array(other, chosen)[_truth(node.args[0], columns).cast("int")]
    if node.name == "pow":
        return _binary("**", node.args[0], node.args[1], columns)
    args = [_number(arg, columns) for arg in node.args]
    if node.name == "max":
        return F.greatest(*args)
    if node.name == "min":
        return -F.greatest(*(-arg for arg in args))
    if node.name in ("floor", "ceil"):
        return _whole(F.floor if node.name == "floor" else F.ceil, args[0])
    return _defined(_FUNCTIONS[node.name](args[0]))


def _whole(to_whole: Callable[[Column], Column], column: Column) -> Column:
    """Round to a whole number; Spark's own functions give a BIGINT, which holds neither NaN nor 1e300."""
    rounded = F.transform(
        F.array(column),
        lambda a: F.when(F.abs(a) < F.lit(_ALL_WHOLE), to_whole(a).cast("double")).otherwise(a),
    )
    return rounded[0]


def _margin(node: Node, columns: Columns) -> Column:
    if isinstance(node, Bool):
        margins = [_margin(arg, columns) for arg in node.args]
        return F.least(*margins) if node.op == "and" else F.greatest(*margins)
    assert isinstance(node, Compare)
    left, right = _number(node.left, columns), _number(node.right, columns)
    margin = left - right if node.op in (">", ">=") else right - left
    # Both sides finite: a difference beyond the floats keeps its sign. `greatest` of opposites: a least that keeps NaN.
    low = F.greatest(margin, F.lit(-_LARGEST))
    within = -F.greatest(-low, F.lit(-_LARGEST))
    return F.nanvl(within, F.lit(-math.inf)) + F.lit(0.0)


def _truth(node: Node, columns: Columns) -> Column:
    if isinstance(node, Bool):
        return _balanced(node.op, [_truth(arg, columns) for arg in node.args])
    assert isinstance(node, Compare)
    left, right = _number(node.left, columns), _number(node.right, columns)
    # The difference that must be below 0, so that NaN, which is above, makes it false.
    below = right - left if node.op in (">", ">=") else left - right
    return below <= F.lit(0.0) if node.op in (">=", "<=") else below < F.lit(0.0)


def _balanced(op: str, parts: Sequence[Column]) -> Column:
    """Join truths in a tree of least depth: Spark walks its plans recursively."""
    if len(parts) == 1:
        return parts[0]
    half = len(parts) // 2
    left, right = _balanced(op, parts[:half]), _balanced(op, parts[half:])
    return left & right if op == "and" else left | right
