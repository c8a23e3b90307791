"""`retained` and `ThresholdSorter`: examples of the paper, brute force, any split of the input, bytes, and errors."""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from naive import retained as naive
from tocsin.operators.retention.threshold_sorter import ThresholdSorter, retained

SHAPES = {"quasiconvex": (1, -1), "increasing": (1,), "decreasing": (-1,)}
ENDS = ("both", "left", "right", "neither")

rows = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 3)), max_size=10)
long_rows = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 4)), max_size=60)


def split(pairs: list[tuple[int, int]]) -> tuple[list[int], list[float]]:
    return [t for t, _ in pairs], [float(v) for _, v in pairs]


def test_figure_1_a_tuple_below_its_two_neighbours_is_not_needed_by_an_increasing_function() -> None:
    assert retained([0, 1, 2], [3.0, 1.0, 2.0], 10, shape="increasing").tolist() == [True, False, True]


@pytest.mark.parametrize("closed", ["left", "right"])
def test_section_3_4_half_open_windows_may_omit_what_no_kept_pair_brackets(closed: str) -> None:
    t, v = [0, 1, 2, 3, 4], [3.0, 1.0, 0.0, 2.0, 4.0]
    above = retained(t, v, 3, shape="increasing", closed=closed)
    assert above.tolist() == [True, False, False, True, True]
    assert naive.minimum(naive.demands(t, v, [(3, 1)], closed), 5) == 3
    assert retained(t, v, 3, shape="increasing", closed="neither").sum() > above.sum()


def test_a_late_tuple_with_ties_leaves_other_tuples_than_order_would_but_meets_every_window() -> None:
    t, v = [0, 2, 3, 5, 6, 7, 8], [2.0, 0.0, 1.0, 1.0, 1.0, 2.0, 2.0]
    asked = naive.demands(t, v, [(5, 1), (5, -1)])
    in_order = set(np.flatnonzero(retained(t, v, 5)).tolist())
    late = ThresholdSorter(5)
    late.push(t[1:], v[1:], ids=range(1, 7))
    late.push(t[0], v[0], ids=0)
    assert naive.met(in_order, asked)
    assert len(in_order) == naive.minimum(asked, 7)
    assert naive.met(set(late.retained_ids().tolist()), asked)


@given(rows, st.sampled_from(sorted(SHAPES)), st.sampled_from(ENDS), st.sampled_from([None, 1, 2, 5]), st.data())
def test_every_window_is_met_with_the_fewest_tuples(
    pairs: list[tuple[int, int]], shape: str, closed: str, hop: int | None, data: st.DataObject
) -> None:
    interval = data.draw(st.integers(1, 7))
    t, v = split(pairs)
    kept = retained(t, v, interval, shape=shape, closed=closed, hop=hop)
    asked = naive.demands(t, v, [(interval, sign) for sign in SHAPES[shape]], closed, hop)
    assert naive.met(set(np.flatnonzero(kept).tolist()), asked)
    assert kept.sum() == naive.minimum(asked, len(t))


@given(rows, st.sampled_from([None, 0.5]))
def test_float_times_that_are_exact_give_what_whole_times_give(pairs: list[tuple[int, int]], hop: float | None) -> None:
    t, v = split(pairs)
    halves = retained(np.array(t) / 2, v, 1.5, hop=hop)
    assert halves.tolist() == retained(t, v, 3, hop=None if hop is None else 1).tolist()


@given(long_rows, st.lists(st.sampled_from("abc"), min_size=60, max_size=60))
def test_every_group_is_a_stream_of_its_own(pairs: list[tuple[int, int]], labels: list[str]) -> None:
    t, v = (np.array(column) for column in split(pairs))
    group = np.array(labels[: len(pairs)])
    kept = retained(t, v, 9, group=group)
    for label in set(group.tolist()):
        alone = retained(t[group == label], v[group == label], 9)
        pairs_of = sorted(zip(t[group == label][alone], v[group == label][alone], strict=True))
        assert sorted(zip(t[kept & (group == label)], v[kept & (group == label)], strict=True)) == pairs_of


