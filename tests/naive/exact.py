"""What an expression is in exact arithmetic: nested tuples as in `naive.expr`, numbers as fractions with an error.

A number is exact as long as arithmetic, roots of squares, steps and tests are; what comes from a transcendental
function is a ball: a fraction and how far it may be off, some 10**-80 of it. Nothing is told apart that is too close.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from fractions import Fraction
from typing import Any, NamedTuple

LARGEST = Fraction(1.7976931348623157e308)
Values = Mapping[tuple[str, str | None], float]

_DIGITS = 100
_OWN = Fraction(1, 10**80)
_LEAST = Fraction(1, 10**500)
_NEGLIGIBLE = Decimal(10) ** -95
_CONTEXT = Context(prec=_DIGITS, Emax=MAX_EMAX, Emin=MIN_EMIN)
# Enough for the reduction of the largest double.
_WIDE = Context(prec=450, Emax=MAX_EMAX, Emin=MIN_EMIN)


class Unsure(Exception):
    """Too close to call at this precision."""


class Undefined(Exception):
    """No finite real number, or one beyond the doubles."""


class Ball(NamedTuple):
    """All numbers at most `err` from `mid`."""

    mid: Fraction
    err: Fraction = Fraction(0)

    @property
    def lo(self) -> Fraction:
        return self.mid - self.err

    @property
    def hi(self) -> Fraction:
        return self.mid + self.err


def value(tree: tuple[Any, ...], values: Values) -> Ball | None:
    """Give an expression that is a number; None where it is undefined or too close to call."""
    try:
        return number(tree, values)
    except (Undefined, Unsure):
        return None


def above(a: Ball, b: Ball, by: Fraction = Fraction(0)) -> bool:
    """Tell whether a > b + by is certain."""
    return a.lo > b.hi + by


def number(tree: tuple[Any, ...], values: Values) -> Ball:
    """Give an expression that is a number; raise Undefined or Unsure."""
    kind = tree[0]
    if kind == "num":
        return _literal(tree[1])
    if kind == "var":
        return Ball(Fraction(values[tree[1], tree[2]]))
    if kind == "call" and tree[1] == "where":
        return number(tree[3] if truth(tree[2], values) else tree[4], values)
    name, parts = (tree[1], tree[2:]) if kind == "call" else (kind, tree[1:])
    result = _tidy(_OPERATIONS[name](*(number(part, values) for part in parts)))
    if result.lo > LARGEST or result.hi < -LARGEST:
        raise Undefined
    return result


def _literal(value: float) -> Ball:
    """A literal is the decimal that was written and the double that is read: nothing is certain of only one."""
    written, read = Fraction(repr(value)), Fraction(value)
    return _between(min(written, read), max(written, read))


def truth(tree: tuple[Any, ...], values: Values) -> bool:
    """Give the truth of a condition; a comparison with an undefined side is false."""
    if tree[0] in ("and", "or"):
        truths = [truth(part, values) for part in tree[1:]]
        return all(truths) if tree[0] == "and" else any(truths)
    try:
        a, b = number(tree[1], values), number(tree[2], values)
    except Undefined:
        return False
    if tree[0] in ("<", "<="):
        a, b = b, a
    gap = _add(a, _negative(b))
    strict = tree[0] in (">", "<")
    if gap.lo > 0 or (gap.lo == 0 and not strict):
        return True
    if gap.hi < 0 or (gap.hi == 0 and strict):
        return False
    raise Unsure


def _tidy(ball: Ball) -> Ball:
    """Keep about a hundred digits of what is not exact."""
    if not ball.err:
        return ball
    mid = Fraction(_decimal(ball.mid))
    err = Fraction(_decimal(ball.err)) * (1 + _OWN) + abs(mid) * _OWN + _LEAST
    return Ball(mid, err)


def _decimal(number: Fraction, context: Context = _CONTEXT) -> Decimal:
    return context.divide(Decimal(number.numerator), Decimal(number.denominator))


def _between(lo: Fraction, hi: Fraction) -> Ball:
    return Ball((lo + hi) / 2, (hi - lo) / 2)


def _negative(a: Ball) -> Ball:
    return Ball(-a.mid, a.err)


def _add(a: Ball, b: Ball) -> Ball:
    return Ball(a.mid + b.mid, a.err + b.err)


def _multiply(a: Ball, b: Ball) -> Ball:
    return Ball(a.mid * b.mid, abs(a.mid) * b.err + abs(b.mid) * a.err + a.err * b.err)


def _divide(a: Ball, b: Ball) -> Ball:
    if b.mid == 0 and b.err == 0:
        raise Undefined
    if b.lo <= 0 <= b.hi:
        raise Unsure
    ends = sorted((1 / b.lo, 1 / b.hi))
    return _multiply(a, _between(*ends))


def _power(a: Ball, b: Ball) -> Ball:
    if not b.err and b.mid.denominator == 1 and abs(b.mid) <= 2000:
        return _whole_power(a, int(b.mid))
    if not a.err and a.mid == 0:
        if b.lo > 0:
            return Ball(Fraction(0))
        raise Undefined if b.hi < 0 else Unsure
    if a.hi < 0 and (b.err or b.mid.denominator == 1):
        raise Unsure
    return _exp(_multiply(b, _tidy(_ln(a))))


def _whole_power(a: Ball, index: int) -> Ball:
    if abs(index) > 8 and a != (0, 0):
        size = _absolute(a)
        if size.lo <= 0:
            raise Unsure
        result = _exp(_multiply(Ball(Fraction(index)), _tidy(_ln(size))))
        return _negative(result) if a.mid < 0 and index % 2 else result
    result = Ball(Fraction(1))
    for _ in range(abs(index)):
        result = _tidy(_multiply(result, a))
    return _divide(Ball(Fraction(1)), result) if index < 0 else result


def _rising(function: Callable[[Fraction], Fraction]) -> Callable[[Ball], Ball]:
    """A rising function from what it is at both ends, each to 10**-80 of itself."""

    def apply(a: Ball) -> Ball:
        lo, hi = function(a.lo), function(a.hi)
        own = max(abs(lo), abs(hi)) * _OWN + _LEAST
        return _between(lo - own, hi + own)

    return apply


def _exp_of(a: Fraction) -> Fraction:
    if a > 720:
        raise Undefined
    return Fraction(0) if a < -3000 else Fraction(_CONTEXT.exp(_decimal(a, _WIDE)))


def _exp(a: Ball) -> Ball:
    return Ball(Fraction(1)) if a == (0, 0) else _rising(_exp_of)(a)


def _ln(a: Ball) -> Ball:
    return _logarithm(a, _CONTEXT.ln)


def _log10(a: Ball) -> Ball:
    return _logarithm(a, _CONTEXT.log10)


def _logarithm(a: Ball, function: Callable[[Decimal], Decimal]) -> Ball:
    if a.hi <= 0:
        raise Undefined
    if a.lo <= 0:
        raise Unsure
    if a == (1, 0):
        return Ball(Fraction(0))
    # With all its digits the argument is told apart from 1.
    return _rising(lambda end: Fraction(function(_decimal(end, _WIDE))))(a)


def _sqrt(a: Ball) -> Ball:
    if a.hi < 0:
        raise Undefined
    if a.lo < 0:
        raise Unsure
    root = Fraction(math.isqrt(a.mid.numerator), math.isqrt(a.mid.denominator))
    if not a.err and root * root == a.mid:
        return Ball(root)
    return _rising(lambda end: Fraction(_CONTEXT.sqrt(_decimal(end, _WIDE))))(a)


def _step(function: Callable[[Fraction], int]) -> Callable[[Ball], Ball]:
    def apply(a: Ball) -> Ball:
        return _between(Fraction(function(a.lo)), Fraction(function(a.hi)))

    return apply


def _absolute(a: Ball) -> Ball:
    if a.lo >= 0:
        return a
    return _negative(a) if a.hi <= 0 else _between(Fraction(0), max(-a.lo, a.hi))


def _series(x: Fraction, power: int) -> Fraction:
    """The sum of (-1)**k x**n / n! over n = power + 2 k, for |x| of at most 4."""
    angle = _decimal(x)
    square, n = _CONTEXT.multiply(angle, angle), power
    term, total = (angle if power else Decimal(1)), Decimal(0)
    while term.copy_abs() > _NEGLIGIBLE:
        total = _CONTEXT.add(total, term)
        term = _CONTEXT.divide(_CONTEXT.multiply(term.copy_negate(), square), Decimal((n + 1) * (n + 2)))
        n += 2
    return Fraction(total)


def _wave(power: int) -> Callable[[Ball], Ball]:
    """The sine (1) or cosine (0); neither moves faster than its argument."""

    def apply(a: Ball) -> Ball:
        if a == (0, 0):
            return Ball(Fraction(1 - power))
        if abs(a.mid) < Fraction(1, 10**30):
            size = abs(a.mid)
            return Ball(a.mid, a.err + size**3) if power else Ball(Fraction(1), a.err + size**2)
        turns = round(a.mid / (2 * _PI))
        return Ball(_series(a.mid - turns * 2 * _PI, power), a.err + Fraction(1, 10**78))

    return apply


def _tanh(a: Ball) -> Ball:
    if a == (0, 0):
        return a
    if abs(a.mid) < Fraction(1, 10**30):
        return Ball(a.mid, a.err + abs(a.mid) ** 3)
    if a.lo > 350 or a.hi < -350:
        return Ball(Fraction(1 if a.mid > 0 else -1), Fraction(1, 10**300))
    if abs(a.mid) > 350:
        raise Unsure
    twice = _exp_of(2 * a.mid)
    return Ball((twice - 1) / (twice + 1), a.err + Fraction(1, 10**78))


def _pi() -> Fraction:
    """Machin: 16 atan(1/5) - 4 atan(1/239), to 440 digits."""

    def atan(n: int) -> Fraction:
        unit = 10**450
        total, term, k = 0, unit // n, 0
        while term:
            total += (term if k % 2 == 0 else -term) // (2 * k + 1)
            term, k = term // (n * n), k + 1
        return Fraction(total, unit)

    return 16 * atan(5) - 4 * atan(239)


_PI = _pi()


def _smallest(*parts: Ball) -> Ball:
    return _between(min(part.lo for part in parts), min(part.hi for part in parts))


def _largest(*parts: Ball) -> Ball:
    return _between(max(part.lo for part in parts), max(part.hi for part in parts))


_OPERATIONS: Mapping[str, Callable[..., Ball]] = {
    "+": _add,
    "-": lambda a, b: _add(a, _negative(b)),
    "*": _multiply,
    "/": _divide,
    "**": _power,
    "pow": _power,
    "neg": _negative,
    "abs": _absolute,
    "floor": _step(math.floor),
    "ceil": _step(math.ceil),
    "min": _smallest,
    "max": _largest,
    "sqrt": _sqrt,
    "exp": _exp,
    "ln": _ln,
    "log10": _log10,
    "sin": _wave(1),
    "cos": _wave(0),
    "tanh": _tanh,
}
