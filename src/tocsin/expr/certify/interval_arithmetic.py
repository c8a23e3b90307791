"""Interval arithmetic on arrays: each operation encloses its results for all points of its operands.

Algorithm: the ends of an interval are doubles that are rounded outwards. A sum, product, quotient or square root is
widened only if it is inexact. Error-free transformations detect this, so that `1 - h/100` at h = 100 is exactly 0.
Results of mathematical functions are widened by 8 units in the last place. This covers the functions of C (1 unit) and
of NumPy (4 units).

Guarantees: an enclosure contains the exact results and the results in double precision. Rounding is monotone, so an
operation on doubles inside the operands returns a double inside the result. What follows from an enclosure, for example
that a divisor is not 0, therefore holds for the formula and for the running program. An infinite end means that the
interval is unbounded on this side; infinity itself is never a value. The bounds of the libraries are assumptions.

Complexity: about ten array operations for each interval operation.

References: Dekker, Numer. Math. 18 (1971), for the error-free transformations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.expr.stack_machine import LARGEST

Float = NDArray[np.float64]
Int = NDArray[np.int64]
Truth = NDArray[np.bool_]

_LIBRARY_ULPS = 8
_TINY = 5e-324
_SPLITTER = 134217729.0
# Outside of these limits, the error of a product is not a double, or its parts overflow. The product counts as inexact.
_SMALLEST_PRODUCT, _LARGEST_FACTOR = 1e-250, 1e250
# Up to this size, the argument reduction of an angle has an error of at most 1e-9 turns.
_LARGEST_ANGLE = 1e6
# Safety margin in turns when a maximum or a minimum of a wave is near an end of an interval.
_ANGLE_MARGIN = 1e-6


class Interval(NamedTuple):
    """An array of intervals: element i contains all numbers from `lo[i]` to `hi[i]`."""

    lo: Float
    hi: Float


def point(value: Any) -> Interval:
    """Return intervals that contain one number each."""
    array = np.asarray(value, np.float64)
    return Interval(array, array)


def unbounded(shape: Any) -> Interval:
    """Return intervals that contain all numbers."""
    return Interval(np.full(shape, -np.inf), np.full(shape, np.inf))


def hull(a: Interval, b: Interval) -> Interval:
    """Return the smallest intervals that contain both operands."""
    return Interval(np.minimum(a.lo, b.lo), np.maximum(a.hi, b.hi))


def select(mask: Truth, a: Interval, b: Interval) -> Interval:
    """Return `a` where the mask is true, else `b`."""
    return Interval(np.where(mask, a.lo, b.lo), np.where(mask, a.hi, b.hi))


def is_finite(a: Interval) -> Truth:
    """Return where both ends are finite."""
    return np.isfinite(a.lo) & np.isfinite(a.hi)


def magnitude(a: Interval) -> Float:
    """Return the largest absolute value of each interval."""
    return np.maximum(np.abs(a.lo), np.abs(a.hi))


def negate(a: Interval) -> Interval:
    """Return -a."""
    return Interval(-a.hi, -a.lo)


def add(a: Interval, b: Interval) -> Interval:
    """Return a + b."""
    with np.errstate(all="ignore"):
        return Interval(_round_down(*_two_sum(a.lo, b.lo)), _round_up(*_two_sum(a.hi, b.hi)))


def subtract(a: Interval, b: Interval) -> Interval:
    """Return a - b."""
    return add(a, negate(b))


def multiply(a: Interval, b: Interval) -> Interval:
    """Return a * b. Zero times an unbounded interval is zero."""
    with np.errstate(all="ignore"):
        return _enclose_corners(_two_product, a, b)


def divide(a: Interval, b: Interval) -> Interval:
    """Return a / b; the unbounded interval where b contains zero."""
    with np.errstate(all="ignore"):
        safe = (b.lo > 0) | (b.hi < 0)
        divisor = Interval(np.where(safe, b.lo, 1.0), np.where(safe, b.hi, 1.0))
        quotient = _enclose_corners(_divide_with_error, a, divisor)
        return select(safe, quotient, unbounded(np.shape(quotient.lo)))


def absolute(a: Interval) -> Interval:
    """Return |a|."""
    across = (a.lo < 0) & (a.hi > 0)
    least = np.where(across, 0.0, np.minimum(np.abs(a.lo), np.abs(a.hi)))
    return Interval(least, magnitude(a))


def maximum(a: Interval, b: Interval) -> Interval:
    """Return the larger of two numbers."""
    return Interval(np.maximum(a.lo, b.lo), np.maximum(a.hi, b.hi))


def floor(a: Interval) -> Interval:
    """Return the largest integer that is not above a."""
    return Interval(np.floor(a.lo), np.floor(a.hi))


def ceil(a: Interval) -> Interval:
    """Return the smallest integer that is not below a."""
    return Interval(np.ceil(a.lo), np.ceil(a.hi))


def sqrt(a: Interval) -> Interval:
    """Return the square root. The negative part of an interval counts as 0."""
    with np.errstate(all="ignore"):
        lo, hi = np.sqrt(np.maximum(a.lo, 0.0)), np.sqrt(np.maximum(a.hi, 0.0))
        return Interval(
            np.where(_is_exact_root(lo, a.lo), lo, np.maximum(np.nextafter(lo, -np.inf), 0.0)),
            np.where(_is_exact_root(hi, a.hi), hi, np.nextafter(hi, np.inf)),
        )


def exp(a: Interval) -> Interval:
    """Return e to the power of a."""
    with np.errstate(all="ignore"):
        lo, hi = np.exp(a.lo), np.exp(a.hi)
        return Interval(
            np.where(a.lo >= 0, np.maximum(_widen(lo, -1), 1.0), np.maximum(_widen(lo, -1), 0.0)),
            np.where(a.hi <= 0, np.minimum(_widen(hi, 1), 1.0), _widen(hi, 1)),
        )


def ln(a: Interval) -> Interval:
    """Return the natural logarithm of the positive doubles in a."""
    return _logarithm(np.log, a, -745.0)


def log10(a: Interval) -> Interval:
    """Return the logarithm to base 10 of the positive doubles in a."""
    return _logarithm(np.log10, a, -324.0)


def tanh(a: Interval) -> Interval:
    """Return the hyperbolic tangent."""
    with np.errstate(all="ignore"):
        lo, hi = _widen(np.tanh(a.lo), -1), _widen(np.tanh(a.hi), 1)
        return Interval(
            np.maximum(np.where(a.lo >= 0, np.maximum(lo, 0.0), lo), -1.0),
            np.minimum(np.where(a.hi <= 0, np.minimum(hi, 0.0), hi), 1.0),
        )


def sin(a: Interval) -> Interval:
    """Return the sine. Widening does not make it negative between 0 and 3, or positive between -3 and 0."""
    wave = _wave(np.sin, a, np.pi / 2)
    lo = np.where((a.lo >= 0) & (a.hi <= 3), np.maximum(wave.lo, 0.0), wave.lo)
    return Interval(lo, np.where((a.hi <= 0) & (a.lo >= -3), np.minimum(wave.hi, 0.0), wave.hi))


def cos(a: Interval) -> Interval:
    """Return the cosine."""
    return _wave(np.cos, a, 0.0)


def power(a: Interval, exponent: Interval) -> Interval:
    """Return a to the power of an interval of exponents.

    A negative base has only integer powers. Their sign is unknown, and their absolute value is the power of |a|.
    """
    size = _nonnegative_power(absolute(a), exponent)
    return Interval(np.where(a.lo < 0, -size.hi, size.lo), size.hi)


def _nonnegative_power(a: Interval, exponent: Interval) -> Interval:
    """Return the power of a base that is not negative. It is monotone in base and exponent, so the corners suffice."""

    def corner(base: Float, index: Float) -> tuple[Float, Float]:
        result = np.power(base, index)
        return result, np.where(((base == 1) | (index == 0)) & np.isfinite(base + index), 0.0, np.nan)

    with np.errstate(all="ignore"):
        whole = _enclose_corners(corner, a, exponent)
        lo, hi = np.maximum(_widen(whole.lo, -1), 0.0), _widen(whole.hi, 1)
        # Widening must not move an end across 1.
        lo = np.where((a.lo >= 1) & (exponent.lo >= 0), np.maximum(lo, 1.0), lo)
        hi = np.where((a.hi <= 1) & (exponent.lo >= 0), np.minimum(hi, 1.0), hi)
        zero_below = (a.lo <= 0) & (exponent.lo < 0)
        return Interval(lo, np.where(zero_below, np.inf, hi))


def integer_power(a: Interval, exponent: int) -> Interval:
    """Return a to an integer power; the unbounded interval where this divides by zero."""
    if exponent < 0:
        return divide(point(np.ones(np.shape(a.lo))), integer_power(a, -exponent))
    if exponent == 0:
        return point(np.ones(np.shape(a.lo)))
    if exponent % 2 == 0:
        return _nonnegative_integer_power(absolute(a), exponent)
    above = _nonnegative_integer_power(Interval(np.maximum(a.lo, 0.0), np.maximum(a.hi, 0.0)), exponent)
    below = _nonnegative_integer_power(Interval(np.maximum(-a.hi, 0.0), np.maximum(-a.lo, 0.0)), exponent)
    return add(above, negate(below))


def _nonnegative_integer_power(a: Interval, exponent: int) -> Interval:
    """Return a product of equal factors. Use the library function for large exponents."""
    if exponent > 64:
        return power(a, point(np.full(np.shape(a.lo), float(exponent))))
    result = a
    for _ in range(exponent - 1):
        result = multiply(result, a)
    return result


def _two_sum(a: Float, b: Float) -> tuple[Float, Float]:
    """Return a sum and its rounding error: the exact sum minus the rounded sum. NaN if the error is not known."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def _two_product(a: Float, b: Float) -> tuple[Float, Float]:
    """Return a product and its rounding error; NaN if the error is not known."""
    total = a * b
    high, low = _split(a)
    high2, low2 = _split(b)
    error = low * low2 - (((total - high * high2) - low * high2) - high * low2)
    safe = (np.abs(total) > _SMALLEST_PRODUCT) & (np.maximum(np.abs(a), np.abs(b)) < _LARGEST_FACTOR)
    zero = (a == 0) | (b == 0)
    return np.where(zero, 0.0, total), np.where(zero, 0.0, np.where(safe, error, np.nan))


