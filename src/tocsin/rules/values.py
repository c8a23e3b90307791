"""Read the value of one field by its kind: texts, words, numbers, durations, paths, names, secrets."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tocsin.errors import Diagnostic, RuleError
from tocsin.rules.compose import ListNode, MapNode, Node, Scalar
from tocsin.rules.context import Context, FileDiagnostics, found
from tocsin.rules.durations import microseconds, time_us
from tocsin.rules.options import Field, takes
from tocsin.rules.secret import Secret, has_reference, outside_user_info, read_url, substitute
from tocsin.rules.suggestions import nearest

# Checks below these sizes are quick even where they compare each with each.
MOST_ENTRIES = 1000
MOST_NAMES = 100

_SECRETS_ONLY = "must not use `${...}`: variables are for secrets only"

_NUMBER = re.compile(r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
_WHOLE = re.compile(r"[-+]?[0-9]{1,18}")
_INFINITY = re.compile(r"([-+]?)\.?(?:inf|Inf|INF)")
_LINE = re.compile(r"[!-~]+")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")


def read_map(context: Context, node: Node, name: str, where: str) -> dict[str, tuple[Scalar, Scalar]]:
    """Read a mapping of names to scalars; what is something else is reported and left out."""
    if not isinstance(node, MapNode):
        context.report(node, where, "wrong-type", f"`{name}` must map names to text", found(node))
        return {}
    if len(node.entries) > MOST_ENTRIES:
        message = f"`{name}` must have at most {MOST_ENTRIES:,} entries"
        context.report(node, where, "too-many-entries", message, f"{len(node.entries):,}")
        return {}
    entries = {}
    for word, (key, value) in node.entries.items():
        if not isinstance(value, Scalar) or value.is_nothing:
            context.report(value, where, "wrong-type", f"`{name}.{word[:60]}` must be text", found(value))
        else:
            entries[word] = (key, value)
    return entries


def read_number(text: str) -> float | None:
    """Read a number as files write them, infinities too; None: it is none.

    >>> read_number("-.inf"), read_number("1e3"), read_number("1:30")
    (-inf, 1000.0, None)
    """
    infinity = _INFINITY.fullmatch(text)
    if infinity:
        return -math.inf if infinity[1] == "-" else math.inf
    return float(text) if len(text) <= 100 and _NUMBER.fullmatch(text) else None


def read_value(context: Context, node: Node, entry: Field, where: str) -> Any:
    """Read one field; report an error and return None for it."""
    if entry.kind == "names":
        return _names(context, node, entry, where)
    if entry.kind == "map":
        return _texts(context, node, entry, where)
    if not isinstance(node, Scalar) or node.is_nothing:
        message = f"`{entry.name}` must be {takes(replace(entry, secret=False))}"
        context.report(node, where, "wrong-type", message, found(node))
        return None
    try:
        if entry.secret:
            return _secret(context, node, entry, where)
        if has_reference(node.text):
            raise _error(entry, "variable-outside-secret", _SECRETS_ONLY, found(node))
        return _SCALARS[entry.kind](context, node, entry)
    except RuleError as error:
        for one in error.diagnostics:
            context.place(replace(one, where=where), node)
        return None


def _error(entry: Field, code: str, text: str, value: str = "", hint: str = "") -> RuleError:
    """Return an error whose message begins with the name of the field."""
    return RuleError(Diagnostic(code, (), f"`{entry.name}` {text}", value, hint))


@cache
def default_value(entry: Field) -> Any:
    """Read the default of a field, as if it stood in a file."""
    return read_value(Context(FileDiagnostics(""), Path(), {}), Scalar(1, 1, text=entry.default or ""), entry, "")


def _text(context: Context, node: Scalar, entry: Field) -> str:
    return node.text


def _word(context: Context, node: Scalar, entry: Field) -> str:
    if node.text not in entry.words:
        words = ", ".join(entry.words)
        raise _error(entry, "unknown-word", f"must be one of {words}", found(node), nearest(node.text, entry.words))
    return node.text


def _whole(context: Context, node: Scalar, entry: Field) -> int:
    _bounded(node, entry, float(node.text) if _WHOLE.fullmatch(node.text) else None)
    return int(node.text)


def _number(context: Context, node: Scalar, entry: Field) -> float:
    value = read_number(node.text)
    return _bounded(node, entry, value if value is not None and math.isfinite(value) else None)


def _bounded(node: Scalar, entry: Field, value: float | None) -> float:
    low, high = entry.least, entry.most
    if value is None or (low is not None and value < low) or (high is not None and value > high):
        code = "invalid-number" if value is None else "out-of-range"
        raise _error(entry, code, f"must be {takes(entry)}", found(node))
    return value


def _duration(context: Context, node: Scalar, entry: Field) -> timedelta:
    value = microseconds(node.text[:60], f"`{entry.name}`")
    if entry.least is not None and value < entry.least:
        raise _error(entry, "out-of-range", "must be longer than 0", found(node))
    return timedelta(microseconds=value)


def _time(context: Context, node: Scalar, entry: Field) -> int | str:
    return node.text if node.text == "now" else time_us(node.text[:60], f"`{entry.name}` must be `now`, or it")


def has_scheme(path: str) -> bool:
    """Return whether a path is an address of a store, such as `s3a://...`."""
    return _SCHEME.match(path) is not None


def _path(context: Context, node: Scalar, entry: Field) -> str:
    if "\0" in node.text:
        raise _error(entry, "invalid-path", f"must be {takes(entry)}", found(node))
    # A path beside the rule file is found from wherever the command runs; an address of a store is left alone.
    return node.text if has_scheme(node.text) else str(context.folder / node.text)


_SCALARS: Mapping[str, Callable[[Context, Scalar, Field], Any]] = {
    "text": _text,
    "word": _word,
    "whole": _whole,
    "number": _number,
    "duration": _duration,
    "time": _time,
    "path": _path,
}


def _names(context: Context, node: Node, entry: Field, where: str) -> tuple[str, ...] | None:
    items = node.items if isinstance(node, ListNode) else [node]
    if len(items) > MOST_NAMES:
        message = f"`{entry.name}` must have at most {MOST_NAMES} names"
        context.report(node, where, "too-many-entries", message, f"{len(items):,}")
        return ()
    names: list[str] = []
    for item in items:
        if not isinstance(item, Scalar) or item.is_nothing:
            context.report(item, where, "wrong-type", f"`{entry.name}` must be {takes(entry)}", found(item))
        elif has_reference(item.text):
            context.report(item, where, "variable-outside-secret", f"`{entry.name}` {_SECRETS_ONLY}")
        elif entry.words and item.text not in entry.words:
            message = f"`{entry.name}` must name some of {', '.join(entry.words)}"
            context.report(item, where, "unknown-word", message, found(item), nearest(item.text, entry.words))
        elif item.text in names:
            what = "word" if entry.words else "column"
            message = f"`{entry.name}` must list each {what} once"
            context.report(item, where, "duplicate-name", message, f"{found(item)} twice")
        else:
            names.append(item.text)
    return tuple(names)


def _texts(context: Context, node: Node, entry: Field, where: str) -> dict[str, Any]:
    """Read a mapping of names to text; if the field is secret, to Secrets."""
    texts: dict[str, Any] = {}
    for name, (_, value) in read_map(context, node, entry.name, where).items():
        if entry.secret:
            inner = Field(f"{entry.name}.{name}", "text", "", secret=True)
            texts[name] = read_value(context, value, inner, where)
        elif has_reference(value.text):
            message = f"`{entry.name}.{name}` {_SECRETS_ONLY}"
            context.report(value, where, "variable-outside-secret", message, found(value))
        else:
            texts[name] = value.text
    return texts


def _secret(context: Context, node: Scalar, entry: Field, where: str) -> Secret:
    """Read a secret; no message shows what was written, nor what it became."""
    if entry.kind == "url":
        return _url(context, node, entry, where)
    if not has_reference(node.text):
        message = f"`{entry.name}` should come from the environment, as `${{VAR}}`; the file contains the value"
        context.warn(node, where, "secret-in-file", message)
    value = substitute(node.text, context.environment)
    if not value.isprintable():
        raise _error(entry, "invalid-secret", "must be one line of printable characters")
    return Secret(value)


def _url(context: Context, node: Scalar, entry: Field, where: str) -> Secret:
    """Read a URL; what stands before an `@` is shown by no message, even if it is no user-info after all."""
    rest = outside_user_info(node.text)
    shown = "a text that contains `@`" if "@" in rest[1] else f"`{''.join(rest)}`"
    if has_reference(rest[1]):
        text = "may use `${...}` for user and password only, before the `@`"
        raise _error(entry, "variable-outside-secret", text, shown)
    value = read_url(node.text, context.environment)
    if rest[0].endswith("@") and not has_reference(node.text):
        message = f"the user-info of `{entry.name}` should come from the environment, as `${{VAR}}`"
        context.warn(node, where, "secret-in-file", message)
    if not _is_http(value.reveal()):
        raise _error(entry, "invalid-url", "must be a URL such as http://host:9093", shown)
    return value


def _is_http(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return (
            parts.scheme in {"http", "https"}
            and bool(parts.hostname)
            and parts.port != 0
            and _LINE.fullmatch(url) is not None
        )
    except ValueError:
        return False