@given(
    long_rows,
    st.lists(st.integers(0, 60), max_size=6),
    st.sampled_from(sorted(SHAPES)),
    st.sampled_from(ENDS),
    st.data(),
)
def test_in_order_any_split_keeps_what_one_call_keeps(
    pairs: list[tuple[int, int]], cuts: list[int], shape: str, closed: str, data: st.DataObject
) -> None:
    interval, hop = data.draw(st.integers(1, 20)), data.draw(st.sampled_from([None, 1, 4, 30]))
    t, v = split(sorted(set(pairs)))
    sorter = ThresholdSorter(interval, shape=shape, closed=closed, hop=hop)
    for lo, hi in zip([0, *sorted(cuts)], [*sorted(cuts), len(t)], strict=True):
        sorter.push(t[lo:hi], v[lo:hi])
        assert len(sorter) == retained(t[:hi], v[:hi], interval, shape=shape, closed=closed, hop=hop).sum()
    kept = retained(t, v, interval, shape=shape, closed=closed, hop=hop)
    assert sorter.retained_ids().tolist() == np.flatnonzero(kept).tolist()
    assert sorter.retained()[0].tolist() == np.array(t, np.int64)[kept].tolist()
    assert sorter.retained()[1].tolist() == np.array(v)[kept].tolist()


@given(long_rows, st.lists(st.integers(0, 60), max_size=6), st.sampled_from(ENDS), st.sampled_from([None, 1, 4]))
def test_in_any_order_every_window_is_met_and_what_is_kept_was_pushed(
    pairs: list[tuple[int, int]], cuts: list[int], closed: str, hop: int | None
) -> None:
    t, v = split(pairs)
    sorter = ThresholdSorter(9, closed=closed, hop=hop)
    for lo, hi in zip([0, *sorted(cuts)], [*sorted(cuts), len(t)], strict=True):
        sorter.push(t[lo:hi], v[lo:hi])
    ids = sorter.retained_ids()
    assert naive.met(set(ids.tolist()), naive.demands(t, v, [(9, 1), (9, -1)], closed, hop))
    assert sorter.retained()[0].tolist() == sorted(t[number] for number in ids)
    assert [(t[number], v[number]) for number in ids] == list(
        zip(*(x.tolist() for x in sorter.retained()), strict=True)
    )


@given(long_rows, st.integers(0, 60))
def test_a_sorter_restored_from_its_bytes_goes_on_as_if_nothing_had_happened(
    pairs: list[tuple[int, int]], cut: int
) -> None:
    t, v = split(pairs)
    one, two = ThresholdSorter(9), ThresholdSorter(9)
    one.push(t, v)
    two.push(t[:cut], v[:cut])
    cut_too = ThresholdSorter(9)
    cut_too.push(t[:cut], v[:cut])
    two = ThresholdSorter.restore(two.snapshot())
    for sorter in (two, cut_too):
        sorter.push(t[cut:], v[cut:])
    assert two.retained_ids().tolist() == cut_too.retained_ids().tolist()
    assert two.snapshot() == cut_too.snapshot()


def test_input_is_not_written_to() -> None:
    t, v = np.array([3, 1, 2]), np.array([1.0, 2.0, 3.0])
    t.flags.writeable = v.flags.writeable = False
    retained(t, v, 1)
    sorter = ThresholdSorter(1)
    sorter.push(t, v)
    sorter.push(t, v)
    assert t.tolist() == [3, 1, 2]
    assert v.tolist() == [1.0, 2.0, 3.0]


def test_trim_drops_what_is_older_and_counts_it() -> None:
    sorter = ThresholdSorter(1)
    sorter.push(range(0, 100, 10), range(10))
    assert sorter.trim(30) == 3
    assert sorter.retained()[0].tolist() == list(range(30, 100, 10))


