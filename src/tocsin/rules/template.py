"""Templates of annotations: a small part of Prometheus's, parsed once and rendered without evaluating anything.

`{{ $labels.x }}`, `{{ $value }}`, `{{ $values.air }}`, `{{ $values.air.temp }}`, `{{ $startsAt }}` and `{{ $firesAt }}`
with the pipes `humanize` and `printf "%.1f"`. Anything else between the braces raises a TemplateError with its place.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NoReturn

from tocsin.errors import Diagnostic, RuleError
from tocsin.rules.durations import event_text
from tocsin.runtime.contract import ALERT_TIMES

MOST_CHARACTERS = 10_000
NO_VALUE = "<no value>"

_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_TOKEN = re.compile(rf'\s*(?:(\$[A-Za-z0-9_.]*)|(\|)|({_NAME})|"((?:[^"\\]|\\.)*)"|(\}}\}}))', re.DOTALL)
_TERM = re.compile(rf"\$startsAt|\$firesAt|\$value|\$labels\.{_NAME}|\$values\.{_NAME}(?:\.{_NAME})?")
_VERB = re.compile(r"%([-+ 0]*)([0-9]{0,2})(\.[0-9]{0,2})?([eEfgGsv])")
_PREFIXES = (("", "k", "M", "G", "T", "P", "E", "Z", "Y"), ("", "m", "u", "n", "p", "f", "a", "z", "y"))
_KNOWN = "`$labels.x`, `$value`, `$values.stream`, `$values.stream.column`, `$startsAt` or `$firesAt`"


class TemplateError(RuleError):
    """An invalid template. `span` is the range of characters with the error, or None for the whole text."""

    def __init__(self, message: str, span: tuple[int, int] | None) -> None:
        self.span = span
        super().__init__(Diagnostic("invalid-template", (), message))


@dataclass(frozen=True)
class Action:
    """What stands between braces: a term such as `("values", "air", "temp")`, and the pipes it goes through."""

    term: tuple[str, ...]
    pipes: tuple[str, ...]
    span: tuple[int, int]


@dataclass(frozen=True)
class Template:
    """Texts and actions in turn."""

    parts: tuple[str | Action, ...]

    @property
    def actions(self) -> tuple[Action, ...]:
        """The actions alone."""
        return tuple(part for part in self.parts if isinstance(part, Action))

    def render(self, alert: Mapping[str, Any]) -> str:
        """Fill in an alert; what it does not have reads `<no value>`.

        >>> parse_template("{{ $labels.m }}: {{ $value | humanize }}").render({"labels": {"m": "p1"}, "value": 12345.0})
        'p1: 12.35k'
        """
        return "".join(part if isinstance(part, str) else _render(part, alert) for part in self.parts)


@lru_cache(maxsize=1024)
def parse_template(text: str) -> Template:
    """Return a template; raise its first error."""

    def fail(error: TemplateError) -> NoReturn:
        raise error

    return read_template(text, fail)


def read_template(text: str, report: Callable[[TemplateError], object]) -> Template:
    """Return a template without its invalid actions, which are reported."""
    if len(text) > MOST_CHARACTERS:
        message = f"a template must have at most {MOST_CHARACTERS:,} characters; got {len(text):,}"
        report(TemplateError(message, None))
        return Template(())
    parts: list[str | Action] = []
    place = 0
    while (start := text.find("{{", place)) >= 0:
        parts.append(text[place:start])
        try:
            action, place = _action(text, start)
            parts.append(action)
        except TemplateError as error:
            report(error)
            end = text.find("}}", start + 2)
            place = end + 2 if end >= 0 else len(text)
    return Template((*parts, text[place:]))


def _action(text: str, start: int) -> tuple[Action, int]:
    """Read one action; give it and the place behind it."""
    (term, _, _, _, _), offset, place = _token(text, start + 2, start)
    if not (term and _TERM.fullmatch(term)):
        shown = _shown(text, offset, start)
        _fail(f"a template must name {_KNOWN}; got `{shown}`", offset, offset + len(shown))
    words = tuple(term[1:].split("."))
    is_number, pipes = words[0] in {"value", "values"}, list[str]()
    while True:
        (_, pipe, _, _, end), at, place = _token(text, place, start)
        if end:
            return Action(words, tuple(pipes), (offset, offset + len(term))), place
        if not pipe:
            _fail(f"a template must continue with `|` or `}}}}`; got `{_shown(text, at, start)}`", at)
        (_, _, word, _, _), at, place = _token(text, place, start)
        if word == "humanize":
            if not is_number:
                _fail("`humanize` needs a number; got text", at)
            pipes.append("")
        elif word == "printf":
            (_, _, _, written, _), here, place = _token(text, place, start)
            pipes.append(_format(written, here, is_number=is_number))
        else:
            _fail(f'a pipe must be `humanize` or `printf "..."`; got `{_shown(text, at, start)}`', at)
        is_number = False


def _token(text: str, place: int, start: int) -> tuple[tuple[Any, ...], int, int]:
    """Read a token: its groups, where it begins and where it ends."""
    found = _TOKEN.match(text, place)
    at = place + len(text[place:]) - len(text[place:].lstrip())
    if found:
        return found.groups(), found.start(found.lastindex or 0) - (found[4] is not None), found.end()
    if "}}" not in text[place:]:
        _fail("a template must end with `}}`; the text ends before", start)
    shown = _shown(text, at, start)
    _fail(f"a template must name {_KNOWN}; got `{shown}`", at, at + len(shown))


def _shown(text: str, at: int, start: int) -> str:
    """What stands at a place, up to the closing braces."""
    end = text.find("}}", max(at, start + 2))
    shown = text[at : end if end >= 0 else len(text)].strip()
    return shown[:40] or "}}"


def _format(written: str | None, at: int, *, is_number: bool) -> str:
    """Check a format with one verb and give it as Python's `%` takes it; `v` stays for what is shown plainly."""
    text = re.sub(r"\\([\"\\])", r"\1", written or "").replace("%%", "\0")
    verbs = _VERB.findall(text)
    if written is None or len(verbs) != 1 or "%" in _VERB.sub("", text) or re.search(r"\\[^\"\\]", written):
        _fail('`printf` needs a text with one verb such as `"%.1f"`', at)
    verb = verbs[0][3]
    if verb != "v" and is_number == (verb == "s"):
        kind = "a number" if is_number else "text"
        _fail(f"`%{verb}` cannot format {kind}", at)
    return text


