"""Renewing an anytime join: what is told to be left is what nobody looked at; tuples taken again are partners."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.stages.promising.anytime_join import AnytimeJoin
from tocsin.stages.promising.books import Pace
from tocsin.stages.promising.count_sketch import CountSketch
from tocsin.stages.promising.layout import FOREVER, Layout
from tocsin.stages.promising.representation import arrays_of
from tocsin.stages.promising.stored import PENDING, ROW

LAYOUTS = {
    "T3": Layout("T3", 40, 1, 1, FOREVER, None, 4, 4, scheme=CountSketch(1, 16)),
    "T4": Layout("T4", 8, 2, 3, FOREVER, None, 2, 2, scheme=CountSketch(3, 16)),
    "SHJ": Layout("SHJ", window_us=FOREVER, buckets=4),
}
Rows = tuple[np.ndarray, np.ndarray, np.ndarray]


def rows_of(count: int, seed: int) -> Rows:
    draw = np.random.default_rng(seed)
    return draw.integers(0, 2, count), np.sort(draw.integers(0, count, count)), draw.integers(0, 5, count)


def pairs_of(rows: Rows, reach_us: int) -> set[tuple[int, int]]:
    """All pairs of equal keys, by definition."""
    side, time, key = (column.tolist() for column in rows)
    numbers = range(len(side))
    return {
        (i, j)
        for i in numbers
        for j in numbers
        if side[i] == 0 and side[j] == 1 and key[i] == key[j] and abs(time[i] - time[j]) <= reach_us
    }


@given(
    st.sampled_from(sorted(LAYOUTS)),
    st.integers(1, 60),
    st.integers(0, 10**6),
    st.sampled_from([0.0, 3.0, 30.0, 100.0]),
    st.sampled_from([3, 20, 100]),
    st.data(),
)
def test_what_is_left_is_what_nobody_looked_at(
    form: str, count: int, seed: int, units: float, reach_us: int, data: st.DataObject
) -> None:
    rows, join = rows_of(count, seed), AnytimeJoin(LAYOUTS[form], pace=Pace(units, 0.0))
    found = {(i, j) for i, j in join.take(*rows).tolist()}
    before = data.draw(st.integers(0, count))
    again = np.array(sorted(data.draw(st.sets(st.integers(0, before - 1))) if before else ()), np.int64)
    tuples = np.concatenate([arrays_of(side.stored)["tuples"] for side in join.sides])
    pending = set(tuples[tuples[:, PENDING] > 0, ROW].tolist()) & set(range(before))
    missed = {row for pair in pairs_of(rows, reach_us) - found for row in pair if row < before}
    left = join.renew(before, again, int(rows[1][-1]), reach_us).tolist()
    assert len(left) == len(set(left))
    assert missed <= set(left) <= missed | pending
    for side in join.sides:
        side.check()
    kept = np.concatenate([arrays_of(side.stored)["tuples"][:, ROW] for side in join.sides])
    assert sorted(kept.tolist()) == [*range(before, count), *range(count, count + len(again))]


@pytest.mark.parametrize("form", sorted(LAYOUTS))
def test_what_is_taken_again_is_found_by_tuples_to_come_and_finds_nothing_itself(form: str) -> None:
    rows, join = rows_of(50, 3), AnytimeJoin(LAYOUTS[form])
    join.take(*rows)
    join.rest()
    again = np.arange(0, 30, 3)
    join.renew(30, again, 50, 10)
    assert not len(join.rest())
    found = join.take(np.array([0, 1]), np.array([50, 50]), np.array([2, 2])).tolist() + join.rest().tolist()
    numbers = [*range(30, 50), *again.tolist()]
    names = {row: 50 + i for i, row in enumerate(again.tolist())} | {row: row for row in range(30, 50)}
    mine = [row for row in numbers if rows[2][row] == 2]
    come = 50 + len(again)
    wanted = [[come, names[row]] for row in mine if rows[0][row] == 1]
    wanted += [[names[row], come + 1] for row in mine if rows[0][row] == 0] + [[come, come + 1]]
    assert sorted(found) == sorted(wanted)