def test_flush_hands_out_every_kept_tuple_once_in_time_order() -> None:
    sorter = ThresholdSorter(1)
    sorter.push([20, 0, 10], [1.0, 2.0, 3.0], ids=[7, 8, 9])
    t, v, ids = sorter.flush(10)
    assert (t.tolist(), v.tolist(), ids.tolist()) == ([0, 10], [2.0, 3.0], [8, 9])
    sorter.push(5, 4.0)
    assert sorter.flush(math.inf)[0].tolist() == [5, 20]
    assert len(sorter) == 0


@given(long_rows, st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=6))
def test_what_was_flushed_and_what_is_kept_meet_every_window_together(
    pairs: list[tuple[int, int]], stops: list[tuple[int, int]]
) -> None:
    t, v = split(pairs)
    sorter, out, start = ThresholdSorter(9), set(), 0
    for stop, until in [*sorted(stops), (60, 60)]:
        sorter.push(t[start:stop], v[start:stop])
        out |= set(sorter.flush(until)[2].tolist())
        start = stop
    assert naive.met(out | set(sorter.retained_ids().tolist()), naive.demands(t, v, [(9, 1), (9, -1)]))


def test_numbers_that_are_none_are_left_aside_and_counted() -> None:
    sorter = ThresholdSorter(1.0)
    sorter.push([0.0, math.nan, 2.0, math.inf], [1.0, 1.0, -math.inf, 1.0])
    assert sorter.quarantined == 3
    assert sorter.retained_ids().tolist() == [0]
    assert ThresholdSorter.restore(sorter.snapshot()).quarantined == 3


def test_float_times_after_whole_ones_are_taken() -> None:
    sorter = ThresholdSorter(1)
    sorter.push([0, 10], [1.0, 2.0])
    sorter.push(5.5, 3.0)
    assert sorter.retained()[0].tolist() == [0.0, 5.5, 10.0]


