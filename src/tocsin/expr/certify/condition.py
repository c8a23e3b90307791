"""Certify a whole condition: its margin, and its truth where the margin is 0, one variable after the other."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from tocsin.errors import ExprError
from tocsin.expr.certify.certificate import Certificate, Verdict
from tocsin.expr.certify.decide import decide, name_of
from tocsin.expr.nodes import Binary, Bool, Call, Compare, Node, Number, Variable, variables, walk
from tocsin.expr.parse import parse_condition, parse_number

Domain = tuple[float, float]

_SLACK = Variable("", "slack")
_SLACKS = (0.0, 2.0**-40)


def certify(
    expr: str | Node, domains: Mapping[str, Domain] | None = None, *, only: Iterable[str] | None = None
) -> Certificate:
    """Prove, per variable, what an expression does as that variable grows.

    `expr` is a number or a condition; of a condition it is the margin by which it holds, and where that is 0 whether it
    does. `domains` has (low, high) per variable; an end may be infinite, and a variable without one may be anything
    up to 1e50. With `only`, no more than the variables named are decided.

    >>> cert = certify("ln(h/100) + 18.678*a/(257.14+a) - s > 0", {"h": (1, 100), "a": (-40, 60), "s": (-40, 60)})
    >>> {name: verdict.verdict for name, verdict in cert.items()}
    {'h': 'increasing', 'a': 'increasing', 's': 'decreasing'}
    """
    given = {name: _domain(name, ends) for name, ends in (domains or {}).items()}
    tree = read(expr) if isinstance(expr, str) else expr
    margin = margin_of(tree)
    keys = {name_of(variable.key): variable.key for variable in variables(margin)}
    known = {key: given.get(name, (-math.inf, math.inf)) for name, key in keys.items()}
    apart = not any(isinstance(node, Bool) and node.op == "or" for node in walk(tree))
    wanted = [*keys, *given] if only is None else list(only)
    verdicts = {name: decide(margin, key, known, apart=apart) for name, key in keys.items() if name in wanted}
    if _mixes(tree):
        stricter, more = margin_of(tree, _SLACK), {**known, _SLACK.key: _SLACKS}
        proved = {name: keys[name] for name, verdict in verdicts.items() if verdict.proved}
        verdicts |= {name: _truthful(decide(stricter, key, more, apart=apart)) for name, key in proved.items()}
    for name in wanted:
        verdicts.setdefault(name, Verdict("constant", "does not occur"))
    return Certificate(str(tree), {name_of(key): ends for key, ends in known.items()} | given, verdicts)


def read(text: str) -> Node:
    """The tree of a number or, if it is none, of a condition."""
    try:
        return parse_number(text)
    except ExprError:
        return parse_condition(text)


def margin_of(node: Node, slack: Node | None = None) -> Node:
    """How true a condition is, as a number: the difference of its sides, the least of `and`, the most of `or`.

    With `slack`, the margin of `>` and `<` is smaller by it.
    """
    if isinstance(node, Bool):
        return Call("min" if node.op == "and" else "max", tuple(margin_of(arg, slack) for arg in node.args))
    if not isinstance(node, Compare):
        return node
    above, below = (node.left, node.right) if node.op in (">", ">=") else (node.right, node.left)
    margin = above if below == Number(0.0) else Binary("-", above, below)
    return Binary("-", margin, slack) if slack is not None and node.op in (">", "<") else margin


def _mixes(tree: Node) -> bool:
    """Tell whether a condition has comparisons that hold at a margin of 0 and others that do not.

    Then equal margins of 0 may differ in truth, and truth has to keep the shape as well. It does if the margin has it
    for every small slack: what is true stays at 0 or above with a slack that is small enough, what is false does not.
    """
    if not isinstance(tree, Bool):
        return False
    parts: list[Node] = [tree]
    strict: set[bool] = set()
    while parts:
        part = parts.pop()
        if isinstance(part, Bool):
            parts += part.args
        elif isinstance(part, Compare):
            strict.add(part.op in (">", "<"))
    return len(strict) == 2


def _truthful(verdict: Verdict) -> Verdict:
    """What was shown of the margin with a slack; a peak of that is none of the margin itself."""
    if verdict.verdict != "refuted":
        return verdict
    proof = "where the margin is 0, it is not proved that truth has a shape"
    return Verdict("undecided", proof, help="compare with `>` and `<` only, or with `>=` and `<=` only")


def _domain(name: str, ends: Domain) -> Domain:
    try:
        low, high = (float(end) for end in ends)
    except (OverflowError, TypeError, ValueError):
        low, high = math.nan, math.nan
    if low <= high and low < math.inf and high > -math.inf:
        return low, high
    message = f"the domain of `{name}` must be (low, high) with low <= high; got {ends!r}"
    raise ExprError(message)
