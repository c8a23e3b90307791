"""Series notation: expansion, errors and their positions, and lossless contraction."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from call_counts import count_calls
from tocsin.testing.series_notation import (
    MOST_SAMPLES,
    NotationError,
    Samples,
    read_delays,
    read_samples,
    read_series,
    write_samples,
)

NUMBERS = st.one_of(st.integers(-5, 5).map(float), st.floats(allow_nan=False, allow_infinity=True))
WANTED = "`values` must be samples such as `1`, `1+2x3`, `1x4`, `_` or `_x5`"
LOOKS = '`series` must look like `air{machine="m1"}` or `air.temp{machine="m1"}`'


@st.composite
def samples(draw: st.DrawFn) -> Samples:
    """Draw samples with runs: equal steps, repeats and gaps."""
    values: list[float | None] = []
    for _ in range(draw(st.integers(1, 6))):
        first, step, count = draw(st.none() | NUMBERS), draw(NUMBERS), draw(st.integers(1, 9))
        values += [None if first is None else first + step * k for k in range(count)]
    numbers = np.array([math.nan if value is None else value for value in values])
    return Samples(numbers, np.array([value is not None for value in values]))


def _expanded(text: str) -> list[float | None]:
    read = read_samples(text)
    return [value if there else None for value, there in zip(read.values.tolist(), read.there.tolist(), strict=True)]


@given(samples())
def test_contracted_samples_expand_to_the_same_samples(given_samples: Samples) -> None:
    again = read_samples(write_samples(given_samples))
    assert again.there.tolist() == given_samples.there.tolist()
    assert np.array_equal(again.values, given_samples.values, equal_nan=True)


@given(st.lists(st.sampled_from(["1", "-2.5", "1+2x3", "1-0.5x4", "7x2", "_", "_x5", "stale", "1e3", "NaN", "-Inf"])))
def test_contracted_text_expands_to_the_same_samples(words: list[str]) -> None:
    text = " ".join([*words, "0"])
    again = read_samples(write_samples(read_samples(text)))
    assert np.array_equal(again.values, read_samples(text).values, equal_nan=True)
    assert again.there.tolist() == read_samples(text).there.tolist()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("-2+4x3", [-2, 2, 6, 10]),
        (" 1-2x4", [1, -1, -3, -5, -7]),
        ("1x4", [1, 1, 1, 1, 1]),
        ("0x2", [0, 0, 0]),
        ("1e-2x1 .5 5.", [0.01, 0.01, 0.5, 5]),
        ("1+1e1x2", [1, 11, 21]),
        ("1 _x3 stale", [1, None, None, None, None]),
        ("10+10x2 30+20x5", [10, 20, 30, 30, 50, 70, 90, 110, 130]),
        ("Inf -inf", [math.inf, -math.inf]),
        ("0+0.1x3", [0, 0.1, 0.2, 0.1 * 3]),
    ],
)
def test_series_expands_as_in_promtool(text: str, expected: list[float | None]) -> None:
    assert _expanded(text) == expected


def test_contracted_series_is_short() -> None:
    assert write_samples(read_samples("1 3 5 7 _ _ 5 5 8 6 6.5")) == "1+2x3 _x2 5x1 8 6 6.5"
    assert write_samples(read_samples("5 3 1")) == "5-2x2"


@pytest.mark.parametrize(
    ("text", "offset", "message"),
    [
        ("", 0, f"{WANTED}; got nothing"),
        ("1 2 1+x3", 5, f"{WANTED}; got `+x3` after `1`"),
        ("1+2", 1, f"{WANTED}; got `+2` after `1`"),
        ("1+2y3", 1, f"{WANTED}; got `+2y3` after `1`"),
        ("1x", 1, f"{WANTED}; got `x` after `1`"),
        ("1 _y", 3, f"{WANTED}; got `y` after `_`"),
        ("_x0", 1, f"{WANTED}; got `x0` after `_`"),
        ("stales", 5, f"{WANTED}; got `s` after `stale`"),
        ("1 two", 2, f"{WANTED}; got `two`"),
        ("1 {{schema:1}}", 2, "`values` must be numbers, because streams have no histograms; got `{{schema:1}}`"),
        ("1 1x1000000000", 2, "`values` must have at most 100,000 samples; `1x1000000000` would exceed it"),
        ("1x" + "9" * 9000, 0, f"`values` must have at most 100,000 samples; `1x{'9' * 38}` would exceed it"),
        ("1x99998 1 1", 10, "`values` must have at most 100,000 samples; `1` would exceed it"),
        ("_x100001", 0, "`values` must have at most 100,000 samples; `_x100001` would exceed it"),
    ],
)
def test_read_samples_reports_the_position_when_the_text_is_invalid(text: str, offset: int, message: str) -> None:
    with pytest.raises(NotationError) as caught:
        read_samples(text)
    assert (caught.value.offset, str(caught.value)) == (offset, message)


@pytest.mark.parametrize("word", ["1 ", "_ ", "1x1 ", "stale\t", "0x0 "])
def test_long_text_is_rejected_before_it_is_read_completely(word: str) -> None:
    def reject() -> None:
        with pytest.raises(NotationError, match="must have at most"):
            read_samples(word * 4_000_000)
        with pytest.raises(NotationError, match="must have at most as many"):
            read_delays("0s " * 4_000_000, 5)

    assert count_calls(reject) < 15 * MOST_SAMPLES


def test_read_samples_accepts_the_maximum_number_of_samples() -> None:
    assert len(read_samples(f"1x{MOST_SAMPLES - 1}")) == MOST_SAMPLES


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("5s", [5, 5, 5, 5, 5]),
        ("0s x2 30s x1 1s", [0, 0, 30, 1, 0]),
        ("0sx2 30s", [0, 0, 30, 0, 0]),
        ("1m 2s", [60, 2, 0, 0, 0]),
        ("1s x5", [1, 1, 1, 1, 1]),
        (" 0 x4 1h ", [0, 0, 0, 0, 3600]),
    ],
)
def test_delay_applies_to_all_samples_or_to_each_one(text: str, expected: list[int]) -> None:
    assert (read_delays(text, 5) // 1_000_000).tolist() == expected


@pytest.mark.parametrize(
    ("text", "offset", "message"),
    [
        (" ", 0, "`delay` must be one duration for all samples, or a list such as `0s x5 30s 0s x4`; got nothing"),
        ("0s x2 five", 6, "`delay` must be a duration such as '10s', '1h30m' or '500ms'; got 'five'"),
        ("x5", 0, "`delay` must be a duration such as '10s', '1h30m' or '500ms'; got 'x5'"),
        ("1s x0", 3, "`delay` must be a duration such as '10s', '1h30m' or '500ms'; got 'x0'"),
        ("1s -5s", 3, "`delay` must not be negative; got '-5s'"),
        ("1s x4 2s x2", 6, "`delay` must have at most as many items as `values` has samples (5)"),
        ("1s x1000000000000000", 0, "`delay` must have at most as many items as `values` has samples (5)"),
    ],
)
def test_read_delays_reports_the_position_when_the_text_is_invalid(text: str, offset: int, message: str) -> None:
    with pytest.raises(NotationError) as caught:
        read_delays(text, 5)
    assert (caught.value.offset, str(caught.value)) == (offset, message)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("air", ("air", None, {})),
        ("air{}", ("air", None, {})),
        ('air.temp{ m = "1" , site=\'a"b\', }', ("air", "temp", {"m": "1", "site": 'a"b'})),
        ('air{m="a\\"b\\\\"} ', ("air", None, {"m": 'a"b\\'})),
        ("air{m=`a\\n`}", ("air", None, {"m": "a\\n"})),
    ],
)
def test_series_name_is_parsed_as_in_prometheus(text: str, expected: tuple[object, ...]) -> None:
    assert read_series(text) == expected


@pytest.mark.parametrize(
    ("text", "offset", "message"),
    [
        ("1air", 0, f"{LOOKS}; got `1air`"),
        ("air.b.c", 5, f"{LOOKS}; got `.c` after `air.b`"),
        ("air{m=1}", 4, f"{LOOKS}; got `m=1}}` among the labels"),
        ('air{m="1" n="2"}', 10, f'{LOOKS}; got `n="2"}}` among the labels'),
        ('air{m="1"', 9, f"{LOOKS}; got the end of the text among the labels"),
        ('air{m="1", m="2"}', 11, "`series` must have each label once; got `m` twice"),
        ('air{m="1"} 5', 10, f'{LOOKS}; got ` 5` after `air{{m="1"}}`'),
    ],
)
def test_read_series_reports_the_position_when_the_name_is_invalid(text: str, offset: int, message: str) -> None:
    with pytest.raises(NotationError) as caught:
        read_series(text)
    assert (caught.value.offset, str(caught.value)) == (offset, message)
