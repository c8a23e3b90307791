"""Unreachable values: no point of the domains with an unreachable value makes the condition true."""

from __future__ import annotations

import math
from dataclasses import replace
from random import Random

import numpy as np
import pytest

from expr.certify.random_expressions import draw_points
from expr.certify.realistic_functions import CASES, Case
from tocsin.expr import Binary, Number, Unary, evaluate_number
from tocsin.expr.certify import build_margin, certify, parse_expression
from tocsin.expr.certify.unreachable_values import find_unreachable_values


@pytest.mark.parametrize("case", CASES[::3], ids=lambda case: f"{case.kind}: {case.expr[:40]}")
def test_condition_is_false_when_value_is_unreachable(case: Case) -> None:
    random, tree = Random(5), build_margin(parse_expression(case.expr))
    drawn = {(n, None): np.array([random.uniform(*ends) for _ in range(50)]) for n, ends in case.domains.items()}
    threshold = float(np.nanquantile(evaluate_number(tree, drawn), 0.7))
    limit = Number(abs(threshold)) if threshold >= 0 else Unary(Number(-threshold))
    margin = Binary("-", tree, limit)
    verdicts = {(name, None): verdict for name, verdict in certify(margin, case.domains).items()}
    domains = {(name, None): ends for name, ends in case.domains.items()}
    for key, verdict in verdicts.items():
        found = find_unreachable_values(margin, key, domains, verdicts) if verdict.proved else None
        if found is None:
            continue
        at = {
            other: np.array([random.choice(draw_points(random, ends, [], 3)) for _ in range(60)])
            for other, ends in domains.items()
        }
        at[key] = np.array([random.choice(draw_points(random, found, [], 3)) for _ in range(60)])
        margins = evaluate_number(margin, at)
        assert not (margins >= 0).any(), f"{key} in {found}"


def test_unreachable_values_are_safe_when_domains_are_infinite() -> None:
    margin, domains = (
        parse_expression("abs(x - 3) - 5 - y"),
        {("x", None): (-math.inf, math.inf), ("y", None): (0.0, math.inf)},
    )
    found = certify(margin, {"x": (-math.inf, math.inf), "y": (0, math.inf)})
    interval = find_unreachable_values(
        margin, ("x", None), domains, {(name, None): verdict for name, verdict in found.items()}
    )
    # |x - 3| < 5 is true in (-2, 8). Doubles near 1e50 have a large rounding error, so the interval may be smaller.
    assert interval is None or (interval[0] > -2 and interval[1] < 8)


def test_unreachable_values_subtract_sum_of_roundings() -> None:
    # Each step to a corner may change the margin by the rounding of its verdict.
    margin, domains = parse_expression("x + y + z"), {(name, None): (0.0, 1.0) for name in "xyz"}
    verdicts = {(name, None): verdict for name, verdict in certify(margin, dict.fromkeys("xyz", (0, 1))).items()}
    shifted = parse_expression("x + y + z - 4")
    assert find_unreachable_values(shifted, ("x", None), domains, verdicts) == (0.0, 1.0)
    rough = {key: replace(verdict, rounding=0.4) for key, verdict in verdicts.items()}
    # The best case is x - 2, which must stay below -1.2.
    interval = find_unreachable_values(shifted, ("x", None), domains, rough)
    assert interval is not None
    assert interval[1] == pytest.approx(0.8)