def _fail(message: str, offset: int, stop: int = 0) -> NoReturn:
    raise TemplateError(message, (offset, max(stop, offset + 1)))


def _render(action: Action, alert: Mapping[str, Any]) -> str:
    value = _look_up(action.term, alert)
    if value is None:
        return NO_VALUE
    for pipe in action.pipes:
        value = _printed(pipe, value) if pipe else humanize(float(value))
    return value if isinstance(value, str) else plain(value)


def _look_up(term: tuple[str, ...], alert: Mapping[str, Any]) -> str | float | None:
    if term[0] == "value":
        return _number(alert.get("value"))
    if term[0] == "labels":
        found = alert.get("alert") if term[1] == "alertname" else (alert.get("labels") or {}).get(term[1])
        return None if found is None else str(found)
    if term[0] in ALERT_TIMES:
        time_us = alert.get(term[0])
        return None if time_us is None else event_text(time_us)
    for part in alert.get("witness") or ():
        if part["stream"] == term[1]:
            values = part["values"] or {}
            only = "value" if "value" in values or len(values) != 1 else next(iter(values))
            return _number(values.get(term[2] if len(term) > 2 else only))
    return None


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


def _printed(pattern: str, value: str | float) -> str:
    verb = _VERB.search(pattern)
    assert verb is not None
    if verb[4] == "v":
        value, pattern = (value if isinstance(value, str) else plain(value)), _VERB.sub(r"%\1\2\3s", pattern)
    return (pattern % value).replace("\0", "%")


def plain(value: float) -> str:
    """Write a number with as many digits as it has, and no `.0`.

    >>> plain(16.0), plain(0.1), plain(1e300)
    ('16', '0.1', '1e+300')
    """
    return str(int(value)) if math.isfinite(value) and value == int(value) and abs(value) < 1e15 else repr(value)


def humanize(value: float) -> str:
    """Write a number with four digits and a metric prefix, as Prometheus does.

    >>> humanize(1234567.0), humanize(0.00012), humanize(0.0)
    ('1.235M', '120u', '0')
    """
    if value == 0 or not math.isfinite(value):
        return f"{value:.4g}"
    prefixes, factor = (_PREFIXES[0], 1 / 1000) if abs(value) >= 1 else (_PREFIXES[1], 1000.0)
    step = 0
    while step < len(prefixes) - 1 and (abs(value) >= 1000 if factor < 1 else abs(value) < 1):
        value = value / 1000 if factor < 1 else value * 1000
        step += 1
    return f"{value:.4g}{prefixes[step]}"
