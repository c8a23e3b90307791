"""What pages say of a run: no number means something else than its words, and nothing that is lost is hidden."""

from __future__ import annotations

import json
import os
import re
import shlex
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from dashboard.asked import served
from dashboard.plant import RULES, Plant, all_alerts, backtest, change
from dashboard.small import START_S, page_of, small_run, tiles_of
from tocsin.dashboard.alert_index import AlertFilter
from tocsin.dashboard.alert_records import id_in_address, token_of
from tocsin.dashboard.store import Store
from tocsin.delivery import AlertWriter
from tocsin.formatting import format_event_time
from tocsin.run_directory import Progress, RunDir, Tally
from tocsin.run_directory.layout import LOCK

SECOND = 1_000_000


def test_rows_that_are_shed_are_not_remembered_and_their_loss_is_a_warning(tmp_path: Path) -> None:
    counts = {"air": {"received": 1000, "retained": 60, "expired": 40, "shed": 890, "held": 10}}
    folder = small_run(tmp_path / "run", counts=counts, memory={"Hot": {"predicted": 0.2, "reached": 0.11}})
    told = tiles_of(folder)
    assert told["ever retained"][0] == "11%"
    assert told["rows shed"] == (
        "89%",
        "memory budget exceeded: about 11% of the results found recently",
        "fire",
    )
    text = page_of(folder, "streams")
    for words in ("shed: evicted because the memory budget", "buffered: waiting in the reorder buffer"):
        assert words in text
    assert "pass-through:" not in text


def test_rows_that_were_not_taken_up_are_a_warning(tmp_path: Path) -> None:
    counts = {"air": {"received": 100, "retained": 75, "unprocessed": 25}, "oil": {"received": 100, "retained": 100}}
    told = tiles_of(small_run(tmp_path / "run", counts=counts))
    assert told["rows unprocessed"] == ("25%", "CPU budget exceeded: some results may be lost", "fire")


def test_a_run_that_loses_nothing_has_no_warning(tmp_path: Path) -> None:
    told = tiles_of(small_run(tmp_path / "run", counts={"air": {"received": 10, "omitted": 9, "retained": 1}}))
    assert not any(kind == "fire" for _, _, kind in told.values())
    assert told["ever retained"][0] == "10%"


def test_rows_that_nothing_remembers_are_not_told_as_remembered(tmp_path: Path) -> None:
    counts = {
        "temp": {"received": 200, "expired": 123, "omitted": 77},
        "door": {"received": 50, "expired": 50},
    }
    passing = {"temp": 0.5, "door": 1.0}
    folder = small_run(tmp_path / "run", counts=counts, passing=passing, rows={"temp": 100, "door": 50})
    told = tiles_of(folder)
    assert told["ever retained"][0] == "23%"
    # One micro-batch has no rate.
    assert told["rows received"][0] == "150"
    assert "pass-through: evaluated once, never in state" in page_of(folder, "streams")
    alone = small_run(tmp_path / "alone", counts={"door": {"received": 50, "expired": 50}}, passing={"door": 1.0})
    assert "ever retained" not in tiles_of(alone)


def test_requests_of_ranges_are_not_set_beside_what_a_join_remembers(tmp_path: Path) -> None:
    counts = {"orders": {"received": 50, "retained": 50}}
    ranges, join = {"alert": "Sold", "kind": "ranges"}, {"alert": "Hot", "kind": "threshold"}
    assert "ever retained" not in tiles_of(small_run(tmp_path / "ranges", counts=counts, rules=[ranges]))
    assert "ever retained" in tiles_of(small_run(tmp_path / "both", counts=counts, rules=[ranges, join]))


@pytest.mark.parametrize("passing", [5, {"air": "all"}, {"air": 7}, {"air": None}, [["air", 1.0]]])
def test_a_manifest_that_says_nothing_usable_of_it_breaks_no_page(tmp_path: Path, passing: Any) -> None:
    folder = small_run(tmp_path / "run", counts={"air": {"received": 10, "expired": 10}}, passing=passing)
    assert tiles_of(folder)["ever retained"][0] == "100%"


