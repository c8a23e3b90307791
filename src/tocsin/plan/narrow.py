"""Narrow: a closed range of one column that holds all values with which a condition can be true.

Idea: a comparison of the column with a number, or with limits, leaves a half-line; one of a chain of `+ - * /` with
numbers does too, as each step is monotone in doubles: its end is found by bisection over the doubles themselves.
`and` leaves what all parts leave, `or` all that any does; anything else leaves the whole line.
Guarantee: outside the range the condition is false, whatever its other variables are, in the very arithmetic that
evaluates it. A range is `whole` if inside of it the condition is always true.
Cost: 64 evaluations of a chain per end.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tocsin.expr.syntax_tree import Binary, Bool, Compare, Key, Node, Unary, Variable, is_independent_of, literal_value

_TURNED = {">": "<", ">=": "<=", "<": ">", "<=": ">="}
# Of a table of limits, so many stand for all when bins are cut.
_SAMPLE = 9


@dataclass(frozen=True)
class Range:
    """From and to, both inclusive; `cuts` are the numbers, between them, at which more or fewer rows make it true."""

    low: float = -math.inf
    high: float = math.inf
    whole: bool = False
    cuts: tuple[float, ...] = ()

    @property
    def ends(self) -> int:
        """How many ends it has."""
        return int(self.low > -math.inf) + int(self.high < math.inf)


def narrowed(condition: Node, key: Key, limits: Mapping[Key, Sequence[float]]) -> Range:
    """The range of a variable outside of which a condition is false; `limits` has the numbers of each that is read.

    >>> from tocsin.expr import parse_condition
    >>> narrowed(parse_condition("a >= 2 and a <= 5"), ("a", None), {})
    Range(low=2.0, high=5.0, whole=True, cuts=())
    """
    if isinstance(condition, Bool):
        parts = [narrowed(part, key, limits) for part in condition.args]
        cuts = tuple(cut for part in parts for cut in (*part.cuts, part.low, part.high) if math.isfinite(cut))
        if condition.op == "and":
            low, high = max(part.low for part in parts), min(part.high for part in parts)
            cuts = tuple(dict.fromkeys(cut for cut in cuts if low < cut < high))
            return Range(low, high, all(part.whole for part in parts), cuts)
        low, high = min(part.low for part in parts), max(part.high for part in parts)
        return Range(low, high, cuts=tuple(dict.fromkeys(cuts)))
    assert isinstance(condition, Compare)
    left, right, op = condition.left, condition.right, condition.op
    if is_independent_of(left, key):
        left, right, op = right, left, _TURNED[op]
    found = _chain(left, key)
    numbers = _numbers(right, limits)
    if found is None or not numbers or not is_independent_of(right, key):
        return Range()
    number, rises = found
    chosen = sorted({numbers[round(i * (len(numbers) - 1) / (_SAMPLE - 1))] for i in range(_SAMPLE)})
    plain = isinstance(left, Variable)
    ends = [_end(number, op, limit, rises=rises, plain=plain) for limit in chosen]
    above = (op in (">", ">=")) == rises
    rest = tuple(end for end in ends if end != (min(ends) if above else max(ends)))
    one = plain and len(chosen) == 1 and literal_value(right) is not None
    return Range(min(ends), math.inf, one, rest) if above else Range(-math.inf, max(ends), one, rest)


def _numbers(node: Node, limits: Mapping[Key, Sequence[float]]) -> list[float]:
    """The numbers that a side of a comparison may be, in order; none: anything."""
    number = literal_value(node)
    if number is not None:
        return [number]
    if isinstance(node, Variable) and node.key in limits:
        return sorted(limit for limit in limits[node.key] if math.isfinite(limit))
    return []


def _chain(node: Node, key: Key) -> tuple[Callable[[float], float], bool] | None:
    """A node as a function of one variable, and whether it rises; None: it is no chain of steps with numbers."""
    if isinstance(node, Variable):
        return ((lambda value: value), True) if node.key == key else None
    if isinstance(node, Unary):
        inner = _chain(node.operand, key)
        if inner is None:
            return None
        of, rises = inner
        return (lambda value: -of(value)), not rises
    if not isinstance(node, Binary) or node.op == "**":
        return None
    return _step(node, key)


def _step(node: Binary, key: Key) -> tuple[Callable[[float], float], bool] | None:
    by = literal_value(node.right)
    behind = by is not None
    inner, by = (_chain(node.left, key), by) if behind else (_chain(node.right, key), literal_value(node.left))
    if inner is None or by is None or not math.isfinite(by):
        return None
    of, rises = inner
    if node.op == "+":
        return (lambda value: of(value) + by), rises
    if node.op == "-":
        return ((lambda value: of(value) - by), rises) if behind else ((lambda value: by - of(value)), not rises)
    if by == 0.0 or (node.op == "/" and not behind):
        return None
    turned = rises == (by > 0.0)
    return ((lambda value: of(value) * by), turned) if node.op == "*" else ((lambda value: of(value) / by), turned)


def _end(number: Callable[[float], float], op: str, limit: float, *, rises: bool, plain: bool) -> float:
    """The last double from which on, or up to which, a comparison can be true; an infinite one: all or none."""
    if plain:
        beyond = {">": math.inf, "<": -math.inf}.get(op)
        return float(limit) if beyond is None else math.nextafter(limit, beyond)

    def holds(place: int) -> bool:
        value = number(_double(place))
        return {">": value > limit, ">=": value >= limit, "<": value < limit, "<=": value <= limit}[op]

    above = (op in (">", ">=")) == rises
    false, true = (-_MOST - 1, _MOST + 1) if above else (_MOST + 1, -_MOST - 1)
    while abs(true - false) > 1:
        middle = (true + false) // 2
        true, false = (middle, false) if holds(middle) else (true, middle)
    return math.copysign(math.inf, true) if abs(true) > _MOST else _double(true)


def _double(place: int) -> float:
    """The double at a place of all finite ones in order, of which 0 is zero."""
    value: float = struct.unpack("<d", struct.pack("<q", abs(place)))[0]
    return -value if place < 0 else value


# The place of the largest double.
_MOST: int = struct.unpack("<q", struct.pack("<d", 1.7976931348623157e308))[0]
