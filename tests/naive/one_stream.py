"""Rules of one stream, slowly: every rule on every row that has its values, whatever the order of rows."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from tests.naive.expr import judge

Row = Mapping[str, Any]


def all_true(rows: Sequence[Row], rules: Mapping[str, tuple[Any, ...]]) -> Counter[Any]:
    """Count (rule, key, time, value, margin) of every row with which a rule is true; trees are those of `expr`."""
    found: Counter[Any] = Counter()
    for row in rows:
        for name, tree in rules.items():
            read = columns_of(tree)
            values = {("a", column): float(row[column]) for column in read}
            if not all(math.isfinite(value) for value in values.values()):
                continue
            margin, truth, value = judge(tree, values)
            if truth:
                found[name, row["machine"], row["ts"], value + 0.0, margin + 0.0] += 1
    return found


def columns_of(tree: tuple[Any, ...]) -> set[str]:
    """The columns that a tree reads."""
    if tree[0] == "var":
        return {tree[2]}
    return {name for part in tree[1:] if isinstance(part, tuple) for name in columns_of(part)}
