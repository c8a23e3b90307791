"""Keys that cannot be true are named from their extremes alone: never one that is, and all that plainly are not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given

from tests.strategies import Case, cases
from tests.test_semantics import run, stories
from tocsin import Rule
from tocsin.local import explain
from tocsin.operators.join import corner_bounds as corners_module
from tocsin.operators.join.cell_grid import cell_extremes
from tocsin.operators.join.corner_bounds import CornerBounds
from tocsin.operators.retention.operator import Retention
from tocsin.rules.limits import Limits
from tocsin.runtime.context import Context
from tocsin.runtime.contract import Out
from tocsin.runtime.row_batch import Cells, RowBatch
from tocsin.runtime.state_registry import Shard


@given(cases(shaped=True))
def test_looking_at_corners_changes_nothing(case: Case) -> None:
    found = stories(run(case))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(corners_module, "MAX_CORNERS", 0)
        assert stories(run(case)) == found


def hopeless(rule: Rule, rows: dict[str, list[tuple[int, float]]], keys: int, limits: Any = None) -> list[bool]:
    """Ask of rows (key, value) per stream, all rows of a key in one cell."""
    (watch,) = explain({name: {"m": [], "ts": [], "value": []} for name in rows}, rule).watches
    (threshold,) = watch.rules
    spans = []
    for i, need in zip(threshold.stores, threshold.needs, strict=True):
        mine = rows[watch.stores[i].stream]
        key, value = np.array([k for k, _ in mine], np.int64), np.array([v for _, v in mine], np.float64)
        time = np.arange(len(mine))
        retention, shard = Retention(i, watch.stores[i]), Shard(1)
        shard.attach(retention.spec)
        shard.add_keys([(str(number),) for number in range(keys)])
        batch = RowBatch(time * 0, key, time, time, time, Cells(value.reshape(1, -1), time, None))
        segment = retention.process(shard, batch, Context("m", ["m"], (), Out()))
        numbers, apart = need.numbers(segment.values)
        whole = np.where(apart, np.nan, numbers[0]), segment.offsets
        spans.append(cell_extremes(*whole, np.arange(keys), np.zeros(keys, np.int64), 0))
    corners = CornerBounds(threshold)
    assert corners.known
    return corners.infeasible_cells(spans, limits or {}).tolist()


SETTINGS: dict[str, Any] = {"within": "1s", "on": ["m"]}
RISING = Rule("x", "a - b > 3", shapes={"a": "increasing", "b": "decreasing"}, **SETTINGS)


def test_a_key_whose_extremes_stay_below_is_named_and_one_that_touches_is_not() -> None:
    rows = {"a": [(0, 1.0), (0, 2.9), (1, 3.0), (2, 9.0), (3, 0.0)], "b": [(0, 0.0), (1, 0.0), (2, 0.0)]}
    # The last key has no row of `b` yet: there is no combination.
    assert hopeless(RISING, rows, 4) == [True, False, False, True]


def test_an_undefined_corner_or_a_value_outside_the_domain_says_nothing() -> None:
    root = Rule(
        "x", "sqrt(a) + b > 3", shapes={"a": "increasing", "b": "increasing"}, domains={"b": (0, 1)}, **SETTINGS
    )
    rows = {"a": [(0, -1.0), (1, 1.0), (2, 1.0)], "b": [(0, 0.0), (1, 2.0), (2, 1.0)]}
    assert hopeless(root, rows, 3) == [False, False, True]


def test_limits_are_those_of_the_key() -> None:
    table = Limits("t.csv", ("m",), ("most",), {("p",): (1.0,), ("q",): (5.0,)})
    rule = Rule("x", "a - b > by.most", shapes={"a": "increasing", "b": "decreasing"}, limits={"by": table}, **SETTINGS)
    rows = {"a": [(0, 3.0), (1, 3.0), (2, 3.0)], "b": [(0, 0.0), (1, 0.0), (2, 0.0)]}
    numbers = {("by", "most"): np.array([1.0, 5.0, np.nan])}
    assert hopeless(rule, rows, 3, numbers) == [False, True, False]
