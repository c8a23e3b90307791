"""Random expressions: strategies for expressions as nested tuples (the form of `naive.expr`) and for their values."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import strategies as st

from tocsin.expr import Binary, Bool, Call, Compare, Node, Number, Unary, Variable

Tree = tuple[Any, ...]

# Functions with the same result in all libraries, and functions whose last digits differ between libraries.
EXACT = ("sqrt", "abs", "floor", "ceil")
ROUNDED = ("ln", "log10", "exp", "sin", "cos", "tanh")
VARIABLES = (("a", None), ("a", "x"), ("b", "x"), ("c", None))

HARD = (
    *(0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, 100.0, 709.78, 710.0, -745.2, 2.0**53, -(2.0**63), 1e19),
    *(5e-324, -5e-324, 2.2250738585072014e-308, 1e-300, 1e154, -1e155, 1e300, 1.7976931348623157e308),
    *(-1.7976931348623157e308, math.nan, math.inf, -math.inf),
)
values = st.sampled_from(HARD) | st.floats() | st.integers(-20, 20).map(float)
rows = st.fixed_dictionaries({key: values for key in VARIABLES})

_numbers = st.sampled_from([value for value in HARD if math.isfinite(value)]) | st.floats(0, 1000)
_leaves = st.one_of(
    _numbers.map(lambda value: ("num", abs(value))),
    st.sampled_from(VARIABLES).map(lambda key: ("var", *key)),
)


def numbers(functions: tuple[str, ...] = EXACT, arithmetic: str = "+-*/") -> st.SearchStrategy[Tree]:
    """Return a strategy for expressions that are numbers."""
    return st.recursive(_leaves, lambda part: _bigger(part, functions, tuple(arithmetic)), max_leaves=8)


def conditions(functions: tuple[str, ...] = EXACT, arithmetic: str = "+-*/") -> st.SearchStrategy[Tree]:
    """Return a strategy for conditions, some of them with `and` and `or`."""
    return st.recursive(_comparisons(numbers(functions, arithmetic)), _junctions, max_leaves=4)


def build(tree: Tree) -> Node:
    """Return the syntax tree of nested tuples."""
    kind = tree[0]
    if kind == "num":
        return Number(tree[1])
    if kind == "var":
        return Variable(tree[1], tree[2])
    if kind == "neg":
        return Unary(build(tree[1]))
    if kind == "call":
        return Call(tree[1], tuple(build(part) for part in tree[2:]))
    if kind in ("and", "or"):
        return Bool(kind, tuple(build(part) for part in tree[1:]))
    joined = Binary if kind in ("+", "-", "*", "/", "**") else Compare
    return joined(kind, build(tree[1]), build(tree[2]))


def same(found: float, expected: float, ulps: int = 0) -> bool:
    """Return whether results are equal within `ulps`. NaN equals NaN, and 0.0 equals -0.0."""
    if math.isnan(found) or math.isnan(expected):
        return math.isnan(found) and math.isnan(expected)
    return found == expected or abs(found - expected) <= ulps * math.ulp(expected)


def _comparisons(part: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
    return st.tuples(st.sampled_from([">", ">=", "<", "<="]), part, part)


def _junctions(part: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
    words = st.sampled_from(["and", "or"])
    return st.builds(lambda word, parts: (word, *parts), words, st.lists(part, min_size=2, max_size=3))


def _bigger(
    part: st.SearchStrategy[Tree], functions: tuple[str, ...], arithmetic: tuple[str, ...]
) -> st.SearchStrategy[Tree]:
    several = st.lists(part, min_size=2, max_size=3)
    return st.one_of(
        st.tuples(st.just("neg"), part),
        st.tuples(st.sampled_from(arithmetic), part, part),
        st.tuples(st.just("call"), st.sampled_from(functions), part),
        st.builds(lambda name, parts: ("call", name, *parts), st.sampled_from(["min", "max"]), several),
        st.tuples(st.just("call"), st.just("where"), _comparisons(part), part, part),
    )
