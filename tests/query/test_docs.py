"""The SQL of the documents is understood."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tocsin.query import parse_sql, resolve
from tocsin.query.dialect import SETTINGS
from tocsin.query.steps import plan_of, select_of

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "reference" / "sql.md").read_text("utf-8")
GUIDE = (DOCS / "how-to" / "query-with-sql.md").read_text("utf-8")
BLOCKS = re.findall(r"```sql\n(.*?)```", PAGE + GUIDE, re.DOTALL)
COLUMNS = {name: ["ts", "item", "price", "store"] for name in ("sales", "north", "south")}


@pytest.mark.parametrize("block", BLOCKS)
def test_a_query_of_the_page_is_planned(block: str) -> None:
    asked = resolve(parse_sql(block), COLUMNS)
    planned = plan_of(asked, bounded=True) if len(asked.streams) > 1 else select_of(asked)  # type: ignore[arg-type]
    assert repr(planned)
    assert asked.is_exact == ("BUDGET" not in block and "WINDOW" in block)


def test_the_page_has_queries_of_every_kind_and_every_setting() -> None:
    kinds = {type(resolve(parse_sql(block), COLUMNS)).__name__ for block in BLOCKS}
    assert kinds == {"JoinQuery", "Selection", "Aggregates"}
    assert [word for word in SETTINGS if f"`{word}" not in PAGE and f"`{word.title()}" not in PAGE] == []


def test_the_mistake_of_the_page_is_told_so() -> None:
    query = re.search(r'tocsin query "(SELECT a.ts FROM a, b [^"]*itm[^"]*)"', GUIDE)
    assert query is not None
    columns = {name: ["ts", "item", "price"] for name in "ab"}
    with pytest.raises(Exception, match="itm") as caught:
        resolve(parse_sql(query[1]), columns)
    assert f"tocsin query: {caught.value}\n```" in GUIDE
