"""Certificates of random expressions against the oracle and the machine."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from expr.certify.contradict import contradiction
from expr.certify.drawn import NAMES, Domains, condition_tree, domains, literals_of, names_of, number_tree, points
from expr.trees import Tree, build
from naive import exact
from tocsin.errors import ExprError
from tocsin.expr.certify import certify

# Two certificates, or many points of one, for each example.
FEWER = settings.default.max_examples // 3

randoms = st.builds(Random, st.integers(0, 2**32 - 1))


def _question(random: Random) -> tuple[Tree, Domains]:
    names = NAMES[: random.choice((1, 2, 2, 3))]
    return number_tree(random, random.choice((2, 2, 3)), names), domains(random, names)


@given(randoms)
def test_no_verdict_is_contradicted_by_exact_values_or_by_the_machine(random: Random) -> None:
    tree, given_domains = _question(random)
    for name, verdict in certify(build(tree), given_domains).items():
        if name in names_of(tree):
            wrong = contradiction(random, tree, name, verdict, given_domains, slices=2, count=6)
            assert not wrong, f"{name} {verdict.verdict} ({verdict.proof}): {build(tree)}, {given_domains}: {wrong}"


def _renamed(tree: Tree, names: dict[str, str]) -> Tree:
    if tree[0] == "var":
        return ("var", names[tree[1]], tree[2])
    return tuple(_renamed(part, names) if isinstance(part, tuple) else part for part in tree)


HOSTILE = (("x0", "x1", "x2", "x3"), ("k!0", "v0", "slack", "0"), ("part", "y!1", "If", "r"), ("z", "w", "x", "y"))


@settings(max_examples=FEWER)
@given(randoms, st.sampled_from(HOSTILE))
def test_names_of_streams_and_the_order_of_domains_change_nothing(random: Random, others: tuple[str, ...]) -> None:
    tree, given_domains = _question(random)
    names = dict(zip(NAMES, others, strict=True))
    renamed = {names[name]: given_domains[name] for name in reversed(given_domains)}
    before, after = certify(build(tree), given_domains), certify(build(_renamed(tree, names)), renamed)
    for name, verdict in before.items():
        assert after[names[name]].verdict == verdict.verdict
        assert after[names[name]].rounding == verdict.rounding


@settings(max_examples=FEWER)
@given(randoms)
def test_a_verdict_is_the_same_every_time(random: Random) -> None:
    tree, given_domains = _question(random)
    assert certify(build(tree), given_domains).to_dict() == certify(build(tree), given_domains).to_dict()


def _margin(tree: Tree, values: exact.Values) -> Fraction | float:
    """The margin as the semantics defines it: -inf of a comparison with a side that is not defined."""
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


WHOLE = (0.0, 1.0, 2.0, 3.0)


def _flat_tree(random: Random, depth: int) -> Tree:
    """An expression of whole numbers with many ties."""
    if depth == 0 or random.random() < 0.2:
        return ("var", random.choice(("x", "y")), None) if random.random() < 0.6 else ("num", random.choice(WHOLE))
    parts = _flat_tree(random, depth - 1), _flat_tree(random, depth - 1)
    kind = random.choice(("+", "-", "-", "*", "/", "min", "max", "min", "max", "abs", "floor"))
    if kind in "+-*/":
        return kind, *parts
    return ("call", kind, *parts) if kind in ("min", "max") else ("call", kind, parts[0])


def _flat_test(random: Random, depth: int) -> Tree:
    if depth and random.random() < 0.8:
        return random.choice(("and", "or")), _flat_test(random, depth - 1), _flat_test(random, depth - 1)
    return random.choice((">", ">=", "<", "<=")), _flat_tree(random, 2), _flat_tree(random, 1)


def _contradicts(word: str, results: list[tuple[Fraction | float, bool]]) -> bool:
    """Order results by margin, true above false, and compare them with a shape."""
    pairs = list(itertools.pairwise(results))
    rises, falls = any(a < b for a, b in pairs), any(a > b for a, b in pairs)
    if word in ("increasing", "decreasing", "constant"):
        return (falls and word != "decreasing") or (rises and word != "increasing")
    return any(results[i] > min(results[:i]) and results[i] > min(results[i + 1 :]) for i in range(1, len(results) - 1))


@settings(max_examples=FEWER)
@given(randoms)
def test_truth_keeps_the_shape_of_a_condition_too_where_the_margin_is_zero(random: Random) -> None:
    tree = _flat_test(random, 2)
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
def test_a_condition_is_never_contradicted_either(random: Random) -> None:
    tree, given_domains = condition_tree(random, 2, NAMES[:2]), domains(random, NAMES[:2])
    for name, verdict in certify(build(tree), given_domains).items():
        if not verdict.proved or name not in names_of(tree):
            continue
        at = {(n, None): random.choice(points(random, given_domains[n], literals_of(tree), 2)) for n in NAMES[:2]}
        xs = points(random, given_domains[name], literals_of(tree), 6)
        found = [_result(tree, {**at, (name, None): x}) for x in xs]
        results = [result for result in found if result is not None]
        # Where the margin is not exact, or tiny, only doubles count, and they are compared elsewhere.
        assert not _contradicts(verdict.verdict, results), f"{build(tree)}, {given_domains}, {name} {verdict}, {at}"


@pytest.mark.parametrize("ends", [(1, 0), (math.nan, 1), (math.inf, math.inf), (0,), "x", None, (10**400, 10**401)])
def test_a_domain_that_is_none_is_refused(ends: object) -> None:
    with pytest.raises(ExprError, match="domain of `x`"):
        certify("x", {"x": ends})  # type: ignore[dict-item]
