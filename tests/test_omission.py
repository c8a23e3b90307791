"""Plans that leave rows out raise the same alarms as plans that keep everything, whatever was proved and how."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.example_counts import ENGINE
from tocsin import Rule, RuleError
from tocsin.local import explain, run_local_detailed

SECOND = 1_000_000
DOMAINS = {"a.x": (-3.0, 3.0), "a.y": (-3.0, 3.0), "b.x": (-3.0, 3.0), "b.y": (-3.0, 3.0), "c.x": (0.0, 3.0)}


@dataclass(frozen=True)
class Kind:
    """A condition with a threshold to be filled in, and how the rows of stream `a` should be compared."""

    expr: str
    says: str


KINDS = [
    Kind("a.x - b.x > {}", "keep the maximum in every 4s window"),
    Kind("abs(a.x - b.x) > {}", "keep the maximum in every 4s window and the minimum in every 4s window"),
    Kind("a.x * b.x > {}", "keep the maximum in every 4s window and the minimum in every 4s window"),
    Kind("a.x * c.x - b.x > {}", "keep the maximum in every 2s window"),
    Kind("a.x ** 3 / (4 + b.x) < {}", "keep the minimum in every 4s window"),
    Kind("sqrt(a.x ** 2 + a.y ** 2) - b.x > {}", "the maximum of sqrt(a.x ** 2 + a.y ** 2) in every"),
    Kind("sin(a.x) + b.x > {}", "the maximum of sin(a.x) in every"),
    Kind("ln(a.x) + b.x > {}", "the maximum of ln(a.x) in every"),
    Kind("1 / a.x - b.x > {}", "the maximum of 1 / a.x in every"),
    Kind("a.x * c.x - a.y + b.x > {}", "the maximal rows of a.x and -a.y in every"),
    Kind("a.x * c.x - a.y * b.x > {}", "unreduced"),
    Kind("(a.x - b.x) ** 2 + (a.y - b.y) ** 2 < {}", "unreduced"),
    Kind("a.x > {} and b.x < 1", "keep the maximum in every 4s window"),
    Kind("a.x >= {} or b.x > 2 and a.x > 0", "keep the maximum in every 4s window"),
    Kind("floor(a.x) + where(b.x > 0, b.x, 0) >= {}", "keep the maximum in every 4s window"),
    Kind("max(a.x, b.x) - min(a.y, 1) > {}", "the maximal rows of a.x and -min(a.y, 1) in every"),
]
row = st.tuples(
    st.sampled_from("aabbc"), st.integers(-8, 8), st.integers(-8, 8), st.integers(0, 2), st.sampled_from("kl")
)
rows = st.lists(row, max_size=40)


def streams_of(rows: list[tuple[str, int, int, int, str]]) -> dict[str, dict[str, Any]]:
    """Rows in order over all streams, some at the same time; values are halves, some outside their domains."""
    time, found = 0, {name: [] for name in "abc"}
    for arrival, (name, x, y, step, key) in enumerate(rows):
        time += step
        found[name].append((time, arrival, x / 2, y / 2, key))
    return {name: table(given) for name, given in found.items()}


def table(given: list[tuple[int, int, float, float, str]]) -> dict[str, Any]:
    return {
        "ts": np.array([one[0] * SECOND for one in given], np.int64),
        "arrival": np.array([one[1] for one in given], np.int64),
        "x": np.array([one[2] for one in given], np.float64),
        "y": np.array([one[3] for one in given], np.float64),
        "k": [one[4] for one in given],
    }


def rule_of(kind: Kind, threshold: float, **settings: Any) -> Rule:
    expr = kind.expr.format(threshold)
    used = {name: ends for name, ends in DOMAINS.items() if name in expr}
    return Rule("x", expr, within="2s", on="k", domains=used, **{"keep_firing_for": "3s"} | settings)


def whole(rule: Rule) -> Rule:
    return replace(rule, shapes=dict.fromkeys(rule.domains))


def lives(found: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """All that is said of alerts but which of several best combinations it was."""
    return [(a["labels"]["k"], a["state"], a["startsAt"], a["endsAt"], a["value"], a["margin"]) for a in found]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.expr)
def test_rows_are_compared_as_the_condition_allows(kind: Kind) -> None:
    plan = str(explain(streams_of([]), rule_of(kind, 1.0)))
    (line,) = [line for line in plan.splitlines() if line.startswith("  Retention a(")]
    assert kind.says in line


def inside(rows: list[tuple[str, int, int, int, str]]) -> list[tuple[str, int, int, int, str]]:
    """Values inside their domains: the promise is about those."""
    return [
        (s, abs(x) % 7 if s == "c" else max(-6, min(6, x)), max(-6, min(6, y)), step, k) for s, x, y, step, k in rows
    ]


@ENGINE
@given(rows.map(inside), st.sampled_from(KINDS), st.integers(-8, 12), st.sampled_from(["0s", "2s"]))
@example(
    [("b", 0, 0, 0, "k"), ("a", 2, 0, 1, "k"), ("a", 1, 0, 1, "k"), ("a", 2, 0, 1, "k"), ("b", -4, 0, 1, "k")],
    KINDS[0],
    1,
    "0s",
)
def test_the_same_alarms_are_raised(rows: Any, kind: Kind, threshold: int, lasting: str) -> None:
    rule, streams = rule_of(kind, threshold / 2, for_=lasting), streams_of(rows)
    reduced = run_local_detailed(streams, rule, arrival="arrival")
    full = run_local_detailed(streams, whole(rule), arrival="arrival")
    assert lives(reduced.alerts) == lives(full.alerts)


@ENGINE
@given(rows.map(inside), st.sampled_from([kind for kind in KINDS if " and " not in kind.expr]), st.integers(-8, 12))
def test_the_same_alarms_are_raised_with_a_recovery(rows: Any, kind: Kind, threshold: int) -> None:
    quiet = threshold / 2 + (1 if "<" in kind.expr else -1)
    rule, streams = rule_of(kind, threshold / 2, recovery=quiet), streams_of(rows)
    assert lives(run_local_detailed(streams, rule, arrival="arrival").alerts) == lives(
        run_local_detailed(streams, whole(rule), arrival="arrival").alerts
    )


@ENGINE
@given(rows.map(inside), st.lists(st.tuples(st.sampled_from(KINDS), st.integers(-8, 12)), min_size=2, max_size=4))
def test_rules_that_share_what_is_remembered_raise_what_each_would_alone(rows: Any, chosen: Any) -> None:
    streams = streams_of(rows)
    rules = [replace(rule_of(kind, threshold / 2), alert=f"r{i}") for i, (kind, threshold) in enumerate(chosen)]
    together = run_local_detailed(streams, rules, arrival="arrival").alerts
    for rule in rules:
        mine = [alert for alert in together if alert["alert"] == rule.alert]
        assert lives(mine) == lives(run_local_detailed(streams, whole(rule), arrival="arrival").alerts)


@ENGINE
@given(rows, st.sampled_from(KINDS), st.integers(-8, 12), st.lists(st.integers(0, 40), max_size=3))
def test_the_cut_into_batches_does_not_show_and_every_row_is_counted(
    rows: Any, kind: Kind, threshold: int, cuts: list[int]
) -> None:
    rule, streams = rule_of(kind, threshold / 2), streams_of(rows)
    once = run_local_detailed(streams, rule, arrival="arrival")
    cut = run_local_detailed(streams, rule, arrival="arrival", cuts=sorted(cuts))
    assert once.alerts == cut.alerts
    assert once.counts == cut.counts
    for counts in once.counts.values():
        outcomes = ("retained", "omitted", "duplicates", "expired", "late")
        assert counts["received"] == sum(counts.get(name, 0) for name in outcomes)


TOLERANT = [kind for kind in KINDS[:5] if "c.x" not in kind.expr]


@ENGINE
@given(rows.map(inside), st.sampled_from(TOLERANT), st.integers(-8, 12), st.sampled_from([0.5, 1.0, 1.5]))
def test_a_tolerance_misses_no_alarm_whose_margin_is_larger_than_its_cost(
    rows: Any, kind: Kind, threshold: int, wide: float
) -> None:
    rule, streams = rule_of(kind, threshold / 2, emit="witness"), streams_of(rows)
    rule = replace(rule, keep_firing_for="0s", tolerance={"a.x": wide, "b.x": wide})
    proofs = [verdict.proof for _, verdict in explain(streams, rule).watches[0].rules[0].proofs]
    cost = sum(float(proof.split("costs at most ")[1].split()[0]) for proof in proofs) * 1.01
    shifted = replace(
        whole(rule), expr=kind.expr.format(threshold / 2 + (-cost if "<" in kind.expr else cost)), tolerance={}
    )
    found = run_local_detailed(streams, rule, arrival="arrival").alerts
    for alert in run_local_detailed(streams, shifted, arrival="arrival").alerts:
        if alert["state"] == "firing":
            # The life that it belongs to fires, or fired before and goes on.
            mine = [one for one in found if one["labels"] == alert["labels"] and one["startsAt"] <= alert["startsAt"]]
            assert any(one["state"] == "firing" for one in mine)


def test_a_tolerance_remembers_less() -> None:
    values = np.random.default_rng(1).uniform(-3, 3, 500)
    count = len(values)
    columns = {"ts": np.arange(count) * SECOND, "x": values, "y": values, "k": ["k"] * count}
    none = {name: column[:0] for name, column in columns.items()}
    rule = Rule(
        "x",
        "abs(a.x - b.x) > 3",
        within="100s",
        on="k",
        allowed_lateness="1h",
        domains={"a.x": (-3, 3), "b.x": (-3, 3)},
    )
    kept = [
        run_local_detailed({"a": columns, "b": none}, replace(rule, tolerance={"a.x": wide})).counts["a"]["retained"]
        for wide in (0.0, 0.5, 2.0)
    ]
    assert kept[0] > kept[1] > kept[2]


def test_a_tolerance_needs_domains_and_one_column() -> None:
    plain = Rule("x", "a.x * b.x > 1", within="2s", on="k", tolerance={"a.x": 0.1})
    with pytest.raises(RuleError, match="`tolerance` of `a` needs domains that bound its cost"):
        explain(streams_of([]), replace(plain, expr="sqrt(a.x) + b.x > 1", domains={"a.x": (0, 4)}))
    with pytest.raises(RuleError, match="`a` is compared by another number"):
        explain(streams_of([]), replace(plain, expr="sin(a.x) + b.x > 0"))
    with pytest.raises(RuleError, match=r"`tolerance\['a.x'\]` must be a number of at least 0; got -1"):
        replace(plain, tolerance={"a.x": -1})
