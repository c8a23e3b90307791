"""Known alerts of a replay, compared with an oracle that processes one row at a time."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import tocsin
from tests.example_counts import ENGINE
from tests.naive.alerts import Replay as NaiveReplay
from tests.naive.alerts import rows_in_order
from tests.strategies import Case, cases, reduced
from tocsin.plan import Watch, make_plan
from tocsin.runtime.contract import Batch
from tocsin.testing.model import Scenario
from tocsin.testing.replay import KnownAlerts, Replay

TIMES = st.lists(st.integers(0, 120), min_size=1, max_size=3)
# Key, state, start, margin.
Known = set[tuple[Any, ...]]


def _oracle(case: Case, idle_timeout_us: int, now: int) -> Known:
    """Return the open alerts after the rows up to `now`. Keys without rows for `idle_timeout_us` are complete."""
    run = NaiveReplay(case.rule, counts={stream: Counter() for stream in case.rule.join.streams})
    seen: dict[Any, int] = {}
    for row in rows_in_order(_arrived(case, now), case.rule, "arrival"):
        run.take(row)
    for stream, table in _arrived(case, now).items():
        for machine, value, arrival in zip(table["machine"], table["value"], table["arrival"], strict=True):
            if stream in case.rule.join.streams and machine is not None and math.isfinite(value):
                seen[machine,] = max(arrival, seen.get((machine,), arrival))
    seen_keys = {key: state for key, state in run.keys.items() if key in seen}
    run.keys = {key: state for key, state in seen_keys.items() if now - seen[key] >= idle_timeout_us and state.largest}
    run.end()
    for key, state in run.keys.items():
        watermark = max(state.largest.values()) + now - seen[key]
        state.life.pass_time(watermark)
        state.late_life.pass_time(watermark)
    return {shown for key, state in seen_keys.items() if (shown := _shown(run, key, state))}


def _arrived(case: Case, now: int) -> dict[str, dict[str, list[Any]]]:
    tables = {}
    for name, table in case.streams.items():
        at = [i for i, arrival in enumerate(table["arrival"]) if arrival <= now]
        tables[name] = {column: [cells[i] for i in at] for column, cells in table.items()}
    return tables


def _shown(run: NaiveReplay, key: Any, state: Any) -> tuple[Any, ...]:
    """Return the last event of the firing alert, else of the alert in order."""
    alerts = [life for life in (state.life, state.late_life) if life.state is not None]
    if not alerts:
        return ()
    alert = min(alerts, key=lambda one: one.state != "firing")
    event = [row for row in run.output if row["key"] == key and row["late"] == alert.late][-1]
    assert (event["state"], event["startsAt"]) == (alert.state, alert.start)
    return key, alert.state, alert.start, float(event["margin"])


def _batches(case: Case, watch: Watch) -> list[Batch]:
    batches = []
    for name in watch.streams:
        rows = list(zip(*case.streams[name].values(), strict=True))
        names = list(case.streams[name])
        table = [dict(zip(names, row, strict=True)) for row in rows]
        table = [row for row in table if row["machine"] is not None]
        keys = list(dict.fromkeys((row["machine"],) for row in table))
        columns = {
            column: np.array([row[column] for row in table], np.int64 if column != "value" else np.float64)
            for column in ("ts", "arrival", "value")
        }
        key = np.array([keys.index((row["machine"],)) for row in table], np.int64)
        batches.append(Batch(0, name, keys, key, columns["ts"], columns["arrival"], {"value": columns["value"]}))
    return batches


def _known(known: KnownAlerts) -> Known:
    return {((one.labels["machine"],), one.state, one.starts_at_us, one.margin) for one in known.alerts}


def _check(case: Case, times: list[int]) -> None:
    rule = tocsin.Rule(**case.keywords())
    watch = make_plan(rule, {name: list(table) for name, table in case.streams.items()}, arrival="arrival").watches[0]
    replay = Replay(Scenario("", 1, 1, 0, (), ()), watch, lambda *_: rule, _batches(case, watch))
    for time in sorted(times):
        replay.advance_to(time)
        assert _known(replay.known_alerts(time)) == _oracle(case, watch.rules[0].idle_timeout_us, time)


@ENGINE
@given(cases(), TIMES)
def test_known_alerts_equal_the_oracle(case: Case, times: list[int]) -> None:
    _check(case, times)


@ENGINE
@given(reduced(), TIMES)
def test_known_alerts_equal_the_oracle_when_rows_of_one_stream_are_omitted(case: Case, times: list[int]) -> None:
    _check(case, times)
