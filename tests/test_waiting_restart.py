"""A rule that gains or loses a wait between two runs continues its alert and its retained rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.driver import parts_of, plan_of
from tocsin import Rule
from tocsin.runtime.contract import Out
from tocsin.runtime.session import Session

SECOND = 1_000_000
WAITS: dict[str, dict[str, Any]] = {
    "fixed": {"wait": "3s"},
    "max": {"wait": "max"},
    "recall": {"recall": 0.9, "in_order": True},
}


def table(first_s: int, last_s: int, value: float) -> dict[str, np.ndarray]:
    ts = np.arange(first_s, last_s) * SECOND
    return {"ts": ts, "machine": np.full(len(ts), "m", object), "value": np.full(len(ts), value)}


def rows_of(first_s: int, last_s: int, value: float = 5.0) -> dict[str, dict[str, np.ndarray]]:
    return {"a": table(first_s, last_s, value), "b": table(first_s, last_s, 1.0)}


@pytest.mark.parametrize("kind", WAITS)
def test_alert_and_retained_rows_continue_when_a_wait_is_added_and_removed(kind: str) -> None:
    keywords: dict[str, Any] = {"within": "10s", "on": "machine", "stale": "1m"}
    pages: dict[str, bytes] = {}
    output, ids = Out(), []
    runs = [({}, rows_of(0, 30)), (WAITS[kind], rows_of(30, 90)), ({}, rows_of(90, 100))]
    for number, (quality, streams) in enumerate(runs):
        plan = plan_of(streams, Rule("x", "a - b > 3", **keywords, quality=quality))
        session = Session(plan, pages)
        for part in parts_of(plan, streams, (20,)):
            output.add(session.push(part))
        if number == len(runs) - 1:
            output.add(session.end())
        for name, page in session.changed_pages().items():
            if page is None:
                pages.pop(name)
            else:
                pages[name] = page
        ids.append([(row["state"], row["id"], row["quality"]) for row in output.alert_rows()])
    assert [state for state, _, _ in ids[0]] == ["firing"]
    # No event in the run with the wait and none in the run without it: the alert stays open.
    assert ids[0] == ids[1] == ids[2][: len(ids[0])]
    assert {mark for _, _, mark in ids[2]} == {"exact"}
    assert len({number for _, number, _ in ids[2]}) == 1


def test_rows_retained_before_a_wait_are_partners_of_rows_after_it() -> None:
    keywords: dict[str, Any] = {"within": "10s", "on": "machine"}
    streams = {"a": table(0, 5, 5.0), "b": table(0, 0, 1.0)}
    plan = plan_of(streams, Rule("x", "a - b > 3", **keywords))
    first = Session(plan)
    assert first.push(parts_of(plan, streams)[0]).alert_rows() == []
    pages = {name: page for name, page in first.changed_pages().items() if page is not None}
    streams = {"a": table(0, 0, 5.0), "b": table(5, 6, 1.0)}
    plan = plan_of(streams, Rule("x", "a - b > 3", **keywords, quality={"wait": "2s"}))
    second = Session(plan, pages)
    out = second.push(parts_of(plan, streams)[0])
    out.add(second.end())
    assert [(row["state"], row["startsAt"]) for row in out.alert_rows()][:1] == [("firing", 5 * SECOND)]