def test_an_empty_stream_keeps_nothing() -> None:
    assert retained([], [], 1).tolist() == []
    sorter = ThresholdSorter(1)
    sorter.push([], [])
    assert ThresholdSorter.restore(sorter.snapshot()).retained()[0].tolist() == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"interval": -1}, "`interval` must be a finite number from 0 to 2^60; got -1"),
        ({"interval": math.nan}, "`interval` must be a finite number from 0 to 2^60; got nan"),
        ({"interval": "5s"}, "`interval` must be a finite number from 0 to 2^60; got '5s'"),
        ({"shape": "convex"}, "`shape` must be one of quasiconvex, increasing, decreasing; got 'convex'"),
        ({"closed": "open"}, "`closed` must be one of both, left, right, neither; got 'open'"),
        ({"hop": 0}, "`hop` must be a finite number above 0 and at most 2^60, or None; got 0"),
    ],
)
def test_wrong_windows_are_refused_with_a_sentence(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        retained([1], [1.0], **{"interval": 1} | options)
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        ThresholdSorter(**{"interval": 1} | options)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0.0], [math.nan], 1), "`t` and `v` must be finite; got NaN or infinity"),
        (([math.inf], [0.0], 1), "`t` and `v` must be finite; got NaN or infinity"),
        (([0, 1], [0.0], 1), "`t` and `v` must have the same length; got 2 and 1"),
        (([[0]], [0.0], 1), "`t` must have one dimension; got 2"),
        ((["a"], [0.0], 1), "`t` must contain numbers; got <U1"),
        (([0], [0.0], 2.5), "`interval` must be an integer if the times are integers; got 2.5"),
    ],
)
def test_wrong_columns_are_refused_with_a_sentence(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        retained(*arguments)


def test_a_label_or_number_too_few_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^`group` must have one label per tuple; got 1 for 2$"):
        retained([0, 1], [0.0, 1.0], 1, group=["a"])
    with pytest.raises(ValueError, match=r"^`ids` must have one number per tuple; got 1 for 2$"):
        ThresholdSorter(1).push([0, 1], [0.0, 1.0], ids=[3])


def test_bytes_of_others_of_the_future_or_damaged_are_refused() -> None:
    data = ThresholdSorter(1).snapshot()
    with pytest.raises(ValueError, match=r"its header is different$"):
        ThresholdSorter.restore(b"pickle")
    with pytest.raises(ValueError, match=r"its checksum is wrong$"):
        ThresholdSorter.restore(data[:-5] + b"?" + data[-4:])
    with pytest.raises(ValueError, match=r"its checksum is wrong$"):
        ThresholdSorter.restore(data[:-1])
    newer = data[:14] + (2).to_bytes(2, "little") + data[16:]
    with pytest.raises(ValueError, match=r"must be a snapshot of version 1 or older; got version 2$"):
        ThresholdSorter.restore(newer)


@pytest.mark.parametrize("switch", ["0", "1"])
def test_compiled_and_uncompiled_kernels_agree(switch: str) -> None:
    code = (
        "import numpy as np; from tocsin.operators.retention.threshold_sorter import retained, ThresholdSorter;"
        "r = np.random.default_rng(1); t = r.integers(0, 500, 900); v = r.integers(0, 9, 900) * 1.0;"
        "s = ThresholdSorter(20); [s.push(t[i:i + 90], v[i:i + 90]) for i in range(0, 900, 90)];"
        "print(retained(t, v, 20).sum(), len(s), int(s.retained_ids().sum()))"
    )
    environment = os.environ | {"NUMBA_DISABLE_JIT": switch}
    out = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    ).stdout
    rng = np.random.default_rng(1)
    t, v = rng.integers(0, 500, 900), rng.integers(0, 9, 900) * 1.0
    sorter = ThresholdSorter(20)
    for start in range(0, 900, 90):
        sorter.push(t[start : start + 90], v[start : start + 90])
    assert [int(number) for number in out.split()] == [
        retained(t, v, 20).sum(),
        len(sorter),
        sorter.retained_ids().sum(),
    ]


def test_times_at_the_ends_of_64_bits_are_refused() -> None:
    for t in (2**61, -(2**61), np.uint64(2**63)):
        with pytest.raises(ValueError, match=r"^`t` must be between -2\^60 and 2\^60; got "):
            ThresholdSorter(5).push(np.array([t]), [1.0])
    sorter = ThresholdSorter(2**60)
    for t in (-(2**60), 0, 2**60):
        sorter.push(t, 1.0)
    assert len(sorter) == np.count_nonzero(retained([-(2**60), 0, 2**60], [1.0] * 3, 2**60))


def test_an_interval_of_a_small_type_is_as_long_as_any() -> None:
    t, v = np.arange(400), np.sin(np.arange(400.0))
    small, plain = ThresholdSorter(np.int8(100)), ThresholdSorter(100)
    for part in np.split(np.arange(400), 8):
        for sorter in (small, plain):
            sorter.push(t[part], v[part])
    assert small.retained_ids().tolist() == plain.retained_ids().tolist()


@pytest.mark.parametrize("t", [math.nan, None, "5"])
def test_a_time_that_is_no_number_forgets_nothing(t: Any) -> None:
    sorter = ThresholdSorter(5)
    sorter.push([1, 2], [1.0, 2.0])
    for call in (sorter.trim, sorter.flush):
        with pytest.raises(ValueError, match=r"^`t` must be a number; got "):
            call(t)
    assert len(sorter) == 2


def test_what_is_no_bytes_is_no_snapshot() -> None:
    with pytest.raises(ValueError, match=r"^`data` must be bytes; got NoneType$"):
        ThresholdSorter.restore(None)  # type: ignore[arg-type]
