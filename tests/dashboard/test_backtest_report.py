"""The report: one file that needs nothing else, whatever stands in labels and rows."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.example_counts import examples
from tests.report.cases import MINUTE, life, result, streams, traced_key
from tocsin import Rule
from tocsin.dashboard.backtest_report import About, page
from tocsin.dashboard.charts.drawing import Scale, number, number_ticks
from tocsin.dashboard.charts.picture import LEFT, RIGHT, WIDTH, picture
from tocsin.dashboard.charts.timeline import MOST_KEYS, timeline
from tocsin.report import Result, choose, compare
from tocsin.report.choose import pick_of
from tocsin.report.result import StoreSummary
from tocsin.trace import Life

HOSTILE = '"><script>alert(1)</script><img src=x onerror="alert(2)">\x00&amp;'
ABOUT = About("2026-01-01T00:00:00Z", "0.1.0", 1.5)
VOID = {"meta", "br", "img", "link", "input", "hr"}


class Tags(HTMLParser):
    """The elements of a page, and whether they are closed as they were opened."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def whole(machines: list[str], *, other: Rule | None = None) -> str:
    tables = streams(machines)
    dead = [{"stream": HOSTILE, "reason": HOSTILE, "count": 3, "samples": [HOSTILE]}]
    found = result(tables, dead=dead)
    pictures = [(pick, traced_key(found.plan, tables, pick.key[0])) for pick in choose(found)]
    against = None
    if other is not None:
        second = result(tables, other)
        against = (second, compare(found, second))
    return page(found, ABOUT, pictures, against)


@pytest.fixture(scope="module")
def text() -> str:
    return whole(["m1", HOSTILE], other=Rule(HOSTILE, "air > 24", on="machine", labels={"team": HOSTILE}))


def test_every_element_is_closed_and_hostile_text_makes_none(text: str) -> None:
    tags = Tags()
    tags.feed(text)
    assert tags.open == []
    assert {"script", "img", "iframe", "object", "link"} & set(tags.seen) == set()
    assert not [name for name, _ in tags.attributes if name.startswith("on")]
    assert "&lt;script&gt;" in text
    assert "\x00" not in text


def test_of_two_versions_title_and_tables_name_both() -> None:
    first = result(streams(["m1"]))
    second = replace(result(streams(["m1"]), Rule("Other", "air > 24", on="machine")), path="strict.yaml")
    told = page(first, ABOUT, (), (second, compare(first, second)))
    assert "<title>Backtest of rules.yaml against strict.yaml</title>" in told
    rules = told.partition("<h2>Alerts by rule</h2>")[2].partition("<h2>")[0]
    assert rules.index("<h3>rules.yaml</h3>") < rules.index("<td>Hot</td>") < rules.index("<h3>strict.yaml</h3>")
    assert rules.index("<h3>strict.yaml</h3>") < rules.index("<td>Other</td>")
    became = told.partition("<h2>Row outcomes by stream</h2>")[2].partition("<h2>")[0]
    assert became.index("<h3>rules.yaml</h3>") < became.index("<h3>strict.yaml</h3>")
    assert "<h2>Firing alerts over time (rules.yaml)</h2>" in told


def test_rows_outside_their_domain_and_without_limits_have_a_column_where_there_are_any() -> None:
    found = result(streams(["m1"]))
    assert "outside the domain" not in page(found, ABOUT)
    odd = StoreSummary("air", {"received": 5, "retained": 5, "out_of_domain": 3, "without_limits": 2})
    told = page(replace(found, stores=(odd,)), ABOUT)
    assert "<th>invalid</th><th>outside the domain</th><th>without limits</th>" in told
    assert "<td>0</td><td>0</td><td>3</td><td>2</td>" in told


def test_rows_that_went_before_all_their_pairs_were_looked_at_have_a_column_so_that_fates_add_up() -> None:
    found = result(streams(["m1"]))
    assert "unprocessed" not in page(found, ABOUT).partition("<h2>Row outcomes by stream</h2>")[2]
    short = StoreSummary("air", {"received": 5, "retained": 2, "unprocessed": 3})
    told = page(replace(found, stores=(short,)), ABOUT)
    assert "<th>invalid</th><th>unprocessed</th>" in told
    assert "<td>5</td>\n<td>2</td><td>0</td><td>0</td><td>0</td><td>0</td><td>0</td><td>3</td>" in told


