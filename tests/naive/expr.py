"""What a condition means, slowly: nested tuples, exact fractions, None for undefined.

("num", 1.5)  ("var", "air", "temp")  ("neg", t)  ("+", a, b) and - * / **  ("call", "ln", a, ...)
(">", a, b) and >= < <=  ("and", c, d, ...)  ("or", c, d, ...)
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

LARGEST = Fraction(1.7976931348623157e308)
Values = Mapping[tuple[str, str | None], float]


def judge(tree: tuple[Any, ...], values: Values) -> tuple[float, bool, float]:
    """Give margin, truth and value of a condition; an undefined value is NaN."""
    margin, truth = _condition(tree, values)
    if tree[0] in ("and", "or"):
        return margin, truth, margin
    left = number(tree[1], values)
    return margin, truth, math.nan if left is None else left


def number(tree: tuple[Any, ...], values: Values) -> float | None:
    """Give a number, or None if it is undefined."""
    kind = tree[0]
    if kind == "num":
        return float(tree[1])
    if kind == "var":
        value = values[tree[1], tree[2]]
        return value if math.isfinite(value) else None
    if kind == "call" and tree[1] == "where":
        return number(tree[3] if _condition(tree[2], values)[1] else tree[4], values)
    name, parts = (tree[1], tree[2:]) if kind == "call" else (kind, tree[1:])
    numbers = [number(part, values) for part in parts]
    if any(part is None for part in numbers):
        return None
    try:
        result = _apply(name, *numbers)
    except (ArithmeticError, ValueError):
        return None
    return result if math.isfinite(result) else None


def _apply(name: str, a: float, *more: float) -> float:
    """Raise ArithmeticError or ValueError where mathematics or the range of floats has no answer."""
    b = more[0] if more else math.nan
    exact = {
        "+": lambda: Fraction(a) + Fraction(b),
        "-": lambda: Fraction(a) - Fraction(b),
        "*": lambda: Fraction(a) * Fraction(b),
        "/": lambda: Fraction(a) / Fraction(b),
        "neg": lambda: -Fraction(a),
        "abs": lambda: abs(Fraction(a)),
        "floor": lambda: Fraction(math.floor(a)),
        "ceil": lambda: Fraction(math.ceil(a)),
        "min": lambda: min(Fraction(part) for part in (a, *more)),
        "max": lambda: max(Fraction(part) for part in (a, *more)),
    }
    if name in exact:
        return float(exact[name]())
    if name in ("**", "pow"):
        return math.pow(a, b)
    return float(math.log(a) if name == "ln" else getattr(math, name)(a))


def _condition(tree: tuple[Any, ...], values: Values) -> tuple[float, bool]:
    if tree[0] in ("and", "or"):
        margins, truths = zip(*(_condition(part, values) for part in tree[1:]), strict=True)
        return (min(margins), all(truths)) if tree[0] == "and" else (max(margins), any(truths))
    op, left, right = tree[0], number(tree[1], values), number(tree[2], values)
    if left is None or right is None:
        return -math.inf, False
    margin = Fraction(left) - Fraction(right) if op in (">", ">=") else Fraction(right) - Fraction(left)
    truth = margin >= 0 if op in (">=", "<=") else margin > 0
    return float(max(-LARGEST, min(margin, LARGEST))), truth
