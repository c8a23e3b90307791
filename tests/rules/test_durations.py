"""Durations as people write them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin import RuleError
from tocsin.rules.durations import duration_text, microseconds

SECOND, MINUTE, HOUR, DAY = 10**6, 60 * 10**6, 3600 * 10**6, 86400 * 10**6
READ = {
    "10s": 10 * SECOND, "500ms": 500_000, "7us": 7, "1h30m": HOUR + 30 * MINUTE, "1w2d": 9 * DAY, " 5s ": 5 * SECOND,
    "0": 0, "0s": 0, "-0": 0, "+2s": 2 * SECOND, "1m1ms": MINUTE + 1000,
}  # fmt: skip


@pytest.mark.parametrize("text", READ)
def test_text_is_read(text: str) -> None:
    assert microseconds(text, "`x`") == READ[text]


def test_a_timedelta_and_the_number_0_are_durations() -> None:
    assert microseconds(0, "`x`") == 0
    assert microseconds(timedelta(minutes=2, microseconds=3), "`x`") == 2 * MINUTE + 3


def test_a_sign_is_read_where_a_bound_may_be_negative() -> None:
    assert microseconds("-1m30s", "`x`", signed=True) == -90 * SECOND
    assert microseconds(timedelta(seconds=-1), "`x`", signed=True) == -SECOND


@pytest.mark.parametrize(
    "given",
    [
        "",
        "s",
        "5",
        "1.5s",
        "5 s",
        "5x",
        "1h30",
        "five",
        "--5s",
        "+-5s",
        "s5",
        "\u0665s",
        1.5,
        5,
        -1,
        0.0,
        False,
        None,
        True,
        b"5s",
        [5],
    ],
)
def test_what_is_no_duration_is_refused(given: Any) -> None:
    with pytest.raises(RuleError, match=r"^`x` must be a duration such as '10s', '1h30m' or '500ms'; got "):
        microseconds(given, "`x`", signed=True)


@given(st.integers().filter(bool))
def test_an_error_shows_the_number_with_a_unit_when_the_unit_is_missing(value: int) -> None:
    with pytest.raises(RuleError, match=rf"got {value!r}, a number without a unit; for seconds write '{value}s'$"):
        microseconds(value, "`x`", signed=True)  # type: ignore[arg-type]


@pytest.mark.parametrize("given", ["60", " 60 ", 60.0])
def test_an_error_shows_a_text_or_float_with_a_unit_when_the_unit_is_missing(given: Any) -> None:
    with pytest.raises(RuleError, match=r"a number without a unit; for seconds write '60s'$"):
        microseconds(given, "`x`")


@pytest.mark.parametrize("given", ["-5s", timedelta(microseconds=-1)])
def test_a_negative_duration_is_refused(given: Any) -> None:
    with pytest.raises(RuleError, match=r"^rule \"r\": `for` must not be negative; got "):
        microseconds(given, 'rule "r": `for`')


@pytest.mark.parametrize("given", ["999999w", timedelta(days=2_000_000)])
def test_a_duration_of_thousands_of_years_is_refused(given: Any) -> None:
    with pytest.raises(RuleError, match=r"^`x` must be shorter than 3,000 years; got "):
        microseconds(given, "`x`")


@given(st.integers(-(10**17), 10**17))
def test_what_is_written_is_read_back(value_us: int) -> None:
    assert microseconds(duration_text(value_us), "`x`", signed=True) == value_us
