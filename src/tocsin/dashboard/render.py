"""Templates, and how pages write things: everything that came from outside is text, cut where it is very long."""

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

from tocsin import report
from tocsin.dashboard.known import id_in_address, length_of, token_of
from tocsin.dashboard.rundata import RunData
from tocsin.report.svg import visible
from tocsin.trace.words import date, number, rounded, size_text

# No text of a page is longer than this, whatever a row or a label holds.
MOST_TEXT, SHORT = 20_000, 120
_STATIC = Path(__file__).parent / "static"
DRAWINGS = Path(report.__file__).parent / "templates" / "drawings.css"
# A sign beside each state: colour is never the only one.
SIGNS = {"firing": "▲", "pending": "◔", "resolved": "✓", "inactive": "○", "match": "◆"}

# What the words of a quality mean.
MARKS = {
    "late": "found by a row that came late",
    "subset": "rows or pairs that its results may need were given up; the number is the share of results that is found",
    "sample": "one of a sample of the results; the number is the chance with which it was taken",
    "out-of-domain": "a row that decided lies outside the domain that the rule declares",
    "rule-changed": "ended because its rule was changed or removed",
    "forgotten": "ended because its key was silent for so long that it was forgotten",
}
_NUMBER = re.compile(r"[0-9.]{1,20}(e-?[0-9]{1,3})?")


def render(name: str, **values: Any) -> str:
    """Make a page of a template."""
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
        "date": moment,
        "exact": date,
        "duration": lambda us: rounded(int(us)),
        "size": size_text,
        "sign": lambda state: SIGNS.get(state, "•"),
        "marks": marks,
        "recall": lambda value: number(round(value, 4)) if isinstance(value, int | float) and abs(value) < 1e9 else "-",
        "fates": lambda stores: {name for one in stores for name in one.parts},
        "path": path_text,
        "token": token_of,
        "id": id_in_address,
        "share": lambda value: f"{100 * value:.1f} %",
    }
    environment.globals |= {"static": _static, "address": address, "query": query, "labels_text": labels_text}
    return environment


def _shown(value: Any) -> Any:
    """Text without characters that no page may hold, and never without end."""
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    return visible(value if len(value) <= MOST_TEXT else cut(value, MOST_TEXT))


def cut(text: str, most: int) -> str:
    """A text that is too long, with how long it is.

    >>> cut("abcdef", 3)
    'abc… (6 characters)'
    """
    return f"{text[:most]}… ({length_of(text)} characters)"


def short(text: Any, most: int = SHORT) -> str:
    """A text as far as it fits beside others."""
    whole = str(text)
    return whole if len(whole) <= most else cut(whole, most)


def path_text(text: Any) -> Markup:
    """A path, which may be broken behind each of its parts and nowhere else, if it can be.

    >>> path_text("/rules/<a>.yaml")
    Markup('/<wbr>rules/<wbr>&lt;a&gt;.yaml')
    """
    return Markup("/<wbr>").join(visible(short(text, 300)).split("/"))


def number_text(value: float | None) -> str:
    """A number for people; one that was not finite is told."""
    return "not finite" if value is None else number(value)


def moment(time_us: int) -> str:
    """A time to the second, with the day; it is UTC, which the head of the page says.

    >>> moment(1_500_000)
    '1970-01-01 00:00:01'
    """
    return date(time_us // 1_000_000 * 1_000_000).replace("T", " ").removesuffix("Z")


def ago(seconds: float) -> str:
    """How long ago a moment of the clock was; after a day, when it was."""
    passed = max(0, round(time.time() - seconds))
    return f"{rounded(passed * 1_000_000)} ago" if passed < 86_400 else f"on {moment(round(seconds * 1e6))}"


def marks(quality: str) -> list[tuple[str, str]]:
    """What the quality of an alert says beyond `exact`: each word, with its number, and what it means.

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
    """Labels in one line: `machine=press-7, team=hvac`."""
    shown = ", ".join(f"{short(name, 40)}={short(value, 60)}" for name, value in labels[:12])
    return short(shown + ("…" if len(labels) > 12 else ""), 2 * SHORT)


def address(run: RunData, *parts: str, **asked: Any) -> str:
    """The address of a page of a run."""
    path = "/".join(["", "run", *(quote(part, safe="", errors="replace") for part in (run.name, *parts))])
    return path + query(**asked)


def query(**asked: Any) -> str:
    """What stands behind an address; what is empty is left out, and half a character is a question mark.

    >>> query(q="press 7", rule="", on0="x" + chr(0xD800))
    '?q=press+7&on0=x%3F'
    """
    given = {name: value for name, value in asked.items() if value not in (None, "", False)}
    return f"?{urlencode(given, errors='replace')}" if given else ""


def static_file(name: str) -> Path:
    """A file of ours; the style of drawings is that of reports."""
    return DRAWINGS if name == DRAWINGS.name else _STATIC / name


@cache
def _static(name: str) -> str:
    """The address of a file of ours, which changes with its content."""
    code = hashlib.sha256(static_file(name).read_bytes()).hexdigest()[:12]
    return f"/static/{name}?{code}"
