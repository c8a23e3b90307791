"""No mistake of a file hides another one: neither in a condition, nor in its rule, nor in a stream that it reads."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from call_counts import count_calls
from rules.files import GOOD, check, said

EXPR = "air - surface > by_machine.margin"
SINGLE = "`recovery` needs one comparison with a number or a column of limits on its right side"
VALUES = "`annotations['summary']` must name values that `expr` reads"


def _sentences(folder: Path, *changes: tuple[str, str]) -> list[str]:
    """What is said of the good file after some changes, without places and what was found."""
    text = GOOD
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    return [mistake.sentence.split(";", maxsplit=1)[0] for mistake in check(folder, text).errors]


def test_all_mistakes_of_a_condition_come_at_once_each_at_its_place(tmp_path: Path) -> None:
    line = "»sqr(»airr) + »lg(»air.tmp) - »surfac > 1 and »min(air) > »by_machine.margn"
    column = GOOD.splitlines()[22].index(EXPR) + 1
    places = [column + at - line.count("»", 0, at) for at, mark in enumerate(line) if mark == "»"]
    text = GOOD.replace(EXPR, line.replace("»", ""), 1).replace("        recovery: -1\n", "")
    found = check(tmp_path, text).errors
    assert [(mistake.line, mistake.column) for mistake in found] == [(23, place) for place in places]
    assert [mistake.sentence.split(";")[0] for mistake in found] == [
        "`expr`: `sqr` is not a function",
        "`expr`: `airr` must be one of the streams by_machine, by_site, air, surface",
        "`expr`: `lg` is not a function",
        "`expr`: stream `air` must have the value column 'tmp'",
        "`expr`: `surfac` must be one of the streams by_machine, by_site, air, surface",
        "`expr`: `min` takes 2 or more arguments",
        "`expr`: `by_machine` must name a column of its table (margin, max_temp)",
    ]


def test_a_number_where_a_condition_must_be_hides_no_unknown_name(tmp_path: Path) -> None:
    assert _sentences(tmp_path, (EXPR, "where(airr, 1, 2) + hum")) == [
        "`expr`: a condition needs a comparison such as `... > 0`",
        "`expr`: `airr` must be one of the streams by_machine, by_site, air, surface",
        "`expr`: `where` expected a comparison such as `... > 0`",
        "`expr`: `hum` must be one of the streams by_machine, by_site, air, surface",
    ]


def test_a_condition_that_breaks_off_hides_its_unknown_names_and_nothing_else(tmp_path: Path) -> None:
    changes = [(EXPR, "hum - surfac > > 3"), ("$values.air", "$values.hum"), ("{air: increasing}", "{hum: increasing}")]
    assert _sentences(tmp_path, *changes, ("for: 10m\n        r", "for: -5s\n        r")) == [
        "`expr`: expected a number, a stream, a function or `(`",
        "`for` must not be negative",
        "`shapes` must name variables of `expr`",
        VALUES,
    ]


@pytest.mark.parametrize(
    ("expr", "sentence"),
    [
        ("air - surfac > -2", "`recovery` must not be above the threshold of `>`"),
        ("sqr(air) > -2", "`recovery` must not be above the threshold of `>`"),
        ("air > 2 * surfac", SINGLE),
        ("air > 1 or surfac > 1", SINGLE),
    ],
)
def test_condition_recovery_and_template_are_checked_together(tmp_path: Path, expr: str, sentence: str) -> None:
    found = _sentences(tmp_path, (EXPR, expr), ("$labels.machine", "$labels.machin"), ("$values.air", "$values.hum"))
    assert len(found) == 4
    assert found[0].startswith("`expr`: `s")
    assert found[1:] == [sentence, "`annotations['summary']` must name labels of the alert", VALUES]


def test_a_condition_is_quoted_as_it_was_written(tmp_path: Path) -> None:
    lines = said(tmp_path, GOOD.replace(EXPR, "air > 2 * surfac", 1))
    assert lines[1].endswith("on its right side; got `air > 2 * surfac`")


@pytest.mark.parametrize(
    "expr",
    [
        "air - surfac > by_machine.margin",  # mended, it reads `surface`, as template and shapes may know already
        "air - surface > by_machine.margn",
        "air - surface > by_machin.margin",  # alone on the right side: it may be meant as a limit
        "airr - surface > by_machine.margin",
        "sqr(air - surface) > by_machine.margin",
    ],
)
def test_what_is_right_once_the_condition_is_mended_is_no_mistake(tmp_path: Path, expr: str) -> None:
    assert len(_sentences(tmp_path, (EXPR, expr), ("{air: increasing}", "{air: increasing, surface: decreasing}"))) == 1


def test_bounds_of_pairs_are_not_held_against_a_stream_that_is_misspelt(tmp_path: Path) -> None:
    pair = "air.temp - surface > 15"
    assert len(_sentences(tmp_path, (pair, "air.temp - surfac > 15"))) == 1
    assert _sentences(tmp_path, (pair, "air.temp - surfac > 15"), ("[air, surface]", "[air, hum]")) == [
        "`expr`: `surfac` must be one of the streams by_machine, by_site, air, surface",
        "`within` must name streams of `expr`",
    ]


def test_a_mistake_in_the_bounds_hides_neither_shapes_nor_recovery(tmp_path: Path) -> None:
    changes = [("within: 10s", "within: [{between: [air, hum], bounds: [0, 1s]}]"), ("recovery: -1", "recovery: 1")]
    assert _sentences(tmp_path, *changes, ("{air: increasing}", "{hum: increasing}")) == [
        "`within` must name streams of `expr` (air, surface)",
        "`recovery` must not be above the threshold of `>`",
        "`shapes` must name variables of `expr` (air, surface)",
    ]


def test_a_domain_with_a_mistake_hides_no_mistake_of_the_rules_that_read_it(tmp_path: Path) -> None:
    domain, wrong = (
        '`domain` must be [low, high] with low < high, or text such as "[0, 100)"',
        ("[-40, 85]", "[85, -40]"),
    )
    assert _sentences(tmp_path, wrong) == [domain]
    # On which domain a shape is false cannot be said, however its variable is named.
    for name in ("air", "air.value"):
        assert _sentences(tmp_path, wrong, ("{air: increasing}", f"{{{name}: decreasing}}")) == [domain]
    changes = [(EXPR, "air.tmp - surface > 2"), ("recovery: -1", "recovery: 3"), ("$values.air", "$values.hum")]
    assert _sentences(tmp_path, wrong, *changes) == [
        domain,
        "`expr`: stream `air` must have the value column 'tmp'",
        "`recovery` must not be above the threshold of `>`",
        VALUES,
    ]


def test_hostile_conditions_are_given_up_after_some_mistakes(tmp_path: Path) -> None:
    found = []
    calls = count_calls(lambda: found.extend(_sentences(tmp_path, (EXPR, "+".join(["f(a)"] * 1_900) + " > 0"))))
    assert (len(found), found[-1]) == (21, "`expr`: more than 20 errors")
    assert calls < 1_000_000


@given(st.sets(st.sampled_from(["air", "surface", "by_machine", "margin", "abs", "min", "temp"]), min_size=1))
def test_names_that_are_misspelt_in_conditions_are_blamed_on_nothing_else(
    tmp_path_factory: pytest.TempPathFactory, wrong: set[str]
) -> None:
    words = ["abs(air) - min(surface, 3) > by_machine.margin", "air.temp - surface > 15"]
    text = GOOD.replace(EXPR, words[0])
    for old in words:
        new = re.sub(r"\w+", lambda word: f"{word[0]}qq" if word[0] in wrong else word[0], old)
        text = text.replace(old, new)
    found = [mistake.sentence for mistake in check(tmp_path_factory.getbasetemp(), text).errors]
    assert found
    assert all(message.startswith("`expr`: ") for message in found)
    assert all(any(f"{word}qq" in message for message in found) for word in wrong - {"margin", "temp"})
