"""The page for those who come from a join of Spark's: its code is run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "from-a-spark-join.md"

pytestmark = pytest.mark.spark


def test_the_join_and_the_rule_find_the_same_pairs(spark: Any) -> None:
    namespace: dict[str, Any] = {}
    for code in re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL):
        exec(compile(code, "docs/from-a-spark-join.md", "exec"), namespace)
    rows = "select concat('m', id % 3) as machine, timestamp_seconds({step} * id) as ts, {value} as value"
    rows += " from range(200)"
    dew_point = spark.sql(rows.format(step=3, value="10 + 6 * sin(id / 7D)"))
    surface = spark.sql(rows.format(step=4, value="13 + 2 * cos(id / 5D)"))
    pairs = namespace["pairs_by_join"](dew_point, surface)
    assert len(pairs) > 20
    assert namespace["pairs_by_rule"](dew_point, surface) == pairs
    found = namespace["by_rule"](dew_point, surface).collect()
    assert {"firing", "resolved"} == {row.state for row in found}
