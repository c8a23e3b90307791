"""Certificates: verdicts of random expressions agree with the oracle and with double precision."""

from __future__ import annotations

import itertools
import math
import re
from fractions import Fraction
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from expr.certify.contradictions import find_contradiction
from expr.certify.random_expressions import (
    NAMES,
    Domains,
    draw_condition,
    draw_domains,
    draw_number,
    draw_points,
    find_literals,
    find_names,
)
from expr.expression_trees import Tree, build
from naive import exact
from tests.example_counts import examples
from tocsin.errors import ExprError
from tocsin.expr.certify import certify

# Fewer examples: each needs two certificates, or many points of one certificate.
FEWER = examples(33)

randoms = st.builds(Random, st.integers(0, 2**32 - 1))


def _draw_question(random: Random) -> tuple[Tree, Domains]:
    names = NAMES[: random.choice((1, 2, 2, 3))]
    return draw_number(random, random.choice((2, 2, 3)), names), draw_domains(random, names)


@given(randoms)
def test_no_exact_or_double_result_contradicts_a_verdict(random: Random) -> None:
    tree, given_domains = _draw_question(random)
    for name, verdict in certify(build(tree), given_domains).items():
        if name in find_names(tree):
            problem = find_contradiction(random, tree, name, verdict, given_domains, slices=2, count=6)
            assert not problem, f"{name} {verdict.verdict} ({verdict.proof}): {build(tree)}, {given_domains}: {problem}"


def _renamed(tree: Tree, names: dict[str, str]) -> Tree:
    if tree[0] == "var":
        return ("var", names[tree[1]], tree[2])
    return tuple(_renamed(part, names) if isinstance(part, tuple) else part for part in tree)


OTHER_NAMES = (("x0", "x1", "x2", "x3"), ("k!0", "v0", "slack", "0"), ("part", "y!1", "If", "r"), ("z", "w", "x", "y"))


@FEWER
@given(randoms, st.sampled_from(OTHER_NAMES))
def test_verdict_does_not_depend_on_names_or_order_of_domains(random: Random, others: tuple[str, ...]) -> None:
    tree, given_domains = _draw_question(random)
    names = dict(zip(NAMES, others, strict=True))
    renamed = {names[name]: given_domains[name] for name in reversed(given_domains)}
    before, after = certify(build(tree), given_domains), certify(build(_renamed(tree, names)), renamed)
    for name, verdict in before.items():
        assert after[names[name]].verdict == verdict.verdict
        assert after[names[name]].rounding == verdict.rounding


@FEWER
@given(randoms)
def test_certificate_is_reproducible(random: Random) -> None:
    tree, given_domains = _draw_question(random)
    assert certify(build(tree), given_domains).to_dict() == certify(build(tree), given_domains).to_dict()


def _margin(tree: Tree, values: exact.Values) -> Fraction | float:
    """Return the margin as defined by the semantics: -inf if a side of a comparison is undefined."""
    if tree[0] in ("and", "or"):
        margins = [_margin(part, values) for part in tree[1:]]
        return min(margins) if tree[0] == "and" else max(margins)
    try:
        left, right = exact.number(tree[1], values), exact.number(tree[2], values)
    except exact.Undefined:
        return -math.inf
    if left.err or right.err:
        raise exact.Unsure
    return left.mid - right.mid if tree[0] in (">", ">=") else right.mid - left.mid


def _result(tree: Tree, values: exact.Values) -> tuple[Fraction | float, bool] | None:
    try:
        return _margin(tree, values), exact.truth(tree, values)
    except exact.Unsure:
        return None


INTEGERS = (0.0, 1.0, 2.0, 3.0)


def _draw_tied_number(random: Random, depth: int) -> Tree:
    """Return an expression of small integers, which often has equal results."""
    if depth == 0 or random.random() < 0.2:
        return ("var", random.choice(("x", "y")), None) if random.random() < 0.6 else ("num", random.choice(INTEGERS))
    parts = _draw_tied_number(random, depth - 1), _draw_tied_number(random, depth - 1)
    kind = random.choice(("+", "-", "-", "*", "/", "min", "max", "min", "max", "abs", "floor"))
    if kind in "+-*/":
        return kind, *parts
    return ("call", kind, *parts) if kind in ("min", "max") else ("call", kind, parts[0])


def _draw_tied_condition(random: Random, depth: int) -> Tree:
    if depth and random.random() < 0.8:
        return (
            random.choice(("and", "or")),
            _draw_tied_condition(random, depth - 1),
            _draw_tied_condition(random, depth - 1),
        )
    return random.choice((">", ">=", "<", "<=")), _draw_tied_number(random, 2), _draw_tied_number(random, 1)


