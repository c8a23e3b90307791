"""What tests of rules of one stream share: conditions as text and as trees, rows with odd values, results as counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tocsin import Rule

Condition = tuple[str, tuple[Any, ...]]
Columns = dict[str, dict[str, Any]]
NUMBERS = st.sampled_from([0.0, 1.0, 2.0, 3.0, 0.5, 7.25, 1e-300, 1e308, 1.7e308])
SIGNED = st.tuples(NUMBERS, st.booleans()).map(lambda one: -one[0] if one[1] else one[0])
ODD = st.sampled_from([0.0, -0.0, 1.0, -1.0, 2.0, 0.5, 3.0, np.nan, np.inf, -np.inf, 1e308, -1e308, 5e-324])


def number(value: float) -> Condition:
    tree = ("num", abs(value))
    return f"{value!r}", ("neg", tree) if str(value).startswith("-") else tree


@st.composite
def chains(draw: st.DrawFn) -> Condition:
    """A column, and steps with numbers."""
    column = draw(st.sampled_from("xy"))
    text, tree = f"a.{column}", ("var", "a", column)
    for _ in range(draw(st.sampled_from([0, 0, 1, 2]))):
        op, (other, by) = draw(st.sampled_from("+-*/")), number(draw(SIGNED))
        text, tree = (f"({text}) {op} ({other})", (op, tree, by)) if draw(st.booleans()) else (
            f"({other}) {op} ({text})", (op, by, tree)
        )  # fmt: skip
    return text, tree


@st.composite
def comparisons(draw: st.DrawFn) -> Condition:
    """A chain or something bent, compared with a number or with another chain."""
    (left, a), (right, b) = draw(chains()), number(draw(SIGNED))
    if draw(st.integers(0, 4)) == 0:
        left, a = f"abs({left})", ("call", "abs", a)
    if draw(st.integers(0, 4)) == 0:
        right, b = draw(chains())
    if draw(st.booleans()):
        left, a, right, b = right, b, left, a
    op = draw(st.sampled_from([">", ">=", "<", "<="]))
    text = f"({left}) {op} ({right})"
    return (text, (op, a, b)) if "a." in text else (f"a.x {op} ({right})", (op, ("var", "a", "x"), b))


@st.composite
def conditions(draw: st.DrawFn) -> Condition:
    """One to three comparisons joined by `and` or `or`."""
    parts = draw(st.lists(comparisons(), min_size=1, max_size=3))
    if len(parts) == 1:
        return parts[0]
    word = draw(st.sampled_from(["and", "or"]))
    return f" {word} ".join(text for text, _ in parts), (word, *(tree for _, tree in parts))


# Columns of rows: key, step of time, x, y. A few steps lie far ahead or behind.
ROWS = st.lists(
    st.tuples(st.sampled_from("klm"), st.sampled_from([0, 0, 1, 2, 5, 40, -1, -30, 10**7]), ODD, ODD), max_size=60
)
RULES = st.lists(conditions(), min_size=1, max_size=5)


def stream_of(rows: Sequence[tuple[str, int, float, float]]) -> Columns:
    """One stream in order of arrival; a step far ahead is the mistake of one row."""
    time, clock = [], 0
    for _, step, _, _ in rows:
        clock += step if abs(step) < 100 else 0
        time.append(clock if abs(step) < 100 else clock + step)
    key, _, x, y = (list(column) for column in zip(*rows, strict=True)) if rows else ([], [], [], [])
    return {
        "a": {
            "ts": np.array(time, np.int64), "machine": np.array(key, object), "x": np.array(x, np.float64),
            "y": np.array(y, np.float64), "arrival": np.arange(len(rows)),
        }
    }  # fmt: skip


def rules_of(conditions_: Sequence[Condition], **more: Any) -> list[Rule]:
    given = {"on": "machine", "emit": "all"} | more
    return [Rule(f"r{i}", text, **given) for i, (text, _) in enumerate(conditions_)]


def dicts_of(streams: Columns) -> list[dict[str, Any]]:
    columns = streams["a"]
    rows = zip(*(column.tolist() for column in columns.values()), strict=True)
    return [dict(zip(columns, row, strict=True)) for row in rows]


def results(alerts: Sequence[Mapping[str, Any]]) -> Counter[Any]:
    """What was found, as the oracle says it; times are those of rows of a plan."""
    return Counter(
        (row["alert"], row["labels"]["machine"], row["startsAt"], row["value"], row["margin"]) for row in alerts
    )
