"""Mistakes are found without the columns of streams, and nothing is refused that some columns make right."""

from __future__ import annotations

import random

import pytest

from query.drawn import COLUMNS_OF, KINDS_OF, TABLES, draw_text, mutate
from query.test_read import COLUMNS, MISTAKES, OF_ONE_STREAM, H, marked
from tocsin.errors import SqlError
from tocsin.query import check_script, parse_sql, resolve

# Of which stream `x` is, or which columns `*` stands for, must be known; so must what several SELECTs have in common.
NEED_COLUMNS = ("`x` is ambiguous", "must be a column of", "`*` must not be combined", "several SELECTs")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (text, message)
        for text, message in [*MISTAKES, *((H + text, message) for text, message in OF_ONE_STREAM)]
        if not any(words in message for words in NEED_COLUMNS)
    ],
)
def test_what_is_wrong_with_any_columns_is_told_without_them(text: str, message: str) -> None:
    plain, start, stop = marked(text)
    with pytest.raises(SqlError, match=r"^\d+:\d+: ") as caught:
        check_script(parse_sql(plain), list(COLUMNS))
    assert message in caught.value.message
    assert (caught.value.start, max(caught.value.stop, start + 1)) == (start, max(stop, start + 1))


def test_nothing_is_refused_that_is_right_with_the_columns_that_there_are() -> None:
    early = right = 0
    for seed in range(800):
        draw = random.Random(seed)
        text = draw_text(draw) if seed % 2 else mutate(draw, draw_text(draw))
        try:
            script = parse_sql(text)
            check_script(script, TABLES)
        except SqlError:
            early += 1
            with pytest.raises(SqlError, match=r"^\d+:\d+: "):
                resolve(parse_sql(text), COLUMNS_OF, "ts", KINDS_OF)
        else:
            right += 1
    assert min(early, right) > 150


@pytest.mark.parametrize("text", [
    "SELECT price, Price FROM north WHERE price > 3 AND Price < 2 WINDOW 1 DAY",
    "SELECT TS, ts FROM north WHERE TS > 5 WINDOW 1 DAY",
    "SELECT item, place FROM north, south WHERE item = place WINDOW 1 DAY",
    "SELECT * FROM north WINDOW 1 DAY; SELECT place, ts FROM north WINDOW 1 DAY",
    "SELECT big FROM north WHERE big > 9007199254740992 AND big < 9007199254740994",
])  # fmt: skip
def test_what_only_columns_can_decide_is_left_to_them(text: str) -> None:
    check_script(parse_sql(text), TABLES)


def test_clauses_are_looked_at_where_columns_are_not_clear() -> None:
    text = "SELECT item, place FROM north, south WHERE item = place WINDOW 1 DAY BUDGET 0 %"
    with pytest.raises(SqlError, match="`BUDGET` must be above 0"):
        check_script(parse_sql(text), TABLES)