def _divide_with_error(a: Float, b: Float) -> tuple[Float, Float]:
    """Return a quotient and a number with the sign of its rounding error; NaN if the sign is not known."""
    total = a / b
    back, error = _two_product(total, b)
    rest = (a - back) - error
    known = (a == 0) | (np.isfinite(error) & np.isfinite(total) & (np.abs(a) > _SMALLEST_PRODUCT))
    return np.where(a == 0, 0.0, total), np.where(a == 0, 0.0, np.where(known, rest * np.sign(b), np.nan))


def _split(a: Float) -> tuple[Float, Float]:
    """Return two numbers of half the precision whose sum is a."""
    factor = _SPLITTER * a
    high = factor - (factor - a)
    return high, a - high


def _enclose_corners(operation: Callable[[Float, Float], tuple[Float, Float]], a: Interval, b: Interval) -> Interval:
    """Return the enclosure of an operation at the four combinations of ends of its operands."""
    found = [operation(x, y) for x in a for y in b]
    lows = [_round_down(value, error) for value, error in found]
    highs = [_round_up(value, error) for value, error in found]
    lo, hi = lows[0], highs[0]
    for low, high in zip(lows[1:], highs[1:], strict=True):
        lo, hi = np.minimum(lo, low), np.maximum(hi, high)
    return Interval(lo, hi)