def test_the_quality_of_an_alert_is_a_badge_wherever_it_is_listed(tmp_path: Path) -> None:
    qualities = {"a": "sample 0.11", "b": "subset late out-of-domain", "c": "exact", "d": "subset 0.93"}
    rows = [
        change("Hot", "match", n * SECOND, id=name, labels={"m": name}, ends_us=n * SECOND, quality=quality)
        for n, (name, quality) in enumerate(qualities.items())
    ]
    folder = small_run(tmp_path / "run", rows)
    marks = {"a": ["sample 0.11"], "b": ["subset", "late", "out-of-domain"], "c": [], "d": ["subset 0.93"]}
    every = [text for mine in marks.values() for text in mine]
    pages = {name: page_of(folder, "alert", name) for name in qualities}
    pages |= {"": page_of(folder, "alerts")}
    for name, text in pages.items():
        for mark in marks.get(name, every):
            assert f">{mark}</span>" in text
    assert "sampling probability" in pages["a"]
    assert "badge is-mark" not in pages["c"]


def test_of_an_alert_that_goes_on_the_largest_margin_is_not_claimed(tmp_path: Path) -> None:
    begun = change("Hot", "firing", SECOND, id="a", value=13.92, margin=0.02)
    folder = small_run(tmp_path / "run", [begun])
    text = page_of(folder, "alert", "a")
    assert (
        "value 13.92 and margin 0.02 when it became firing; the largest margin is reported when the alert ends" in text
    )
    for parts in ((), ("alerts",), ("rule", token_of("Hot"))):
        assert "≥ 0.02" in page_of(folder, *parts)
    assert "margin at least 0.02" in page_of(folder, "rule", token_of("Hot"))
    ended = change("Hot", "resolved", SECOND, id="a", value=15.75, margin=1.85, ends_us=9 * SECOND)
    AlertWriter(folder / "alerts").write(1, [ended])
    assert "value 15.75, largest margin 1.85" in page_of(folder, "alert", "a")
    assert "≥" not in page_of(folder, "alerts")


def test_lists_have_the_newest_first_and_those_that_never_fired_last(tmp_path: Path) -> None:
    """The log has keys in any order; what was pending in vain must not hide what fired."""
    fired = [change("Hot", "firing", n * SECOND, id=f"f{n}", labels={"m": f"f{n}"}) for n in (5, 9, 2)]
    ended = change("Hot", "resolved", 2 * SECOND, id="f2", labels={"m": "f2"}, ends_us=3 * SECOND)
    vain = [
        change("Hot", "inactive", (20 + n) * SECOND, id=f"v{n}", labels={"m": f"v{n}"}, ends_us=60 * SECOND)
        for n in range(20)
    ]
    waits = change("Hot", "pending", 7 * SECOND, id="p", labels={"m": "p"})
    folder = small_run(tmp_path / "run", [*fired, ended, waits, *vain])
    store = Store([folder])
    store.look()
    run = store.runs["run"]
    wanted = ["f9", "p", "f5", "f2", *(f"v{n}" for n in reversed(range(20)))]
    assert [one.id for one in store.alerts(run, AlertFilter()).alerts] == wanted
    found, before = [], None
    while True:
        part = store.alerts(run, AlertFilter(alert="Hot", before=before), 3)
        found += [one.id for one in part.alerts]
        before = part.before
        if before is None:
            break
    assert found == wanted
    assert [one.id for one in store.open_alerts(run)] == ["f9", "f5", "p"]
    text = page_of(folder, "rule", token_of("Hot"))
    assert text.index("m=f9") < text.index("m=f2") < text.index("m=v19")


def test_pages_of_a_list_follow_each_other_by_their_addresses(tmp_path: Path) -> None:
    rows = [change("Hot", "firing", n % 7 * SECOND, id=f"{n}", labels={"m": f"{n}"}) for n in range(120)]
    folder = small_run(tmp_path / "run", rows)
    seen: list[str] = []
    with served(folder) as server:
        path = "/run/run/alerts"
        while path:
            text = server.get(path).text
            seen += [part.partition('"')[0] for part in text.split('to-alert" href="/run/run/alert/')[1:]]
            following = text.partition('rel="next" href="')[2].partition('"')[0]
            path = following.replace("&amp;", "&")
    assert len(seen) == len(set(seen)) == 120