def test_it_refers_to_nothing_outside(text: str) -> None:
    assert re.findall(r"https?://", text) == []
    tags = Tags()
    tags.feed(text)
    assert not [name for name, _ in tags.attributes if name in {"src", "href", "xlink:href", "data", "action"}]
    assert "url(" not in text
    assert "@import" not in text


def test_it_tells_the_newcomer_what_was_run(text: str) -> None:
    for part in (
        "Backtest of rules.yaml",
        "Selected alerts",
        "Row outcomes by stream",
        "<h2>Plan</h2>",
        "Pipeline keyed by machine",
    ):
        assert part in text
    assert "keep the maximum in every 10m window" in text
    assert "Compared with rules.yaml" in text
    assert "largest margin" in text
    assert len(text) < 3_000_000


def test_a_picture_shows_rows_kept_and_left_out_the_margin_and_the_witness(text: str) -> None:
    pictures = [part for part in re.findall(r"<svg.*?</svg>", text, re.DOTALL) if 'class="zero"' in part]
    assert pictures
    for drawing in pictures:
        for kind in ("kept", "omitted", "witness", "true", "firing", "span"):
            assert re.search(rf'class="(?:dots )?{kind}"', drawing), kind


def test_drawing_has_units_of_inputs_when_the_rule_file_declares_them() -> None:
    tables = streams(["m1"])
    found = result(tables)
    pictures = [(pick, traced_key(found.plan, tables, "m1")) for pick in choose(found)]
    text = page(found, replace(ABOUT, units={"air": "celsius"}), pictures)
    assert text.count(">air (celsius)</text>") == len(pictures) > 0
    assert ">surface</text>" in text
    assert re.search(r"<title>air \(celsius\): [\d.]+ at 1970-01-01T[\d:]+Z \(used\)</title>", text)


def _streams_of(air: Sequence[float]) -> dict[str, dict[str, Any]]:
    """Readings each minute of one machine; the surface is always 0."""
    minutes, machine = np.arange(len(air)) * MINUTE, np.full(len(air), "m1", object)
    values = {"air": np.array(air, np.float64), "surface": np.zeros(len(air))}
    return {name: {"ts": minutes, "machine": machine, "value": value} for name, value in values.items()}


def _marks(tables: dict[str, dict[str, Any]], rule: Rule) -> list[tuple[Life, list[str], Callable[[int], str]]]:
    """Return each drawn alert, the places of the marks in its picture, and the place of a minute."""
    found = replace(result(tables, rule), newest_us=int(tables["air"]["ts"][-1]))
    lives = [one for _, _, lives in found.by_rule for one in lives if one.has_fired]
    watch, marks = found.plan.watches[0], []
    for one in lives:
        pick = pick_of(watch, watch.rules[0], one, "first", found)
        drawing = picture(traced_key(found.plan, tables, "m1"), pick, found.end_of(one))
        x = Scale(pick.from_us, pick.to_us, LEFT, WIDTH - RIGHT)
        rings = re.findall(r'<circle class="witness" cx="([\d.]+)"', drawing)
        marks.append((one, rings, lambda minute, x=x: number(x(minute * MINUTE))))
    return marks