def _contradicts(word: str, results: list[tuple[Fraction | float, bool]]) -> bool:
    """Return whether results contradict a shape. Results are ordered by margin, then by truth."""
    pairs = list(itertools.pairwise(results))
    rises, falls = any(a < b for a, b in pairs), any(a > b for a, b in pairs)
    if word in ("increasing", "decreasing", "constant"):
        return (falls and word != "decreasing") or (rises and word != "increasing")
    return any(results[i] > min(results[:i]) and results[i] > min(results[i + 1 :]) for i in range(1, len(results) - 1))


@FEWER
@given(randoms)
def test_truth_has_the_proved_shape_when_margin_is_zero(random: Random) -> None:
    tree = _draw_tied_condition(random, 2)
    given_domains = {"x": (-2.0, 3.0), "y": random.choice(((-1.0, 2.0), (1.0, 3.0), (0.0, 0.0)))}
    for name, verdict in certify(build(tree), given_domains).items():
        other = "y" if name == "x" else "x"
        for _ in range(6 * verdict.proved):
            y = random.choice([value for value in (-1.0, 0.0, 0.5, 1.0, 2.0) if _inside(value, given_domains[other])])
            xs = [n / 4 for n in range(-8, 13) if _inside(n / 4, given_domains[name])]
            found = [_result(tree, {(name, None): x, (other, None): y}) for x in xs]
            results = [result for result in found if result is not None]
            assert not _contradicts(verdict.verdict, results), f"{build(tree)}, {name} {verdict}, {other} = {y}"


def _inside(value: float, domain: tuple[float, float]) -> bool:
    return domain[0] <= value <= domain[1]


@given(randoms)
def test_no_exact_result_contradicts_a_verdict_of_a_condition(random: Random) -> None:
    tree, given_domains = draw_condition(random, 2, NAMES[:2]), draw_domains(random, NAMES[:2])
    for name, verdict in certify(build(tree), given_domains).items():
        if not verdict.proved or name not in find_names(tree):
            continue
        at = {
            (n, None): random.choice(draw_points(random, given_domains[n], find_literals(tree), 2)) for n in NAMES[:2]
        }
        xs = draw_points(random, given_domains[name], find_literals(tree), 6)
        found = [_result(tree, {**at, (name, None): x}) for x in xs]
        results = [result for result in found if result is not None]
        # Only exact margins are compared. Another test compares results in double precision.
        assert not _contradicts(verdict.verdict, results), f"{build(tree)}, {given_domains}, {name} {verdict}, {at}"


@pytest.mark.parametrize("ends", [(1, 0), (math.nan, 1), (math.inf, math.inf), (0,), "x", None, (10**400, 10**401)])
def test_certify_rejects_invalid_domain(ends: object) -> None:
    with pytest.raises(ExprError, match="domain of `x`"):
        certify("x", {"x": ends})  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("expr", "domain", "text"),
    [
        ("x", (0, 1), "increasing, proved by identity; exact in floating point"),
        ("y", (0, 1), "constant, proved by absence from the expression"),
        ("x + y", (3, 3), "constant, proved by a domain with one value"),
        ("abs(x) - y", (0, 1), "increasing, proved by composition of -, abs; exact in floating point"),
        ("exp(x)", (0, 1), r"increasing, proved by composition of exp; rounding error at most \de-1\d"),
        ("x/(x + 2)", (0, 1), r"increasing, proved by interval slopes on 1 box; rounding error at most \de-1\d"),
        (
            "where(x <= 100, 0.2*x, 20 + 0.01*(x - 100))",
            (0, 1000),
            r"increasing, proved by SMT solver with decimal literals; rounding error at most \de-1\d",
        ),
        ("x*(1 - x)", (0, 1), r"refuted: higher at 0\.5 than at 0 and 1"),
        ("x*(1 - x) + y", (0, 1), r"refuted: higher at 0\.5 than at 0 and 1, for y = \S+"),
        ("1/x", (0, 1), r"undecided: `1 / x` may be undefined or infinite for x in \[0, \S+\]"),
    ],
)
def test_verdict_text_states_proof_or_reason(expr: str, domain: tuple[float, float], text: str) -> None:
    found = certify(expr, {"x": domain, "y": (0, 1)}, only=["x"])
    assert re.fullmatch(text, str(found["x"]))
    assert str(found) == f"x  {found['x']}"
