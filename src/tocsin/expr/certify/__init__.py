"""Certify: prove what an expression does along each variable, or show that it does not.

`certify` is the door. Per variable: definedness and finiteness by intervals (boxes.py), rules of composition
(shapes.py), a search for counterexamples that exact arithmetic confirms (refute.py, exact.py), branch and bound on
slopes (jets.py, search.py) and a solver for algebraic expressions (solve.py). What rounding may do to a proof is
bounded (rounding.py).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from tocsin.errors import ExprError
from tocsin.expr.certify.certificate import PROVED, VERDICTS, Certificate, Verdict
from tocsin.expr.certify.decide import decide, name_of
from tocsin.expr.nodes import Binary, Bool, Call, Compare, Node, Number, variables
from tocsin.expr.parse import parse_condition, parse_number

__all__ = ["Certificate", "PROVED", "VERDICTS", "Verdict", "certify", "decide", "margin_of"]

Domain = tuple[float, float]


def certify(expr: str | Node, domains: Mapping[str, Domain] | None = None) -> Certificate:
    """Prove, per variable, what an expression does as that variable grows.

    `expr` is a number or a condition; of a condition it is the margin by which it holds. `domains` has (low, high) per
    variable; an end may be infinite, and a variable without a domain may be anything up to 1e50.

    >>> cert = certify("ln(h/100) + 18.678*a/(257.14+a) - s > 0", {"h": (1, 100), "a": (-40, 60), "s": (-40, 60)})
    >>> {name: verdict.verdict for name, verdict in cert.items()}
    {'h': 'increasing', 'a': 'increasing', 's': 'decreasing'}
    """
    given = {name: _domain(name, ends) for name, ends in (domains or {}).items()}
    tree = _read(expr) if isinstance(expr, str) else expr
    margin = margin_of(tree)
    keys = {name_of(variable.key): variable.key for variable in variables(margin)}
    known = {key: given.get(name, (-math.inf, math.inf)) for name, key in keys.items()}
    verdicts = {name: decide(margin, key, known) for name, key in keys.items()}
    for name in given:
        verdicts.setdefault(name, Verdict("constant", "does not occur"))
    return Certificate(str(tree), {name_of(key): ends for key, ends in known.items()} | given, verdicts)


def _read(text: str) -> Node:
    try:
        return parse_number(text)
    except ExprError:
        return parse_condition(text)


def margin_of(node: Node) -> Node:
    """How true a condition is, as a number: the difference of its sides, the least of `and`, the most of `or`."""
    if isinstance(node, Bool):
        return Call("min" if node.op == "and" else "max", tuple(margin_of(arg) for arg in node.args))
    if not isinstance(node, Compare):
        return node
    above, below = (node.left, node.right) if node.op in (">", ">=") else (node.right, node.left)
    return above if below == Number(0.0) else Binary("-", above, below)


def _domain(name: str, ends: Domain) -> Domain:
    try:
        low, high = (float(end) for end in ends)
    except (TypeError, ValueError):
        low, high = math.nan, math.nan
    if low <= high and low < math.inf and high > -math.inf:
        return low, high
    message = f"the domain of `{name}` must be (low, high) with low <= high; got {ends!r}"
    raise ExprError(message)