def _round_down(value: Float, error: Float) -> Float:
    """Return the largest double that is certainly not above value + error; -inf if the value is NaN."""
    lower = np.where(error >= 0, value, np.nextafter(value, -np.inf))
    return np.where(np.isnan(value), -np.inf, lower)


def _round_up(value: Float, error: Float) -> Float:
    """Return the smallest double that is certainly not below value + error; inf if the value is NaN."""
    upper = np.where(error <= 0, value, np.nextafter(value, np.inf))
    return np.where(np.isnan(value), np.inf, upper)


def _widen(value: Float, side: int) -> Float:
    """Move a value down (side -1) or up (side 1) by 8 units in the last place. Inwards, inf becomes a finite double."""
    moved = value + side * _LIBRARY_ULPS * np.maximum(np.spacing(np.abs(value)), _TINY)
    overflow = LARGEST if side < 0 else np.inf
    return np.where(np.isinf(value), np.where(value > 0, overflow, -np.inf if side < 0 else -LARGEST), moved)


def _is_exact_root(root: Float, square: Float) -> Truth:
    product, error = _two_product(root, root)
    return np.asarray((product == square) & (error == 0))


def _logarithm(function: Callable[[Float], Float], a: Interval, least: float) -> Interval:
    """Return a logarithm. `least` is below the logarithm of the smallest positive double."""
    with np.errstate(all="ignore"):
        positive = a.lo > 0
        lo = _widen(function(np.where(positive, a.lo, 1.0)), -1)
        hi = _widen(function(np.where(a.hi > 0, a.hi, 1.0)), 1)
        return Interval(
            np.where(positive, np.where(a.lo >= 1, np.maximum(lo, 0.0), lo), least),
            np.where(a.hi <= 1, np.minimum(hi, 0.0), hi),
        )


def _wave(function: Callable[[Float], Float], a: Interval, top: float) -> Interval:
    """Return the range of sine or cosine. The function is 1 at `top` and -1 half a turn later."""
    with np.errstate(all="ignore"):
        small = magnitude(a) < _LARGEST_ANGLE
        lo, hi = np.where(small, a.lo, 0.0), np.where(small, a.hi, 0.0)
        low, high = function(lo), function(hi)
        least = np.where(_may_contain_angle(lo, hi, top + np.pi), -1.0, _widen(np.minimum(low, high), -1))
        most = np.where(_may_contain_angle(lo, hi, top), 1.0, _widen(np.maximum(low, high), 1))
        # The widening is relative. Near a zero, the argument reduction adds an absolute error.
        least, most = np.maximum(least - 1e-15, -1.0), np.minimum(most + 1e-15, 1.0)
        return Interval(np.where(small, least, -1.0), np.where(small, most, 1.0))


def _may_contain_angle(lo: Float, hi: Float, angle: float) -> Truth:
    """Return whether the interval may contain angle + 2 k pi for an integer k, with a safety margin."""
    turn = 2 * np.pi
    return np.floor((hi - angle) / turn + _ANGLE_MARGIN) >= np.ceil((lo - angle) / turn - _ANGLE_MARGIN)
