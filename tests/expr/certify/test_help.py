"""Help texts: the hint of a verdict without proof names the variable to restrict, or states that this does not help."""

from __future__ import annotations

import pytest

from tocsin.expr.certify import certify

BAND = "a narrower domain does not help: the position of the peak depends on the other variables"


@pytest.mark.parametrize(
    ("expr", "variable", "help_"),
    [
        (
            "vib / load > limit",
            "load",
            "declare a domain of `load` without 0, or, if `load` is never negative, write "
            "`vib > limit * load` instead of `vib / load > limit`",
        ),
        (
            "vib / (load - 3) > limit",
            "load",
            "declare a domain of `load` in which `load - 3` is not 0, or, if `b` is never negative, write "
            "`a > limit * b` instead of `a / b > limit`",
        ),
        ("ln(h / 100) > 2", "h", "declare a domain of `h` in which `h / 100` is above 0"),
        ("sqrt(h) > 2", "h", "declare a domain of `h` in which `h` is not negative"),
        ("exp(h) > 2", "h", "declare a domain of `h` in which the expression is defined and finite"),
    ],
)
def test_help_names_variable_to_restrict_when_part_may_be_undefined(expr: str, variable: str, help_: str) -> None:
    assert certify(expr, {"vib": (1, 2), "limit": (0, 1)})[variable].help == help_


@pytest.mark.parametrize("expr", ["abs(a - b) < 5", "((a - b)**2 + (c - d)**2)**0.5 < 5", "a > b and a < b + 5"])
def test_help_excludes_narrower_domain_when_peak_moves_with_other_variables(expr: str) -> None:
    verdict = certify(expr, dict.fromkeys("abcd", (0, 100)))["a"]
    assert (verdict.verdict, verdict.help) == ("refuted", BAND)


@pytest.mark.parametrize("expr", ["h*(10 - h) > b", "h > 3 and h < 5", "abs(h - 4) < b", "sin(20*h) > b"])
def test_help_suggests_narrower_domain_when_peak_does_not_move(expr: str) -> None:
    verdict = certify(expr, {"h": (0, 10), "b": (0, 1)})["h"]
    help_ = "declare a narrower domain of `h` that ends before the expression decreases again"
    assert (verdict.verdict, verdict.help) == ("refuted", help_)
