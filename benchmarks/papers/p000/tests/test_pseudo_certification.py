"""Pseudo-certification: the mistakes of the check by a grid that proofs avoid."""

from __future__ import annotations

from benchmarks.papers.p000.pseudo_certification import pseudo_certify
from tocsin.expr.certify import parse_expression


def test_grid_misses_a_spike_between_its_points() -> None:
    tree = parse_expression("x + 5*max(0, 1 - 1000000*abs(x - 37.123))")
    assert pseudo_certify(tree, ("x", None), {("x", None): (0.0, 100.0)}, 11) == "increasing"


def test_grid_reports_a_peak_when_only_rounding_varies() -> None:
    # In exact arithmetic the expression is 0.
    assert pseudo_certify(parse_expression("x/3*3 - x"), ("x", None), {("x", None): (1.0, 5.0)}, 1001) == "refuted"
