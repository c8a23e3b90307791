"""The pages over HTTP: who may ask, what a browser may do, and that nothing in a run directory becomes markup."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
from collections.abc import Iterator
from functools import partial
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from starlette.requests import Request

from dashboard.asked import Server, evil_run, served
from dashboard.plant import all_alerts, change, copied
from tocsin.dashboard.alert_index import AlertFilter
from tocsin.dashboard.alert_records import token_of
from tocsin.dashboard.guard import HEADERS, Guard
from tocsin.dashboard.pages.alert import alert_page
from tocsin.dashboard.pages.compare import diff_page
from tocsin.dashboard.pages.lists import alerts_page, plan_page, rules_page, streams_page
from tocsin.dashboard.pages.overview import overview_page, runs_page
from tocsin.dashboard.pages.ranges import ranges_page
from tocsin.dashboard.pages.rule import rule_page
from tocsin.dashboard.pages.stream import stream_page
from tocsin.dashboard.render import address
from tocsin.dashboard.rundata import RunData
from tocsin.dashboard.serve import Where
from tocsin.dashboard.store import Store
from tocsin.delivery import AlertWriter
from tocsin.delivery.alert_json import alert_page_url
from tocsin.errors import RunError

TOKEN = "a-token-that-nobody-guesses"


@pytest.fixture(scope="module")
def server(plant: Path) -> Iterator[Server]:
    """One server for all who only ask."""
    with served(plant / "run") as started:
        yield started


class _Reading(HTMLParser):
    """What a browser would make of a page: elements, their attributes, links."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attributes]
        self.links += [value or "" for name, value in attributes if tag == "a" and name == "href"]


def _read(text: str) -> _Reading:
    reading = _Reading()
    reading.feed(text)
    return reading


def _pages(server: Server, most: int = 400) -> dict[str, str]:
    """Every page that can be reached by links, from the first on."""
    found: dict[str, str] = {}
    wanted = ["/", "/diff"]
    while wanted and len(found) < most:
        path = wanted.pop(0)
        if path in found or path.startswith("#"):
            continue
        answer = server.get(path)
        while answer.code in {303, 307}:
            answer = server.get(answer.headers["location"])
        assert answer.code == 200, path[:200]
        found[path] = answer.text
        wanted += [link for link in _read(answer.text).links if link not in found]
    return found


def test_every_page_of_a_plant_can_be_reached_and_every_link_leads_somewhere(plant: Path) -> None:
    with served(plant / "run") as server:
        found = _pages(server)
    kinds = {re.sub(r"/(rule|alert|stream)/[^?]*", r"/\1", path.partition("?")[0]) for path in found}
    parts = ("", "/alerts", "/alert", "/rules", "/rule", "/streams", "/stream", "/plan")
    assert kinds == {"/", "/diff", *(f"/run/run{part}" for part in parts)}
    assert len(found) > 35


def test_every_page_has_a_title_a_heading_and_names_for_what_can_be_used(plant: Path) -> None:
    with served(plant / "run") as server:
        found = _pages(server, 40)
    for path, text in found.items():
        reading = _read(text)
        assert reading.tags.count("h1") == 1, path
        assert reading.tags.count("title") >= 1, path
        assert text.count('id="main"') == 1
        named = dict.fromkeys(value for name, value in reading.attributes if name == "for")
        fields = re.findall(r"<(?:input|select)(?![^>]*hidden)[^>]*\bid=\"(\w+)\"", text)
        assert set(fields) <= set(named), path
        drawings = re.findall(r"<svg[^>]*>", text)
        assert all('aria-label="' in drawing for drawing in drawings), path
        ids = [value for name, value in reading.attributes if name == "id"]
        assert len(ids) == len(set(ids)), path
        regions = re.findall(r'<div class="wide"[^>]*>', text)
        assert all("tabindex" in region and "aria-label" in region for region in regions)


