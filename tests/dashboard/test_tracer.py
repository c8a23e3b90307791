"""What is told out of an archive: why an alert fired, and how far a request has come; and why it cannot be told."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from starlette.requests import Request

from dashboard.asked import served
from dashboard.plant import ranges_run
from tocsin.cli.dashboard import serve_dashboard
from tocsin.dashboard import range_progress, tracer
from tocsin.dashboard.alert_index import AlertFilter
from tocsin.dashboard.archive import files_around, files_of
from tocsin.dashboard.pages import ranges
from tocsin.dashboard.pages.alert import _question
from tocsin.dashboard.store import Store
from tocsin.dashboard.tracer import CannotTraceError, Tracer, answered
from tocsin.rules.rulefile import Source, Stream
from tocsin.run_directory import read_manifest

RANGES = """\
streams:
  requests:
    source: {json: {path: requests}}
    keys: machine
    values: {low: {}, high: {}, threshold: {}}
  air:
    source: {json: {path: air}}
    keys: machine
groups:
  - name: g
    rules:
      - {alert: EnoughReadings, ranges: air.value, requests: requests, on: machine}
archive: {path: kept}
"""


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answer questions by the tracer's entry point in this process; each new process imports the planner."""

    def answer(question: str) -> dict[str, Any]:
        output = io.StringIO()
        with monkeypatch.context() as patch, contextlib.redirect_stdout(output):
            patch.setattr("sys.stdin", io.StringIO(question))
            tracer.main()
        found: dict[str, Any] = json.loads(output.getvalue())
        return found

    monkeypatch.setattr(tracer, "_asked", answer)


def _asked(folder: Path, alert: str, state: str = "resolved", *, late: bool = False) -> dict[str, Any]:
    store = Store([folder / "run"])
    store.look()
    run = store.runs["run"]
    found = store.alerts(run, AlertFilter(state=state, alert=alert)).alerts
    one = next(one for one in found if one.is_late == late)
    return _question(store, run, one)


@pytest.mark.parametrize("late", [False, True])
def test_an_alert_is_drawn_and_explained_by_the_rows_of_the_archive(
    plant: Path, request: pytest.FixtureRequest, *, late: bool
) -> None:
    """A late alert and one in time overlap here: each is told of itself. One question goes to the process."""
    if late:
        request.getfixturevalue("in_process")
    asked = _asked(plant, "Condensation", late=late)
    answer = Tracer().ask(asked)
    assert "error" not in answer
    kinds = [kind for kind, _ in answer["said"]]
    assert kinds[0] == "fired"
    assert "omitted" in kinds
    assert f"alert {asked['id']}" in answer["said"][0][1]
    assert answer["svg"].startswith("<svg")
    named = ("humidity (percent)", "air (celsius)", "surface (celsius)", "margin", 'class="witness"', "2026-01-01")
    assert all(name in answer["svg"] for name in named)


@pytest.mark.usefixtures("in_process")
def test_a_key_that_fell_silent_is_explained(plant: Path) -> None:
    answer = Tracer().ask(_asked(plant, "NoData"))
    assert answer["said"][0][0] == "fired"
    assert "the last row of `humidity`" in answer["said"][0][1]


@pytest.mark.usefixtures("in_process")
def test_answers_are_kept_and_what_failed_is_asked_again(plant: Path, tmp_path: Path) -> None:
    shutil.copytree(plant, tmp_path / "plant")
    asked = {**_asked(plant, "Condensation"), "archive": str(tmp_path / "plant" / "kept")}
    kept = Tracer(most=1)
    first = kept.ask(asked)
    shutil.rmtree(tmp_path / "plant")
    assert kept.ask(asked) == first
    gone = kept.ask({**asked, "id": "another"})
    assert "has no rows of stream" in gone["error"]


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"rule_hash": "0" * 64}, "has changed since the run started"),
        ({"rule_file": "/none/rules.yaml"}, "cannot read the rule file /none/rules.yaml: no such file"),
        ({"archive": "/none"}, "has no rows of stream"),
        ({"run": "20200101"}, "from this run"),
        ({"alert": "Other"}, "rules with ranges cannot be traced"),
        ({"kind": "request", "id": "x"}, "with ranges"),
    ],
)
def test_why_nothing_can_be_told_is_a_sentence(plant: Path, change: dict[str, Any], sentence: str) -> None:
    answer = Tracer().ask({**_asked(plant, "Condensation"), **change})
    assert sentence in answer["error"]