def test_matches_are_told_apart_from_what_fired(tmp_path: Path) -> None:
    fired = [change("Hot", "firing", n * SECOND, id=f"f{n}", labels={"m": f"{n}"}) for n in range(3)]
    matches = [change("Pair", "match", n * SECOND, id=f"m{n}", ends_us=n * SECOND) for n in range(7)]
    rules = [
        {"alert": "Pair", "kind": "threshold", "condition": "air > oil", "streams": ["air", "oil"], "proofs": {}},
        {"alert": "Hot", "kind": "threshold", "condition": "air > 3", "streams": ["air"], "proofs": {}},
    ]
    folder = small_run(tmp_path / "run", [*fired, *matches], rules=rules)
    told = tiles_of(folder)
    assert told["fired so far"][:2] == ("3", "by 1 rule")
    assert told["matched so far"][:2] == ("7", "by 1 rule")
    text = page_of(folder, "rule", token_of("Pair"))
    assert "7 matched so far" in text
    assert "fired so far" not in text
    assert 'class="peak match"' in text
    assert ">matches</text>" in text
    assert "no row is omitted for this rule" in text
    text = page_of(folder, "rule", token_of("Hot"))
    assert "3 fired so far" in text
    assert "the rule evaluates each row alone" in text


def test_a_folder_that_is_no_run_says_so_on_each_page(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "air.csv").write_text("ts,value\n")
    for parts in ((), ("alerts",), ("rules",), ("streams",), ("plan",)):
        text = page_of(folder, *parts)
        assert "Not a run directory" in text
        assert "it has no <code>manifest.json</code>" in text
    assert "no alert is firing" not in page_of(folder)


