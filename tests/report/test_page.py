"""The report: one file that needs nothing else, whatever stands in labels and rows."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from tests.report.cases import life, result, streams, traced_key
from tocsin import Rule
from tocsin.report import Result, choose, compare
from tocsin.report.page import About, page
from tocsin.report.timeline import MOST_KEYS, timeline

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
        "Alerts worth a look",
        "What became of the rows",
        "The plan",
        "Watch on machine",
    ):
        assert part in text
    assert "keep the largest of every 10m" in text
    assert "Against rules.yaml" in text
    assert "largest margin" in text
    assert len(text) < 3_000_000


def test_a_picture_shows_rows_kept_and_left_out_the_margin_and_the_witness(text: str) -> None:
    pictures = [part for part in re.findall(r"<svg.*?</svg>", text, re.DOTALL) if 'class="zero"' in part]
    assert pictures
    for drawing in pictures:
        for kind in ("kept", "omitted", "witness", "true", "firing", "span"):
            assert re.search(rf'class="(?:dots )?{kind}"', drawing), kind


def test_dark_screens_and_paper_have_their_colours(text: str) -> None:
    assert "prefers-color-scheme: dark" in text
    assert "@media print" in text


def test_a_run_without_rows_or_alerts_has_a_report() -> None:
    found = result(streams(["m1"]), Rule("Hot", "air > 99", on="machine"))
    told = page(Result(found.path, found.plan, found.rules, (), ()), ABOUT)
    assert "There were no rows." in told
    assert "It never fired." in told


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