def _archived(folder: Path) -> tuple[dict[str, Any], float, float]:
    """A run with a rule of ranges that archived two requests and 600 readings in 6 micro-batches."""
    folder.mkdir()
    (folder / "rules.yaml").write_text(RANGES)
    for name in ("requests", "air"):
        (folder / name).mkdir()
    ranges_run(folder / "run", folder / "rules.yaml")
    manifest = read_manifest(folder / "run")
    assert manifest is not None
    random = np.random.default_rng(5)
    value = np.round(random.normal(20, 3, 600), 1)
    machine = np.array(["m1", "m2"])[random.integers(0, 2, 600)]
    second = 1_000_000
    for batch in range(6):
        at = slice(100 * batch, 100 * batch + 100)
        time = (np.arange(600)[at] + 1) * second
        _write(folder, "air", manifest.run, batch, {"machine": machine[at].tolist(), "ts": time, "value": value[at]})
    asked = {"machine": ["m1", "m1"], "ts": np.array([250 * second, 10]), "low": [18.0, 0.0], "high": [22.0, 90.0]}
    payload = [json.dumps({"id": name}) for name in ("anna", "bert")]
    _write(folder, "requests", manifest.run, 2, {**asked, "threshold": [1000.0, 5.0], "tocsin_payload": payload})
    told = {"kind": "request", "rule_file": manifest.rule_file, "rule_hash": manifest.rule_hash}
    told |= {"archive": manifest.archive, "run": manifest.run, "alert": "EnoughReadings"}
    mine = (np.arange(600) + 1 > 249) & (machine == "m1") & (value >= 18) & (value <= 22)
    return told, float(mine.sum()), float((machine == "m1").sum())


def _write(folder: Path, stream: str, run: str, batch: int, columns: dict[str, Any]) -> None:
    place = folder / "kept" / stream
    place.mkdir(parents=True, exist_ok=True)
    moment = pa.timestamp("us", tz="UTC")
    table = pa.table({**columns, "ts": pa.array(columns["ts"], pa.int64()).cast(moment)})
    table = table.append_column("tocsin_arrival", table.column("ts"))
    pq.write_table(table, place / f"{run}-{batch:012}-00000.parquet")


@pytest.mark.usefixtures("in_process")
def test_how_far_a_request_has_come_is_what_fell_into_its_range_since_it_came(tmp_path: Path) -> None:
    asked, inside, _ = _archived(tmp_path / "plant")
    (anna,) = Tracer().ask({**asked, "id": "anna"})["found"]
    assert anna["alive"]
    assert anna["key"] == {"machine": "m1"}
    assert (anna["total"], anna["threshold"], anna["reached"]) == (inside, 1000, 0)
    assert anna["ends"] == {"low": 18.0, "high": 22.0}
    (bert,) = Tracer().ask({**asked, "id": "bert"})["found"]
    assert (bert["alive"], bert["reached"]) == (False, 1)
    assert "no request with this id" in Tracer().ask({**asked, "id": "carl"})["error"]


@pytest.mark.usefixtures("in_process")
def test_the_page_of_ranges_tells_it(tmp_path: Path) -> None:
    _, inside, _ = _archived(tmp_path / "plant")
    with served(tmp_path / "plant" / "run") as server:
        page = server.get("/run/run/ranges?id=anna")
        assert 'data-part="/run/run/ranges/progress?id=anna"' in page.text
        part = server.get("/run/run/ranges/progress?id=anna").text
    assert "<b>active</b>" in part
    assert f"{inside:,.0f} of 1,000" in part
    assert "<progress" in part


