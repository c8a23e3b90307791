"""What once broke where rows are left out: rows that come again, tolerances, state, certificates; what still does."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tocsin import Rule, RuleError
from tocsin.local import explain, run_local_detailed
from tocsin.plan import Plan, prove
from tocsin.runtime.contract import Batch, Out
from tocsin.runtime.session import Session
from tocsin.trace import KeyRows, trace, why

SECOND = 1_000_000
Row = tuple[str, int, float, float]


def table(rows: list[Row], stream: str) -> dict[str, Any]:
    mine = [(arrival, row) for arrival, row in enumerate(rows) if row[0] == stream]
    return {
        "ts": np.array([row[1] * SECOND for _, row in mine], np.int64),
        "arrival": np.array([arrival for arrival, _ in mine], np.int64),
        "x": np.array([row[2] for _, row in mine], np.float64),
        "y": np.array([row[3] for _, row in mine], np.float64),
        "k": ["k"] * len(mine),
    }


def streams_of(rows: list[Row]) -> dict[str, dict[str, Any]]:
    return {name: table(rows, name) for name in "abc"}


def lives(alerts: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(a["alert"], a["state"], a["startsAt"], a["endsAt"], a["margin"], a["quality"]) for a in alerts]


def whole(rule: Rule) -> Rule:
    """The rule with nothing left out: the definition of the answer."""
    names = [name for name in ("a.x", "a.y", "b.x", "c.x") if name in rule.expr]
    return replace(rule, shapes=dict.fromkeys(names), tolerance={})


def assert_same(rule: Rule, rows: list[Row]) -> None:
    found, full = (run_local_detailed(streams_of(rows), one, arrival="arrival") for one in (rule, whole(rule)))
    assert lives(full.alerts)
    assert lives(found.alerts) == lives(full.alerts)


# A row equal to one that is remembered changes nothing (semantics, Rows). Rows that are not compared are never left
# out, so they are remembered, and one that comes again must be known; it ended the alert that fires at its time.


def test_a_row_of_which_the_number_is_undefined_changes_nothing_when_it_comes_again() -> None:
    rule = Rule("x", "ln(a.x) + b.x > 0", within="2s", on="k", domains={"a.x": (0, 3)})
    assert "keep the maximum of ln(a.x)" in str(explain(streams_of([]), rule))
    assert_same(rule, [("b", 5, 3, 0), ("a", 5, 0, 0), ("a", 5, 2, 0), ("a", 5, 0, 0), ("b", 6, 3, 0)])


def test_a_row_outside_its_domain_changes_nothing_when_it_comes_again_where_rows_dominate_each_other() -> None:
    rule = Rule("x", "a.x*c.x - a.y + b.x > 0", within="2s", on="k", domains={"a.x": (0, 3), "c.x": (0, 3)})
    assert "keep the maximal rows of a.x and -a.y" in str(explain(streams_of([]), rule))
    rows = [("b", 5, 1, 0), ("c", 5, 1, 0), ("a", 5, -1, 5), ("a", 5, 2, 0), ("a", 5, -1, 5), ("b", 6, 1, 0)]
    assert_same(rule, rows)


# A value outside its domain excuses no other (omission, Domains). With a tolerance, 3.9 outside [0, 3] counted as equal
# to 3 at the same time, so 3, coming behind, was refused; it alone makes the alarm, of margin 2 with a cost of 1.5.


def test_a_row_outside_its_domain_stands_for_none_within_the_tolerance() -> None:
    domains = {"a.x": (0, 3), "b.x": (0, 3)}
    expr = "min(a.x, 117 - 30*a.x) - b.x > 1"
    rule = Rule("x", expr, within="2s", on="k", domains=domains, tolerance={"a.x": 1.5})
    (cost,) = [proof.split("costs at most ")[1] for proof in proofs_of(rule) if "costs" in proof]
    assert cost == "1.5 of the margin"
    assert_same(rule, [("a", 5, 3.9, 0), ("a", 6, 0, 0), ("a", 5, 3, 0), ("b", 5, 0, 0), ("b", 9, 0, 0)])


def proofs_of(rule: Rule) -> list[str]:
    return [verdict.proof for _, verdict in explain(streams_of([]), rule).watches[0].rules[0].proofs]


# The same at the end where numbers decide nothing: -4 comes from a y outside its domain, and stays (omission, Domains:
# "a value outside its domain is kept"), though -3.5 at the same time decides as little.


def test_a_row_outside_its_domain_stays_beside_one_that_decides_nothing() -> None:
    domains = {"a.x": (-3, 3), "a.y": (-3, 3), "b.x": (-3, 3)}
    rule = Rule("x", "a.x - 2*a.y + b.x > 0", within="3s", on="k", domains=domains)
    assert "cannot raise an alarm" in str(explain(streams_of([]), rule))
    counts = run_local_detailed(streams_of([("a", 5, 1.5, 2.5), ("a", 5, 3, 3.5)]), rule, arrival="arrival").counts["a"]
    assert (counts["retained"], counts["omitted"], counts["out_of_domain"]) == (2, 0, 1)


# A tolerance of 1e-310 costs at most 1e-310. All positive numbers divided by it are infinite, and counted as equal:
# 2, the only alarm, was left out between two 1.


def test_a_tolerance_that_is_next_to_nothing_leaves_out_nothing_more() -> None:
    domains = {"a.x": (0, 10), "b.x": (0, 10)}
    rule = Rule("x", "a.x - b.x > 0.5", within="5s", on="k", domains=domains, tolerance={"a.x": 1e-310})
    assert_same(rule, [("a", 0, 1, 0), ("a", 2, 2, 0), ("a", 4, 1, 0), ("b", 5, 1, 0), ("b", 9, 1, 0)])


# Two reduced rules of one stream that differ in `tolerance` alone have two stores, which were written under one name:
# after a restart the stricter rule knew only what the other had kept. 3.5 is the largest of all; with steps of 2 it
# equals 2.5, so a store with that tolerance may drop it, and the other may not.


@pytest.mark.parametrize("turned", [False, True])
def test_rules_of_one_stream_that_differ_in_tolerance_keep_their_own_rows_over_a_restart(turned: bool) -> None:
    strict = Rule("B", "a.x > 3", within="10s", on="k", shapes={"a.x": "increasing"}, domains={"a.x": (0, 10)})
    loose = replace(strict, alert="A", tolerance={"a.x": 2.0})
    rows: list[Row] = [("a", 0, 2.5, 0), ("a", 3, 3.5, 0), ("a", 5, 2.1, 0), ("a", 40, 0, 0)]
    both, alone = [strict, loose][:: -1 if turned else 1], [strict]
    outs = [restarted(explain(streams_of([]), rules), rows, at=3) for rules in (both, alone)]
    found, expected = (lives(out.alert_rows()) for out in outs)
    assert expected
    assert [life for life in found if life[0] == "B"] == expected


def restarted(plan: Plan, rows: list[Row], at: int) -> Out:
    """Run a plan on rows of `a`, with a restart from its pages."""
    pages: dict[str, bytes] = {}
    out = Out()
    for part in (rows[:at], rows[at:]):
        session = Session(plan, pages)
        times = np.array([row[1] * SECOND for row in part], np.int64)
        values = {"x": np.array([row[2] for row in part], np.float64)}
        out.add(session.push([Batch(0, "a", [("k",)], np.zeros(len(part), np.int64), times, times, values)]))
        pages |= {name: page for name, page in session.changed_pages().items() if page is not None}
    out.add(session.end())
    return out


# "An answer is the same on every machine" (proofs): another one after a restart would drop what is remembered. Boxes
# were cut in the order of a set, which differs from process to process.


def test_a_certificate_does_not_depend_on_the_process() -> None:
    code = (
        "import tocsin; expr = 'a**3*b - tanh(c)*a + exp(a/(3 + b*b)) > sin(c)*b/(2 + a)';"
        "print(dict(tocsin.certify(expr, {name: (0, 2) for name in 'abc'})))"
    )
    told = [
        subprocess.run(
            [sys.executable, "-c", code], env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2")
    ]
    assert told[0] == told[1]


# What is undecided takes longest. It was asked again for every stream that it is a partner of.


def test_nothing_is_certified_twice_when_rules_are_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, Any, Any]] = []
    plain = prove.certify

    def counted(tree: Any, domains: Any, *, only: Any) -> Any:
        asked.append((str(tree), tuple(only), tuple(domains.items())))
        return plain(tree, domains, only=only)

    monkeypatch.setattr(prove, "certify", counted)
    prove._certified.cache_clear()
    prove._certified_by_name.cache_clear()
    domains = {"a.x": (-2, 2), "b.x": (-2, 2), "c.x": (-2, 2)}
    rule = Rule("x", "a.x * (3 - a.x + b.x) - c.x > 1", within="2s", on="k", domains=domains)
    assert "Retention a(x): unreduced" in str(explain(streams_of([]), rule))
    assert len(asked) == len(set(asked))


# Left as they are.


def test_a_stated_shape_that_is_refuted_is_refused_though_the_stream_has_other_columns() -> None:
    """omission, Domains: a stated shape is believed if it is not refuted; this one is proved to be the contrary."""
    with pytest.raises(RuleError, match="`shapes` must be true for `expr`"):
        explain(streams_of([]), Rule("x", "a.x + b.x - a.y > 1", within="2s", on="k", shapes={"a.x": "decreasing"}))


@pytest.mark.parametrize(
    ("tolerance", "values"), [({"a.x": 1.0}, (2.1, 2.8, 2.0)), ({}, (-3.0, -2.1, -2.5))], ids=["tolerance", "hopeless"]
)
def test_an_excuse_that_is_told_is_true(tolerance: dict[str, float], values: tuple[float, ...]) -> None:
    """2.8 goes between 2.1 and 2 since they count as equal, and -2.1 since none of them decides anything: say so."""
    domains = {"a.x": (-3, 3), "b.x": (-3, 3)}
    rule = Rule("x", "a.x - b.x > 1", within="5s", on="k", domains=domains, tolerance=tolerance)
    (watch,) = explain(streams_of([]), rule).watches
    times = np.array([0, 2, 4]) * SECOND
    found = trace(watch, ("k",), {"a": KeyRows(times, times, {"x": np.array(values)})})
    text = " ".join(reason.text for reason in why(found, watch.rules[0], 2 * SECOND).reasons)
    assert "omitted" in text
    assert "at least as large" not in text


def test_stores_have_names_of_their_own() -> None:
    """Each counts its rows: under one name, four rows are `received` eight times."""
    rule = Rule("B", "a.x > 2", within="10s", on="k", shapes={"a.x": "increasing"}, domains={"a.x": (0, 10)})
    (watch,) = explain(streams_of([]), [rule, replace(rule, alert="C", domains={"a.x": (0, 5)})]).watches
    assert len(set(watch.store_names)) == len(watch.stores)


def test_a_row_outside_its_domain_that_comes_later_changes_nothing_before_it() -> None:
    """Laws: the cut does not show; beside c = 99 nothing is passed over, before it all but the extreme rows are."""
    domains = {"a.x": (-50, 50), "b.x": (-50, 50), "c.x": (0, 10)}
    rule = Rule("x", "abs(b.x - a.x) - c.x > 1", within="100s", on="k", domains=domains)
    rows = [("b", 1, -5.0), ("b", 2, 5.0), ("c", 3, 0.0), ("a", 4, 0.0), ("c", 5, 99.0)]
    streams = {
        name: {
            "ts": np.array([t * SECOND for stream, t, _ in rows if stream == name], np.int64),
            "x": np.array([x for stream, _, x in rows if stream == name]),
            "k": ["k" for stream, *_ in rows if stream == name],
        }
        for name in "abc"
    }
    once = run_local_detailed(streams, rule)
    assert [alert["state"] for alert in once.alerts][:1] == ["firing"]
    for cut in range(1, 5):
        assert run_local_detailed(streams, rule, cuts=[cut]).alerts == once.alerts
