"""The machine that runs compiled expressions inside the loops of kernels; no code is generated.

It has an accumulator, a stack and, per instruction, an operation and the place of its right operand: `arg` > 0 is the
slot `x[arg - 1]`, `arg` < 0 the constant `consts[-arg - 1]`, and 0 means that the accumulator is the right operand and
the left one is on the stack. A condition leaves its margin on the stack and its truth in the accumulator.

Guarantee: undefined is NaN and every operation whose result is not finite gives NaN, so each result is the one of
docs/concepts/semantics.md. Zero has no sign in margins and values. Cost: one pass over the instructions, no allocation.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tocsin.jit import enabled, kernel, lean

Float = NDArray[np.float64]
Int = NDArray[np.int64]

LOAD, ADD, SUB, MUL, DIV, POW, MIN, MAX, GT, GE, LT, LE, AND, OR, WHERE = range(15)
NEG, LN, LOG10, EXP, SQRT, ABS, FLOOR, CEIL, SIN, COS, TANH = range(15, 26)

LARGEST = float(np.finfo(np.float64).max)
# exp of the next float is infinite.
EXP_LIMIT = 709.782712893384


def _quiet_pow(a: float, b: float) -> float:
    try:
        return math.pow(a, b)
    except OverflowError:
        return math.nan


# Uncompiled, overflow raises. Catching that in the kernel would double the cost of every run of the machine.
_POW: Callable[[float, float], float] = math.pow if enabled() else _quiet_pow


@lean
def run_program(ops: Int, args: Int, consts: Float, stack: Float, x: Float) -> tuple[float, bool, float]:
    """Give margin, truth and value of a condition; for a number: itself, False, itself."""
    acc, left, top, op = 0.0, math.nan, 0, 0
    for k in range(len(ops)):
        op, arg = ops[k], args[k]
        if op > WHERE:
            acc = _function(op, acc)
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
            acc = _arithmetic(op, acc, right)
        elif op < AND:
            left = acc
            stack[top] = _margin(op, acc, right)
            top += 1
            acc = _truth(op, acc, right)
        elif op == WHERE:
            # On the stack: margin and truth of the test; then the branches.
            top -= 2
            acc = acc if stack[top + 1] != 0.0 else right
        else:
            # On the stack: the left margin; `acc` is the right margin, its truth `right`, the left truth below it.
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
def _arithmetic(op: int, a: float, b: float) -> float:
    if op == ADD:
        c = a + b
    elif op == SUB:
        c = a - b
    elif op == MUL:
        c = a * b
    elif op == DIV:
        c = a / b if b != 0.0 else math.nan
    elif op == POW:
        c = _power(a, b)
    elif op == MIN:
        c = b if b < a or math.isnan(b) else a
    else:
        c = b if b > a or math.isnan(b) else a
    return c if abs(c) <= LARGEST else math.nan


@kernel
def _power(a: float, b: float) -> float:
    # C and Python say that 1 ** NaN and NaN ** 0 are 1; undefined stays undefined here.
    if math.isnan(a) or math.isnan(b):
        return math.nan
    if (a == 0.0 and b < 0.0) or (a < 0.0 and b != np.floor(b)):
        return math.nan
    # A product is correctly rounded, so squares never fall where the number rises; C's power is not.
    return a * a if b == 2.0 else _POW(a, b)


@kernel
def _function(op: int, a: float) -> float:
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
def _margin(op: int, a: float, b: float) -> float:
    margin = a - b if op <= GE else b - a
    if math.isnan(margin):
        return -math.inf
    # Both sides are finite: a difference beyond the floats keeps its sign and stays comparable.
    return min(max(margin, -LARGEST), LARGEST) + 0.0


@kernel
def _truth(op: int, a: float, b: float) -> float:
    if op == GT:
        holds = a > b
    elif op == GE:
        holds = a >= b
    elif op == LT:
        holds = a < b
    else:
        holds = a <= b
    return 1.0 if holds else 0.0
