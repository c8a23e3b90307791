"""What pages tell of sinks, budgets, requests and drawings that are cut: in words that mean what is there."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from dashboard.plant import change
from dashboard.small import START_S, page_of, small_run, tiles_of
from tocsin.dashboard.alert_records import token_of
from tocsin.dashboard.pages import rule
from tocsin.dashboard.store import Store
from tocsin.rules.durations import event_text
from tocsin.run_directory.layout import LOCK

SECOND = 1_000_000
HOT = {"alert": "Hot", "kind": "threshold", "streams": ["air"], "on": ["m"]}
SILENT = {"alert": "NoData", "kind": "silence", "streams": ["air"], "on": ["m"]}
ENOUGH = {"alert": "Enough", "kind": "ranges", "streams": ["asks", "air"], "requests": "asks", "description": "counts"}


def _sink(folder: Path, name: str, **told: Any) -> None:
    (folder / "delivery").mkdir(exist_ok=True)
    (folder / "delivery" / f"{name}.json").write_text(json.dumps({"sink": name, "failing": False, **told}))


def test_what_a_run_that_has_ended_owes_to_its_sinks_is_a_warning_and_not_fine(tmp_path: Path) -> None:
    folder = small_run(tmp_path / "run")
    _sink(folder, "mail", delivered=0, pending=252_378)
    _sink(folder, "copy", delivered=9, pending=0)
    told = tiles_of(folder)
    assert told["not yet delivered"] == ("252,378", "to mail, left to the next run", "warn")
    assert "sinks" not in told
    states = re.findall(r'<td class="words">(?:copy|mail)</td><td>(.*?)</td>', page_of(folder, "plan"))
    assert states == [
        '<span class="fine">✓ OK</span>',
        '<span class="warned">252,378 not yet delivered, left to the next run</span>',
    ]
    _sink(folder, "copy", failing=True, pending=1)
    beside = "cannot reach copy; 252,379 not yet delivered, left to the next run"
    assert tiles_of(folder)["sinks"] == ("failing", beside, "fire")


def test_what_a_run_that_goes_on_has_still_to_deliver_is_told_without_a_warning(tmp_path: Path) -> None:
    folder = small_run(tmp_path / "run")
    _sink(folder, "mail", delivered=0, pending=1_200)
    (folder / LOCK).write_text(str(os.getpid()))
    assert tiles_of(folder)["sinks"] == ("OK", "1 sink; 1,200 not yet delivered", "")
    text = page_of(folder, "plan")
    assert '<span class="fine">✓ OK</span>, 1,200 not yet delivered</td>' in text
    assert 'class="warned"' not in text


def test_the_pages_of_an_alert_show_its_firing_time_when_for_held_it_back(tmp_path: Path) -> None:
    start = START_S * SECOND
    rows = [change("Hot", "pending", start, id="1f"), change("Hot", "firing", start, id="1f")]
    rows[1]["firesAt"] = event_text(start + 90 * SECOND)
    for number, shown in ((1, False), (2, True)):
        folder = small_run(tmp_path / f"run{number}", rows[:number], [HOT])
        assert ('datetime="2026-01-01T00:01:30' in page_of(folder, "alert", "1f")) == shown
    text = page_of(folder, "alert", "1f")
    assert "after 1 min 30 s as pending" in text
    facts = dict(re.findall(r"<dt>(pending since|firing since|resolved)</dt><dd>(.*?)</dd>", text))
    assert [re.findall(r"[0-9T:-]{19}Z", fact)[1:] for fact in facts.values()] == [
        ["2026-01-01T00:00:00Z"],
        ["2026-01-01T00:01:30Z"],
        [],
    ]
    assert facts["resolved"].startswith("still open")


def test_a_log_without_firing_times_is_shown(tmp_path: Path) -> None:
    """Runs of earlier releases have no `firesAt` in their log."""
    folder = small_run(tmp_path / "run", [change("Hot", "firing", START_S * SECOND, id="1f")], [HOT])
    (log,) = (folder / "alerts").iterdir()
    log.write_text(re.sub(r'"firesAt":"[^"]*",', "", log.read_text()))
    assert "firesAt" not in log.read_text()
    assert page_of(folder, "alert", "1f").count("is-firing") > 0
    assert page_of(folder, "alerts").count("is-firing") > 0


@pytest.mark.parametrize("pending", [None, "5", -5, 10**30, [5], 0])
def test_a_sink_that_does_not_say_what_it_owes_is_not_warned_of(tmp_path: Path, pending: Any) -> None:
    folder = small_run(tmp_path / "run")
    _sink(folder, "mail", pending=pending)
    assert tiles_of(folder)["sinks"] == ("OK", "1 sink", "")
    assert "left to the next run" not in page_of(folder, "plan")


def test_which_alerts_are_drawn_by_key_is_said_where_they_are_not_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = [3, 0, 4, 1, 2]
    rows = [change("Hot", "firing", n * SECOND, id=f"{n}", labels={"m": f"m{n}"}) for n in times]
    folder = small_run(tmp_path / "run", rows, rules=[HOT])
    whole = page_of(folder, "rule", token_of("Hot"))
    assert "Keys with the most time firing first.</p>" in whole
    monkeypatch.setattr(rule, "MOST_OF_RULE", 2)
    monkeypatch.setattr(Store.lives, "__defaults__", (2,))
    text = page_of(folder, "rule", token_of("Hot"))
    assert "The drawings have the newest 2 of 5 alerts, those since 1970-01-01 00:00:03." in text
    assert re.findall(r">(m[0-9])</text>", text) == ["m3", "m4"]
    assert text.count('class="peak firing"') == 2


def test_margins_and_alerts_by_key_have_one_axis(tmp_path: Path) -> None:
    """Also where an alert began before the time that is asked for."""
    ends = {"long": (0, 7_000), "short": (6_800, 6_900), "old": (5, 9)}
    rows = [
        change("Hot", "resolved", begin * SECOND, id=name, labels={"m": name}, ends_us=end * SECOND)
        for name, (begin, end) in ends.items()
    ]
    folder = small_run(tmp_path / "run", rows, rules=[HOT], newest_us={"air": 7_000 * SECOND})
    for asked in ("", "?last=15m"):
        margins, by_key = re.findall(
            r'<svg viewBox="0 0 960 .*?</svg>', page_of(folder, "rule", token_of("Hot") + asked), re.DOTALL
        )[:2]
        ticks = [
            re.findall(r'<text class="tick" x="([0-9.]+)"[^>]*>([0-9]+:[0-9:]+)</text>', one)
            for one in (margins, by_key)
        ]
        assert len(ticks[1]) > 2
        assert set(ticks[1]) <= set(ticks[0])
        bars = [re.findall(r'<rect class="firing" x="([0-9.]+)"', one) for one in (margins, by_key)]
        assert sorted(bars[0]) == sorted(bars[1])


def test_what_memory_and_processor_time_find_of_late_is_a_share_in_per_cent(tmp_path: Path) -> None:
    counts = {"air": {"received": 100, "retained": 50, "shed": 25, "unprocessed": 25}}
    cpu = {"Near": (0.5, 0.714), "Far": (1.0, None), "All": (1, 1)}
    budgets = {
        "memory": {"Hot": {"predicted": 0.2, "reached": 0.039}},
        "cpu": {alert: {"rows": rows, "results": results} for alert, (rows, results) in cpu.items()},
    }
    told = tiles_of(small_run(tmp_path / "run", counts=counts, **budgets))
    beside = "memory budget exceeded: about 3.9% of the results found recently"
    assert told["rows shed"] == ("25%", beside, "fire")
    beside = "estimated share of the recent results of Near, the lowest of all rules"
    assert told["CPU recall"] == ("71.4%", beside, "")
    assert "CPU recall" not in tiles_of(small_run(tmp_path / "other", cpu={"Far": {"rows": 1.0, "results": None}}))


def test_the_time_of_a_micro_batch_says_what_it_is_the_time_of(tmp_path: Path) -> None:
    text = page_of(small_run(tmp_path / "run", milliseconds={"detect": 700, "archive": 20, "write": 30}))
    assert ">Micro-batch duration, without Spark overhead</text>" in text
    assert ">750 ms</text>" in text


def test_stream_pages_show_history_instead_of_a_lag_when_the_rows_are_old(tmp_path: Path) -> None:
    newest = {"air": (START_S - 400_000_000) * SECOND, "oil": (START_S - 2) * SECOND}
    folder = small_run(tmp_path / "run", newest_us=newest, historic=("air",))
    assert tiles_of(folder)["largest lag"][:2] == ("2 s", "stream oil, after the last micro-batch")
    assert 'aria-label="Lag by stream: oil is 2 s"' in page_of(folder)
    counts = {"air": {"received": 1}}
    only = small_run(tmp_path / "only", counts=counts, newest_us={"air": newest["air"]}, historic=("air",))
    assert "largest lag" not in tiles_of(only)
    assert "Lag by stream" not in page_of(only)
    assert "so it has no lag" in page_of(only, "stream", token_of("air"))
    assert "<td>historic</td>" in page_of(only, "streams")


def test_that_no_request_came_for_a_while_is_no_lag(tmp_path: Path) -> None:
    newest = {"asks": (START_S - 7_000) * SECOND, "air": (START_S - 2) * SECOND}
    folder = small_run(tmp_path / "run", rules=[ENOUGH], newest_us=newest)
    assert tiles_of(folder)["largest lag"][:2] == ("2 s", "stream air, after the last micro-batch")
    assert 'aria-label="Lag by stream: air is 2 s"' in page_of(folder)
    # A stream that another rule reads is one of data, too.
    both = small_run(tmp_path / "both", rules=[ENOUGH, {**HOT, "streams": ["asks"]}], newest_us=newest)
    assert tiles_of(both)["largest lag"][1] == "stream asks, after the last micro-batch"


def test_requests_that_were_reached_are_not_told_as_rows_without_a_partner(tmp_path: Path) -> None:
    counts = {"asks": {"received": 41, "retained": 28, "expired": 12, "quarantined": 1}}
    folder = small_run(tmp_path / "run", rules=[ENOUGH], counts=counts)
    for parts in (("streams",), ("stream", token_of("asks"))):
        text = page_of(folder, *parts)
        assert "completed: a request that matured or was terminated" in text
        assert 'class="part-done"' in text
        assert "expired: was in state" not in text
        cells = re.findall(r'<td class="num">([0-9]+)</td>', text.partition("= retained")[2])
        assert cells[:3] == ["41", "28", "12"]
        assert "do not add up" not in text
    joined = small_run(tmp_path / "join", rules=[HOT], counts={"air": {"received": 2, "expired": 2}})
    assert "+ completed" not in page_of(joined, "streams")


def test_streams_without_data_are_not_counted_as_rules(tmp_path: Path) -> None:
    rows = [change(name, "firing", SECOND, id=name) for name in ("Hot", "NoData")]
    told = tiles_of(small_run(tmp_path / "run", rows, rules=[HOT, SILENT]))
    assert told["firing now"][:2] == ("2", "of 1 rule and `no_data`")
    assert told["fired so far"][:2] == ("2", "by 1 rule and `no_data`")
    told = tiles_of(small_run(tmp_path / "silent", rows[1:], rules=[HOT, SILENT]))
    assert told["fired so far"][:2] == ("1", "by `no_data`")
    assert tiles_of(small_run(tmp_path / "none", rules=[HOT, SILENT]))["fired so far"][:2] == ("0", "")


def test_only_what_is_pending_is_said_to_be_so_for_too_short_a_time(tmp_path: Path) -> None:
    assert tiles_of(small_run(tmp_path / "none"))["pending"] == ("0", "", "")
    pending = small_run(tmp_path / "run", [change("Hot", "pending", SECOND, id="a")])
    assert tiles_of(pending)["pending"] == ("1", "condition true, but not yet for the time `for`", "")


def test_a_share_of_rows_says_of_which(tmp_path: Path) -> None:
    told = tiles_of(small_run(tmp_path / "run", counts={"air": {"received": 8, "omitted": 6, "retained": 2}}))
    assert told["ever retained"] == ("25%", "of the rows that a full join retains", "")


def test_what_k_is_is_said(tmp_path: Path) -> None:
    rules = [{**HOT, "waits": "recall of 0.95 over 1m"}]
    text = page_of(
        small_run(tmp_path / "run", rules=rules, waits={"Hot": {"wait_us": 1_500_000, "recall": 0.97}}),
        "rule",
        token_of("Hot"),
    )
    said = "1.5 s: rows are delayed by this time, so that older rows can arrive first"
    assert f"<dt>reorder wait (K) now</dt><dd>{said}</dd>" in text
    assert ">Reorder wait (K)</text>" in text


def test_a_path_is_broken_between_its_parts(tmp_path: Path) -> None:
    folder = small_run(tmp_path / "run")
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest |= {"rule_file": "/srv/plant/<b>.yaml", "archive": "/srv/kept"}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    text = page_of(folder, "plan")
    assert "<dd>/<wbr>srv/<wbr>plant/<wbr>&lt;b&gt;.yaml</dd>" in text
    assert "<dd>/<wbr>srv/<wbr>kept</dd>" in text