def test_the_requests_that_are_alive_are_listed_the_nearest_to_their_thresholds_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, inside, _ = _archived(tmp_path / "plant")
    more = {"machine": ["m2", "m2", "m1"], "ts": np.array([1, 1, 601_000_000]), "low": [None, 0.0, 0.0]}
    more |= {"high": [None, 1.0, 1.0], "threshold": [400.0, 7.0, 7.0]}
    payload = [json.dumps({"id": name}) for name in ("dora", "emil", "anna-2")]
    _write(tmp_path / "plant", "requests", asked["run"], 0, {**more, "tocsin_payload": payload})
    found = answered({**asked, "kind": "alive"})
    assert found["alive"] == 4
    assert [(one["id"], one["key"]["machine"], one["total"]) for one in found["requests"]][1:] == [
        ("anna", "m1", inside), ("anna-2", "m1", 0), ("emil", "m2", 0)
    ]  # fmt: skip
    dora = found["requests"][0]
    assert (dora["id"], dora["ends"], dora["threshold"]) == ("dora", {}, 400)
    assert inside / 1000 < dora["total"] / 400 < 1
    monkeypatch.setattr(range_progress, "MOST_ALIVE", 1)
    assert answered({**asked, "kind": "alive"}) == {"alive": 4, "requests": [dora]}

    with served(tmp_path / "plant" / "run") as server:
        assert 'data-part="/run/run/ranges/alive"' in server.get("/run/run/ranges").text
        part = server.get("/run/run/ranges/alive").text
    assert part.index('href="/run/run/ranges?id=dora"') < part.index('href="/run/run/ranges?id=anna"')
    assert f'<td class="num">{inside:,.0f}</td><td class="num">1,000</td>' in part
    assert "<td>all values</td>" in part


def test_more_rows_than_are_looked_at_are_told_in_the_place_of_the_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, _, _ = _archived(tmp_path / "plant")
    monkeypatch.setattr("tocsin.dashboard.archive.MOST_ROWS", 500)
    with pytest.raises(CannotTraceError, match="`air` has more than 500 rows in this period"):
        answered({**asked, "kind": "alive"})
    monkeypatch.setattr(ranges.TRACER, "ask", lambda asked: {"error": f"no {asked['kind']}"})
    store = Store([tmp_path / "plant" / "run"])
    store.look()
    request = Request({"type": "http", "query_string": b"", "headers": []})
    part = ranges.alive_part(store, store.runs["run"], request)
    assert "Not available: no alive. The command below lists the active requests." in part


def test_an_answer_out_of_some_of_the_files_of_a_run_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, _, _ = _archived(tmp_path / "plant")
    monkeypatch.setattr("tocsin.dashboard.archive.MOST_FILES", 5)
    with pytest.raises(CannotTraceError, match="`air` are in 6 files; the limit is 5"):
        answered({**asked, "id": "anna"})


MINUTE = 60_000_000
AIR = Stream("air", Source("json", {}))


def _minutes(folder: Path, batches: range) -> dict[int, list[Path]]:
    """An archive with one minute in each micro-batch, in two files."""
    for batch in batches:
        time = batch * MINUTE + np.arange(60) * 1_000_000
        _write(folder, "air", "1", batch, {"machine": ["m1"] * 60, "ts": time, "value": [1.0] * 60})
        path = folder / "kept" / "air" / f"1-{batch:012}-00000.parquet"
        shutil.copy(path, path.with_name(f"1-{batch:012}-00001.parquet"))
    return files_of({"archive": str(folder / "kept"), "run": "1"}, "air")


