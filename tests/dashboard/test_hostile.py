"""Run directories and requests that mean harm: nothing waits, no page breaks, memory is bounded."""

from __future__ import annotations

import asyncio
import http.client
import json
import math
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.requests import Request

from dashboard.asked import served
from dashboard.plant import all_alerts, change, copied
from tests.example_counts import ENGINE
from tocsin.dashboard import app
from tocsin.dashboard.alert_index import MOST_CHANGES, AlertFilter, AlertIndex
from tocsin.dashboard.alert_records import id_in_address, token_of
from tocsin.dashboard.pages.alert import alert_page
from tocsin.dashboard.pages.compare import diff_page
from tocsin.dashboard.pages.lists import plan_page, rules_page, stream_names, streams_page
from tocsin.dashboard.pages.overview import overview_page, runs_page
from tocsin.dashboard.pages.ranges import ranges_page
from tocsin.dashboard.pages.rule import rule_page
from tocsin.dashboard.pages.stream import stream_page
from tocsin.dashboard.store import Store
from tocsin.delivery import AlertWriter

SECOND = 1_000_000


def _asked(query: bytes = b"", **parameters: str) -> Request:
    return Request({"type": "http", "path_params": parameters, "query_string": query, "headers": []})


def _every_page(store: Store, name: str) -> list[str]:
    """All pages of a run, without a server, so that what goes wrong is raised."""
    run = store.runs[name]
    made = [page(store, run, _asked()) for page in (overview_page, rules_page, streams_page, plan_page)]
    made.append(ranges_page(store, run, _asked(b"id=x")))
    made += [rule_page(store, run, _asked(rule=token_of(row.alert))) for row in store.rules(run)[:8]]
    made += [alert_page(store, run, _asked(alert=one.id)) for one in all_alerts(run.index)[::9]]
    streams = stream_names(run, store.stores(run))
    made += [stream_page(store, run, _asked(stream=token_of(stream))) for stream in streams[:6]]
    made += [runs_page(store, _asked()), diff_page(store, _asked(f"a={name}&b={name}".encode()))]
    assert all(page.encode() for page in made)
    return made


