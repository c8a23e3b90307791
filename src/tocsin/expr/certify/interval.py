"""Intervals on arrays: each operation encloses what exact arithmetic and what doubles make of all points inside.

Idea: ends are doubles, rounded outwards. Sums, products, quotients and roots are widened only where they are inexact,
which error-free transformations tell, so that `1 - h/100` at h = 100 is 0 and no less. Functions of the mathematical
library are widened by 8 units in the last place, which covers NumPy's own versions (4) and those of C (1).
Guarantee: rounding is monotone, so an operation on doubles inside gives a double inside; what is proved of an
enclosure, such as that it excludes 0, holds for the program that runs as well as for the formula.
Ends may be infinite: that side is unbounded; infinity itself is never meant. Cost: some ten array operations each.

Source: Dekker, Numer. Math. 18 (1971), for the transformations; the bounds of libraries are assumptions, and stated.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.expr.machine import LARGEST

Float = NDArray[np.float64]
Int = NDArray[np.int64]
Truth = NDArray[np.bool_]

_ULPS = 8
_TINY = 5e-324
_SPLITTER = 134217729.0
# Beyond these the error of a product is not a double, or its parts overflow; then it is taken as inexact.
_SMALLEST_PRODUCT, _LARGEST_FACTOR = 1e-250, 1e250
# Where the reduction of an angle is still good to a billionth.
_LARGEST_ANGLE = 1e6
_CLOSE = 1e-6


class Interval(NamedTuple):
    """All numbers from `lo` to `hi`, for each element."""

    lo: Float
    hi: Float


def point(value: Any) -> Interval:
    """The interval of single numbers."""
    array = np.asarray(value, np.float64)
    return Interval(array, array)


def entire(shape: Any) -> Interval:
    """Anything."""
    return Interval(np.full(shape, -np.inf), np.full(shape, np.inf))


def hull(a: Interval, b: Interval) -> Interval:
    """The least interval with both inside."""
    return Interval(np.minimum(a.lo, b.lo), np.maximum(a.hi, b.hi))


def select(mask: Truth, a: Interval, b: Interval) -> Interval:
    """`a` where the mask holds, else `b`."""
    return Interval(np.where(mask, a.lo, b.lo), np.where(mask, a.hi, b.hi))


def finite(a: Interval) -> Truth:
    """Tell where both ends are finite."""
    return np.isfinite(a.lo) & np.isfinite(a.hi)


def magnitude(a: Interval) -> Float:
    """The largest absolute value."""
    return np.maximum(np.abs(a.lo), np.abs(a.hi))


def negate(a: Interval) -> Interval:
    """-a."""
    return Interval(-a.hi, -a.lo)


def add(a: Interval, b: Interval) -> Interval:
    """Give a + b."""
    with np.errstate(all="ignore"):
        return Interval(_down(*_sum(a.lo, b.lo)), _up(*_sum(a.hi, b.hi)))


def subtract(a: Interval, b: Interval) -> Interval:
    """Give a - b."""
    return add(a, negate(b))


def multiply(a: Interval, b: Interval) -> Interval:
    """Give a * b; zero times unbounded is zero."""
    with np.errstate(all="ignore"):
        return _corners(_product, a, b)


def divide(a: Interval, b: Interval) -> Interval:
    """Give a / b; anything where b may be zero."""
    with np.errstate(all="ignore"):
        safe = (b.lo > 0) | (b.hi < 0)
        quotient = _corners(_quotient, a, Interval(np.where(safe, b.lo, 1.0), np.where(safe, b.hi, 1.0)))
        return select(safe, quotient, entire(np.shape(quotient.lo)))


def absolute(a: Interval) -> Interval:
    """|a|."""
    across = (a.lo < 0) & (a.hi > 0)
    least = np.where(across, 0.0, np.minimum(np.abs(a.lo), np.abs(a.hi)))
    return Interval(least, magnitude(a))


def maximum(a: Interval, b: Interval) -> Interval:
    """The larger of two."""
    return Interval(np.maximum(a.lo, b.lo), np.maximum(a.hi, b.hi))


def floor(a: Interval) -> Interval:
    """The largest whole number not above."""
    return Interval(np.floor(a.lo), np.floor(a.hi))


def ceil(a: Interval) -> Interval:
    """The smallest whole number not below."""
    return Interval(np.ceil(a.lo), np.ceil(a.hi))


def sqrt(a: Interval) -> Interval:
    """The root of what is not negative; what is negative is taken as 0."""
    with np.errstate(all="ignore"):
        lo, hi = np.sqrt(np.maximum(a.lo, 0.0)), np.sqrt(np.maximum(a.hi, 0.0))
        return Interval(
            np.where(_is_root(lo, a.lo), lo, np.maximum(np.nextafter(lo, -np.inf), 0.0)),
            np.where(_is_root(hi, a.hi), hi, np.nextafter(hi, np.inf)),
        )


def exp(a: Interval) -> Interval:
    """E to the power of a."""
    with np.errstate(all="ignore"):
        lo, hi = np.exp(a.lo), np.exp(a.hi)
        return Interval(
            np.where(a.lo >= 0, np.maximum(_wider(lo, -1), 1.0), np.maximum(_wider(lo, -1), 0.0)),
            np.where(a.hi <= 0, np.minimum(_wider(hi, 1), 1.0), _wider(hi, 1)),
        )


def ln(a: Interval) -> Interval:
    """The natural logarithm of the positive doubles in a."""
    return _logarithm(np.log, a, -745.0)


def log10(a: Interval) -> Interval:
    """The logarithm to base 10 of the positive doubles in a."""
    return _logarithm(np.log10, a, -324.0)


def tanh(a: Interval) -> Interval:
    """The hyperbolic tangent."""
    with np.errstate(all="ignore"):
        lo, hi = _wider(np.tanh(a.lo), -1), _wider(np.tanh(a.hi), 1)
        return Interval(
            np.maximum(np.where(a.lo >= 0, np.maximum(lo, 0.0), lo), -1.0),
            np.minimum(np.where(a.hi <= 0, np.minimum(hi, 0.0), hi), 1.0),
        )


def sin(a: Interval) -> Interval:
    """The sine; between 0 and 3 it is not negative, however it is widened."""
    wave = _wave(np.sin, a, np.pi / 2)
    lo = np.where((a.lo >= 0) & (a.hi <= 3), np.maximum(wave.lo, 0.0), wave.lo)
    return Interval(lo, np.where((a.hi <= 0) & (a.lo >= -3), np.minimum(wave.hi, 0.0), wave.hi))


def cos(a: Interval) -> Interval:
    """The cosine."""
    return _wave(np.cos, a, 0.0)


def power(a: Interval, exponent: Interval) -> Interval:
    """A to any power: of what is not negative it is monotone in both, so corners tell.

    What is negative has whole powers only, of either sign, as far from 0 as those of its absolute value.
    """
    size = absolute(a)
    above = _power_of_size(size, exponent)
    return Interval(np.where(a.lo < 0, -above.hi, above.lo), above.hi)


def _power_of_size(a: Interval, exponent: Interval) -> Interval:
    def corner(base: Float, index: Float) -> tuple[Float, Float]:
        result = np.power(base, index)
        return result, np.where(((base == 1) | (index == 0)) & np.isfinite(base + index), 0.0, np.nan)

    with np.errstate(all="ignore"):
        whole = _corners(corner, a, exponent)
        lo, hi = np.maximum(_wider(whole.lo, -1), 0.0), _wider(whole.hi, 1)
        # A power of 1 or more of what is at least 1 is at least 1, and so on: no end crosses 1 by widening.
        lo = np.where((a.lo >= 1) & (exponent.lo >= 0), np.maximum(lo, 1.0), lo)
        hi = np.where((a.hi <= 1) & (exponent.lo >= 0), np.minimum(hi, 1.0), hi)
        zero_below = (a.lo <= 0) & (exponent.lo < 0)
        return Interval(lo, np.where(zero_below, np.inf, hi))


def whole_power(a: Interval, exponent: int) -> Interval:
    """A to the power of a whole number; anything where that divides by zero."""
    if exponent < 0:
        return divide(point(np.ones(np.shape(a.lo))), whole_power(a, -exponent))
    if exponent == 0:
        return point(np.ones(np.shape(a.lo)))
    if exponent % 2 == 0:
        return _positive_power(absolute(a), exponent)
    above = _positive_power(Interval(np.maximum(a.lo, 0.0), np.maximum(a.hi, 0.0)), exponent)
    below = _positive_power(Interval(np.maximum(-a.hi, 0.0), np.maximum(-a.lo, 0.0)), exponent)
    return add(above, negate(below))


def _positive_power(a: Interval, exponent: int) -> Interval:
    """Multiply on; many factors go through the library. The result is widened as far as C's `pow` may be off."""
    if exponent > 64:
        return power(a, point(np.full(np.shape(a.lo), float(exponent))))
    result = a
    for _ in range(exponent - 1):
        result = multiply(result, a)
    return result


