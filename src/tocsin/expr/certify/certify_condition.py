"""Certification of a condition: certify its margin, and its truth where the margin is 0, for each variable."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from tocsin.errors import ExprError
from tocsin.expr.certify.certificate import Certificate, Verdict
from tocsin.expr.certify.certify_variable import certify_variable
from tocsin.expr.certify.domain_boxes import Domain
from tocsin.expr.parser import parse_condition, parse_number
from tocsin.expr.syntax_tree import (
    Binary,
    Bool,
    Call,
    Compare,
    Node,
    Number,
    Variable,
    find_variables,
    format_variable,
    walk_nodes,
)

_SLACK = Variable("", "slack")
_SLACK_DOMAIN = (0.0, 2.0**-40)


def certify(
    expr: str | Node, domains: Mapping[str, Domain] | None = None, *, only: Iterable[str] | None = None
) -> Certificate:
    """Prove for each variable how an expression changes while that variable increases.

    Parameters
    ----------
    expr
        A number or a condition. For a condition, the proofs are about its margin (left minus right side of `>`), and
        about its truth where the margin is 0.
    domains
        Lowest and highest value of each variable; infinite by default. An infinite end counts as 1e50.
    only
        The variables to certify; all variables by default.

    Examples
    --------
    >>> cert = certify("ln(h/100) + 18.678*a/(257.14+a) - s > 0", {"h": (1, 100), "a": (-40, 60), "s": (-40, 60)})
    >>> {name: verdict.verdict for name, verdict in cert.items()}
    {'h': 'increasing', 'a': 'increasing', 's': 'decreasing'}
    """
    declared = {name: _check_domain(name, ends) for name, ends in (domains or {}).items()}
    tree = parse_expression(expr) if isinstance(expr, str) else expr
    margin = build_margin(tree)
    keys = {format_variable(variable.key): variable.key for variable in find_variables(margin)}
    known = {key: declared.get(name, (-math.inf, math.inf)) for name, key in keys.items()}
    propagates = not any(isinstance(node, Bool) and node.op == "or" for node in walk_nodes(tree))
    names = [*keys, *declared] if only is None else list(only)
    verdicts = {
        name: certify_variable(margin, key, known, undefined_propagates=propagates)
        for name, key in keys.items()
        if name in names
    }
    if _mixes_strictness(tree):
        stricter, with_slack = build_margin(tree, _SLACK), {**known, _SLACK.key: _SLACK_DOMAIN}
        for name in [name for name, verdict in verdicts.items() if verdict.proved]:
            verdict = certify_variable(stricter, keys[name], with_slack, undefined_propagates=propagates)
            verdicts[name] = _truth_verdict(verdict)
    for name in names:
        verdicts.setdefault(name, Verdict("constant", "absence from the expression"))
    all_domains = {format_variable(key): ends for key, ends in known.items()} | declared
    return Certificate(str(tree), all_domains, verdicts)


def parse_expression(text: str) -> Node:
    """Parse a number or a condition."""
    try:
        return parse_number(text)
    except ExprError:
        return parse_condition(text)


def build_margin(node: Node, slack: Node | None = None) -> Node:
    """Return the margin of a condition as a number, or the number itself.

    The margin of a comparison is the difference of its sides. The margin of `and` is the smallest margin of its parts,
    the margin of `or` the largest. With `slack`, the margins of `>` and `<` are reduced by the slack.
    """
    if isinstance(node, Bool):
        return Call("min" if node.op == "and" else "max", tuple(build_margin(arg, slack) for arg in node.args))
    if not isinstance(node, Compare):
        return node
    above, below = (node.left, node.right) if node.op in (">", ">=") else (node.right, node.left)
    margin = above if below == Number(0.0) else Binary("-", above, below)
    return Binary("-", margin, slack) if slack is not None and node.op in (">", "<") else margin


def _mixes_strictness(tree: Node) -> bool:
    """Return whether a condition contains strict (`>`, `<`) and non-strict (`>=`, `<=`) comparisons.

    This condition can be true or false if its margin is 0, so its truth needs a proof, too. The proof uses a small
    slack: a condition is true if and only if its margin with slack is at least 0 for each sufficiently small slack. So
    truth has every shape that the margin has for all small slacks.
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


def _truth_verdict(verdict: Verdict) -> Verdict:
    """Return the verdict of a margin with slack. A counterexample with slack does not refute the margin itself."""
    if verdict.verdict != "refuted":
        return verdict
    reason = "no shape is proved for the truth of the condition where its margin is 0"
    return Verdict("undecided", reason, help="use only `>` and `<`, or only `>=` and `<=`")


def _check_domain(name: str, ends: Domain) -> Domain:
    try:
        low, high = (float(end) for end in ends)
    except (OverflowError, TypeError, ValueError):
        low, high = math.nan, math.nan
    if low <= high and low < math.inf and high > -math.inf:
        return low, high
    message = f"the domain of `{name}` must be (low, high) with low <= high; got {ends!r}"
    raise ExprError(message)