def _within(seconds: float, what: Callable[[], Any]) -> Any:
    """Do something that must not wait for ever."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(what()), daemon=True)
    thread.start()
    thread.join(seconds)
    assert found, "it waits"
    return found[0]


@pytest.mark.parametrize(
    "name", ["lock", "delivery/webhook.rejected.jsonl", "delivery/webhook.json", "progress.jsonl", "dead/9.jsonl"]
)
def test_a_pipe_is_not_waited_for(plant: Path, tmp_path: Path, name: str) -> None:
    folder = copied(plant / "run", tmp_path / "run")
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)

    def pages() -> list[str]:
        store = Store([folder])
        store.look()
        return _every_page(store, "run")

    made = _within(120, pages)
    assert ("cannot read <code>progress.jsonl</code>: not a file" in made[0]) == (name == "progress.jsonl")


def test_an_alert_log_that_is_no_folder_is_told(plant: Path, tmp_path: Path) -> None:
    folder = copied(plant / "run", tmp_path / "run")
    (folder / "alerts").rename(tmp_path / "alerts")
    (folder / "alerts").write_text("")
    store = Store([folder])
    store.look()
    assert store.runs["run"].faults == ["`alerts` is not a folder"]
    (folder / "alerts").unlink()
    os.symlink("alerts", folder / "alerts")
    store.look()
    assert "cannot read the folder `alerts`" in store.runs["run"].faults[0]
    (folder / "alerts").unlink()
    (tmp_path / "alerts").rename(folder / "alerts")
    store.look()
    assert store.runs["run"].faults == []
    assert len(all_alerts(store.runs["run"].index)) > 25


@pytest.mark.parametrize(
    "content",
    [
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"sink": "webhook", "position": [Infinity, 1]}',
        b'{"sink": "webhook", "position": {"0": 1}, "failing": [], "acceptedStates": 5, "kind": {}}',
        b'{"sink": "webhook", "position": "99", "failing": 1, "lastError": {"x": [1]}, "acceptedStates": [[]]}',
    ],
)
def test_a_sink_that_tells_nonsense_of_itself_breaks_no_page(plant: Path, tmp_path: Path, content: bytes) -> None:
    folder = copied(plant / "run", tmp_path / "run")
    (folder / "delivery" / "webhook.json").write_bytes(content)
    store = Store([folder])
    store.look()
    _every_page(store, "run")


NUMBERS = (10**400, -(10**400), 1 << 63, 1e308, -1e308, math.nan, math.inf)
WILD = st.sampled_from(
    (None, True, -1, "", "x", "\ud800", "9" * 30, [], [1], [[]], [None, None], {}, {"a": 1}, {"a": {"b": []}}, *NUMBERS)
)
SUMMARY = {
    "ok": True,
    "file": "rules.yaml",
    "rows": 5,
    "seconds": 1.2,
    "streams": {"air": {"received": 4, "retained": 4, "kept": 4}},
    "recall": [{"alert": "TooDamp", "requested": "recall 0.9", "recall": 0.9, "lowest": 0.5, "wait_us": 1000.0}],
    "against": {"file": "before.yaml"},
    "oldest_us": 0,
    "newest_us": 5,
}


def _changed(given: Any, data: st.DataObject) -> Any:
    """The same, with something else, or nothing, at one place."""
    if not isinstance(given, dict | list) or not given or data.draw(st.integers(0, 6)) == 0:
        return data.draw(WILD)
    place = data.draw(st.sampled_from(sorted(given) if isinstance(given, dict) else range(len(given))))
    if data.draw(st.integers(0, 12)) == 0 and isinstance(given, dict):
        return {name: value for name, value in given.items() if name != place}
    if isinstance(given, dict):
        return {**given, place: _changed(given[place], data)}
    return [*given[:place], _changed(given[place], data), *given[place + 1 :]]


@pytest.mark.parametrize("name", ["manifest.json", "progress.jsonl", "summary.json", "delivery/webhook.json"])
@settings(ENGINE, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_whatever_a_file_holds_every_page_is_made(plant: Path, tmp_path: Path, name: str, data: st.DataObject) -> None:
    folder = tmp_path / "run"
    if not folder.exists():
        copied(plant / "run", folder)
    lines = (plant / "run" / "progress.jsonl").read_bytes().splitlines(keepends=True)
    if name == "progress.jsonl":
        (folder / name).write_bytes(lines[0] + json.dumps(_changed(json.loads(lines[-1]), data)).encode() + b"\n")
    elif name == "summary.json":
        # Of a backtest there is no progress, and its counts are those of the summary.
        (folder / "progress.jsonl").unlink(missing_ok=True)
        (folder / name).write_text(json.dumps(_changed(SUMMARY, data)))
    else:
        (folder / name).write_text(json.dumps(_changed(json.loads((plant / "run" / name).read_text()), data)))
    store = Store([folder])
    store.look()
    _every_page(store, "run")


@pytest.mark.parametrize("value", [None, 5, "x", [5, None], [[]], {"a": 5}, {"a": [{}]}, 1e308], ids=repr)
def test_whatever_a_manifest_says_of_rules_and_streams_every_page_is_made(
    plant: Path, tmp_path: Path, value: Any
) -> None:
    manifest = json.loads((plant / "run" / "manifest.json").read_text())
    folder = copied(plant / "run", tmp_path / "run")
    store = Store([folder])
    for kind, parts in (("rules", manifest["rules"][0]), ("streams", manifest["streams"]["air"])):
        for name in [part for part in parts if part != "alert"]:
            every = manifest[kind].values() if kind == "streams" else manifest[kind]
            wrong = [{**told, name: value} for told in every]
            told = dict(zip(manifest["streams"], wrong, strict=False)) if kind == "streams" else wrong
            (folder / "manifest.json").write_text(json.dumps({**manifest, kind: told}))
            store.look()
            run = store.runs["run"]
            for alert in ("Condensation", "NoData"):
                rule_page(store, run, _asked(rule=token_of(alert)))
            stream_page(store, run, _asked(stream=token_of("air")))
            rules_page(store, run, _asked())
            plan_page(store, run, _asked())
            alert_page(store, run, _asked(alert=all_alerts(run.index)[0].id))


def test_one_run_that_cannot_be_looked_at_stops_no_other(
    plant: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bad").mkdir()
    store = Store([tmp_path / "bad", plant / "run"])

    def fails(*_: Any) -> None:
        raise RuntimeError

    monkeypatch.setattr(store.runs["bad"], "look", fails)
    store.look()
    assert len(all_alerts(store.runs["run"].index)) > 25


@pytest.mark.parametrize("name", ["x\udcff y", "a~against", "%2e%2e", "<b>&?#", "\u202eevil", "#", "..."])
def test_a_folder_of_any_name_has_an_address(plant: Path, tmp_path: Path, name: str) -> None:
    folder = copied(plant / "run", tmp_path / name)
    with served(folder, copied(plant / "run", tmp_path / "other")) as server:
        first = next(iter(server.store.runs))
        link = server.get("/").text.partition('<h2><a href="')[2].partition('"')[0]
        assert server.get(link).code == 200
        assert "~" not in first


def test_a_line_that_is_far_too_long_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the log has those behind it at the places that are known."""
    monkeypatch.setattr("tocsin.delivery.alert_log._MAX_LINE_BYTES", 2_000)
    folder = tmp_path / "run"
    path = AlertWriter(folder / "alerts").write(0, [change("Hot", "firing", n * SECOND, id=f"{n}") for n in range(2)])
    assert path is not None
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + b"x" * 7_500 + b"\n" + b"y" * 1_999 + b"\n" + lines[1])
    store = Store([folder])
    store.look()
    run = store.runs["run"]
    assert run.index.unreadable == 2
    found = [store.change(run, store.changes(run, one)[0].position) for one in all_alerts(run.index)]
    assert [one and one["id"] for one in found] == ["0", "1"]


