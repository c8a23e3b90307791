"""Queries drawn at random, and mutations of them, are planned or refused with a place; nothing else happens."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from query.drawn import COLUMNS_OF, KINDS_OF, draw_text, mutate
from tests.example_counts import ENGINE
from tocsin.errors import SqlError
from tocsin.query import JoinQuery, parse_sql, resolve
from tocsin.query.steps import plan_of, select_of


def refused(text: str) -> SqlError | None:
    """Plan a query, unless it is refused."""
    try:
        asked = resolve(parse_sql(text), COLUMNS_OF, "ts", KINDS_OF)
    except SqlError as error:
        return error
    assert str(asked)
    assert repr(plan_of(asked, bounded=True) if isinstance(asked, JoinQuery) else select_of(asked))
    return None


def test_most_queries_that_are_drawn_are_understood() -> None:
    assert sum(refused(draw_text(random.Random(seed))) is None for seed in range(100)) > 70


@ENGINE
@given(st.integers(0, 10**9))
def test_a_mutation_is_planned_or_refused_with_a_place(seed: int) -> None:
    draw = random.Random(seed)
    text = mutate(draw, draw_text(draw))
    error = refused(text)
    if error is not None:
        assert 0 <= error.start <= error.stop <= len(text) + 1
        assert "^" in str(error)
