"""Queries drawn at random, and mutations of them: the answer of Spark's own SQL, or a refusal with a place."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

import tocsin
from query.drawn import SCHEMA, TABLES, draw_text, mutate, rows, spark_text
from tocsin.errors import SqlError
from tocsin.query import Aggregates, parse_sql, resolve

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def tables(spark: Any) -> Any:
    draw = random.Random(7)
    found = {name: spark.createDataFrame(rows(draw, 80), SCHEMA).coalesce(1).cache() for name in TABLES}
    for name, frame in found.items():
        frame.createOrReplaceTempView(name)
    yield found
    for name, frame in found.items():
        spark.catalog.dropTempView(name)
        frame.unpersist()


def check(spark: Any, tables: Any, text: str) -> bool:
    """Whether it is answered, as Spark answers it."""
    try:
        found = tocsin.sql(text, tables)
    except SqlError:
        return False
    script = parse_sql(text)
    asked = resolve(script, {name: frame.columns for name, frame in tables.items()})
    if not asked.is_exact:
        found.collect()
        return True
    wanted = spark.sql(spark_text(script, asked)).collect()
    if isinstance(asked, Aggregates):
        told = {row[:2]: list(row[2::2]) for row in found.collect()}
        exact = {(row.w.start, row.w.end): [float(one) for one in row[1:]] for row in wanted}
        assert told == {window: pytest.approx(numbers) for window, numbers in exact.items()}, text
    else:
        assert Counter(map(repr, map(tuple, found.collect()))) == Counter(map(repr, map(tuple, wanted))), text
    return True


@pytest.mark.parametrize("seeds", [range(8), pytest.param(range(8, 32), marks=pytest.mark.slow)], ids=len)
def test_a_query_that_is_drawn_has_the_answer_of_spark(spark: Any, tables: Any, seeds: range) -> None:
    answered = [check(spark, tables, draw_text(random.Random(seed))) for seed in seeds]
    assert sum(answered) > len(seeds) // 2


@pytest.mark.parametrize("seeds", [range(40, 80), pytest.param(range(80, 200), marks=pytest.mark.slow)], ids=len)
def test_a_mutation_of_one_has_the_answer_of_spark_or_is_refused(spark: Any, tables: Any, seeds: range) -> None:
    answered = 0
    for seed in seeds:
        draw = random.Random(seed)
        answered += check(spark, tables, mutate(draw, draw_text(draw)))
    assert answered > 0