def test_pages_carry_a_strict_policy_and_need_nothing_from_elsewhere(plant: Path) -> None:
    with served(plant / "run") as server:
        found = _pages(server, 25)
        asked = [
            server.get(path)
            for path in ("/", "/run/run", "/static/dashboard.js", "/static/drawings.css", "/nope", "/health")
        ]
    for answer in asked:
        for name, value in HEADERS.items():
            assert answer.headers[name.lower()] == value
    policy = HEADERS["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    for path, text in found.items():
        reading = _read(text)
        assert {name for name, _ in reading.attributes if name.startswith("on") or name == "style"} == set(), path
        assert "style" not in reading.tags
        sources = [value for name, value in reading.attributes if name in {"src", "href", "action"}]
        assert all(value.startswith(("/", "#")) and not value.startswith("//") for value in sources), path
        assert re.findall(r"<script(?![^>]*\bsrc=\"/static/)", text) == []


def test_hostile_texts_are_shown_as_text_on_every_page(tmp_path: Path) -> None:
    evil_run(tmp_path / "run")
    with served(tmp_path / "run") as server:
        found = _pages(server)
    assert len(found) > 30
    for path, text in found.items():
        reading = _read(text)
        assert set(reading.tags) & {"img", "iframe", "object", "embed"} == set(), path[:100]
        assert reading.tags.count("script") <= 1, path[:100]
        assert not any(name.startswith("on") for name, _ in reading.attributes), path[:100]
        assert not any(value.startswith("javascript:") for name, value in reading.attributes if name in {"href", "src"})
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", text), path[:100]
        assert len(text) < 3_000_000, path[:100]
    assert any("&lt;script&gt;window.evil=1&lt;/script&gt;" in text for text in found.values())
    assert any("<code>&lt;script&gt;window.evil=1&lt;/script&gt;</code>" in text for text in found.values())
    assert any("1,000,000 characters" in text for text in found.values())


@pytest.mark.parametrize(
    "path",
    [
        "/run/none", "/run/run/alert/none", "/run/run/rule/none", "/run/run/stream/none", "/run/run/alert/none/picture",
        "/run/run/alert/%00", "/static/../app.py", "/static/%2e%2e/app.py", "/run/..%2f..%2fetc", "/none",
    ],
)  # fmt: skip
def test_what_is_not_there_is_said_in_a_page(server: Server, path: str) -> None:
    answer = server.get(path)
    assert answer.code == 404
    assert "Traceback" not in answer.text


@pytest.mark.parametrize("text", ["", "x" * 500, "%00", "<b>", "-1", "1e9", "9" * 40, "0" * 9, "\u202e", "a&b=c"])
@pytest.mark.parametrize("name", ["q", "state", "rule", "before", "page", "id", "a", "b", "part"])
def test_any_question_has_an_answer(server: Server, name: str, text: str) -> None:
    for page in ("/run/run/alerts", "/run/run/rules", "/run/run/ranges", "/diff"):
        answer = server.get(f"{page}?{name}={quote(text)}")
        assert answer.code == 200


@pytest.mark.parametrize("page", ["alerts?q=", "rules?q=", "ranges?id="])
def test_what_was_asked_is_shown_again_as_text(server: Server, page: str) -> None:
    text = server.get(f"/run/run/{page}{quote('<b>x')}").text
    assert 'value="&lt;b&gt;x"' in text
    assert "<b>x" not in text


@pytest.mark.parametrize("text", ["", "x" * 500, "%00", "<b>", "-1", "1e9", "9" * 40, "0" * 9 + "99999", "\u202e"])
def test_the_pages_of_a_rule_and_of_an_alert_take_any_span_and_any_life(server: Server, text: str) -> None:
    run = server.store.runs["run"]
    one = server.store.alerts(run, AlertFilter(alert="Condensation")).alerts[0]
    for path in (address(run, "rule", token_of(one.alert)), address(run, "alert", one.id)):
        assert server.get(f"{path}?last={quote(text)}&life={quote(text)}").code == 200
    assert server.get(f"{address(run, 'alert', one.id, 'picture')}?life={quote(text)}").code == 404


def test_a_picture_is_of_the_life_beside_which_it_is_shown(
    plant: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = copied(plant / "run", tmp_path / "run")
    times = [2**51 + n for n in range(7)]
    rows = [change("Condensation", "match", time, id="same", ends_us=time) for time in times]
    AlertWriter(folder / "alerts").write(99, rows)
    asked: list[int] = []

    class Asking:
        def ask(self, question: dict[str, Any]) -> dict[str, Any]:
            asked.append(question["start_us"] - 2**51)
            return {"svg": "", "said": []}

    monkeypatch.setattr("tocsin.dashboard.pages.alert.TRACER", Asking())
    with served(folder) as server:
        parts = re.findall(r'data-part="([^"]*)"', server.get("/run/run/alert/same").text)
        assert [server.get(part).code for part in parts] == [200] * len(parts)
        assert asked == [2, 3, 4, 5, 6]
        place = server.store.by_id(server.store.runs["run"], "same")[1].place
        assert server.get(f"/run/run/alert/same/picture?life=0000000{place}").code == 200
        assert server.get("/run/run/alert/same/picture").code == 200
    assert asked[-2:] == [1, 6]


def test_the_link_that_sinks_send_leads_to_the_alert(plant: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with served(tmp_path / "empty", plant / "run") as server:
        name = all_alerts(server.store.runs["run"].index)[0].id
        base = f"http://127.0.0.1:{server.port}"
        for dashboard in (base, f"{base}/run/run"):
            sent = server.get(alert_page_url(dashboard, name).removeprefix(base))
            assert (sent.code, sent.headers["location"]) == (307, f"/run/run/alert/{name}")
        assert server.get("/alerts/none").code == 404
        assert server.get(f"/run/empty/alerts/{name}").code == 404


def test_a_rule_with_a_memory_budget_is_not_called_exact(plant: Path, tmp_path: Path) -> None:
    folder = copied(plant / "run", tmp_path / "run")
    manifest = json.loads((folder / "manifest.json").read_text())
    exact = f"/run/run/rule/{token_of('Disagreement')}"
    with served(folder) as server:
        text = server.get(exact).text
    assert "exact: every alert" in text
    assert "1: rows are joined on arrival" in text
    for rule in manifest["rules"]:
        rule["memory"] = "at most 1000 rows"
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with served(folder) as server:
        text = server.get(exact).text
    assert "<dt>memory budget</dt><dd>at most 1000 rows</dd>" in text
    assert "exact: every alert" not in text
    assert "1: rows are joined on arrival" not in text


def test_a_rule_with_a_budget_of_processor_time_shows_what_it_bought(plant: Path, tmp_path: Path) -> None:
    folder = copied(plant / "run", tmp_path / "run")
    manifest = json.loads((folder / "manifest.json").read_text())
    for rule in manifest["rules"]:
        rule["cpu"] = "50% of a core"
    (folder / "manifest.json").write_text(json.dumps(manifest))
    lines = (folder / "progress.jsonl").read_text().splitlines()
    told = [json.loads(line) for line in lines]
    for line in told:
        line["total"]["cpu"] = {"Disagreement": {"rows": 0.25, "results": 0.5}}
    (folder / "progress.jsonl").write_text("".join(json.dumps(line) + "\n" for line in told))
    with served(folder) as server:
        text = server.get(f"/run/run/rule/{token_of('Disagreement')}").text
    assert "<dt>CPU budget</dt><dd>50% of a core</dd>" in text
    assert "25% of the rows processed, about 50% of the results found recently" in text
    assert "CPU budget: shares processed and found" in text
    assert "exact: every alert" not in text
    assert "1: rows are joined on arrival" not in text


def test_the_command_for_a_shell_is_quoted(tmp_path: Path) -> None:
    folder = tmp_path / "a run; date"
    evil_run(folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    ranges = {"alert": "Evil; $(date)", "kind": "ranges", "requests": "asks"}
    (folder / "manifest.json").write_text(json.dumps({**manifest, "archive": None, "rules": [ranges]}))
    name = "x; $(touch gone) 'y"
    with served(folder) as server:
        text = server.get(f"/run/{quote(folder.name)}/ranges?id={quote(name)}").text
    commands = re.findall(r'aria-label="Command">([^<]*)<', text)
    assert [shlex.split(unescape(command)) for command in commands] == [
        ["tocsin", "ranges", "progress", str(folder), name],
        ["tocsin", "ranges", "list", str(folder), "--rule=Evil; $(date)"],
    ]


@pytest.mark.parametrize(
    ("host", "code"),
    [
        ("127.0.0.1", 200), ("localhost:1", 200), ("[::1]:8484", 200), ("10.0.0.7", 200), ("alerts.example.org", 200),
        ("evil.example.org", 421), ("127.0.0.1.evil.org", 421), ("", 421), ("localhost.evil.org", 421), ("[", 421),
        ("a b", 421), ("evil.org@127.0.0.1", 421), ("[::1]evil.org", 421), ("127.0.0.1#evil.org", 421),
        ("127.0.0.1/x", 421), ("localhost:evil", 421),
    ],
)  # fmt: skip
def test_a_host_that_is_not_ours_is_refused(plant: Path, host: str, code: int) -> None:
    with served(plant / "run", names=("alerts.example.org",)) as server:
        assert server.get("/health", Host=host).code == code


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_nothing_can_be_changed(server: Server, method: str) -> None:
    assert server.get("/run/run", method=method).code == 405


def test_a_token_is_asked_for_and_a_browser_keeps_something_else(plant: Path) -> None:
    with served(plant / "run", token=TOKEN) as server:
        assert server.get("/run/run").code == 401
        assert server.get("/events").code == 401
        assert server.get("/run/run", Authorization="Bearer wrong").code == 401
        assert server.get("/run/run", Authorization=f"Bearer {TOKEN}").code == 200
        assert server.get("/static/dashboard.css").code == 200
        assert server.get("/login").code == 200
        assert server.get("/loginX").code == 401
        sent = server.get("/run/run?x=1", Accept="text/html")
        assert sent.code == 303
        assert sent.headers["location"] == "/login?back=/run/run%3Fx%3D1"
        form = {"method": "POST", "Content_Type": "application/x-www-form-urlencoded"}
        wrong = server.get("/login", body="token=wrong&back=/run/run", **form)
        assert "wrong=1" in wrong.headers["location"]
        assert "set-cookie" not in wrong.headers
        right = server.get("/login", body=f"token={TOKEN}&back=/run/run", **form)
        assert right.headers["location"] == "/run/run"
        cookie = right.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "samesite=strict" in cookie.lower()
        assert TOKEN not in cookie
        assert "secure" not in cookie.lower()
        safe = server.get("/login", body=f"token={TOKEN}", X_Forwarded_Proto="https", **form)
        assert "; secure" in safe.headers["set-cookie"].lower()
        assert server.get("/run/run", Cookie=cookie.partition(";")[0]).code == 200
        assert server.get("/run/run", Cookie="tocsin_session=" + "0" * 64).code == 401
        for back in ("//evil.org", "https://evil.org", "/\\evil.org"):
            told = server.get("/login", body=f"token={TOKEN}&back={quote(back)}", **form)
            assert told.headers["location"] == "/"
        assert server.get("/login", body="token=" + "x" * 10_000, **form).code == 413


def test_a_query_of_any_bytes_is_sent_to_the_login() -> None:
    """Asked without a server: not every one lets such bytes pass."""
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def never(*_: Any) -> None:
        raise AssertionError

    headers = [(b"host", b"localhost"), (b"accept", b"text/html")]
    scope = {"type": "http", "method": "GET", "path": "/run/run", "query_string": b"q=\xff", "headers": headers}
    asyncio.run(Guard(never, TOKEN)(scope, never, send))
    assert sent[0]["status"] == 303
    told = dict(sent[0]["headers"])
    assert told[b"location"] == b"/login?back=/run/run%3Fq%3D%C3%BF"
    assert b"content-security-policy" in told


def test_an_address_that_others_can_reach_needs_a_token_that_is_long() -> None:
    Where("127.0.0.1").check()
    Where("0.0.0.0", token=TOKEN).check()
    with pytest.raises(RunError, match="needs `--token-file`"):
        Where("0.0.0.0").check()
    with pytest.raises(RunError, match="at least 16 characters"):
        Where("0.0.0.0", token="short").check()


def test_news_are_told_once_something_is_new(plant: Path, tmp_path: Path) -> None:
    import http.client

    folder = copied(plant / "run", tmp_path / "run")
    with served(folder) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
        connection.request("GET", "/events", headers={"Accept": "text/event-stream"})
        answer = connection.getresponse()
        assert answer.getheader("content-type", "").startswith("text/event-stream")
        first = answer.readline()
        answer.readline()
        with (folder / "progress.jsonl").open("ab") as file:
            file.write(
                (folder / "progress.jsonl").read_bytes().splitlines()[-1].replace(b'"batch":6', b'"batch":99') + b"\n"
            )
        assert answer.readline() != first
        connection.close()
        assert "micro-batch 99" in server.get("/run/run").text


class _Growing:
    """A lock of a store of which something is new whenever it is asked."""

    def __init__(self, run: RunData) -> None:
        self.run = run

    def __enter__(self) -> None:
        self.run.version += 1

    def __exit__(self, *_: object) -> None:
        pass


def test_a_page_says_of_which_version_it_is_and_never_one_that_is_newer(plant: Path) -> None:
    store = Store([plant / "run"])
    store.look()
    run = store.runs["run"]
    one = store.lives(run, "Condensation")[0]
    store.lock = _Growing(run)  # type: ignore[assignment]
    params = {"alert": one.id, "rule": token_of(one.alert), "stream": token_of("air")}
    request = Request({"type": "http", "path_params": params, "query_string": b"a=run&b=run", "headers": []})
    of_run = [overview_page, alerts_page, rules_page, streams_page, plan_page]
    of_run += [alert_page, rule_page, stream_page, ranges_page]
    made = [partial(page, store, run) for page in of_run]
    for page in [*made, partial(runs_page, store), partial(diff_page, store)]:
        before = store.version
        assert f'<body data-version="{before}" data-going="not running">' in page(request)
    assert store.version != "1"


def test_the_pages_of_a_directory_that_is_empty_or_damaged_are_made(plant: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    broken = copied(plant / "run", tmp_path / "broken")
    for path in broken.rglob("*"):
        if path.is_file():
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2] + b"\xff\x00")
    with served(tmp_path / "empty", broken, tmp_path / "none") as server:
        found = _pages(server)
        assert "Some files of this run cannot be read" in found["/run/broken"]
        assert "none not found" in found["/"]