@given(st.lists(st.sampled_from([0.0, 0.0, 0.0, 9.0, 9.0, 12.0]), min_size=12, max_size=40))
@example([0.0] * 5 + [9.0] + [0.0] * 9 + [9.0] + [0.0] * 5)
@examples(30)
def test_a_picture_marks_the_evaluation_that_decided_the_alert_when_other_alerts_have_equal_margins(
    air: list[float],
) -> None:
    shapes = {"air": "increasing", "surface": "decreasing"}
    rule = Rule("Hot", "air - surface > 5", within="30s", on="machine", stale="10m", shapes=shapes)
    for one, marks, place in _marks(_streams_of([*air, 0.0]), rule):
        begin = one.start_us // MINUTE
        # Margins are equal for equal readings: the first row of the largest reading within the alert decided it.
        best = begin + int(np.argmax(air[begin : one.end_us // MINUTE]))
        assert marks == [place(best)] * 3


def test_a_picture_marks_the_decisive_rows_when_it_leaves_out_points() -> None:
    rng = np.random.default_rng(3)
    air = np.where(np.arange(6000) > 100, rng.integers(6, 40, 6000), 0).astype(float)
    air[5000] = air[5100] = 50.0
    air[-1] = 0.0
    rule = Rule("Hot", "air - surface > 5", within="30s", on="machine", stale="10m")
    ((_, marks, place),) = _marks(_streams_of(air.tolist()), rule)
    assert marks == [place(5000)] * 3


@pytest.mark.parametrize("largest", [1.7e308, 1e307, 5e-324, 1e-310])
def test_a_drawing_of_numbers_near_the_ends_of_floats_has_places_for_all(largest: float) -> None:
    tables = streams(["m1"])
    for name, sign in (("air", 1.0), ("surface", -1.0)):
        table = tables[name]
        table["value"] = np.where(np.arange(300) % 7 == 3, sign * largest, -sign * largest)
    found = result(
        tables,
        Rule("Hot", "air > 0", on="machine"),
        Rule("Far", "air / 4 - surface / 4 > 0", within="5m", on="machine"),
    )
    pictures = [(pick, traced_key(found.plan, tables, "m1")) for pick in choose(found)]
    assert pictures
    for drawing in re.findall(r"<svg.*?</svg>", page(found, ABOUT, pictures), re.DOTALL):
        places = re.findall(r' (?:x|y|x1|y1|x2|y2|cx|cy|width|height|points|d)="([^"]*)"', drawing)
        assert places
        assert not re.search(r"nan|inf", " ".join(places))
        _, top = re.search(r'viewBox="0 0 (\d+) (\d+)"', drawing).groups()  # type: ignore[union-attr]
        assert all(0 <= float(y) <= float(top) for y in re.findall(r' c?y="([^"]*)"', drawing))


def test_a_picture_that_cannot_be_drawn_says_why() -> None:
    tables = streams(["m1"])
    found = result(tables)
    text = page(found, ABOUT, [(pick, "too many <rows>") for pick in choose(found)])
    assert text.count("No drawing: too many &lt;rows&gt;") == len(choose(found)) > 0
    assert 'class="zero"' not in text


@pytest.mark.parametrize(
    ("low", "high", "value", "share"),
    [
        (-1.7e308, 1.7e308, 0.0, 0.5),
        (-1.7e308, 1.7e308, 1.7e308, 1.0),
        (0.0, 5e-324, 5e-324, 1.0),
        (0.0, 1.0, 0.25, 0.25),
        (1.0, 1.0, 7.0, 0.5),
    ],
)
def test_a_scale_has_a_place_for_every_number(low: float, high: float, value: float, share: float) -> None:
    assert Scale(low, high, 100.0, 200.0)(value) == 100.0 + 100.0 * share


def test_dark_screens_and_paper_have_their_colours(text: str) -> None:
    assert "prefers-color-scheme: dark" in text
    assert "@media print" in text


def test_a_run_without_rows_or_alerts_has_a_report() -> None:
    found = result(streams(["m1"]), Rule("Hot", "air > 99", on="machine"))
    told = page(Result(found.path, found.plan, found.rules, (), ()), ABOUT)
    assert "No rows." in told
    assert "This rule has not fired." in told


def test_the_busiest_keys_come_first_and_the_rest_is_counted() -> None:
    lives = tuple(life(0, 10 + number, machine=f"m{number}") for number in range(MOST_KEYS + 7))
    found = Result("x", result(streams(["m1"])).plan, (), (), lives, oldest_us=0, newest_us=100)
    drawing, more = timeline(found, lives, ["machine"])
    assert more == 7
    assert f">m{MOST_KEYS + 6}<" in drawing
    assert ">m0<" not in drawing


def test_many_alerts_of_a_key_make_a_small_drawing() -> None:
    lives = tuple(life(10 * number, 10 * number + 5) for number in range(20_000))
    found = Result("x", result(streams(["m1"])).plan, (), (), lives, oldest_us=0, newest_us=200_000)
    drawing, _ = timeline(found, lives, ["machine"])
    assert len(drawing) < 300_000


@pytest.mark.parametrize(
    ("low", "high"), [(0.0, 5e-324), (-5e-324, 5e-324), (0.0, 1e-310), (1e-308, 2e-308), (0.0, 3e-307)]
)
def test_numbers_nearer_to_nought_than_usual_have_marks(low: float, high: float) -> None:
    places = [place for place, _ in number_ticks(low, high)]
    assert 2 <= len(places) <= 5
    assert all(low <= place <= high for place in places)
