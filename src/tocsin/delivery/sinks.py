"""Sinks: the sink settings of a rule file or of Python code, validated and immutable.

Logs and messages show only scheme, host and port of a URL. User info is secret, and for many receivers path and query
are secret, too.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import SplitResult, urlsplit

from tocsin.errors import Diagnostic, Diagnostics, RuleError
from tocsin.rules.durations import Duration, microseconds
from tocsin.rules.secret import Secret
from tocsin.rules.suggestions import nearest_clause
from tocsin.runtime.alert_batch import STATES

Text = str | Secret

_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_RESERVED_HEADERS = {"content-type", "content-length", "host", "transfer-encoding", "connection"}
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_SECURITY = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@dataclass(frozen=True)
class ConsoleSink:
    """Print one line per alert event whose state is in `states`."""

    states: Sequence[str] = ("firing", "resolved", "match")
    dashboard: str = ""
    kind: ClassVar[str] = "console"

    def __post_init__(self) -> None:
        """Validate states and dashboard."""
        _check_dashboard(self)
        states = (self.states,) if isinstance(self.states, str) else tuple(self.states)
        unknown = [state for state in states if state not in STATES]
        if unknown or not states:
            invalid = repr(unknown[0]) if unknown else "an empty list"
            raise _sink_error(
                self.kind, "states", f"`states` must contain one or more of {', '.join(STATES)}", f"{invalid}"
            )
        object.__setattr__(self, "states", states)

    @property
    def target(self) -> str:
        """Empty: a run has at most one console sink."""
        return ""


@dataclass(frozen=True)
class LogSink:
    """Copy the alert log to another directory, as `json` (one object per line) or `parquet`."""

    path: Path | str
    format: str = "parquet"
    kind: ClassVar[str] = "log"

    def __post_init__(self) -> None:
        """Validate the format."""
        if self.format not in {"json", "parquet"}:
            raise _sink_error(self.kind, "format", "`format` must be json or parquet", f"{self.format!r}")

    @property
    def target(self) -> str:
        """Absolute path of the copy."""
        return str(Path(self.path).absolute())


class _UrlSink:
    """Base class of sinks with a URL."""

    url: Text

    @property
    def target(self) -> str:
        """URL without user info."""
        parts = urlsplit(reveal_secret(self.url))
        return f"{url_origin(self.url)}{parts.path}?{parts.query}"


@dataclass(frozen=True)
class AlertmanagerSink(_UrlSink):
    """Send firing and resolved alerts to Alertmanager.

    Parameters
    ----------
    url
        URL of Alertmanager. `/api/v2/alerts` is appended.
    resend
        Interval between repeated notifications of an open alert. It is also the shortest time between the first
        notification of an alert and its notification as resolved.
    timeout
        Longest wait for a response.
    interval
        Alertmanager resolves an alert that is not repeated within 4 times the longer of `resend` and `interval`. The
        option has no other effect.
    max_age
        If an alert ended longer ago than this when its end was read, and was not sent before, it is sent once, as
        resolved. Alertmanager then does not notify about it.
    headers
        HTTP headers. Their values are secret.
    dashboard
        URL of the dashboard, for the links in `generatorURL`.
    """

    url: Text
    resend: Duration = "1m"
    timeout: Duration = "10s"
    interval: Duration = "1m"
    max_age: Duration = "1d"
    headers: Mapping[str, Text] = field(default_factory=dict, hash=False)
    dashboard: str = ""
    kind: ClassVar[str] = "alertmanager"

    def __post_init__(self) -> None:
        """Validate URL, headers and durations."""
        _protect_url(self)
        _protect_headers(self)
        for name in ("resend", "timeout", "interval"):
            _check_positive(self, name)
        _check_dashboard(self)
        _duration_us(self, "max_age")


@dataclass(frozen=True)
class WebhookSink(_UrlSink):
    """POST the webhook body of Alertmanager, version 4, with witness values; `dashboard` as in `AlertmanagerSink`."""

    url: Text
    timeout: Duration = "10s"
    headers: Mapping[str, Text] = field(default_factory=dict, hash=False)
    dashboard: str = ""
    kind: ClassVar[str] = "webhook"

    def __post_init__(self) -> None:
        """Validate URL, timeout and headers."""
        _protect_url(self)
        _protect_headers(self)
        _check_positive(self, "timeout")
        _check_dashboard(self)


@dataclass(frozen=True)
class CloudEventsSink(_UrlSink):
    """POST one CloudEvents 1.0 event per alert event, in structured JSON."""

    url: Text
    source: str = "/tocsin"
    timeout: Duration = "10s"
    headers: Mapping[str, Text] = field(default_factory=dict, hash=False)
    dashboard: str = ""
    kind: ClassVar[str] = "cloudevents"

    def __post_init__(self) -> None:
        """Validate URL, source, timeout, headers and dashboard."""
        _protect_url(self)
        _protect_headers(self)
        _check_dashboard(self)
        _check_positive(self, "timeout")
        if not self.source or _CONTROL.search(self.source) or " " in self.source:
            raise _sink_error(self.kind, "source", "`source` must be a URI reference", f"{self.source!r}")


@dataclass(frozen=True)
class KafkaSink:
    """Produce the lines of the alert log to a Kafka topic.

    With a user name, the default of `security` is `SASL_SSL`; without a user name it is `PLAINTEXT`.
    """

    servers: str
    topic: str
    username: Text = field(default="")
    password: Text = field(default="")
    security: str = ""
    mechanism: str = "PLAIN"
    dashboard: str = ""
    kind: ClassVar[str] = "kafka"

    def __post_init__(self) -> None:
        """Validate servers, topic, login and dashboard."""
        _check_dashboard(self)
        for name in ("username", "password"):
            object.__setattr__(self, name, Secret(reveal_secret(getattr(self, name))))
        if not self.servers.strip():
            raise _sink_error(self.kind, "servers", "`servers` must be brokers as host:port", "an empty text")
        if not _TOPIC.fullmatch(self.topic):
            raise _sink_error(self.kind, "topic", "`topic` must be a valid name of a Kafka topic", f"{self.topic!r}")
        if bool(reveal_secret(self.username)) != bool(reveal_secret(self.password)):
            raise _sink_error(
                self.kind, "username", "`username` and `password` must be set together", "only one of them"
            )
        if self.security not in {"", *_SECURITY}:
            raise _sink_error(
                self.kind, "security", f"`security` must be one of {', '.join(_SECURITY)}", f"{self.security!r}"
            )
        if self.security and self.security.startswith("SASL") != bool(reveal_secret(self.username)):
            message = "`security` must be a SASL protocol with a `username`, and another protocol without"
            raise _sink_error(self.kind, "security", message, f"{self.security!r}")
        if self.mechanism not in _MECHANISMS:
            raise _sink_error(
                self.kind, "mechanism", f"`mechanism` must be one of {', '.join(_MECHANISMS)}", f"{self.mechanism!r}"
            )

    @property
    def target(self) -> str:
        """Servers and topic."""
        return f"{self.servers}/{self.topic}"


Sink = ConsoleSink | LogSink | AlertmanagerSink | WebhookSink | CloudEventsSink | KafkaSink
_KINDS: dict[str, Callable[..., Sink]] = {
    "console": ConsoleSink,
    "log": LogSink,
    "alertmanager": AlertmanagerSink,
    "webhook": WebhookSink,
    "cloudevents": CloudEventsSink,
    "kafka": KafkaSink,
}


def make_sink(kind: str, options: Mapping[str, Any]) -> Sink:
    """Return the sink of a kind with the options of a rule file.

    >>> make_sink("webhook", {"url": "https://bell:hunter2@example.org/hook/7"})
    WebhookSink(url=Secret(https://example.org), timeout='10s', headers={}, dashboard='')
    """
    if kind not in _KINDS:
        message = f"sink: kind must be one of {', '.join(_KINDS)}; got {kind!r}{nearest_clause(kind, _KINDS)}"
        raise RuleError(message)
    make: Any = _KINDS[kind]
    known = {part.name: part for part in fields(make)}
    for name in options:
        if name not in known:
            raise _sink_error(
                kind, "", f"option must be one of {', '.join(known)}", f"{name!r}{nearest_clause(name, known)}"
            )
    present = {name: value for name, value in options.items() if value is not None}
    for name in ("url", "path", "servers", "topic"):
        if name in known and name not in present:
            raise _sink_error(kind, name, f"`{name}` is required")
    return _KINDS[kind](**present)


def name_sinks(sinks: Iterable[Sink]) -> dict[str, Sink]:
    """Return sinks by name. The name depends only on kind and target, so a reordered list keeps the cursors."""
    named: dict[str, Sink] = {}
    for sink in sinks:
        target_hash = hashlib.sha256(sink.target.encode()).hexdigest()[:8]
        name = f"{sink.kind}-{target_hash}" if sink.target else sink.kind
        if name in named:
            raise _sink_error(sink.kind, "", "two sinks must not have the same target; remove one of them")
        named[name] = sink
    return named


def reveal_secret(text: Text) -> str:
    """Return the plain text of a setting that may be a secret, for the connection that needs it."""
    return text.reveal() if isinstance(text, Secret) else text


def duration_seconds(duration: Duration) -> float:
    """Return a validated duration in seconds."""
    return microseconds(duration, "duration") / 1_000_000


def url_origin(url: Text) -> str:
    """Return scheme, host and port: the part of a URL that messages may show."""
    parts = urlsplit(reveal_secret(url))
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return f"{parts.scheme}://{host}" + (f":{parts.port}" if parts.port else "")


def url_address(url: Text) -> str:
    """Return scheme, host, port and path of a URL, without user-info and query.

    >>> url_address("https://bell:hunter2@example.org/am/?x=1")
    'https://example.org/am/'
    """
    return url_origin(url) + urlsplit(reveal_secret(url)).path


def _protect_url(sink: Any) -> None:
    """Validate a URL and replace it by a secret that shows only its origin. Error messages do not quote the URL."""
    text = reveal_secret(sink.url)
    try:
        parts = urlsplit(text)
        fault = _find_url_fault(text, parts)
    except ValueError:
        fault = "the URL is malformed"
    if fault:
        raise _sink_error(sink.kind, "url", f"`url` must be an http or https URL; {fault}")
    object.__setattr__(sink, "url", Secret(text, url_origin(text)))


def _find_url_fault(text: str, parts: SplitResult) -> str:
    if _CONTROL.search(text) or " " in text:
        return "the URL contains spaces or control characters"
    if parts.scheme not in {"http", "https"}:
        return "the URL has another scheme" if parts.scheme else "the URL has no scheme"
    if not parts.hostname:
        return "the URL has no host"
    # `parts.port` raises a ValueError if the port is invalid.
    return "the port is 0" if parts.port == 0 else ""


def _check_dashboard(sink: Any) -> None:
    """Raise an error if `dashboard` cannot be the start of a link, or if it has parts that receivers must not see."""
    try:
        parts = urlsplit(sink.dashboard)
        fault = _find_url_fault(sink.dashboard, parts)
    except ValueError:
        fault = "the URL is malformed"
    if sink.dashboard and (fault or "@" in parts.netloc or parts.query or parts.fragment):
        fault = fault or "the URL has user info, a query or a fragment, which every receiver of a link would see"
        raise _sink_error(
            sink.kind, "dashboard", f"`dashboard` must be an http or https URL with only host, port and path; {fault}"
        )


def _protect_headers(sink: Any) -> None:
    hidden: dict[str, Text] = {}
    for name, value in sink.headers.items():
        if not _HEADER.fullmatch(name):
            raise _sink_error(sink.kind, "headers", "names in `headers` must be HTTP tokens", f"{name!r}")
        if name.lower() in _RESERVED_HEADERS:
            raise _sink_error(
                sink.kind, "headers", f"`headers` must not contain `{name}`, because Tocsin sets it; remove it"
            )
        text = reveal_secret(value)
        if _CONTROL.search(text) or not _is_latin1(text):
            raise _sink_error(sink.kind, "headers", f"the value of header `{name}` must be printable Latin-1 text")
        hidden[name] = Secret(text)
    object.__setattr__(sink, "headers", hidden)


def _is_latin1(text: str) -> bool:
    return all(ord(letter) < 256 for letter in text)


def _check_positive(sink: Any, name: str) -> None:
    duration = getattr(sink, name)
    if _duration_us(sink, name) == 0:
        raise _sink_error(sink.kind, name, f"`{name}` must be above 0", f"{duration!r}")


def _duration_us(sink: Any, name: str) -> int:
    diagnostics = Diagnostics()
    with diagnostics.at(name):
        return microseconds(getattr(sink, name), f"`{name}`")
    diagnostics.raise_errors(f"sink `{sink.kind}`")
    return 0


def _sink_error(kind: str, option: str, message: str, found: str = "") -> RuleError:
    return RuleError(Diagnostic("invalid-sink", (option,), message, found, where=f"sink `{kind}`"))
