"""The join on purchases in two stores: exact where nothing is limited, a part of it under any budget."""

from __future__ import annotations

from collections import defaultdict, deque

import numpy as np
import pytest

from benchmarks.promising_data import stores
from tocsin.jit import enabled
from tocsin.stages.promising.anytime_join import AnytimeJoin
from tocsin.stages.promising.books import Pace
from tocsin.stages.promising.count_sketch import CountSketch
from tocsin.stages.promising.layout import Layout
from tocsin.stages.promising.preference import ORDERS, Preference

pytestmark = pytest.mark.recordings
WINDOW = 60_000_000


def indexed(stream: list[int], times: list[int], keys: list[int]) -> set[tuple[int, int]]:
    """The window join by an index of deques."""
    held: tuple[defaultdict[int, deque[int]], ...] = (defaultdict(deque), defaultdict(deque))
    out = set()
    for row, (side, time, key) in enumerate(zip(stream, times, keys, strict=True)):
        partners = held[1 - side][key]
        while partners and times[partners[0]] < time - WINDOW:
            partners.popleft()
        out |= {(row, partner) if side == 0 else (partner, row) for partner in partners}
        held[side][key].append(row)
    return out


@pytest.mark.skipif(not enabled(), reason="too many tuples for plain Python")
@pytest.mark.parametrize("by", ["product_id", "manufacturer_id"])
def test_purchases_are_joined_exactly_or_in_part(by: str) -> None:
    rows = stores(by, 1_500)
    exact = indexed(rows.stream.tolist(), rows.time.tolist(), rows.key.tolist())
    for variant in ("SHJ", "T1", "T2", "T3", "T4"):
        layout = Layout(variant, window_us=WINDOW, buckets=8, scheme=CountSketch(3, 128))
        join = AnytimeJoin(layout)
        found = np.concatenate([join.take(*rows), join.rest()]).tolist()
        assert len(found) == len(exact)
        assert {(i, j) for i, j in found} == exact
        for order in ORDERS:
            join = AnytimeJoin(layout, Preference(order, fade=0.8), Pace(60.0, 0.0))
            part = np.concatenate([join.take(*rows), join.rest(1000.0)]).tolist()
            assert {(i, j) for i, j in part} <= exact
            assert len({(i, j) for i, j in part}) == len(part)
