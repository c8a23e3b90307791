"""Values for which a condition cannot hold: no point of the domains contradicts them."""

from __future__ import annotations

import math
from dataclasses import replace
from random import Random

import numpy as np
import pytest

from expr.certify.drawn import points
from expr.certify.realistic import CASES, Case
from tocsin.expr import Binary, Number, Unary, evaluate_number
from tocsin.expr.certify import certify, margin_of, read
from tocsin.expr.certify.reach import hopeless


@pytest.mark.parametrize("case", CASES[::3], ids=lambda case: f"{case.kind}: {case.expr[:40]}")
def test_no_point_reaches_the_threshold_with_a_value_that_was_called_hopeless(case: Case) -> None:
    random, tree = Random(5), margin_of(read(case.expr))
    drawn = {(n, None): np.array([random.uniform(*ends) for _ in range(50)]) for n, ends in case.domains.items()}
    threshold = float(np.nanquantile(evaluate_number(tree, drawn), 0.7))
    limit = Number(abs(threshold)) if threshold >= 0 else Unary(Number(-threshold))
    margin = Binary("-", tree, limit)
    verdicts = {(name, None): verdict for name, verdict in certify(margin, case.domains).items()}
    domains = {(name, None): ends for name, ends in case.domains.items()}
    for key, verdict in verdicts.items():
        found = hopeless(margin, key, domains, verdicts) if verdict.proved else None
        if found is None:
            continue
        at = {
            other: np.array([random.choice(points(random, ends, [], 3)) for _ in range(60)])
            for other, ends in domains.items()
        }
        at[key] = np.array([random.choice(points(random, found, [], 3)) for _ in range(60)])
        margins = evaluate_number(margin, at)
        assert not (margins >= 0).any(), f"{key} in {found}"


def test_ends_that_are_not_stated_are_no_trouble() -> None:
    margin, domains = read("abs(x - 3) - 5 - y"), {("x", None): (-math.inf, math.inf), ("y", None): (0.0, math.inf)}
    found = certify(margin, {"x": (-math.inf, math.inf), "y": (0, math.inf)})
    interval = hopeless(margin, ("x", None), domains, {(name, None): verdict for name, verdict in found.items()})
    # |x - 3| < 5 holds in (-2, 8); doubles of 1e50 leave no certainty of less than their rounding.
    assert interval is None or (interval[0] > -2 and interval[1] < 8)


def test_roundings_along_several_variables_add_up() -> None:
    # Each step to a corner may bend the margin by as much as its verdict says.
    margin, domains = read("x + y + z"), {(name, None): (0.0, 1.0) for name in "xyz"}
    verdicts = {(name, None): verdict for name, verdict in certify(margin, dict.fromkeys("xyz", (0, 1))).items()}
    shifted = read("x + y + z - 4")
    assert hopeless(shifted, ("x", None), domains, verdicts) == (0.0, 1.0)
    rough = {key: replace(verdict, rounding=0.4) for key, verdict in verdicts.items()}
    # At best it is x - 2, and that must stay below -1.2.
    interval = hopeless(shifted, ("x", None), domains, rough)
    assert interval is not None
    assert interval[1] == pytest.approx(0.8)