def test_before_the_first_micro_batch_nothing_is_called_quiet(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    text = page_of(tmp_path / "run")
    assert "Unknown: no micro-batch has completed yet." in text
    assert "unknown so far" in text
    assert "no alert is firing</small>" not in text
    assert "Not a run directory" not in text


def test_why_a_late_alert_is_still_open_is_said(tmp_path: Path) -> None:
    rows = [
        change("Hot", "firing", SECOND, id="a", quality="exact late"),
        change("Cold", "firing", SECOND, id="b", quality="exact"),
    ]
    folder = small_run(tmp_path / "run", rows)
    assert "Only further out-of-order rows" in page_of(folder, "alert", id_in_address("a"))
    assert "Only further out-of-order rows" not in page_of(folder, "alert", "b")


def test_connected_is_not_running(tmp_path: Path) -> None:
    folder = small_run(tmp_path / "run")
    store = Store([folder])
    store.look()
    assert 'data-going="not running"' in page_of(folder)
    before = store.version
    (folder / LOCK).write_text(str(os.getpid()))
    store.look()
    assert store.version != before
    assert 'data-going="live"' in page_of(folder)
    tested = small_run(tmp_path / "tested", summary={"ok": True})
    assert 'data-going="finished backtest"' in page_of(tested)
    with served(tested, folder) as server:
        assert 'data-going="live"' in server.get("/").text


def test_a_recall_that_a_backtest_measured_is_the_same_number_on_both_pages(tmp_path: Path) -> None:
    asked = "recall of 0.95 over 10m"
    one = {"alert": "Hot", "requested": asked, "recall": 0.98782343981234, "lowest": 0.9, "wait_us": 1_500_000.0}
    none = {"alert": "Cold", "requested": asked, "recall": None, "lowest": None, "wait_us": None}
    rules = [{"alert": name, "kind": "threshold", "streams": ["air"], "waits": asked} for name in ("Hot", "Cold")]
    folder = small_run(tmp_path / "run", rules=rules, summary={"file": "x", "recall": [one, none, 5]})
    (folder / "progress.jsonl").unlink()
    text = page_of(folder)
    assert '<td class="num">0.9878</td><td class="num">0.9</td>' in text
    assert "characters" not in text
    text = page_of(folder, "rule", token_of("Hot"))
    assert "0.9878 over all rows, 0.9 in the lowest period" in text
    assert "1.5 s (median over buckets)" in text
    assert "rows are joined on arrival" not in text
    assert "not measured by this backtest" in page_of(folder, "rule", token_of("Cold"))


def test_time_in_detection_is_not_called_cpu(tmp_path: Path) -> None:
    rules = [{"alert": "Hot", "kind": "threshold", "streams": ["air"]}]
    text = page_of(small_run(tmp_path / "run", rules=rules, milliseconds={"detect": 33_338}), "rule", token_of("Hot"))
    detection = re.findall(r"<dt>detection time</dt><dd>(.*?)</dd>", text)
    assert detection == ["33.3 s of wall-clock time in the last micro-batch, all rules together"]


def test_rows_that_were_used_out_of_order_are_on_the_page_of_their_stream(tmp_path: Path) -> None:
    counts = {"air": {"received": 10, "retained": 10, "behind": 3}, "oil": {"received": 5, "retained": 5}}
    folder = small_run(tmp_path / "run", counts=counts)
    assert "<b>3</b> were evaluated out of order (delayed longer than the reorder wait)." in page_of(
        folder, "stream", token_of("air")
    )
    assert "out of order" not in page_of(folder, "stream", token_of("oil"))


def test_a_failing_sink_is_seen_among_all_runs_and_marked_once(tmp_path: Path) -> None:
    counts = {"air": {"received": 10, "shed": 1, "retained": 9}}
    folder = small_run(tmp_path / "run", counts=counts, newest_us={"air": SECOND})
    (folder / "delivery").mkdir()
    (folder / "delivery" / "mail.json").write_text(json.dumps({"sink": "mail", "failing": True}))
    with served(folder, small_run(tmp_path / "other")) as server:
        text = server.get("/").text
    assert "cannot reach mail" in text
    assert "rows shed" in text
    assert "✕" not in page_of(folder, "plan")  # The style has it.


def test_keys_that_are_not_drawn_are_counted(tmp_path: Path) -> None:
    rules = [{"alert": "Hot", "kind": "threshold", "streams": ["air"], "on": ["m"]}]
    rows = [change("Hot", "firing", n * SECOND, id=f"{n}", labels={"m": f"{n}"}) for n in range(23)]
    text = page_of(small_run(tmp_path / "run", rows, rules=rules), "rule", token_of("Hot"))
    assert "with the most time firing first; 3 more keys are not drawn." in text


def test_a_request_that_was_refused_and_one_that_is_not_there(tmp_path: Path) -> None:
    rules = [
        {"alert": "Enough", "kind": "ranges", "streams": ["asks", "air"], "requests": "asks", "description": "counts"}
    ]
    counts = {"asks": {"received": 2, "retained": 1, "quarantined": 1}}
    folder = small_run(tmp_path / "run", rules=rules, counts=counts)
    raw = json.dumps({"rule": "Enough", "time": 5, "low": 9.0, "high": 2.0, "id": "anna-1"})
    rows = [{"stream": "asks", "reason": "`low` must not be above `high`", "raw": raw}]
    rows += [{"stream": "air", "reason": "no", "raw": raw}, {"stream": "asks", "reason": "no", "raw": "torn"}]
    RunDir(folder).dead.write(0, [json.dumps(row) for row in rows])
    text = page_of(folder, "ranges?id=anna-1")
    assert text.count("Rejected: <code>low</code> must not be above <code>high</code>.") == 1
    assert "Rejected: no" not in text
    assert "no request has this id" not in text
    assert "Not matured so far, or no request has this id." in page_of(folder, "ranges?id=bert")
    assert "<b>1</b><span>active request</span>" in text
    assert f">tocsin ranges list {folder} --rule=Enough</pre>" in text


def test_requests_of_rules_that_share_their_stream_are_told_together_and_a_backtest_has_no_state_to_ask(
    tmp_path: Path,
) -> None:
    rules = [{"alert": name, "kind": "ranges", "requests": "asks", "description": ""} for name in ("Enough", "Most")]
    counts = {"asks": {"received": 9, "retained": 7, "expired": 2}}
    text = page_of(small_run(tmp_path / "run", rules=rules, counts=counts), "ranges")
    assert (
        text.count("<b>7</b><span>active requests</span><small>of all 2 rules with this stream of requests</small>")
        == 2
    )
    assert "ranges/alive" not in text  # It archives no rows.
    folder = small_run(tmp_path / "test", rules=rules, counts=counts, summary={"file": "x"})
    (folder / "progress.jsonl").unlink()
    assert "tocsin ranges" not in page_of(folder, "ranges?id=x")


def test_of_one_moment_the_numbers_are_written_and_from_the_second_on_there_are_times_of_the_clock(
    tmp_path: Path,
) -> None:
    newest, counts = {"air": (START_S - 9_740_820) * SECOND}, {"air": {"received": 9, "omitted": 5, "retained": 4}}
    folder = small_run(tmp_path / "run", counts=counts, newest_us=newest)
    text = page_of(folder)
    assert 'class="point-0"' not in text
    assert re.findall(r"<text[^>]*>((?:in state now|omitted|received):[^<]*)</text>", text) == [
        "received: 9", "omitted: 5", "in state now: 4",
    ]  # fmt: skip
    assert text.count("one micro-batch so far: 2026-01-01T00:00:00Z") >= 4
    assert "Rows received, omitted, in state: received is 9; omitted is 5; in state now is 4" in text

    total = Tally(rows={"air": 9}, counts=counts, state_bytes=2048, batches=2, newest_us=newest)
    time = format_event_time((START_S + 60) * SECOND)
    RunDir(folder).progress().add(Progress(1, time, Tally(), total))
    text = page_of(folder)
    # How many rows came in a second is known from the second micro-batch on.
    assert re.findall(r"one micro-batch so far: [^<]*", text) == ["one micro-batch so far: 2026-01-01T00:01:00Z"]
    ticks = re.findall(r'<text[^>]*class="tick"[^>]*>([^<]*)</text>', text)
    assert "00:00:00" in ticks
    assert "91 d" in ticks
    assert not [tick for tick in ticks if re.fullmatch(r"\d+\.\d{3,}", tick)]


def test_two_versions_are_named_by_their_files_with_conditions_margins_and_marks(tmp_path: Path) -> None:
    rules = [{"alert": "Hot", "kind": "threshold", "condition": "air > 3", "streams": ["air"]}]
    one = [change("Hot", "resolved", n * SECOND, id=f"{n}", ends_us=(n + 5) * SECOND, margin=1.25) for n in (0, 50)]
    one.append(change("Hot", "firing", 90 * SECOND, id="late", quality="exact late"))
    folder = small_run(
        tmp_path / "bt", one, rules, summary={"file": "rules/plant.yaml", "against": {"file": "old.yaml"}}
    )
    other = [change("Hot", "resolved", SECOND, id="o", ends_us=5 * SECOND, margin=7.75)]
    AlertWriter(folder / "against" / "alerts").write(0, other)
    with served(folder) as server:
        moved = server.get("/diff?a=bt&b=bt~against&part=moved").text
        alone = server.get("/diff?a=bt&b=bt~against&part=only_first").text
    for text in ("bt: rules/plant.yaml</option>", "bt~against: old.yaml</option>", "1.25</td>", "7.75</td>"):
        assert text in moved
    assert "Hot in A: <code>air &gt; 3</code>" in moved
    assert "Only in A, bt: rules/plant.yaml" in alone
    assert alone.count('<span class="badge is-late">late</span>') == 1


def test_with_one_run_there_is_a_hint_how_to_compare(tmp_path: Path) -> None:
    with served(small_run(tmp_path / "run")) as server:
        text = server.get("/diff?a=run").text
    assert "with a second one" in text
    assert "Choose two runs" not in text


def test_of_a_backtest_both_conditions_are_shown_and_the_command_that_tells_of_rows(
    plant: Path, tmp_path: Path
) -> None:
    other = Plant(
        tmp_path / "other", rules=RULES.replace("surface/(257.14+surface) > 0", "surface/(257.14+surface) > 0.2")
    )
    other.step(2)
    folder = backtest(tmp_path / "january", plant / "run", other.run.folder)
    with served(folder) as server:
        text = server.get("/diff?a=january&b=january~against&part=only_first").text
        conditions = re.findall(r"<li>Condensation in (\w): <code>([^<]*)</code>", text)
        said = [(side, re.findall(r"> ([0-9.]+) within", unescape(text))) for side, text in conditions]
        assert said == [("A", ["0"]), ("B", ["0.2"])]
        one = next(one for one in all_alerts(server.store.runs["january"].index) if one.alert == "Condensation")
        (command,) = re.findall(r'aria-label="Command">([^<]*)<', server.get(f"/run/january/alert/{one.id}").text)
    words = shlex.split(unescape(command))
    assert words[:2] == ["tocsin", "explain"]
    assert words[2:4] == [str(plant / "rules.yaml"), "Condensation"]
    assert words[4:6] == ["--key", f"machine={dict(one.labels)['machine']}"]
    assert words[6:] == ["--at", format_event_time(one.start_us)]
