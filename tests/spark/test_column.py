"""Columns of Spark do what the machine and the oracle do."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from expr.trees import EXACT, HARD, ROUNDED, VARIABLES, build, conditions, numbers, rows, same
from naive.expr import judge
from tocsin.expr import evaluate_columns, parse_condition

pytestmark = pytest.mark.spark

NAMES = {key: f"v{place}" for place, key in enumerate(VARIABLES)}
PAIRS = [(a, b) for a in HARD for b in HARD]


def results(spark: Any, nodes: list[Any], table: list[dict[Any, float | None]]) -> list[list[tuple[Any, Any, Any]]]:
    """Give, per row, margin, truth and value of every condition, all from one query."""
    from pyspark.sql import functions as F

    from tocsin.spark.column import to_column

    columns = {key: F.col(name) for key, name in NAMES.items()}
    frame = spark.createDataFrame(
        [tuple(row.get(key) for key in NAMES) for row in table], ", ".join(f"{name} double" for name in NAMES.values())
    )
    parts = [part.alias(f"r{i}_{j}") for i, node in enumerate(nodes) for j, part in enumerate(to_column(node, columns))]
    return [[tuple(row[i : i + 3]) for i in range(0, len(row), 3)] for row in frame.select(*parts).collect()]


@pytest.mark.parametrize("ansi", ["true", "false"])
@settings(max_examples=8)
@given(trees=st.lists(conditions(), min_size=5, max_size=10), table=st.lists(rows, min_size=3, max_size=10))
def test_spark_does_what_the_oracle_does(spark: Any, ansi: str, trees: list[Any], table: list[Any]) -> None:
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    try:
        found = results(spark, [build(tree) for tree in trees], table)
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")
    for row, values in zip(found, table, strict=True):
        for (margin, truth, value), tree in zip(row, trees, strict=True):
            wanted = judge(tree, values)
            assert truth is wanted[1]
            assert same(margin, wanted[0])
            assert same(value, wanted[2])


def test_every_function_is_near_the_machine_on_hard_values(spark: Any) -> None:
    texts = [f"{name}(a) > 0.5" for name in (*EXACT, *ROUNDED)]
    nodes = [
        parse_condition(text) for text in (*texts, "a ** b.x > 1", "(a + 0) ** b.x > 1", "a ** -2 > 1", "a / b.x > 1")
    ]
    table = [{("a", None): a, ("b", "x"): b} for a, b in PAIRS]
    columns = {key: np.array([row[key] for row in table]) for key in table[0]}
    found = results(spark, nodes, table)
    for i, node in enumerate(nodes):
        margins, truths, values = evaluate_columns(node, columns)
        for place, row in enumerate(found):
            margin, truth, value = row[i]
            assert truth is bool(truths[place])
            assert same(value, values[place], ulps=4)
            assert same(margin, margins[place], ulps=4) or abs(margin - margins[place]) <= 4 * math.ulp(value)


@settings(max_examples=3)
@given(
    parts=st.lists(numbers((*EXACT, *ROUNDED)), min_size=10, max_size=10), table=st.lists(rows, min_size=5, max_size=5)
)
def test_spark_is_undefined_where_the_machine_is(spark: Any, parts: list[Any], table: list[Any]) -> None:
    # `x - x` is 0 where x is defined, however it was rounded.
    nodes = [build((">=", ("-", part, part), ("num", 0.0))) for part in parts]
    found = results(spark, nodes, table)
    columns = {key: np.array([row[key] for row in table]) for key in VARIABLES}
    for i, node in enumerate(nodes):
        margins, truths, _ = evaluate_columns(node, columns)
        assert [row[i][:2] for row in found] == list(zip(margins.tolist(), truths.tolist(), strict=True))


def test_a_missing_value_is_undefined_and_truth_is_never_null(spark: Any) -> None:
    nodes = [parse_condition(text) for text in ("a > 0", "a <= 0", "a > 0 or c > 1", "min(a, c) > 0", "c ** a > 0")]
    [row] = results(spark, nodes, [{("a", None): None, ("c", None): 5.0}])
    assert [part[:2] for part in row] == [(-math.inf, False)] * 2 + [(4.0, True)] + [(-math.inf, False)] * 2
    assert math.isnan(row[0][2])


CHAINS = [
    ("({} / (a + 1))", 60),
    ("({} + a) * 0.5", 60),
    ("where({} > 0, a, b.x)", 60),
    ("min({}, a, 3)", 60),
    ("tanh({})", 60),
    ("a ** {}", 60),
    # These bind a variable, and Spark resolves only so many of them inside each other.
    ("floor({})", 20),
    ("({} ** a)", 20),
]


@pytest.mark.parametrize(("link", "length"), CHAINS)
def test_a_long_chain_of_operations_plans_in_reasonable_time(spark: Any, link: str, length: int) -> None:
    text = "a"
    for _ in range(length):
        text = link.format(text)
    node = parse_condition(f"{text} > 0.1")
    start = time.monotonic()
    [[(margin, truth, _)]] = results(spark, [node], [dict.fromkeys(VARIABLES, 1.2)])
    assert time.monotonic() - start < 60
    wanted, holds, _ = evaluate_columns(node, {key: np.array([1.2]) for key in VARIABLES})
    assert truth is bool(holds[0])
    assert margin == pytest.approx(float(wanted[0]))


def test_the_deepest_tree_that_is_read_also_plans(spark: Any) -> None:
    node = parse_condition("+".join(["a"] * 198) + " > 0")
    [[(margin, truth, value)]] = results(spark, [node], [{("a", None): 1.0}])
    assert (margin, truth, value) == (198.0, True, 198.0)


def test_a_variable_without_column_is_named(spark: Any) -> None:
    from tocsin.spark.column import to_column

    with pytest.raises(ValueError, match=r"`b\.x` has no column"):
        to_column(parse_condition("b.x > 1"), {})
