"""Shares of results that a CPU budget found: when they are known, and how rows out of order remove them."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tocsin.interim.cpu.cpu_recall import Bought, Totals
from tocsin.runtime.contract import NEVER_SEEN
from tocsin.runtime.metrics import quality_text
from tocsin.stages.promising.elapsed import elapse, new_elapsed

WINDOW_US = 10


def block(bought: Bought, times: list[int], expected: float, found: float) -> None:
    """Pass a block of rows whose bucket time is the newest event time; the join is never idle."""
    newest = np.maximum.accumulate(np.array([max(bought.order[1], times[0]), *times[1:]]))
    bought.note_order(np.array(times), newest)
    before = Totals(*bought.before.tolist())
    totals = before._replace(expected=before.expected + expected, found=before.found + found)
    bought.judge(totals, int(newest[-1]))


@given(
    st.lists(st.integers(0, 30), min_size=1, max_size=60),
    st.lists(st.integers(0, 60), max_size=5),
    st.integers(1, 40),
)
def test_a_row_is_out_of_order_when_a_row_before_it_is_newer(times: list[int], cuts: list[int], leap: int) -> None:
    elapsed, _ = elapse(new_elapsed(), np.array(times), 1_000, leap)
    behind = [i for i, time in enumerate(times) if time < max(times[: i + 1])]
    bought = Bought(WINDOW_US, limited=True)
    for begin, end in zip([0, *sorted(cuts)], [*sorted(cuts), len(times)], strict=True):
        if begin < min(end, len(times)):
            bought.note_order(np.array(times[begin:end]), elapsed[begin:end])
    assert bought.order[2] == (elapsed[behind[-1]] if behind else NEVER_SEEN)


def test_the_share_is_found_results_by_expected_results_when_rows_are_in_order() -> None:
    bought = Bought(WINDOW_US, limited=True)
    block(bought, [1, 2], expected=10.0, found=4.0)
    assert (bought.results, quality_text(bought.loss)) == (0.4, "subset 0.40")


def test_the_share_is_unknown_when_no_result_was_found() -> None:
    bought = Bought(WINDOW_US, limited=True)
    block(bought, [1, 2], expected=10.0, found=0.0)
    assert (bought.results, quality_text(bought.loss), bought.shares) == (None, "subset", (None, None))


def test_the_share_is_unknown_when_a_row_of_the_last_window_was_out_of_order() -> None:
    bought = Bought(WINDOW_US, limited=True)
    block(bought, [1, 2], expected=10.0, found=4.0)
    block(bought, [5, 3, 6], expected=100.0, found=1.0)
    assert (bought.results, quality_text(bought.loss)) == (None, "subset")
    block(bought, [14, 15], expected=100.0, found=1.0)
    assert bought.results is None


def test_the_share_counts_only_rows_in_order_when_the_window_of_disorder_has_passed() -> None:
    bought = Bought(WINDOW_US, limited=True)
    block(bought, [5, 3, 6], expected=100.0, found=1.0)
    block(bought, [16, 17], expected=10.0, found=4.0)
    assert bought.results == 0.4


def test_the_state_restores_the_order_of_rows() -> None:
    bought, restored = (Bought(WINDOW_US, limited=True) for _ in range(2))
    block(bought, [5, 3, 6], expected=100.0, found=1.0)
    restored.load(bought.arrays())
    for one in (bought, restored):
        block(one, [6, 15], expected=10.0, found=4.0)
        assert one.results is None
        block(one, [16, 17], expected=10.0, found=4.0)
        assert one.results == 0.4
