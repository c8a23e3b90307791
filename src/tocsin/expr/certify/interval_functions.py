"""Interval functions: ranges of the mathematical functions and of their first and second derivatives."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from tocsin.expr.certify import interval_arithmetic as iv
from tocsin.expr.certify.interval_arithmetic import Interval


class SmoothResult(NamedTuple):
    """The range of a smooth function, and a function that returns the ranges of its first and second derivative.

    Many callers need only the range of the function, so the derivatives are computed on demand.
    """

    value: Interval
    derivatives: Callable[[], tuple[Interval, Interval]]


_LN10 = iv.ln(iv.point([10.0]))


def decimal_value(value: float) -> Fraction:
    """Return the decimal that the user wrote for a literal: the shortest decimal that is parsed as this double."""
    return Fraction(repr(value))


def enclose_literal(value: float) -> tuple[float, float]:
    """Return two doubles that enclose the decimal of a literal and its double."""
    exact = decimal_value(value)
    if exact == value:
        return value, value
    return (math.nextafter(value, -math.inf), value) if exact < value else (value, math.nextafter(value, math.inf))


def _constant(a: Interval, value: float) -> Interval:
    return iv.point(np.full(np.shape(a.lo), value))


def _exp(a: Interval) -> SmoothResult:
    value = iv.exp(a)
    return SmoothResult(value, lambda: (value, value))


def _ln(a: Interval) -> SmoothResult:
    def derivatives() -> tuple[Interval, Interval]:
        first = _reciprocal(a)
        return first, iv.negate(iv.integer_power(first, 2))

    return SmoothResult(iv.ln(a), derivatives)


def _log10(a: Interval) -> SmoothResult:
    def derivatives() -> tuple[Interval, Interval]:
        first = iv.divide(_reciprocal(a), _LN10)
        return first, iv.negate(iv.multiply(first, _reciprocal(a)))

    return SmoothResult(iv.log10(a), derivatives)


def _reciprocal(a: Interval) -> Interval:
    """Return 1 / a of the positive part of a; unbounded above where a contains 0."""
    positive = Interval(np.maximum(a.lo, 0.0), np.maximum(a.hi, 0.0))
    known = positive.lo > 0
    inverse = iv.divide(_constant(a, 1.0), Interval(np.where(known, a.lo, 1.0), np.where(known, a.hi, 1.0)))
    touching = iv.divide(_constant(a, 1.0), iv.point(np.where(positive.hi > 0, positive.hi, 1.0)))
    return iv.select(known, inverse, Interval(np.where(positive.hi > 0, touching.lo, 0.0), np.full_like(a.lo, np.inf)))


def _sqrt(a: Interval) -> SmoothResult:
    value = iv.sqrt(a)

    def derivatives() -> tuple[Interval, Interval]:
        first = iv.divide(_reciprocal(value), _constant(a, 2.0))
        return first, iv.negate(iv.divide(iv.multiply(first, _reciprocal(a)), _constant(a, 2.0)))

    return SmoothResult(value, derivatives)


def _sin(a: Interval) -> SmoothResult:
    value = iv.sin(a)
    return SmoothResult(value, lambda: (iv.cos(a), iv.negate(value)))


def _cos(a: Interval) -> SmoothResult:
    value = iv.cos(a)
    return SmoothResult(value, lambda: (iv.negate(iv.sin(a)), iv.negate(value)))


def _tanh(a: Interval) -> SmoothResult:
    # The derivative is 1 - tanh(a)**2, which is between 0 and 1.
    value = iv.tanh(a)

    def derivatives() -> tuple[Interval, Interval]:
        first = iv.subtract(_constant(a, 1.0), iv.integer_power(value, 2))
        first = Interval(np.maximum(first.lo, 0.0), np.minimum(first.hi, 1.0))
        return first, iv.multiply(_constant(a, -2.0), iv.multiply(value, first))

    return SmoothResult(value, derivatives)


SMOOTH_FUNCTIONS: Mapping[str, Callable[[Interval], SmoothResult]] = {
    "exp": _exp,
    "ln": _ln,
    "log10": _log10,
    "sqrt": _sqrt,
    "sin": _sin,
    "cos": _cos,
    "tanh": _tanh,
}


def power_function(a: Interval, index: float, *, by_products: bool) -> SmoothResult:
    """Return `a` to a fixed power and its derivatives.

    With `by_products`, an integer power is computed as a product, which is exact more often.
    """
    exponent = _constant(a, index)
    if not index.is_integer():
        a = Interval(np.maximum(a.lo, 0.0), np.maximum(a.hi, 0.0))

    def lowered(by: int) -> Interval:
        if by_products:
            return iv.integer_power(a, int(index) - by)
        return iv.power(a, iv.subtract(exponent, _constant(a, float(by))))

    def derivatives() -> tuple[Interval, Interval]:
        factor = iv.multiply(exponent, iv.subtract(exponent, _constant(a, 1.0)))
        first = iv.multiply(exponent, lowered(1)) if index else _constant(a, 0.0)
        return first, iv.multiply(factor, lowered(2)) if index not in (0.0, 1.0) else _constant(a, 0.0)

    return SmoothResult(lowered(0), derivatives)
