"""The keys of a call: which row pays for a new key, and where keys live after some were forgotten."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tocsin.interim.memory.call_keys import Called
from tocsin.operators.join.operator import advance_watermarks, advance_watermarks_in_order
from tocsin.runtime.contract import NEVER_SEEN
from tocsin.runtime.keyed_pipeline import KEYS_PER_SHARD
from tocsin.runtime.state_codec import arrays_size, pack, packed_size
from tocsin.runtime.state_registry import name_bytes


def called(names: list[str], places: dict[str, int], key_bytes: int) -> Called:
    keys = Called()
    keys._known, keys.names = {(name,): i for i, name in enumerate(names)}, [(name,) for name in names]
    keys.find({(name,): place for name, place in places.items()}, key_bytes)
    return keys


def test_the_first_row_of_a_key_that_is_not_known_pays_for_it() -> None:
    keys = called(["a", "bb", "c"], {"a": 7}, 100)
    bb, c = (100 + name_bytes((name,)) for name in ("bb", "c"))
    assert keys.prices(np.array([0, 2, 1, 2, 1, 0])).tolist() == [0, c, bb, 0, 0, 0]


def test_where_rows_are_counted_keys_cost_nothing() -> None:
    assert called(["a"], {}, 0).prices(np.array([0, 0])).tolist() == [0, 0]


@given(st.lists(st.booleans(), max_size=12), st.lists(st.booleans(), max_size=12))
def test_keys_move_up_behind_those_that_were_forgotten(first: list[bool], second: list[bool]) -> None:
    pages = [first, second]
    names = [f"{page}.{i}" for page, gone in enumerate(pages) for i in range(len(gone))]
    at = {f"{page}.{i}": page * KEYS_PER_SHARD + i for page, gone in enumerate(pages) for i in range(len(gone))}
    keys = called([*names, "new"], at, 100)
    keys.move([np.array(gone, np.bool_) for gone in pages])
    left = {}
    for page, gone in enumerate(pages):
        stay = [f"{page}.{i}" for i, dead in enumerate(gone) if not dead]
        left |= {name: page * KEYS_PER_SHARD + i for i, name in enumerate(stay)}
    assert keys.place.tolist() == [left.get(name, -1) for name in [*names, "new"]]


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 2), st.integers(0, 9)), max_size=12), st.integers(0, 5))
def test_keys_in_order_move_as_row_by_row(rows: list[tuple[int, int, int]], idle: int) -> None:
    before = [(0, 0, 3), (1, 0, 2), (0, 1, 5)]
    newest, progress = np.full((3, 2), NEVER_SEEN), np.full(3, NEVER_SEEN)
    advance_watermarks(*np.array(before).T, newest, progress, idle)
    is_sorted, first, latest = np.ones(3, np.bool_), np.full(3, NEVER_SEEN), np.full((3, 2), NEVER_SEEN)
    for key in range(3):
        mine = [time for _, of, time in rows if of == key]
        is_sorted[key], first[key] = mine == sorted(mine), mine[0] if mine else NEVER_SEEN
    for lane, key, time in rows:
        latest[key, lane] = max(latest[key, lane], time)
    moved = newest.copy(), progress.copy()
    in_order = advance_watermarks_in_order((np.array([0, 1]), is_sorted, first, latest), *moved, idle)
    taken = [row for row in rows if in_order[row[1]]]
    late = advance_watermarks(*np.array(taken).reshape(-1, 3).T.astype(np.int64), newest, progress, idle)
    assert not late.any()
    assert np.array_equal(moved[0], newest)
    assert np.array_equal(moved[1], progress)


@given(st.lists(st.none() | st.text(max_size=5), max_size=6), st.lists(st.integers(), max_size=3))
def test_a_page_is_never_larger_than_it_is_said_to_be(texts: list[str | None], facts: list[int]) -> None:
    column = np.empty(len(texts), object)
    column[:] = texts
    arrays = {"texts": column, "times": np.arange(len(texts))}
    assert len(pack(arrays, facts=facts)) <= packed_size(arrays, facts=facts)
    assert packed_size({}, facts=facts) + arrays_size(arrays) == packed_size(arrays, facts=facts)