def test_long_labels_and_ids_are_known_by_their_beginning_and_told_apart(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    rows = [
        change("Hot", "firing", SECOND, id="i" * 500_000 + str(n), labels={"m": "x" * 1_000_000 + str(n)})
        for n in range(6)
    ]
    AlertWriter(folder / "alerts").write(0, rows)
    store = Store([folder])
    store.look()
    run = store.runs["run"]
    assert sum(len(value) for one in all_alerts(run.index) for _, value in (*one.labels, ("", one.id))) < 100_000
    assert len({one.labels for one in all_alerts(run.index)}) == len({one.id for one in all_alerts(run.index)}) == 6
    assert [len(store.alerts(run, AlertFilter(text=one.id)).alerts) for one in all_alerts(run.index)] == [1] * 6
    with served(folder) as server:
        for name in (id_in_address(one.id) for one in all_alerts(run.index)):
            page = server.get(f"/run/run/alert/{name}")
            assert page.code == 200
            assert "1,000,001 characters" in page.text


def test_long_names_and_qualities_and_very_many_labels_fill_no_memory_and_are_told_apart(tmp_path: Path) -> None:
    labels = [{f"name-{i:05}": "x" for i in range(5_000 + n)} for n in range(3)]
    long = "x" * 500_000
    rows = [change(f"{long}{n}", "firing", SECOND, id=f"{n}", labels=labels[n], quality=f"{long}{n}") for n in range(3)]
    AlertWriter(tmp_path / "run" / "alerts").write(0, rows)
    store = Store([tmp_path / "run"])
    store.look()
    index = store.runs["run"].index
    found = all_alerts(index)
    told = [(one.alert, one.quality, *one.labels) for one in found]
    assert sum(len(str(one)) for one in told) < 50_000
    assert (
        len(index.rules)
        == len({one.labels for one in all_alerts(index)})
        == len({one.quality for one in all_alerts(index)})
        == 3
    )
    assert [one.labels[-1][1].rpartition(",")[0] for one in all_alerts(index)] == [
        f"4,90{n} more labels" for n in range(3)
    ]
    _every_page(store, "run")


def test_an_alert_that_changes_without_end_is_known_by_its_first_and_its_newest_changes(tmp_path: Path) -> None:
    index = AlertIndex(tmp_path)
    AlertWriter(tmp_path).write(0, [change("Hot", "firing", SECOND, id="a")] * 1_000)
    list(index.read())
    (one,) = all_alerts(index)
    assert one.changed == 1_000
    assert [change.position.line for change in index.changes_of(one)] == [0, *range(1_001 - MOST_CHANGES, 1_000)]


def test_listeners_are_bounded_and_those_who_go_make_room(plant: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "MOST_LISTENERS", 3)
    with served(plant / "run") as server:
        open_ones = []
        for _ in range(3):
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
            connection.request("GET", "/events")
            answer = connection.getresponse()
            assert answer.readline().startswith(b"data: ")
            open_ones.append((connection, answer))
        refused = server.get("/events")
        assert refused.code == 503
        assert refused.headers["retry-after"] == "15"
        assert server.get("/run/run").code == 200
        for connection, answer in open_ones:
            answer.close()
            connection.close()

        async def until_free() -> None:
            while (await asyncio.to_thread(server.get, "/events", method="HEAD")).code != 200 or not _listens(server):
                await asyncio.sleep(0.1)

        asyncio.run(asyncio.wait_for(until_free(), 60))


def _listens(server: Any) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    connection.request("GET", "/events")
    answer = connection.getresponse()
    connection.close()
    return answer.status == 200


def test_listeners_are_bounded_though_they_ask_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "MOST_LISTENERS", 3)
    made, codes, all_asked = app.make_app(Store([tmp_path])), list[int](), asyncio.Event()

    async def listen() -> None:
        async def receive() -> dict[str, Any]:
            await all_asked.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            codes.extend([message["status"]] if message["type"] == "http.response.start" else [])
            if len(codes) == 10:
                all_asked.set()

        asked = {"type": "http", "method": "GET", "path": "/events", "query_string": b"", "root_path": ""}
        await made({**asked, "headers": [(b"host", b"localhost")], "asgi": {"version": "3.0"}}, receive, send)

    async def listen_at_once() -> None:
        await asyncio.gather(*(listen() for _ in range(10)))

    asyncio.run(listen_at_once())
    assert sorted(codes) == [200] * 3 + [503] * 7


