"""Alert list: severity, summary and duration of each alert; filters, orders and groups; links to Alertmanager."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import pytest

from dashboard.plant import change
from dashboard.small import START_S, page_of, small_run, tiles_of
from tocsin.dashboard.alert_index import AlertFilter
from tocsin.dashboard.store import Store

SECOND = 1_000_000
START = START_S * SECOND
HOT: dict[str, Any] = {"alert": "Hot", "labels": {}, "kind": "threshold", "on": ["machine"], "streams": ["air"]}
# id: (rule, severity, machine, start and end in seconds).
ALERTS = {
    "a": ("Hot", "warning", "m1", 0, 500),
    "b": ("Hot", "critical", "m2", 100, None),
    "c": ("Cold", "", "m1", 200, 210),
    "d": ("Cold", "info", "m2", 300, None),
    "e": ("Hot", "critical", "m10", 400, 450),
}


def _run(folder: Path) -> Path:
    rows = []
    for name, (alert, severity, machine, begin, end) in ALERTS.items():
        labels = {"machine": machine} | ({"severity": severity} if severity else {})
        ends_us = None if end is None else START + end * SECOND
        state = "firing" if end is None else "resolved"
        row = change(alert, state, START + begin * SECOND, id=name, labels=labels, ends_us=ends_us)
        rows.append({**row, "annotations": {"summary": f"{machine} is <{alert}>"}})
    return small_run(folder, rows, [HOT, {**HOT, "alert": "Cold"}], newest_us={"air": START + 600 * SECOND})


def _ids(text: str) -> list[str]:
    return re.findall(r'class="to-alert" href="/run/run/alert/([a-z])"', text)


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("", "edcba"),
        ("sort=severity", "ebadc"),
        ("sort=duration", "bdaec"),
        ("sort=rule", "dceba"),
        ("sort=nonsense", "edcba"),
        ("label=severity%3Dcritical", "eb"),
        ("label=machine%3Dm1", "ca"),
        ("label=machine%3D%22m1%22", "ca"),
        ("label=machine%3Dm", ""),
        ("state=firing&label=machine%3Dm2", "db"),
        ("from=2026-01-01T00:08", "dba"),
        ("to=2026-01-01T00:02", "ba"),
        ("from=2026-01-01T00:03&to=2026-01-01T00:04", "cba"),
        ("from=2026-01-01T00:08:21&state=resolved", ""),
    ],
)
def test_alerts_are_filtered_and_ordered_as_the_address_requests(tmp_path: Path, query: str, wanted: str) -> None:
    assert _ids(page_of(_run(tmp_path / "run"), f"alerts?{query}")) == list(wanted)


def test_an_invalid_filter_is_reported_and_hides_nothing(tmp_path: Path) -> None:
    text = page_of(_run(tmp_path / "run"), "alerts?label=critical&from=yesterday")
    assert "a label must be <code>name=value</code>; got <code>critical</code>" in text
    assert "a time must be as <code>2026-01-31T12:00</code>; got <code>yesterday</code>" in text
    assert len(_ids(text)) == 5


def test_the_list_shows_severity_summary_and_duration(tmp_path: Path) -> None:
    text = page_of(_run(tmp_path / "run"), "alerts")
    rows = {row[0]: row[1] for row in zip(_ids(text), text.split("<tbody>")[1].split("</tr>"), strict=False)}
    assert 'class="severity is-high">critical' in rows["b"]
    assert 'class="severity is-medium">warning' in rows["a"]
    assert "m1 is &lt;Cold&gt;" in rows["c"]
    assert '<td data-title="duration">8 min 20 s so far</td>' in rows["b"]
    assert '<td data-title="duration">50 s</td>' in rows["e"]
    assert 'class="urgency-high is-open"' in rows["b"]
    assert 'class="urgency-none"' in rows["c"]


def test_groups_have_the_numbers_of_their_rule(tmp_path: Path) -> None:
    text = page_of(_run(tmp_path / "run"), "alerts?sort=rule")
    groups = re.findall(r'<tr class="group">.*?>(\w+)</a> <span class="soft">(.*?)</span>', text)
    assert groups == [
        ("Cold", "1 firing, 0 pending, 2 fired so far"),
        ("Hot", "1 firing, 0 pending, 3 fired so far"),
    ]


@pytest.mark.parametrize("sort", ["", "severity", "duration", "rule"])
def test_pages_of_a_list_have_each_alert_once(tmp_path: Path, sort: str) -> None:
    rows = [change("Hot", "match", n // 3, id=f"{n}", labels={"m": str(n)}, ends_us=n // 3) for n in range(130)]
    folder = small_run(tmp_path / "run", rows, [HOT])
    found, path = list[str](), f"alerts?sort={sort}"
    for _ in range(3):
        text = page_of(folder, path)
        found += re.findall(r'class="to-alert" href="/run/run/alert/(\d+)"', text)
        more = re.search(r'rel="next" href="/run/run/([^"]+)"', text)
        path = more[1].replace("&amp;", "&") if more else ""
    assert sorted(found, key=int) == [str(n) for n in range(130)]
    assert path == ""


def test_a_filter_by_label_compares_the_whole_label(tmp_path: Path) -> None:
    labels = [{"a": "x"}, {"a": "xy"}, {"ba": "x"}, {"a": 'x"],["b', "b": "1"}, {"a": "é\\"}]
    rows = [change("Hot", "firing", n, id=f"{n}", labels=one) for n, one in enumerate(labels)]
    store = Store([small_run(tmp_path / "run", rows, [HOT])])
    store.look()
    for number, one in enumerate(labels):
        for pair in one.items():
            (found,) = store.alerts(store.runs["run"], AlertFilter(label=pair)).alerts
            assert found.id == str(number)


def test_an_alert_links_to_each_alertmanager_of_its_run(tmp_path: Path) -> None:
    folder = _run(tmp_path / "run")
    manifest = json.loads((folder / "manifest.json").read_text("utf-8"))
    manifest["alertmanagers"] = ["http://am:9093/", "https://h/am", "javascript:alert(1)", 'http://x/"><b>']
    (folder / "manifest.json").write_text(json.dumps(manifest))
    text = page_of(folder, "alert", "b")
    links = re.findall(r'<dt>Alertmanager</dt><dd><a href="([^"]+)"', text)
    matchers = '{alertname="Hot",machine="m2",severity="critical"}'
    assert [unquote(link) for link in links] == [
        f"{address}/#/alerts?filter={matchers}" for address in ("http://am:9093", "https://h/am")
    ]
    assert quote(matchers) in links[0]


@pytest.mark.parametrize(("interval", "kind"), [(60.0, ""), (0.5, "warn")])
def test_a_micro_batch_that_is_longer_than_the_interval_is_a_warning(
    tmp_path: Path, interval: float, kind: str
) -> None:
    folder = _run(tmp_path / "run")
    manifest = json.loads((folder / "manifest.json").read_text("utf-8"))
    (folder / "manifest.json").write_text(json.dumps({**manifest, "interval_s": interval}))
    lines = (folder / "progress.jsonl").read_text("utf-8").splitlines()
    progress = {**json.loads(lines[-1]), "milliseconds": {"detect": 900}}
    (folder / "progress.jsonl").write_text(json.dumps(progress) + "\n")
    number, note, found = tiles_of(folder)["last micro-batch"]
    assert (number, found) == ("900 ms", kind)
    assert note == ("1.5% of the interval of 1 min" if not kind else "180% of the interval of 500 ms")
