"""Pages of standing queries: a batch writes what it touched; and what makes no sense is refused."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tocsin.errors import RunError
from tocsin.runtime.contract import LAST_US
from tocsin.runtime.state_codec import pack
from tocsin.stages.ranges import recent, slots
from tocsin.stages.ranges.standing import Standing


def written(standing: Standing) -> dict[str, bytes]:
    """The pages that changed, without those that are gone."""
    return {name: page for name, page in standing.changed_pages().items() if page is not None}


def test_requests_that_wait_are_written_too() -> None:
    standing = Standing(1, 10, 0)
    standing.register([5, 6], [0, 0], [1, 1], [1, 1], at=1)
    standing.terminate([6], at=2)
    standing = Standing.from_pages(written(standing), 1, 10, 0)
    assert (len(standing), standing.progress([5, 6, 7]).tolist()) == (0, [0, 0, -1])
    matured = standing.push([1, 1, 1], None, [0, 0, 0])
    assert list(zip(matured.id.tolist(), matured.index.tolist(), strict=True)) == [(5, 1), (6, 1), (5, 2)]


def test_a_batch_writes_the_pages_that_it_touched() -> None:
    count = 3 * slots.PAGE
    standing = Standing(1, within_us=recent.PAGE + 1)
    standing.register(np.arange(count), np.arange(count), np.arange(count), 2)
    length = 2 * recent.PAGE
    standing.push(np.full(length, -1.0), None, np.arange(length))
    assert set(written(standing)) == {"head", "queries/0", "queries/1", "queries/2", "elements/1", "elements/0"}
    assert standing.changed_pages() == {}
    # Nothing that the pages of queries hold changes when elements are counted, and when they expire.
    standing.push([slots.PAGE, -1.0], None, [length, length + 1])
    changed = standing.changed_pages()
    assert changed.pop("elements/0") is None
    assert set(changed) == {"head", "elements/2"}
    standing.push([slots.PAGE], None, [length + 2])
    assert set(written(standing)) == {"head", "elements/2", "queries/1"}


def test_a_page_of_queries_that_are_all_gone_is_removed() -> None:
    standing = Standing(1, rearm_us=5)
    standing.register(np.arange(slots.PAGE + 1), np.zeros(slots.PAGE + 1), np.ones(slots.PAGE + 1), 5)
    standing.push([], None, [])
    assert {"queries/0", "queries/1"} <= set(written(standing))
    standing.terminate([slots.PAGE])
    standing.push([], None, [])
    assert standing.changed_pages()["queries/1"] is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"values": [1, float("nan")]}, "push: `values` must be finite; got [nan] at position 1"),
        ({"weights": [1, 0]}, "push: `weights` must be from 1 to 2^40; got 0 at position 1"),
        ({"weights": [1, 2**40 + 1]}, "push: `weights` must be from 1 to 2^40; got"),
        ({"time": [1]}, "push: `time` must have 2 rows like the other arguments; got 1"),
        ({"time": [0.5, 1.0]}, "push: `time` must be 64-bit integers; got float64"),
        ({"time": [0, LAST_US + 1]}, "push: `time` must be from"),
        ({"time": [0, -(2**63)]}, "push: `time` must be from"),
        (
            {"values": [1], "weights": [1], "time": [1]},
            "push: `values` must have as many elements as the largest `at` of the pending requests",
        ),
    ],
)
def test_a_batch_that_makes_no_sense_is_refused_and_leaves_no_trace(change: dict[str, object], message: str) -> None:
    standing = Standing(1, 10)
    standing.register([7], [0], [1], [2], at=2)
    batch: dict[str, object] = {"values": [1, 1], "weights": [1, 1], "time": [0, 0], **change}
    with pytest.raises(ValueError, match=re.escape(message)):
        standing.push(**batch)  # type: ignore[arg-type]
    assert standing.push([1, 1, 1, 1], None, [0, 0, 0, 0]).index.tolist() == [3]


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ((0, 1, 1), "`dims` must be at least 1; got 0"),
        ((1, 0, None), "`within_us` must be from 1 to 2^60 microseconds; got 0"),
        ((1, 2**60 + 1, None), "`within_us` must be from 1 to 2^60"),
        ((1, None, -1), "`rearm_us` must be from 0 to 2^60 microseconds; got -1"),
    ],
)
def test_settings_that_make_no_sense_are_refused(chosen: tuple[int, int | None, int | None], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        Standing(*chosen)


def test_pages_of_other_settings_or_of_something_else_are_refused() -> None:
    pages = written(Standing(1, 10))
    with pytest.raises(RunError, match="`within_us` 20; got 10"):
        Standing.from_pages(pages, 1, 20)
    with pytest.raises(RunError, match="`kind` standing; got other"):
        Standing.from_pages({"head": pack({}, kind="other")}, 1, 20)
