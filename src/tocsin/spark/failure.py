"""Failures: the one sentence that matters out of what Spark, the JVM and Python workers say together."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from tocsin.errors import TocsinError
from tocsin.rules.rulefile import RuleFile
from tocsin.rules.secret import Secret

_OURS = re.compile(r"tocsin\.errors\.\w+: (.+)")
_PYTHON = re.compile(r"^(?:[A-Za-z_][\w.]*\.)?([A-Z]\w*(?:Error|Exception)): (.*)$", re.MULTILINE)
_CAUSE = re.compile(r"^Caused by: (?:[\w$]+\.)*([\w$]+)(?:: (.*))?$", re.MULTILINE)
_STATE = re.compile(r"\s*SQLSTATE: \w{5}\s*$")
_LONGEST = 500


def sentence_of(error: BaseException, secrets: Iterable[str] = ()) -> str:
    """Reduce an error to one line: what we raised ourselves, else the innermost cause; secrets are blotted out."""
    text = str(error)
    if isinstance(error, OSError) and error.strerror:
        text = f"{error.filename}: {error.strerror.lower()}" if error.filename else error.strerror.lower()
    elif not isinstance(error, TocsinError):
        text = _reduced(text) or f"{type(error).__name__}"
    line = _STATE.sub("", " ".join(text.split()))
    for secret in secrets:
        line = line.replace(secret, "***")
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 3]}..."


def is_ours(error: BaseException) -> bool:
    """Whether an error says all there is to know, since it was raised by Tocsin itself, be it on a worker."""
    return isinstance(error, TocsinError) or bool(_OURS.search(str(error)))


def _reduced(text: str) -> str:
    if ours := _OURS.findall(text):
        return str(ours[-1])
    # A traceback of Python inside a stack of Java: its last line says it. What wraps it says less.
    if "Traceback (most recent call last)" in text and (found := _PYTHON.findall(text)):
        return ": ".join(part for part in found[-1] if part)
    if causes := _CAUSE.findall(text):
        return ": ".join(part for part in causes[-1] if part)
    return next((line for line in text.splitlines() if line.strip()), "")


def secrets_of(file: RuleFile) -> tuple[str, ...]:
    """Every text that a rule file holds as secret, the longest first."""
    parts = [stream.source.options for stream in file.streams.values()] + [sink.options for sink in file.sinks]
    found = {secret.reveal() for options in parts for secret in _secrets(options)}
    return tuple(sorted((text for text in found if text), key=len, reverse=True))


def _secrets(value: Any) -> Iterable[Secret]:
    if isinstance(value, Secret):
        # A URL shows all but its user-info: only what is not shown is secret.
        yield value if value.shown == "***" else Secret(_hidden_part(value))
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from _secrets(part)


def _hidden_part(secret: Secret) -> str:
    """The user-info of a URL."""
    found = re.match(r"[A-Za-z][A-Za-z0-9+.-]*://([^/?#]*)@", secret.reveal())
    return found[1] if found else ""
