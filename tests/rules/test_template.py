"""Templates of annotations: what they print, and what they refuse."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.rules.template import TemplateError, humanize, parse_template

ALERT: dict[str, Any] = {
    "alert": "Hot",
    "labels": {"machine": "p1", "team": "hvac"},
    "value": 1234.5678,
    "startsAt": 1_500_000,
    "firesAt": None,
    "witness": [
        {"stream": "air", "time": 0, "values": {"value": 16.0, "temp": 0.25}, "payload": None},
        {"stream": "surface", "time": 0, "values": {"heat": -3.5}, "payload": {"x": "y"}},
        {"stream": "two", "time": 0, "values": {"a": 1.0, "b": 2.0}, "payload": None},
    ],
}
RENDERED = {
    "plain": "plain",
    "": "",
    "}} {": "}} {",
    "{{ $labels.machine }}": "p1",
    "{{$labels.machine}}/{{   $labels.team   }}": "p1/hvac",
    "{{ $labels.alertname }}": "Hot",
    "{{ $labels.none }}": "<no value>",
    "{{ $value }}": "1234.5678",
    "{{ $values.air }}": "16",
    "{{ $values.air.temp }}": "0.25",
    "{{ $values.surface }}": "-3.5",
    "{{ $values.surface.heat }}": "-3.5",
    "{{ $values.two }}": "<no value>",
    "{{ $values.none }}": "<no value>",
    "{{ $value | humanize }}": "1.235k",
    '{{ $value | printf "%.1f" }}': "1234.6",
    '{{ $value | printf "%.1f °C (100 %%)" }}': "1234.6 °C (100 %)",
    '{{ $value | printf "%08.2f|" }}': "01234.57|",
    '{{ $value | printf "%-9.1f|" }}': "1234.6   |",
    '{{ $value | printf "%+.2e" }}': "+1.23e+03",
    '{{ $value | printf "%v" }}': "1234.5678",
    "{{ $startsAt }}": "1970-01-01T00:00:01.500000Z",
    '{{ $startsAt | printf "%.10s" }}': "1970-01-01",
    "{{ $firesAt }}": "<no value>",
    '{{ $value | printf "say \\"%v\\" }}" }}': 'say "1234.5678" }}',
    '{{ $labels.machine | printf "%s!" }}': "p1!",
    '{{ $labels.machine | printf "%5v" }}': "   p1",
    '{{ $value | humanize | printf "<%s>" }}': "<1.235k>",
}
KNOWN = (
    "a template must name `$labels.x`, `$value`, `$values.stream`, `$values.stream.column`, `$startsAt` or `$firesAt`; "
    "got "
)
PRINTF = '`printf` needs a text with one verb such as `"%.1f"`'
# `»` stands where the mistake is.
REFUSED = {
    "{{ »x }}": KNOWN + "`x`",
    "{{ »$x }}": KNOWN + "`$x`",
    "{{ »$labels }}": KNOWN + "`$labels`",
    "{{ »$labels.a.b }}": KNOWN + "`$labels.a.b`",
    "{{ »$value.x }}": KNOWN + "`$value.x`",
    "{{ »$startsAt.x }}": KNOWN + "`$startsAt.x`",
    "{{ »$endsAt }}": KNOWN + "`$endsAt`",
    "{{ $firesAt | »humanize }}": "`humanize` needs a number; got text",
    "{{ »$values.a.b.c }}": KNOWN + "`$values.a.b.c`",
    "{{ »if true }}x{{ end }}": KNOWN + "`if true`",
    "{{»- $value }}": KNOWN + "`- $value`",
    "{{ »}}": KNOWN + "`}}`",
    '{{ »query "up" }}': KNOWN + '`query "up"`',
    "a »{{ $value": "a template must end with `}}`; the text ends before",
    "{{ $value »$value }}": "a template must continue with `|` or `}}`; got `$value`",
    "{{ $value | »upper }}": 'a pipe must be `humanize` or `printf "..."`; got `upper`',
    "{{ $value | »}}": 'a pipe must be `humanize` or `printf "..."`; got `}}`',
    "{{ $labels.x | »humanize }}": "`humanize` needs a number; got text",
    "{{ $value | humanize | »humanize }}": "`humanize` needs a number; got text",
    "{{ $value | printf »}}": PRINTF,
    '{{ $value | printf »"x" }}': PRINTF,
    '{{ $value | printf »"%d" }}': PRINTF,
    '{{ $value | printf »"%f %f" }}': PRINTF,
    '{{ $value | printf »"%999f" }}': PRINTF,
    '{{ $value | printf »"%*f" }}': PRINTF,
    '{{ $value | printf »"%f\\n" }}': PRINTF,
    '{{ $value | printf »"%s" }}': "`%s` cannot format a number",
    '{{ $labels.x | printf »"%.1f" }}': "`%f` cannot format text",
}


@pytest.mark.parametrize("text", RENDERED)
def test_rendered(text: str) -> None:
    assert parse_template(text).render(ALERT) == RENDERED[text]


@pytest.mark.parametrize("text", REFUSED)
def test_refused_with_its_place(text: str) -> None:
    with pytest.raises(TemplateError, match="^" + re.escape(REFUSED[text]) + "$") as caught:
        parse_template(text.replace("»", ""))
    assert caught.value.span is not None
    assert caught.value.span[0] == text.index("»")


def test_a_long_template_is_refused() -> None:
    with pytest.raises(TemplateError, match="at most 10,000 characters; got 10,001"):
        parse_template("x" * 10_001)


@pytest.mark.parametrize(
    ("value", "text"),
    # Derived from the rule: four digits, and the prefix that brings the number to 1..1000.
    [(0, "0"), (1, "1"), (999, "999"), (1000, "1k"), (1_234_567, "1.235M"), (-5e9, "-5G"), (0.5, "500m"),
     (2e-7, "200n"), (1e30, "1e+06Y"), (float("nan"), "nan"), (float("-inf"), "-inf")],
)  # fmt: skip
def test_humanize(value: float, text: str) -> None:
    assert humanize(value) == text


@given(st.text(st.sampled_from('{}$|" .%\\fvalueslabprintfhumanize0123é'), max_size=40), st.floats() | st.none())
def test_no_text_raises_anything_else_and_what_is_read_renders(text: str, value: float | None) -> None:
    offset = 0
    try:
        assert isinstance(parse_template("{{ $value " + text).render({"value": value}), str)
    except TemplateError as error:
        offset = error.span[0] if error.span else 0
    assert 0 <= offset <= len(text) + 10


def test_an_alert_without_anything_renders() -> None:
    assert parse_template("{{ $value }} {{ $labels.x }} {{ $values.a }}").render({}) == " ".join(["<no value>"] * 3)
