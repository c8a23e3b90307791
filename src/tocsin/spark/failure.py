"""Failures: the one sentence that matters out of what Spark, the JVM and Python workers say together."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any
from urllib.parse import quote, unquote

from tocsin.errors import TocsinError
from tocsin.rules.rulefile import RuleFile
from tocsin.rules.secret import Secret

_OURS = re.compile(r"tocsin\.errors\.\w+: (.+)")
_PYTHON = re.compile(r"^(?:[A-Za-z_][\w.]*\.)?([A-Z]\w*(?:Error|Exception)): (.*)$", re.MULTILINE)
_CAUSE = re.compile(r"^Caused by: (?:[\w$]+\.)*([\w$]+)(?:: (.*))?$", re.MULTILINE)
_FILE = re.compile(r"\[FAILED_READ_FILE[^\]]*\] Encountered error while reading file (\S+?)\.?\s")
_STATE = re.compile(r"\s*SQLSTATE: \w{5}\s*$")
_LONGEST = 500
# The first is Spark's own, `spark.redaction.regex`.
_TELLING = re.compile("secret|password|token|access[.]?key", re.IGNORECASE)
_INSIDE = re.compile(
    rf"""(?:{_TELLING.pattern})[\w.]*["']?\s*[=:]\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;,"']+))""",
    re.IGNORECASE,
)
_USER_INFO = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://([^/?#\s]*)@")


def sentence_of(error: BaseException, secrets: Iterable[str] = ()) -> str:
    """Reduce an error to one line: what we raised ourselves, else the innermost cause; secrets are blotted out."""
    secrets = [*secrets]
    # First of all: a line of a secret of two lines would be no secret.
    text = blotted(text_of(error), secrets)
    if isinstance(error, OSError) and error.strerror:
        text = f"{error.filename}: {error.strerror.lower()}" if error.filename else error.strerror.lower()
    elif not isinstance(error, TocsinError):
        text = _reduced(text) or f"{type(error).__name__}"
    line = blotted(_STATE.sub("", " ".join(text.split())), secrets)
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 3]}..."


def blotted(text: str, secrets: Iterable[str]) -> str:
    """Blot out secrets, also where their quotes and other signs are written as Python, JSON, Java or a URL do."""
    forms = {form for secret in secrets for form in _written(secret) if form}
    for form in sorted(forms, key=len, reverse=True):
        text = text.replace(form, "***")
    return text


def _written(secret: str) -> Iterator[str]:
    yield from (secret, " ".join(secret.split()), quote(secret), quote(secret, safe=""))
    for plain in (True, False):
        yield json.dumps(secret, ensure_ascii=plain)[1:-1]
    # As Python writes it alone, and inside a text that has quotes of both kinds.
    yield from (repr(secret)[1:-1], repr(secret + "'\"")[1:-4], secret.replace("\\", "\\\\"))


def is_ours(error: BaseException) -> bool:
    """Whether an error says all there is to know, since it was raised by Tocsin itself, be it on a worker."""
    return isinstance(error, TocsinError) or bool(_OURS.search(text_of(error)))


def text_of(error: BaseException) -> str:
    """What an error says; one of the JVM must ask the JVM, and says nothing where that is gone."""
    try:
        return str(error)
    except Exception:
        return ""


def _reduced(text: str) -> str:
    if ours := _OURS.findall(text):
        return str(ours[-1])
    if files := _FILE.findall(text):
        causes = [": ".join(part for part in cause if part) for cause in _CAUSE.findall(text)]
        return f"file {unquote(files[-1])} cannot be read; {causes[-1] if causes else 'Spark reports no cause'}"
    # A traceback of Python inside a stack of Java: its last line says it. What wraps it says less.
    if "Traceback (most recent call last)" in text and (found := _PYTHON.findall(text)):
        return ": ".join(part for part in found[-1] if part)
    if causes := _CAUSE.findall(text):
        return ": ".join(part for part in causes[-1] if part)
    return next((line for line in text.splitlines() if line.strip()), "")


def secrets_of(*files: RuleFile, conf: Mapping[str, str] = MappingProxyType({})) -> tuple[str, ...]:
    """Every text that rule files and settings of Spark hold as secret."""
    streams = [stream.source.options for file in files for stream in file.streams.values()]
    parts = [*streams, *(sink.options for file in files for sink in file.sinks)]
    found = {secret.reveal() for options in parts for secret in _secrets(options)}
    return tuple(sorted({text for text in [*found, *_settings(conf)] if text}))


def _settings(conf: Mapping[str, str]) -> Iterator[str]:
    """What is secret in settings: by the name, as Spark itself does, by a name inside the value, or in a URL."""
    for name, value in conf.items():
        if _TELLING.search(name):
            yield value
        yield from (text for found in _INSIDE.findall(value) for text in found)
        yield from _USER_INFO.findall(value)


def _secrets(value: Any) -> Iterable[Secret]:
    if isinstance(value, Secret):
        # A URL shows all but its user-info: only what is not shown is secret.
        yield value if value.shown == "***" else Secret(_hidden_part(value))
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from _secrets(part)


def _hidden_part(secret: Secret) -> str:
    """The user-info of a URL."""
    return "".join(_USER_INFO.findall(secret.reveal())[:1])
