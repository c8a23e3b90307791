"""The margin of a key over time, out of the archive: what rows say, and what the log says of alerts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from dashboard.asked import served
from dashboard.plant import all_alerts, copied
from tocsin.dashboard.alert_records import token_of
from tocsin.dashboard.charts.margins import Bar, margins
from tocsin.dashboard.series import Stretch
from tocsin.dashboard.tracer import CannotTraceError, answered

SECOND = 1_000_000


def _asked(folder: Path, alert: str, key: str, monkeypatch: pytest.MonkeyPatch, **query: str) -> tuple[str, Any]:
    """The part of the page of a rule, answered in this process, and the answer."""
    told: list[Any] = []

    class Asking:
        def ask(self, question: dict[str, Any]) -> dict[str, Any]:
            try:
                told.append(answered(question))
            except CannotTraceError as error:
                told.append({"error": str(error)})
            return dict(told[-1])

    monkeypatch.setattr("tocsin.dashboard.pages.margin.TRACER", Asking())
    given = "&".join(f"{name}={text}" for name, text in {"on0": key, **query}.items() if text)
    with served(folder / "run") as server:
        answer = server.get(f"/run/run/rule/{token_of(alert)}/margin?{given}")
    assert answer.code == 200
    return answer.text, told[0] if told else None


def test_the_margin_of_a_rule_of_one_stream_is_that_of_its_rows(plant: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text, answer = _asked(plant, "TooDamp", "m0004", monkeypatch)
    (line,) = answer["lines"]
    table = pq.read_table(plant / "kept" / "humidity")
    values = [one["value"] for one in table.to_pylist() if one["machine"] == "m0004"]
    assert 0 < line["evaluations"] <= len(values)
    stretches = [Stretch(*one) for one in line["stretches"]]
    assert max(one.high for one in stretches) == pytest.approx(max(values) - 75)
    assert min(one.low for one in stretches) == pytest.approx(min(values) - 75)
    assert [one.start for one in stretches] == sorted(one.start for one in stretches)
    assert 'class="line line-0"' in text
    assert 'class="zero"' in text


def test_the_largest_margin_of_an_alert_lies_on_the_line(plant: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text, answer = _asked(plant, "Condensation", "m0000", monkeypatch)
    stretches = [Stretch(*one) for one in answer["lines"][0]["stretches"]]
    with served(plant / "run") as server:
        known = [one for one in all_alerts(server.store.runs["run"].index) if one.alert == "Condensation"]
    mine = [one for one in known if dict(one.labels)["machine"] == "m0000" and one.has_fired and not one.is_late]
    assert mine
    assert all(one.margin is not None and one.end_us is not None for one in mine)
    for one in mine:
        inside = [part.high for part in stretches if one.start_us <= part.end and part.start <= (one.end_us or 0)]
        assert max(inside) == pytest.approx(one.margin)
    # The alerts of this key, and of no other, are bars on the same axis.
    assert len(re.findall(r'<rect class="firing"', text)) == len(mine)


def test_the_page_of_a_rule_asks_for_the_margin_of_the_latest_alert_or_of_the_key_that_is_named(plant: Path) -> None:
    with served(plant / "run") as server:
        page = f"/run/run/rule/{token_of('Condensation')}"
        parts = re.findall(r'data-part="([^"]*)"', server.get(page).text)
        assert parts == [f"{page}/margin?on0=m0004"]
        text = server.get(f"{page}?on0=%3Cb%3E&last=6h").text
        assert re.findall(r'data-part="([^"]*)"', text) == [f"{page}/margin?last=6h&amp;on0=%3Cb%3E"]
        assert 'value="&lt;b&gt;"' in text
        assert f'href="{page}?last=1d&amp;on0=%3Cb%3E"' in text
        assert "data-part" not in server.get(f"/run/run/rule/{token_of('NoData')}").text
        assert server.get(f"/run/run/rule/{token_of('NoData')}/margin").code == 404
        assert server.get("/run/run/rule/none/margin").code == 404


def test_where_nothing_can_be_told_it_is_said(plant: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text, _ = _asked(plant, "Condensation", "nobody", monkeypatch, last="15m")
    assert "the archive has no rows of this key in this period" in text
    folder = copied(plant / "run", tmp_path / "run")
    (folder / "progress.jsonl").unlink()
    text, answer = _asked(tmp_path, "Condensation", "m0004", monkeypatch)
    assert "no rows received yet" in text
    assert answer is None


@pytest.mark.parametrize(("low", "high"), [(-1e308, 1e308), (0.0, 0.0), (5.0, 5.0), (-7.0, -7.0), (1e-320, 2e-320)])
def test_a_margin_of_any_size_is_drawn(low: float, high: float) -> None:
    bar = Bar(2 * SECOND, 3 * SECOND, high, "firing")
    for line in ([], [Stretch(SECOND, 2 * SECOND, low, high)], [Stretch(SECOND, SECOND, low, low)]):
        text = margins([bar], SECOND, 9 * SECOND, line)
        assert not re.search(r'"-?(nan|inf)', text)
