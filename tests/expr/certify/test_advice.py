"""What is advised where nothing is proved: which variable to bound, or that no bound helps."""

from __future__ import annotations

import pytest

from tocsin.expr.certify import certify

BAND = "no narrower domain helps: it is true in a band whose place depends on the other variables"


@pytest.mark.parametrize(
    ("expr", "variable", "help_"),
    [
        (
            "vib / load > limit",
            "load",
            "declare a domain of `load` away from 0, or multiply out: `vib > limit * load` for `vib / load > limit`, "
            "where `load` is never negative",
        ),
        (
            "vib / (load - 3) > limit",
            "load",
            "declare a domain of `load` that keeps `load - 3` away from 0, or multiply out: `a > limit * b` for "
            "`a / b > limit`, where `b` is never negative",
        ),
        ("ln(h / 100) > 2", "h", "declare a domain of `h` that keeps `h / 100` above 0"),
        ("sqrt(h) > 2", "h", "declare a domain of `h` that keeps `h` at 0 or above"),
        ("exp(h) > 2", "h", "declare a domain of `h` on which it is defined and finite"),
    ],
)
def test_what_is_not_defined_names_the_variable_to_bound(expr: str, variable: str, help_: str) -> None:
    assert certify(expr, {"vib": (1, 2), "limit": (0, 1)})[variable].help == help_


@pytest.mark.parametrize("expr", ["abs(a - b) < 5", "((a - b)**2 + (c - d)**2)**0.5 < 5", "a > b and a < b + 5"])
def test_a_band_that_moves_with_the_others_is_not_helped_by_a_narrower_domain(expr: str) -> None:
    verdict = certify(expr, dict.fromkeys("abcd", (0, 100)))["a"]
    assert (verdict.verdict, verdict.help) == ("refuted", BAND)


@pytest.mark.parametrize("expr", ["h*(10 - h) > b", "h > 3 and h < 5", "abs(h - 4) < b", "sin(20*h) > b"])
def test_a_band_that_stays_where_it_is_ends_with_a_narrower_domain(expr: str) -> None:
    verdict = certify(expr, {"h": (0, 10), "b": (0, 1)})["h"]
    help_ = "declare a narrower domain of `h`, one that ends before it falls again"
    assert (verdict.verdict, verdict.help) == ("refuted", help_)
