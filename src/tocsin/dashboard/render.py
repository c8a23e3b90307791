"""Rendering: the templates, their filters and addresses. Every text from outside is escaped and cut to a maximum."""

from __future__ import annotations

import hashlib
import re
import time
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from tocsin.dashboard.alert_index import SEVERITIES
from tocsin.dashboard.alert_records import AlertRecord, id_in_address, length_of, token_of
from tocsin.dashboard.markup import message_markup, visible
from tocsin.dashboard.rundata import RunData
from tocsin.formatting import (
    format_duration,
    format_event_time,
    format_number,
    format_second,
    format_share,
    format_size,
)
from tocsin.report.result import OUTCOMES

# Limits of the length of a text on a page: of any text, and of a text in a table.
MOST_TEXT, SHORT = 20_000, 120
_STATIC = Path(__file__).parent / "static"
# Each state has a sign, so that the colour is not the only difference.
SIGNS = {"firing": "▲", "pending": "◔", "resolved": "✓", "inactive": "○", "match": "◆"}

# Meaning of each word of the quality of an alert.
MARKS = {
    "late": "raised by an out-of-order row",
    "subset": "rows or pairs were skipped because of a budget; the number is the share of results that is found",
    "sample": "one of a random sample of the results; the number is the sampling probability",
    "out-of-domain": "a row of the witness is outside the domain that the rule file declares",
    "rule-changed": "ended because its rule was changed or removed",
    "key-expired": "ended because its key had no rows for so long that its state expired",
}
_NUMBER = re.compile(r"[0-9.]{1,20}(e-?[0-9]{1,3})?")


def render(name: str, **values: Any) -> str:
    """Return a template as HTML."""
    return _environment().get_template(name).render(**values)


@cache
def _environment() -> Environment:
    loader = PackageLoader("tocsin.dashboard", "templates")
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=_shown
    )
    environment.filters |= {
        "short": short,
        "number": number_text,
        "whole": lambda value: f"{value:,}",
        "date": format_second,
        "exact": format_event_time,
        "urgency": lambda one: urgency(one.severity),
        "lasts": lasts,
        "moment": lambda time_us: Markup('<time datetime="{0}" title="{0}">{1}</time>').format(
            format_event_time(time_us), format_second(time_us)
        ),
        "duration": lambda us: format_duration(int(us)),
        "size": format_size,
        "sign": lambda state: SIGNS.get(state, "•"),
        "marks": marks,
        "recall": lambda value: (
            format_number(round(value, 4)) if isinstance(value, int | float) and abs(value) < 1e9 else "-"
        ),
        "message": message_markup,
        "outcome_names": lambda stores: [name for name in OUTCOMES if any(name in one.parts for one in stores)],
        "path": path_text,
        "token": token_of,
        "id": id_in_address,
        "share": format_share,
    }
    environment.globals |= {
        "static": _static,
        "address": address,
        "query": query,
        "labels_text": labels_text,
        "outcomes": OUTCOMES,
    }
    return environment


def _shown(value: Any) -> Any:
    """Return a text without characters that a page must not contain, cut to `MOST_TEXT`."""
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    return visible(value if len(value) <= MOST_TEXT else cut(value, MOST_TEXT))


def cut(text: str, most: int) -> str:
    """Return the first characters of a text, with its length.

    >>> cut("abcdef", 3)
    'abc… (6 characters)'
    """
    return f"{text[:most]}… ({length_of(text)} characters)"


def short(text: Any, most: int = SHORT) -> str:
    """Return a text, cut to at most `most` characters."""
    whole = str(text)
    return whole if len(whole) <= most else cut(whole, most)


def path_text(text: Any) -> Markup:
    """Return a path as HTML that can wrap after each slash.

    >>> path_text("/rules/<a>.yaml")
    Markup('/<wbr>rules/<wbr>&lt;a&gt;.yaml')
    """
    return Markup("/<wbr>").join(visible(short(text, 300)).split("/"))


def number_text(value: float | None) -> str:
    """Return a number as text. None is a number that was not finite."""
    return "not finite" if value is None else format_number(value)


def ago(seconds: float) -> str:
    """Return the time since a moment as text; after one day, return the moment itself."""
    passed = max(0, round(time.time() - seconds))
    return (
        f"{format_duration(passed * 1_000_000)} ago" if passed < 86_400 else f"on {format_second(round(seconds * 1e6))}"
    )


def urgency(severity: str) -> str:
    """Return the colour class of a severity: `high`, `medium`, `low`, or `none` for any other text.

    >>> urgency("critical"), urgency("Warning"), urgency("info"), urgency("")
    ('high', 'medium', 'low', 'none')
    """
    place = SEVERITIES.index(severity.casefold()) if severity.casefold() in SEVERITIES else len(SEVERITIES)
    return "high" if place < 4 else "medium" if place < 7 else "low" if place < len(SEVERITIES) - 1 else "none"


def lasts(one: AlertRecord, run: RunData) -> str:
    """Return the duration of an alert. An open alert lasts until the newest event time of the run."""
    if one.state == "match":
        return "-"
    newest = run.last.newest_us.values() if run.last else ()
    end_us = max([one.start_us, *newest]) if one.end_us is None else one.end_us
    return format_duration(end_us - one.start_us) + (" so far" if one.end_us is None else "")


def marks(quality: str) -> list[tuple[str, str]]:
    """Return each word of a quality except `exact`, with its number, and its meaning.

    >>> [text for text, _ in marks("subset 0.93 late")], marks("exact")
    (['subset 0.93', 'late'], [])
    """
    found: list[tuple[str, str]] = []
    for word in quality.split()[:12]:
        if found and _NUMBER.fullmatch(word):
            found[-1] = (f"{found[-1][0]} {word}", found[-1][1])
        elif word != "exact":
            found.append((short(word, 40), MARKS.get(word, "")))
    return found


def labels_text(labels: tuple[tuple[str, str], ...]) -> str:
    """Return labels as one line: `machine=press-7, team=hvac`."""
    shown = ", ".join(f"{short(name, 40)}={short(value, 60)}" for name, value in labels[:12])
    return short(shown + ("…" if len(labels) > 12 else ""), 2 * SHORT)


def address(run: RunData, *parts: str, **asked: Any) -> str:
    """Return the address of a page of a run."""
    path = "/".join(["", "run", *(quote(part, safe="", errors="replace") for part in (run.name, *parts))])
    return path + query(**asked)


def query(**asked: Any) -> str:
    """Return the query of an address without empty values. A lone surrogate becomes a question mark.

    >>> query(q="press 7", rule="", on0="x" + chr(0xD800))
    '?q=press+7&on0=x%3F'
    """
    given = {name: value for name, value in asked.items() if value not in (None, "", False)}
    return f"?{urlencode(given, errors='replace')}" if given else ""


def static_file(name: str) -> Path:
    """Return the path of a static file."""
    return _STATIC / name


@cache
def _static(name: str) -> str:
    """Return the address of a static file. It changes with the content of the file."""
    code = hashlib.sha256(static_file(name).read_bytes()).hexdigest()[:12]
    return f"/static/{name}?{code}"
