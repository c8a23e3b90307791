"""Prove: a stated shape is believed unless it is refuted, on the whole domain or on a piece of it."""

from __future__ import annotations

from typing import Any

import pytest

from tocsin.errors import RuleError
from tocsin.plan import make_plan
from tocsin.rules.model import Rule

COLUMNS = {"hum": ["k", "ts", "value"], "air": ["k", "ts", "value"]}
WET = "ln(hum/100) + air/10 > 0"
DOMAINS = {"hum": (0, 100), "air": (-40, 60)}


def _store_of_hum(expr: str, shape: str, domains: dict[str, Any]) -> str:
    rule = Rule("x", expr, within="10s", on="k", shapes={"hum": shape}, domains=domains)
    (store,) = [store for store in make_plan(rule, COLUMNS).watches[0].stores if store.stream == "hum"]
    return str(store)


# ln(hum/100) rises wherever it is defined, which is everywhere but at 0; 10/hum falls on both sides of 0.
@pytest.mark.parametrize(
    ("expr", "shape", "domains"),
    [
        (WET, "decreasing", DOMAINS),
        (WET, "decreasing", {"hum": (0, 100)}),
        ("10/hum + air > 0", "increasing", {"hum": (-10, 10)}),
        ("air - ln(hum/100) > 0", "increasing", DOMAINS),
        # A hill at 50 beside a logarithm: it falls from 75 to 100, so it has no shape at all.
        ("0*ln(hum/100) - (hum - 50)**2 + air > 0", "increasing", DOMAINS),
    ],
)
def test_a_shape_that_is_false_wherever_the_condition_is_defined_is_refused(
    expr: str, shape: str, domains: dict[str, Any]
) -> None:
    with pytest.raises(RuleError, match=f"`shapes` must be true for `expr`; `expr` is not {shape} in `hum.value`: "):
        _store_of_hum(expr, shape, domains)


@pytest.mark.parametrize(
    ("expr", "shape", "domains", "kept"),
    [
        (WET, "increasing", DOMAINS, "the maximum in every 20s window"),
        # What is not declared may lie where the user knows that it falls.
        (WET, "decreasing", {"air": (-40, 60)}, "the minimum in every 20s window"),
        # It never falls on any quarter of the domain, because it does not move there: that refutes nothing.
        ("0*ln(hum/100) + max(hum - air + air, 140) > 0", "decreasing", DOMAINS, "the minimum in every 20s window"),
    ],
)
def test_a_shape_that_nothing_refutes_is_believed(expr: str, shape: str, domains: dict[str, Any], kept: str) -> None:
    assert kept in _store_of_hum(expr, shape, domains)


@pytest.mark.parametrize("name", ["hum", "hum.value"])
def test_a_variable_may_be_named_as_the_plan_names_it(name: str) -> None:
    rule = Rule("x", "hum - air > 0", within="10s", on="k", domains={name: (0, 9)}, shapes={name: "increasing"},
                tolerance={name: 0.5})  # fmt: skip
    (store,) = [store for store in make_plan(rule, COLUMNS).watches[0].stores if store.stream == "hum"]
    assert (store.domains, store.tolerance, store.whole) == (((0.0, 9.0),), 0.5, False)


def test_a_variable_that_is_named_in_both_ways_is_refused() -> None:
    both = {"hum": "increasing", "hum.value": "increasing"}
    rule = Rule("x", "hum - air > 0", within="10s", on="k", shapes=both)
    with pytest.raises(
        RuleError, match=r"`shapes` must name each variable once; it names `hum` twice; got 'hum\.value'"
    ):
        make_plan(rule, COLUMNS)


def test_help_follows_its_reason_as_a_clause_of_its_own() -> None:
    rule = Rule("x", "air/hum > 1", within="10s", on="k", domains=DOMAINS)
    lines = str(make_plan(rule, COLUMNS)).splitlines()
    assert any("; declare a domain of `hum.value` without 0, or, if " in line for line in lines)
    assert not any("; try " in line for line in lines)
