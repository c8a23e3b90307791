"""Anytime joins where clocks are wrong: with time enough they find what an ordinary join finds, whatever rows say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.driver import CUTS, Driver, limited_logics, parts_of, plan_of, settled
from tests.durations import us
from tests.example_counts import ENGINE
from tests.test_cpu import Columns, matches, pairs, run_plan, unlimited
from tocsin import local
from tocsin.interim.cpu import row_log
from tocsin.runtime.metrics import OUTCOMES

FOREVER = "100000d"


@contextmanager
def stale_at_once() -> Iterator[None]:
    """Let rows that are old go, or be taken again, as soon as there is one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_log, "FEWEST_STALE", 1)
        yield


def streams_of(rows: list[tuple[int, str, int]]) -> Columns:
    """Streams of rows (stream, key, time) in order of arrival; every pair has a value of its own."""
    side, key, time = (list(column) for column in zip(*rows, strict=True)) if rows else ([], [], [])
    number = np.arange(len(rows))
    whole: dict[str, Any] = {
        "ts": np.array(time, np.int64), "machine": np.array(key, object), "value": number + 1.0, "arrival": number,
    }  # fmt: skip
    return {
        name: {column: values[np.array(side, np.int64) == i] for column, values in whole.items()}
        for i, name in enumerate(("a", "b"))
    }


def with_units(given_: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings of a rule in which each number is a duration in microseconds."""
    return {name: us(value) if isinstance(value, int) else value for name, value in given_.items()}


def exact(streams: Columns, **more: Any) -> Counter[Any]:
    return matches(local.run_local_detailed(streams, pairs(**with_units(more)), arrival="arrival").alerts)


# Each key has a clock of its own that goes on by small steps, may stand far from the others, and leaps now and then.
ROWS = st.lists(
    st.tuples(
        st.integers(0, 1),
        st.sampled_from("klmn"),
        st.sampled_from([0, 0, 1, 2, 3, 7, -1, -4, -30, 50, 10**6]),
    ),
    max_size=80,
)
OFFSETS = st.tuples(*[st.sampled_from([0, 0, -40, 10**7, -(10**7)])] * 4)


def with_clocks(steps: list[tuple[int, str, int]], offsets: tuple[int, ...]) -> list[tuple[int, str, int]]:
    clock = dict(zip("klmn", offsets, strict=True))
    rows = []
    for side, key, step in steps:
        # A step far ahead or behind is the mistake of one row.
        clock[key] += step if abs(step) < 10 else 0
        rows.append((side, key, clock[key] + (0 if abs(step) < 10 else step)))
    return rows


@ENGINE
@given(ROWS, OFFSETS, st.sampled_from([0, 2, 10]), st.sampled_from([0, 5, 100]), CUTS, st.booleans())
def test_all_that_an_ordinary_join_finds_is_found(
    steps: list[tuple[int, str, int]],
    offsets: tuple[int, ...],
    within: int,
    allowed_lateness: int,
    cuts: list[int],
    limited: bool,
) -> None:
    streams = streams_of(with_clocks(steps, offsets))
    given_ = {"within": within, "allowed_lateness": allowed_lateness}
    with stale_at_once():
        plan = plan_of(
            streams,
            pairs(
                **with_units(given_),
                quality={"cpu": "100000 cores"},
            ),
            arrival="arrival",
        ).calibrated(1e-6)
        found = run_plan(plan if limited else unlimited(plan), streams, cuts)
        whole = run_plan(plan if limited else unlimited(plan), streams, through_pages=False)
    assert matches(found.alert_rows()) == matches(whole.alert_rows())
    assert settled(found.counts) == settled(whole.counts)
    for counts in found.counts.values():
        assert counts["received"] == sum(counts.get(outcome, 0) for outcome in OUTCOMES)
        assert min(counts.values()) >= 0
    assert not matches(found.alert_rows()) - exact(streams, within=within, allowed_lateness=FOREVER)
    assert not exact(streams, **given_) - matches(found.alert_rows())


def test_a_key_that_lags_far_behind_its_bucket_loses_nothing() -> None:
    # One machine sends a row now and then, with times that hardly go on; the other is a thousand seconds ahead of it.
    second = 1_000_000
    rows = [(i % 2, "fast", i * second) for i in range(1_000)]
    slow = [(i % 2, "slow", i * second // 100) for i in range(20)]
    for i, row in enumerate(slow):
        rows.insert(50 * i, row)
    streams = streams_of(rows)
    given_ = {"within": "1s", "allowed_lateness": "2s"}
    expected = exact(streams, **given_)
    found = local.run_local_detailed(
        streams,
        pairs(**with_units(given_), quality={"cpu": "1000 cores"}),
        arrival="arrival",
        cuts=[100, 333, 900],
    )
    assert sum("slow" in str(row["labels"]) for row in found.alerts) == 100
    assert matches(found.alerts) == expected


def test_clocks_that_stay_wrong_cost_nothing_though_every_block_of_rows_has_some() -> None:
    hour, rng = 3_600_000_000, np.random.default_rng(3)
    rows = [(int(rng.integers(0, 2)), f"m{i % 7}", i * 100_000 + (i % 7 == 3) * hour) for i in range(2_000)]
    streams = streams_of(rows)
    given_ = {"within": "2s", "allowed_lateness": "1s"}
    found = local.run_local_detailed(
        streams,
        pairs(**with_units(given_), quality={"cpu": "1000 cores"}),
        arrival="arrival",
    )
    assert matches(found.alerts) == exact(streams, **given_)
    # What a key does not need any more is not kept for it.
    assert sum(counts["retained"] for counts in found.counts.values()) < 100 + row_log.FEWEST_STALE


def test_a_key_is_forgotten_when_its_time_to_live_has_passed() -> None:
    second = 1_000_000
    rows = [(0, "dead", 0), (1, "dead", 0)] + [(i % 2, "live", i * second // 10) for i in range(2_000)]
    streams = streams_of(rows)
    given_ = {"within": "1s", "allowed_lateness": "1s"}
    kept = {}
    for ttl in (None, "60s", "1h"):
        plan = plan_of(
            streams,
            pairs(
                **with_units(given_),
                quality={"cpu": "1000 cores"},
            ),
            arrival="arrival",
            key_ttl=ttl,
        )
        driver = Driver(plan)
        driver.run(parts_of(plan, streams, [500, 1_500], "arrival"))
        log = limited_logics(driver.session)[0].log
        kept[ttl] = {log.keys[k] for k in log.rows.key.tolist()}
    # Where nobody says: for 32 windows of 2 s.
    assert kept == {None: {("live",)}, "60s": {("live",)}, "1h": {("dead",), ("live",)}}
