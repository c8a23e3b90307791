"""What pages ask of a store: answers stay as they are, and those that take long are made once."""

from __future__ import annotations

import re
import threading
from pathlib import Path

import pytest
from starlette.requests import Request

from dashboard.asked import served
from dashboard.plant import all_alerts, change
from tocsin.dashboard import comparison
from tocsin.dashboard.alert_index import AlertFilter
from tocsin.dashboard.pages.overview import overview_page
from tocsin.dashboard.store import Store
from tocsin.delivery import AlertWriter
from tocsin.report import Difference, Result

SECOND = 1_000_000


def test_what_a_query_gave_stays_as_it_is(tmp_path: Path) -> None:
    writer = AlertWriter(tmp_path / "run" / "alerts")
    writer.write(0, [change("Hot", "firing", SECOND, id="a", margin=2.0)])
    store = Store([tmp_path / "run"])
    store.look()
    (one,) = store.lives(store.runs["run"], "Hot")
    writer.write(1, [change("Hot", "resolved", SECOND, id="a", margin=None, ends_us=9 * SECOND)])
    store.look()
    assert (one.state, one.end_us, one.margin) == ("firing", None, 2.0)
    (now,) = store.lives(store.runs["run"], "Hot")
    assert (now.state, now.end_us, now.margin) == ("resolved", 9 * SECOND, None)


def test_while_a_difference_is_made_others_have_the_last_one_and_hear_of_the_newer_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writers = [AlertWriter(tmp_path / name / "alerts") for name in ("one", "two")]
    for writer in writers:
        writer.write(0, [change("Hot", "firing", SECOND, id="a")])
    store = Store([tmp_path / "one", tmp_path / "two"])
    store.look()
    runs = (store.runs["one"], store.runs["two"])
    begun, goes_on, made = threading.Event(), threading.Event(), list[int]()
    whole = comparison.compare

    def slow(first: Result, second: Result) -> Difference:
        made.append(len(first.lives))
        begun.set()
        assert goes_on.wait(60)
        return whole(first, second)

    monkeypatch.setattr(comparison, "compare", slow)
    goes_on.set()
    old = store.difference(*runs)
    # A micro-batch without alerts makes nothing anew.
    runs[0].version += 1
    assert store.difference(*runs) is old
    goes_on.clear()
    begun.clear()
    writers[0].write(1, [change("Hot", "firing", 2 * SECOND, id="b", labels={"m": "2"})])
    store.look()
    version, found = store.version, list[Difference]()
    maker = threading.Thread(target=lambda: found.append(store.difference(*runs)))
    maker.start()
    assert begun.wait(60)
    assert store.difference(*runs) is old
    with store.lock:
        pass
    goes_on.set()
    maker.join()
    assert store.version != version
    assert [len(found[0].only_first), len(found[0].both)] == [1, 1]
    assert store.difference(*runs) is found[0]
    assert made == [1, 2]


def test_the_other_version_of_a_backtest_goes_with_its_folder_and_comes_back(tmp_path: Path) -> None:
    folder = tmp_path / "january"
    for alerts in (folder / "alerts", folder / "against" / "alerts"):
        AlertWriter(alerts).write(0, [change("Hot", "match", SECOND, id="a", ends_us=SECOND)])
    (folder / "summary.json").write_text("{}")
    store = Store([folder])
    store.look()
    assert list(store.runs) == ["january", "january~against"]
    (folder / "against").rename(tmp_path / "away")
    store.look()
    assert list(store.runs) == ["january"]
    (tmp_path / "away").rename(folder / "against")
    store.look()
    assert list(store.runs) == ["january", "january~against"]
    assert len(all_alerts(store.runs["january~against"].index)) == 1


def test_open_alerts_are_those_that_fire_and_those_that_are_pending(tmp_path: Path) -> None:
    states = ("firing", "pending", "resolved", "inactive", "match")
    rows = [
        change("Hot", state, n * SECOND, id=state, labels={"m": state}, ends_us=None if n < 2 else 9 * SECOND)
        for n, state in enumerate(states)
    ]
    rows += [change("Cold", "pending", n * SECOND, id=f"{n}", labels={"m": str(n)}) for n in range(30)]
    AlertWriter(tmp_path / "run" / "alerts").write(0, rows)
    store = Store([tmp_path / "run"])
    store.look()
    run = store.runs["run"]
    found = store.alerts(run, AlertFilter(state="open", alert="Hot")).alerts
    assert {one.state for one in found} == {"firing", "pending"}
    page = overview_page(store, run, Request({"type": "http", "query_string": b"", "headers": []}))
    assert '<a href="/run/run/alerts?state=open">All 32 open alerts</a>' in page


def test_files_that_are_named_by_their_content_are_kept_by_a_browser_and_pages_are_not(tmp_path: Path) -> None:
    with served(tmp_path) as server:
        page = server.get("/login")
        named = re.findall(r'"(/static/[^"?]+\?[0-9a-f]{12})"', page.text)
        asked = [*named, named[0].partition("?")[0], "/static/none.js?0", "/login", "/health?0"]
        told = [server.get(path).headers["cache-control"] for path in asked]
    assert len(named) >= 3
    assert told == ["public, max-age=31536000, immutable"] * len(named) + ["no-store"] * 4
