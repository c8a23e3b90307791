"""The functions of conditions on intervals: range, derivative and second derivative."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction

import numpy as np

from tocsin.expr.certify import interval as iv
from tocsin.expr.certify.interval import Interval

# A value, and a function that computes the first and the second derivative: many callers need the value alone.
Smooth = tuple[Interval, Callable[[], tuple[Interval, Interval]]]

_LN10 = iv.ln(iv.point([10.0]))


def written(value: float) -> Fraction:
    """The decimal that a literal was written as: the shortest one that is read as this double."""
    return Fraction(repr(value))


def both(value: float) -> tuple[float, float]:
    """Two doubles with a literal between them, as it was written and as it is read."""
    exact = written(value)
    if exact == value:
        return value, value
    return (math.nextafter(value, -math.inf), value) if exact < value else (value, math.nextafter(value, math.inf))


def _constant(a: Interval, value: float) -> Interval:
    return iv.point(np.full(np.shape(a.lo), value))


def _exp(a: Interval) -> Smooth:
    value = iv.exp(a)
    return value, lambda: (value, value)


def _ln(a: Interval) -> Smooth:
    def derivatives() -> tuple[Interval, Interval]:
        first = _reciprocal(a)
        return first, iv.negate(iv.whole_power(first, 2))

    return iv.ln(a), derivatives


def _log10(a: Interval) -> Smooth:
    def derivatives() -> tuple[Interval, Interval]:
        first = iv.divide(_reciprocal(a), _LN10)
        return first, iv.negate(iv.multiply(first, _reciprocal(a)))

    return iv.log10(a), derivatives


def _reciprocal(a: Interval) -> Interval:
    """1 / a of what is positive; unbounded above where it may be 0."""
    positive = Interval(np.maximum(a.lo, 0.0), np.maximum(a.hi, 0.0))
    known = positive.lo > 0
    inverse = iv.divide(_constant(a, 1.0), Interval(np.where(known, a.lo, 1.0), np.where(known, a.hi, 1.0)))
    touching = iv.divide(_constant(a, 1.0), iv.point(np.where(positive.hi > 0, positive.hi, 1.0)))
    return iv.select(known, inverse, Interval(np.where(positive.hi > 0, touching.lo, 0.0), np.full_like(a.lo, np.inf)))


def _sqrt(a: Interval) -> Smooth:
    value = iv.sqrt(a)

    def derivatives() -> tuple[Interval, Interval]:
        first = iv.divide(_reciprocal(value), _constant(a, 2.0))
        return first, iv.negate(iv.divide(iv.multiply(first, _reciprocal(a)), _constant(a, 2.0)))

    return value, derivatives


def _sin(a: Interval) -> Smooth:
    value = iv.sin(a)
    return value, lambda: (iv.cos(a), iv.negate(value))


def _cos(a: Interval) -> Smooth:
    value = iv.cos(a)
    return value, lambda: (iv.negate(iv.sin(a)), iv.negate(value))


def _tanh(a: Interval) -> Smooth:
    """The derivative is 1 - tanh², with its largest value 1 at 0 and falling to both sides."""
    value = iv.tanh(a)

    def derivatives() -> tuple[Interval, Interval]:
        first = iv.subtract(_constant(a, 1.0), iv.whole_power(value, 2))
        first = Interval(np.maximum(first.lo, 0.0), np.minimum(first.hi, 1.0))
        return first, iv.multiply(_constant(a, -2.0), iv.multiply(value, first))

    return value, derivatives


SMOOTH: Mapping[str, Callable[[Interval], Smooth]] = {
    "exp": _exp,
    "ln": _ln,
    "log10": _log10,
    "sqrt": _sqrt,
    "sin": _sin,
    "cos": _cos,
    "tanh": _tanh,
}


def powers(a: Interval, index: float, *, whole: bool) -> Smooth:
    """`a` to a fixed power; exponents and factors of derivatives are computed as intervals too."""
    exponent = _constant(a, index)
    if not index.is_integer():
        a = Interval(np.maximum(a.lo, 0.0), np.maximum(a.hi, 0.0))

    def lowered(by: int) -> Interval:
        if whole:
            return iv.whole_power(a, int(index) - by)
        return iv.power(a, iv.subtract(exponent, _constant(a, float(by))))

    def derivatives() -> tuple[Interval, Interval]:
        factor = iv.multiply(exponent, iv.subtract(exponent, _constant(a, 1.0)))
        first = iv.multiply(exponent, lowered(1)) if index else _constant(a, 0.0)
        return first, iv.multiply(factor, lowered(2)) if index not in (0.0, 1.0) else _constant(a, 0.0)

    return lowered(0), derivatives
