"""Stack machine: an interpreter for compiled expressions that kernels call for each row or pair of rows.

Instructions: the machine has an accumulator and a stack. An instruction is an operation `op` and its operand `arg`:

- `arg > 0`: the right operand is the variable in slot `x[arg - 1]`, the left operand is the accumulator.
- `arg < 0`: the right operand is the constant `consts[-arg - 1]`, the left operand is the accumulator.
- `arg == 0`: the right operand is the accumulator, the left operand is on the stack.

`LOAD` pushes the accumulator on the stack and loads the operand. A function of one number replaces the accumulator. A
condition leaves its truth in the accumulator and its margin on top of the stack.

Guarantee: results are as defined in docs/explanation/semantics.md (D7 to D12). An undefined or infinite result
is NaN. Margins and values contain no negative zero.

Complexity: one pass over the instructions, without memory allocation.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from tocsin.jit import kernel, lean

Float = NDArray[np.float64]
Int = NDArray[np.int64]

LOAD, ADD, SUB, MUL, DIV, POW, MIN, MAX, GT, GE, LT, LE, AND, OR, WHERE = range(15)
NEG, LN, LOG10, EXP, SQRT, ABS, FLOOR, CEIL, SIN, COS, TANH = range(15, 26)

LARGEST = float(np.finfo(np.float64).max)
# Largest argument for which exp is finite.
EXP_LIMIT = 709.782712893384


@lean
def run_program(ops: Int, args: Int, consts: Float, stack: Float, x: Float) -> tuple[float, bool, float]:
    """Return margin, truth and value of a condition. For a number, margin and value are the number; truth is False.

    The value is the left side of a comparison, and the margin of `and` and `or`.
    """
    acc, left, top, op = 0.0, math.nan, 0, 0
    for k in range(len(ops)):
        op, arg = ops[k], args[k]
        if op > WHERE:
            acc = _apply_function(op, acc)
            continue
        if arg > 0:
            right = float(x[arg - 1])
            if not abs(right) <= LARGEST:
                right = math.nan
        elif arg < 0:
            right = float(consts[-arg - 1])
        else:
            right = acc
            top -= 1
            acc = float(stack[top])
        if op == LOAD:
            stack[top] = acc
            top += 1
            acc = right
        elif op < GT:
            acc = _apply_arithmetic(op, acc, right)
        elif op < AND:
            left = acc
            stack[top] = _compute_margin(op, acc, right)
            top += 1
            acc = _compare(op, acc, right)
        elif op == WHERE:
            # The stack contains margin and truth of the test. `acc` is the first branch, `right` the second.
            top -= 2
            acc = acc if stack[top + 1] != 0.0 else right
        else:
            # The stack contains margin and truth of the left condition. `acc` is the margin of the right condition,
            # `right` its truth.
            top -= 2
            margin, truth = float(stack[top]), float(stack[top + 1])
            if op == AND:
                stack[top] = min(margin, acc)
                acc = min(truth, right)
            else:
                stack[top] = max(margin, acc)
                acc = max(truth, right)
            top += 1
    if op < GT or op >= WHERE:
        return acc + 0.0, False, acc + 0.0
    margin = float(stack[top - 1])
    return margin, acc != 0.0, (left + 0.0 if op < AND else margin)


@kernel
def _apply_arithmetic(op: int, a: float, b: float) -> float:
    if op == ADD:
        c = a + b
    elif op == SUB:
        c = a - b
    elif op == MUL:
        c = a * b
    elif op == DIV:
        c = a / b if b != 0.0 else math.nan
    elif op == POW:
        c = _raise_to_power(a, b)
    elif op == MIN:
        c = b if b < a or math.isnan(b) else a
    else:
        c = b if b > a or math.isnan(b) else a
    return c if abs(c) <= LARGEST else math.nan


@kernel
def _raise_to_power(a: float, b: float) -> float:
    # C and Python return 1 for 1 ** NaN and NaN ** 0; here the result is undefined.
    if math.isnan(a) or math.isnan(b):
        return math.nan
    if (a == 0.0 and b < 0.0) or (a < 0.0 and b != np.floor(b)):
        return math.nan
    # A product is correctly rounded, so it is monotone; the `pow` of C is not always correctly rounded.
    return a * a if b == 2.0 else _pow(a, b)


@kernel
def _pow(a: float, b: float) -> float:
    return math.pow(a, b)


def _interpreted_pow(a: float, b: float) -> float:
    try:
        return math.pow(a, b)
    except OverflowError:
        return math.nan


# A handler in the kernel would double the time of each run of the compiled machine.
_pow.interpreted = _interpreted_pow


@kernel
def _apply_function(op: int, a: float) -> float:
    if op == NEG:
        c = -a
    elif op == LN:
        c = math.log(a) if a > 0.0 else math.nan
    elif op == LOG10:
        c = math.log10(a) if a > 0.0 else math.nan
    elif op == EXP:
        c = math.exp(a) if a <= EXP_LIMIT else math.nan
    elif op == SQRT:
        c = math.sqrt(a) if a >= 0.0 else math.nan
    elif op == ABS:
        c = abs(a)
    elif op == FLOOR:
        c = float(np.floor(a))
    elif op == CEIL:
        c = float(np.ceil(a))
    elif op == SIN:
        c = math.sin(a)
    elif op == COS:
        c = math.cos(a)
    else:
        c = math.tanh(a)
    return c


@kernel
def _compute_margin(op: int, a: float, b: float) -> float:
    margin = a - b if op <= GE else b - a
    if math.isnan(margin):
        return -math.inf
    # Both sides are finite. A difference that overflows becomes the largest number with its sign.
    return min(max(margin, -LARGEST), LARGEST) + 0.0


@kernel
def _compare(op: int, a: float, b: float) -> float:
    if op == GT:
        holds = a > b
    elif op == GE:
        holds = a >= b
    elif op == LT:
        holds = a < b
    else:
        holds = a <= b
    return 1.0 if holds else 0.0
