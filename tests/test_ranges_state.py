"""The state of rules with ranges: damaged, missing and foreign pages, rules that change, calls that are hostile."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from tocsin import RangeRule, RunError
from tocsin.plan import Plan, alive_requests, make_plan
from tocsin.runtime.contract import Batch, Out
from tocsin.runtime.session import Session
from tocsin.runtime.state_codec import pack

COLUMNS = {"orders": ["symbol", "ts", "id", "low", "high", "threshold"], "trades": ["symbol", "ts", "price", "volume"]}
SETTINGS: list[dict[str, Any]] = [{}, {"within": "1h"}, {"rearm": "0s"}, {"within": "1h", "rearm": "5s"}]


def plan_of(**settings: Any) -> Plan:
    return make_plan(
        RangeRule("Sold", "trades.price", "orders", weight="trades.volume", on="symbol", **settings), COLUMNS
    )


def asking(*requests: dict[str, Any], key: tuple[str, ...] = ("a",), first: int = 0) -> Batch:
    """Requests of one key, one after the other."""
    count = len(requests)
    values = {
        name: np.array([row.get(name, np.nan) for row in requests], np.float64) for name in ("low", "high", "threshold")
    }
    payload = np.array([json.dumps(row) for row in requests], dtype=object)
    number = np.arange(first, first + count)
    return Batch(0, "orders", [key], np.zeros(count, np.int64), number, number, values, payload)


def counting(*volumes: int, key: tuple[str, ...] = ("a",), first: int = 1000) -> Batch:
    """Rows of one key at one price."""
    number = np.arange(first, first + len(volumes))
    values = {"price": np.full(len(volumes), 5.0), "volume": np.array(volumes, np.float64)}
    return Batch(0, "trades", [key], np.zeros(len(volumes), np.int64), number, number, values)


def state_of(plan: Plan, *calls: list[Batch]) -> tuple[dict[str, bytes], Out]:
    pages, whole = dict[str, bytes](), Out()
    session = Session(plan, pages)
    for call in calls:
        whole.add(session.push(call))
        for name, page in session.changed_pages().items():
            if page is None:
                pages.pop(name, None)
            else:
                pages[name] = page
    return pages, whole


@pytest.mark.parametrize("settings", SETTINGS)
def test_a_page_that_is_lost_damaged_or_another_is_refused_by_its_name(settings: dict[str, Any]) -> None:
    plan = plan_of(**settings)
    pages, _ = state_of(plan, [asking({"id": 1, "threshold": 50}, {"id": 2, "threshold": 9})], [counting(1, 2)])
    assert len(pages) > 2
    for name in pages:
        wrong = {"lost": None, "short": pages[name][:-1], "other": pack({"other": np.zeros(1)}, kind="other")}
        for kind, page in wrong.items():
            changed = {**pages, name: page} if page is not None else {n: p for n, p in pages.items() if n != name}
            for read in (lambda given: Session(plan, given), lambda given: list(alive_requests(given))):
                with pytest.raises(RunError, match=r"ranges/[0-9a-f]{16}/0"):
                    read(changed)
            assert kind


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("changed", SETTINGS)
def test_under_other_settings_requests_are_forgotten_and_counted_so(
    settings: dict[str, Any], changed: dict[str, Any]
) -> None:
    pages, before = state_of(plan_of(**settings), [asking({"id": 1, "threshold": 50})], [counting(1, 2)])
    session = Session(plan_of(**changed), pages)
    before.add(session.push([counting(1, first=2000)]))
    parts = before.counts["orders"]
    assert parts["received"] == parts["retained"] + parts["expired"] + parts["quarantined"]
    # How long a request rests may change, and with a window whether it comes again.
    alike = settings.get("within") == changed.get("within") and ("within" in changed or settings == changed)
    assert parts["retained"] == (1 if alike else 0)


def test_requests_stay_when_they_shall_rest_for_another_time() -> None:
    second = 1_000_000
    before, after = plan_of(rearm="10s"), plan_of(rearm="2s")
    pages, _ = state_of(before, [asking({"id": 1, "threshold": 3}, {"id": 2, "threshold": 9})], [counting(4)])
    assert [(one.query, one.total) for one in alive_requests(pages)] == [("1", 0), ("2", 4)]
    session, found = Session(after, pages), []
    for moment in range(1, 16):
        found += session.push([counting(3, first=1000 + moment * second)]).alert_rows()
    # The first rests for the ten seconds of before; then two seconds of rest after every row are what there is now.
    reached = [(row["labels"]["query"], (row["startsAt"] - 1000) // second) for row in found]
    assert [at for name, at in reached if name == "1"] == [10, 12, 14]
    assert [at for name, at in reached if name == "2"] == [2, 6, 10, 14]


def test_of_a_key_in_parts_what_was_counted_is_forgotten_and_no_more() -> None:
    rows = [counting(1, 2, key=("a", part)) for part in ("0", "1")]
    pages, whole = state_of(plan_of(within="1h", shards=2), [asking({"id": 1, "threshold": 50}, key=("a", "1")), *rows])
    assert whole.counts["trades"]["retained"] == 2
    whole.add(Session(plan_of(), pages).push([counting(1, key=("b",), first=2000)]))
    assert whole.counts["trades"]["retained"] == 0
    assert whole.counts["trades"]["received"] == 3


def test_an_id_that_is_renewed_again_and_again_in_one_call_is_one_request() -> None:
    one = {"id": 1, "threshold": 50}
    rows = [one if number % 2 == 0 else one | {"action": "terminate"} for number in range(8_001)]
    pages, whole = state_of(plan_of(), [asking(*rows)])
    assert whole.counts["orders"]["retained"] == 1
    assert [one.query for one in alive_requests(pages)] == ["1"]


def test_changed_pages_are_empty_when_a_request_matures_in_the_call_that_registers_it() -> None:
    session = Session(plan_of())
    out = session.push([asking({"id": 1, "low": 0, "high": 9, "threshold": 2}), counting(1, 2)])
    assert len(out.alert_rows()) == 1
    assert session.changed_pages() == {}


@pytest.mark.parametrize("action", [["register"], {}, 7, "drop"])
def test_an_action_that_is_none_is_refused_whatever_it_is(action: Any) -> None:
    _, whole = state_of(plan_of(), [asking({"id": 1, "threshold": 5, "action": action}, {"id": 2, "threshold": 5})])
    assert (whole.counts["orders"]["quarantined"], whole.counts["orders"]["retained"]) == (1, 1)
    assert whole.dead[0]["reason"].startswith("`action` must be register or terminate")


def test_a_payload_that_json_cannot_read_costs_its_own_row_alone() -> None:
    batch = asking({"id": 1, "threshold": 5}, {"id": 2, "threshold": 5}, {"id": 3, "threshold": 5})
    assert isinstance(batch.payload, np.ndarray)
    batch.payload[0] = '{"id": 1, "deep": ' + "[" * 100_000 + "]" * 100_000 + "}"
    batch.payload[1] = '{"id": ' + "9" * 5000 + "}"
    _, whole = state_of(plan_of(), [batch])
    assert (whole.counts["orders"]["quarantined"], whole.counts["orders"]["retained"]) == (2, 1)


def test_rows_that_are_shown_because_they_cannot_be_used_are_cut() -> None:
    _, whole = state_of(plan_of(), [asking({"id": 1, "note": "x" * 100_000})])
    assert len(whole.dead[0]["raw"]) == 4096


def test_a_request_of_the_last_moment_counts_no_row_before_it() -> None:
    last = np.iinfo(np.int64).max
    columns = {"trades": COLUMNS["trades"], "orders": COLUMNS["orders"]}
    plan = make_plan(RangeRule("Sold", "trades.price", "orders", weight="trades.volume", on="symbol"), columns)
    ask, count = asking({"id": 1, "threshold": 1}), counting(5)
    ask = Batch(0, "orders", ask.keys, ask.key, ask.time, np.array([last]), ask.values, ask.payload)
    count = Batch(0, "trades", count.keys, count.key, count.time, np.array([last]), count.values)
    assert not Session(plan).push([count, ask]).alert_rows()