def test_a_head_of_news_has_an_end(plant: Path) -> None:
    """A second request on the same connection is answered, so the first has ended."""
    with served(plant / "run") as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
        for path in ("/events", "/health"):
            connection.request("HEAD", path)
            answer = connection.getresponse()
            assert (answer.status, answer.read()) == (200, b"")
        connection.close()


@pytest.mark.parametrize(
    "headers",
    [
        {"Cookie": "tocsin_session=" + "a" * 30_000},
        {"Cookie": "; ".join(f"c{n}={'x' * 20}" for n in range(900))},
        {"Cookie": 'tocsin_session="\\377\\"'},
        {"Authorization": "Bearer " + "\xff" * 900},
        {"Authorization": "Basic AAAA"},
        {"Authorization": "Bearer"},
        {"Accept": "text/html", "Sec_Fetch_Mode": "navigate\xff"},
        {"X_Forwarded_Proto": "javascript", "X_Forwarded_For": "<b>, \xff"},
    ],
)
def test_headers_of_any_kind_open_nothing(
    plant: Path, headers: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    with served(plant / "run", token="a-token-that-nobody-guesses") as server:
        assert server.get("/run/run", **headers).code in {401, 303}
        assert server.get("/health", **headers).code in {401, 303}
        server.get("/run/run", Authorization="Bearer a-token-that-nobody-guesses", **{"X-Y": "z"})
    assert "nobody-guesses" not in caplog.text