def _sum(a: Float, b: Float) -> tuple[Float, Float]:
    """A sum, and what rounding took from it; NaN where that is not known."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def _product(a: Float, b: Float) -> tuple[Float, Float]:
    total = a * b
    high, low = _split(a)
    high2, low2 = _split(b)
    error = low * low2 - (((total - high * high2) - low * high2) - high * low2)
    safe = (np.abs(total) > _SMALLEST_PRODUCT) & (np.maximum(np.abs(a), np.abs(b)) < _LARGEST_FACTOR)
    zero = (a == 0) | (b == 0)
    return np.where(zero, 0.0, total), np.where(zero, 0.0, np.where(safe, error, np.nan))


def _quotient(a: Float, b: Float) -> tuple[Float, Float]:
    total = a / b
    back, error = _product(total, b)
    rest = (a - back) - error
    known = (a == 0) | (np.isfinite(error) & np.isfinite(total) & (np.abs(a) > _SMALLEST_PRODUCT))
    return np.where(a == 0, 0.0, total), np.where(a == 0, 0.0, np.where(known, rest * np.sign(b), np.nan))


def _split(a: Float) -> tuple[Float, Float]:
    factor = _SPLITTER * a
    high = factor - (factor - a)
    return high, a - high


def _corners(operation: Callable[[Float, Float], tuple[Float, Float]], a: Interval, b: Interval) -> Interval:
    found = [operation(x, y) for x in a for y in b]
    lows = [_down(value, error) for value, error in found]
    highs = [_up(value, error) for value, error in found]
    lo, hi = lows[0], highs[0]
    for low, high in zip(lows[1:], highs[1:], strict=True):
        lo, hi = np.minimum(lo, low), np.maximum(hi, high)
    return Interval(lo, hi)


def _down(value: Float, error: Float) -> Float:
    """The largest double that is surely not above value + error; a NaN of two infinities is unbounded."""
    lower = np.where(error >= 0, value, np.nextafter(value, -np.inf))
    return np.where(np.isnan(value), -np.inf, lower)


def _up(value: Float, error: Float) -> Float:
    upper = np.where(error <= 0, value, np.nextafter(value, np.inf))
    return np.where(np.isnan(value), np.inf, upper)


def _wider(value: Float, side: int) -> Float:
    """Move by 8 units in the last place; an overflow goes back to the largest double below."""
    moved = value + side * _ULPS * np.maximum(np.spacing(np.abs(value)), _TINY)
    overflow = LARGEST if side < 0 else np.inf
    return np.where(np.isinf(value), np.where(value > 0, overflow, -np.inf if side < 0 else -LARGEST), moved)


def _is_root(root: Float, square: Float) -> Truth:
    product, error = _product(root, root)
    return np.asarray((product == square) & (error == 0))


def _logarithm(function: Callable[[Float], Float], a: Interval, least: float) -> Interval:
    """`least` is below the logarithm of the smallest positive double."""
    with np.errstate(all="ignore"):
        positive = a.lo > 0
        lo = _wider(function(np.where(positive, a.lo, 1.0)), -1)
        hi = _wider(function(np.where(a.hi > 0, a.hi, 1.0)), 1)
        return Interval(
            np.where(positive, np.where(a.lo >= 1, np.maximum(lo, 0.0), lo), least),
            np.where(a.hi <= 1, np.minimum(hi, 0.0), hi),
        )


def _wave(function: Callable[[Float], Float], a: Interval, top: float) -> Interval:
    """A wave that is 1 at `top` and -1 half a turn later; ends and the tops and bottoms inside tell its range."""
    with np.errstate(all="ignore"):
        small = magnitude(a) < _LARGEST_ANGLE
        lo, hi = np.where(small, a.lo, 0.0), np.where(small, a.hi, 0.0)
        low, high = function(lo), function(hi)
        least = np.where(_holds_turn(lo, hi, top + np.pi), -1.0, _wider(np.minimum(low, high), -1))
        most = np.where(_holds_turn(lo, hi, top), 1.0, _wider(np.maximum(low, high), 1))
        # The widening is relative; near a zero the reduction of the angle adds an absolute error.
        least, most = np.maximum(least - 1e-15, -1.0), np.minimum(most + 1e-15, 1.0)
        return Interval(np.where(small, least, -1.0), np.where(small, most, 1.0))


def _holds_turn(lo: Float, hi: Float, angle: float) -> Truth:
    """Tell whether angle + 2 k pi may lie inside for some whole k; close by counts as inside."""
    turn = 2 * np.pi
    return np.floor((hi - angle) / turn + _CLOSE) >= np.ceil((lo - angle) / turn - _CLOSE)