def test_files_are_those_of_the_whole_alert_and_of_its_surroundings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = _minutes(tmp_path, range(30))

    def taken(batches: tuple[int, int], first: int, last: int) -> list[int]:
        paths = files_around(files, batches, (first * MINUTE, last * MINUTE), AIR)
        return [batch for batch in files if set(files[batch]) <= set(paths)]

    assert taken((5, 25), 0, 30) == list(range(30))
    monkeypatch.setattr("tocsin.dashboard.archive.MOST_FILES", 21)
    # Nothing of the alert is cut off at its end, and what is left out lies outside of what is looked at.
    assert taken((5, 12), 5, 13) == list(range(4, 14))
    assert taken((0, 7), 0, 8) == list(range(10))
    assert taken((22, 29), 22, 30) == list(range(20, 30))
    for batches, first, last in (((5, 25), 5, 25), ((5, 12), 2, 13), ((5, 12), 5, 20), ((10, 10), 0, 11)):
        with pytest.raises(CannotTraceError, match="in more than 21 files"):
            taken(batches, first, last)


def test_the_question_about_an_alert_names_all_its_micro_batches(plant: Path) -> None:
    store = Store([plant / "run"])
    store.look()
    run = store.runs["run"]
    lives = [one for one in store.alerts(run, AlertFilter(), 10_000).alerts if one.changed > 1]
    told = {one.is_open: (one, _question(store, run, one)["batches"]) for one in lives}
    assert set(told) == {True, False}
    for one, batches in told.values():
        last = 6 if one.is_open else store.changes(run, one)[-1].position.batch
        assert batches == [store.changes(run, one)[0].position.batch, last]


def test_few_wait_for_an_answer_and_others_hear_that_it_is_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on = threading.Semaphore(0), threading.Event()

    def slow(name: str) -> dict[str, Any]:
        begun.release()
        go_on.wait()
        return {"said": name}

    monkeypatch.setattr("tocsin.dashboard.tracer._asked", slow)
    monkeypatch.setattr("tocsin.dashboard.tracer.MOST_WAITING", 1)
    busy = Tracer()
    first = threading.Thread(target=busy.ask, args=({"id": "a"},))
    first.start()
    begun.acquire()
    assert "too many requests at once" in busy.ask({"id": "b"})["error"]
    go_on.set()
    first.join()
    assert busy.ask({"id": "b"}) == {"said": '{"id": "b"}'}
    # What is known is told at once, whoever waits.
    go_on.clear()
    other = threading.Thread(target=busy.ask, args=({"id": "c"},))
    other.start()
    assert busy.ask({"id": "a"}) == {"said": '{"id": "a"}'}
    go_on.set()
    other.join()


def test_why_tracing_failed_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    answer = Tracer().ask({"kind": "none"})
    assert answer["error"].startswith("tracing failed")
    assert "KeyError: 'rule_file'" in caplog.text


@pytest.mark.parametrize("who", ["tracer", "beside"])
def test_what_lies_in_the_folder_of_the_command_is_not_imported(
    who: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("tocsin", "json"):
        Path(f"{name}.py").write_text("open('was-imported', 'w')\n")
    if who == "tracer":
        Tracer().ask({})
    else:
        with serve_dashboard(tmp_path / "run", 0):
            pass
    assert not Path("was-imported").exists()


def test_keys_and_rules_that_are_not_looked_at_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, _, _ = _archived(tmp_path / "plant")
    monkeypatch.setattr(range_progress, "MOST_KEYS", 0)
    assert answered({**asked, "id": "anna"}) == {"found": [], "more": 1}
    alerts = [f"Reached{number}" for number in range(7)]
    monkeypatch.setattr(ranges, "rules_of", lambda run: [{"alert": alert, "kind": "ranges"} for alert in alerts])
    monkeypatch.setattr(ranges, "why_not_traced", lambda run: "")
    monkeypatch.setattr(ranges.TRACER, "ask", lambda asked: {"found": [], "more": 3})
    store = Store([tmp_path / "plant" / "run"])
    store.look()
    request = Request({"type": "http", "query_string": b"id=anna", "headers": []})
    part = ranges.request_part(store, store.runs["run"], request)
    assert part.count("3 more keys with this id are not shown.") == 5
    assert "2 more rules with ranges are not shown." in part
