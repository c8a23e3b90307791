"""What pages say of sinks: by where each has come, when, what it refused, and what it was not told."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request

from dashboard.plant import all_alerts, change, copied
from tocsin.dashboard import delivery
from tocsin.dashboard.pages.alert import alert_page
from tocsin.dashboard.store import Store
from tocsin.delivery import AlertWriter, Position
from tocsin.delivery.delivery import Delivery as CourierDelivery
from tocsin.delivery.sinks import ConsoleSink, LogSink

SECOND = 1_000_000


def _store(folder: Path) -> Store:
    store = Store([folder])
    store.look()
    return store


def test_delivery_is_told_by_where_a_sink_has_come(plant: Path, tmp_path: Path) -> None:
    folder = copied(plant / "run", tmp_path / "run")
    rejected = {"position": [2, 1], "status": 400, "response": "no such team", "alert": {}}
    (folder / "delivery" / "webhook.rejected.jsonl").write_text("{torn\n" + json.dumps(rejected) + "\n")
    store = _store(folder)
    run = store.runs["run"]
    delivery = store.delivery(run)
    said = {place: delivery.of(Position(*place), "firing")[0] for place in ((2, 0), (2, 1), (5, 3), (5, 4))}
    assert [said[place].what for place in said] == [
        "delivered",
        "rejected: 400 no such team",
        "delivered",
        "not delivered yet: connection refused",
    ]
    assert [said[place].is_good for place in said] == [True, False, True, False]


def test_a_sink_is_not_said_to_take_a_state_that_it_is_not_told(tmp_path: Path) -> None:
    """By the real couriers: a console that shows what fires, and a copy of everything."""
    folder = tmp_path / "run"
    ends = {"id": "a", "ends_us": 3 * SECOND}
    rows = [change("Hot", "pending", SECOND, id="a"), change("Hot", "inactive", SECOND, **ends)]
    AlertWriter(folder / "alerts").write(0, [*rows, change("Hot", "firing", 5 * SECOND, id="b")])
    sinks = {"console": ConsoleSink(states=["firing"]), "copy": LogSink(path=str(tmp_path / "copy"))}
    delivery = CourierDelivery(folder, sinks, drain=True)
    delivery.start()
    assert delivery.join(60)
    store = _store(folder)
    run = store.runs["run"]
    told = store.delivery(run)
    said = [
        [one.what for one in told.of(place, state)]
        for known in all_alerts(run.index)
        for place, state in store.changes(run, known)
    ]
    moment = re.compile(r"delivered by (20\d\d-\d\d-\d\d \d\d:\d\d:\d\d)")
    assert [[bool(moment.fullmatch(text)) or text for text in some] for some in said] == [
        ["not sent: the sink does not accept `pending`", True],
        ["not sent: the sink does not accept `inactive`", True],
        [True, True],
    ]


def test_what_is_read_for_alertmanager_and_not_told_is_not_taken(plant: Path, tmp_path: Path) -> None:
    folder = copied(plant / "run", tmp_path / "run")
    path = folder / "delivery" / "webhook.json"
    told = {**json.loads(path.read_text()), "unsent": {"a": ["firing"], "b": "x"}}
    path.write_text(json.dumps(told))
    store = _store(folder)
    delivery = store.delivery(store.runs["run"])
    asked = [("firing", "a"), ("resolved", "a"), ("firing", "b"), ("firing", "c")]
    said = [delivery.of(Position(1, 0), state, alert)[0].what for state, alert in asked]
    assert said == ["not delivered yet: connection refused", "delivered", "delivered", "delivered"]


def test_when_a_sink_took_a_change_is_told_by_the_first_step_that_reached_it(plant: Path, tmp_path: Path) -> None:
    folder = copied(plant / "run", tmp_path / "run")
    steps = [
        [0, 3, "2026-01-01T00:01:02.500000Z"],
        [2, 1, "2026-01-01T00:03:04.000000Z"],
        # It was restarted, and told again what it had told.
        [1, 0, "2026-01-02T00:00:00.000000Z"],
        [9, 9, "2026-01-03T00:00:00.000000Z"],
    ]
    lines = [json.dumps(step) for step in steps]
    lines[2:2] = ["{torn", "[1]", '["x", 1, "y"]', "[1, 2, 3]", "5", '{"0": 1}']
    (folder / "delivery" / "webhook.positions.jsonl").write_text("\n".join(lines))
    store = _store(folder)
    told = store.delivery(store.runs["run"])
    said = [told.of(Position(*place), "firing")[0].what for place in ((0, 0), (0, 3), (1, 0), (2, 1), (5, 3))]
    assert said == [
        "delivered by 2026-01-01 00:01:02",
        "delivered by 2026-01-01 00:01:02",
        "delivered by 2026-01-01 00:03:04",
        "delivered by 2026-01-01 00:03:04",
        "delivered by 2026-01-03 00:00:00",
    ]


def test_what_sinks_refused_is_read_once_for_a_page(
    plant: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = copied(plant / "run", tmp_path / "run")
    (folder / "delivery" / "webhook.rejected.jsonl").write_text('{"position": [0, 0], "status": 400}\n5\n')
    opened: list[str] = []
    whole = delivery.open_file

    def counted(path: Path) -> Any:
        opened.append(path.name)
        return whole(path)

    monkeypatch.setattr(delivery, "open_file", counted)
    store = _store(folder)
    run = store.runs["run"]
    one = next(
        one for one in all_alerts(run.index) if one.changed > 1 and store.changes(run, one)[-1].position.batch < 5
    )
    page = alert_page(store, run, Request({"type": "http", "path_params": {"alert": one.id}, "query_string": b""}))
    assert page.count("webhook: ") >= 2
    assert opened.count("webhook.rejected.jsonl") == 1


def test_of_refusals_that_are_not_read_any_more_nothing_is_called_taken(
    plant: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = copied(plant / "run", tmp_path / "run")
    lines = [json.dumps({"position": [batch, 0], "status": 400, "response": "no"}) for batch in range(4)]
    (folder / "delivery" / "webhook.rejected.jsonl").write_text("\n".join([*lines, ""]))
    store = _store(folder)
    asked = [Position(*place) for place in ((0, 0), (1, 0), (1, 1), (2, 0), (2, 1), (3, 0))]

    def said() -> list[str]:
        told = store.delivery(store.runs["run"])
        return [told.of(position, "firing")[0].what for position in asked]

    no = "rejected: 400 no"
    assert said() == [no, no, "delivered", no, "delivered", no]
    monkeypatch.setattr(delivery, "_MOST_BYTES", 2 * len(lines[0]) + 9)
    unknown = "delivered or rejected, no longer known"
    assert said() == [unknown, unknown, unknown, no, "delivered", no]
    monkeypatch.setattr(delivery, "_MOST_BYTES", 9)
    assert said() == [unknown] * 6
