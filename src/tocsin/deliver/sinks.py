"""Sinks as the user states them: frozen, checked, and silent about what is secret.

Of a URL only scheme, host and port are ever shown: user-info is secret, and so, with many receivers, are path and
query.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import SplitResult, urlsplit

from tocsin.deliver.encode import STATES
from tocsin.errors import RuleError
from tocsin.rules.durations import Duration, microseconds
from tocsin.rules.nearest import nearest
from tocsin.rules.secret import Secret

Text = str | Secret

_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_SET_BY_US = {"content-type", "content-length", "host", "transfer-encoding", "connection"}
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_SECURITY = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@dataclass(frozen=True)
class ConsoleSink:
    """Print a line per change of state; `states` says of which states, all others are skipped."""

    states: Sequence[str] = ("firing", "resolved", "match")
    kind: ClassVar[str] = "console"

    def __post_init__(self) -> None:
        """Check the states."""
        states = (self.states,) if isinstance(self.states, str) else tuple(self.states)
        unknown = [state for state in states if state not in STATES]
        if unknown or not states:
            found = repr(unknown[0]) if unknown else "none"
            raise _error(self.kind, f"`states` must name some of {', '.join(STATES)}; got {found}")
        object.__setattr__(self, "states", states)

    @property
    def target(self) -> str:
        """What makes this sink another than others of its kind."""
        return ""


@dataclass(frozen=True)
class LogSink:
    """Copy the alert log into another folder, as `json` (one object per line) or `parquet`."""

    path: Path | str
    format: str = "parquet"
    kind: ClassVar[str] = "log"

    def __post_init__(self) -> None:
        """Check the form."""
        if self.format not in {"json", "parquet"}:
            raise _error(self.kind, f"`format` must be json or parquet; got {self.format!r}")

    @property
    def target(self) -> str:
        """What makes this sink another than others of its kind."""
        return str(Path(self.path).absolute())


class _AtUrl:
    """A sink with an address."""

    url: Text

    @property
    def target(self) -> str:
        """What makes this sink another than others of its kind: its address without user-info."""
        parts = urlsplit(reveal(self.url))
        return f"{origin_of(self.url)}{parts.path}?{parts.query}"


@dataclass(frozen=True)
class AlertmanagerSink(_AtUrl):
    """Tell Alertmanager which alerts fire.

    Parameters
    ----------
    url
        Its address, to which `/api/v2/alerts` is added.
    resend
        How often an alert that goes on is sent again, and how long an alert is shown as firing at least.
    timeout
        How long to wait for an answer.
    interval
        With `resend`, how long Alertmanager believes an alert it hears no more of: 4 times the longer of both.
    show_past
        An alert that had ended longer ago than this when it was raised is history: told once as resolved, so that
        nobody is notified.
    headers
        Headers of the request; their values are secret.
    dashboard
        Address of the pages that `generatorURL` leads to.
    """

    url: Text
    resend: Duration = "1m"
    timeout: Duration = "10s"
    interval: Duration = "1m"
    show_past: Duration = "1d"
    headers: Mapping[str, Text] = field(default_factory=dict, hash=False)
    dashboard: str = ""
    kind: ClassVar[str] = "alertmanager"

    def __post_init__(self) -> None:
        """Check address, headers and durations."""
        _hide_url(self)
        _hide_headers(self)
        for name in ("resend", "timeout", "interval"):
            _check_positive(self, name)
        _check_dashboard(self)
        microseconds(self.show_past, f"sink `{self.kind}`: `show_past`")


@dataclass(frozen=True)
class WebhookSink(_AtUrl):
    """POST Alertmanager's webhook body, version 4, with `values`; `dashboard` as in `AlertmanagerSink`."""

    url: Text
    timeout: Duration = "10s"
    headers: Mapping[str, Text] = field(default_factory=dict, hash=False)
    dashboard: str = ""
    kind: ClassVar[str] = "webhook"

    def __post_init__(self) -> None:
        """Check address, timeout and headers."""
        _hide_url(self)
        _hide_headers(self)
        _check_positive(self, "timeout")
        _check_dashboard(self)


@dataclass(frozen=True)
class CloudEventsSink(_AtUrl):
    """POST an event of CloudEvents 1.0 per change of state, in structured JSON."""

    url: Text
    source: str = "/tocsin"
    timeout: Duration = "10s"
    headers: Mapping[str, Text] = field(default_factory=dict, hash=False)
    kind: ClassVar[str] = "cloudevents"

    def __post_init__(self) -> None:
        """Check address, source, timeout and headers."""
        _hide_url(self)
        _hide_headers(self)
        _check_positive(self, "timeout")
        if not self.source or _CONTROL.search(self.source) or " " in self.source:
            raise _error(self.kind, f"`source` must be a URI reference; got {self.source!r}")


@dataclass(frozen=True)
class KafkaSink:
    """Produce the lines of the log to a topic.

    With a user name the connection is encrypted (`SASL_SSL`), unless `security` names another of Kafka's protocols.
    """

    servers: str
    topic: str
    username: Text = field(default="")
    password: Text = field(default="")
    security: str = ""
    mechanism: str = "PLAIN"
    kind: ClassVar[str] = "kafka"

    def __post_init__(self) -> None:
        """Check servers, topic and login."""
        for name in ("username", "password"):
            object.__setattr__(self, name, Secret(reveal(getattr(self, name))))
        if not self.servers.strip():
            raise _error(self.kind, "`servers` must name brokers as host:port; got none")
        if not _TOPIC.fullmatch(self.topic):
            raise _error(self.kind, f"`topic` must be a name of Kafka; got {self.topic!r}")
        if bool(reveal(self.username)) != bool(reveal(self.password)):
            raise _error(self.kind, "`username` and `password` must come together; got only one")
        if self.security not in {"", *_SECURITY}:
            raise _error(self.kind, f"`security` must be one of {', '.join(_SECURITY)}; got {self.security!r}")
        if self.security and self.security.startswith("SASL") != bool(reveal(self.username)):
            message = "`security` must be a protocol with SASL where there is a `username`, and only there"
            raise _error(self.kind, f"{message}; got {self.security!r}")
        if self.mechanism not in _MECHANISMS:
            raise _error(self.kind, f"`mechanism` must be one of {', '.join(_MECHANISMS)}; got {self.mechanism!r}")

    @property
    def target(self) -> str:
        """What makes this sink another than others of its kind."""
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
    """Make a sink from a rule file's words.

    >>> make_sink("webhook", {"url": "https://bell:hunter2@example.org/hook/7"})
    WebhookSink(url=Secret(https://example.org), timeout='10s', headers={}, dashboard='')
    """
    if kind not in _KINDS:
        message = f"sink: the kind must be one of {', '.join(_KINDS)}; got {kind!r}{nearest(kind, _KINDS)}"
        raise RuleError(message)
    make: Any = _KINDS[kind]
    known = {part.name: part for part in fields(make)}
    for name in options:
        if name not in known:
            raise _error(kind, f"an option must be one of {', '.join(known)}; got {name!r}{nearest(name, known)}")
    given = {name: value for name, value in options.items() if value is not None}
    for name in ("url", "path", "servers", "topic"):
        if name in known and name not in given:
            raise _error(kind, f"`{name}` must be given; it is missing")
    return _KINDS[kind](**given)


def name_sinks(sinks: Iterable[Sink]) -> dict[str, Sink]:
    """Name sinks by kind and target: the name, and with it the place in the log, stays when the list is reordered."""
    named: dict[str, Sink] = {}
    for sink in sinks:
        code = hashlib.sha256(sink.target.encode()).hexdigest()[:8]
        name = f"{sink.kind}-{code}" if sink.target else sink.kind
        if name in named:
            raise _error(sink.kind, "two sinks must not have the same target; this one is there twice")
        named[name] = sink
    return named


def reveal(text: Text) -> str:
    """Give a text that may be secret, for the connection that needs it."""
    return text.reveal() if isinstance(text, Secret) else text


def seconds(duration: Duration) -> float:
    """A duration that was checked before, in seconds."""
    return microseconds(duration, "duration") / 1_000_000


def origin_of(url: Text) -> str:
    """Scheme, host and port: all that may be shown of a URL."""
    parts = urlsplit(reveal(url))
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return f"{parts.scheme}://{host}" + (f":{parts.port}" if parts.port else "")


def _hide_url(sink: Any) -> None:
    """Check a URL and keep it as a secret that shows its origin; no message quotes it."""
    text = reveal(sink.url)
    try:
        parts = urlsplit(text)
        fault = _url_fault(text, parts)
    except ValueError:
        fault = "it cannot be read"
    if fault:
        raise _error(sink.kind, f"`url` must be an address with http or https; {fault}")
    object.__setattr__(sink, "url", Secret(text, origin_of(text)))


def _url_fault(text: str, parts: SplitResult) -> str:
    if _CONTROL.search(text) or " " in text:
        return "it has blanks or control characters"
    if parts.scheme not in {"http", "https"}:
        return "it has another scheme" if parts.scheme else "it has no scheme"
    if not parts.hostname:
        return "it has no host"
    # Reading the port raises a ValueError where it is none.
    return "its port is 0" if parts.port == 0 else ""


def _check_dashboard(sink: Any) -> None:
    """Raise an error if no link can start with the address, or if it has parts that receivers must not see."""
    try:
        parts = urlsplit(sink.dashboard)
        fault = _url_fault(sink.dashboard, parts)
    except ValueError:
        fault = "it cannot be read"
    if sink.dashboard and (fault or "@" in parts.netloc or parts.query or parts.fragment):
        fault = fault or "it has user-info, a query or a fragment, which every receiver of a link would see"
        raise _error(sink.kind, f"`dashboard` must be an address with http or https, host, port and path only; {fault}")


def _hide_headers(sink: Any) -> None:
    hidden: dict[str, Text] = {}
    for name, value in sink.headers.items():
        if not _HEADER.fullmatch(name):
            raise _error(sink.kind, f"a name in `headers` must be a token of HTTP; got {name!r}")
        if name.lower() in _SET_BY_US:
            raise _error(sink.kind, f"`headers` must leave `{name}` to the request itself; it is there")
        text = reveal(value)
        if _CONTROL.search(text) or not _fits_latin(text):
            raise _error(sink.kind, f"header `{name}` must have a value of printable Latin-1; it has another")
        hidden[name] = Secret(text)
    object.__setattr__(sink, "headers", hidden)


def _fits_latin(text: str) -> bool:
    return all(ord(letter) < 256 for letter in text)


def _check_positive(sink: Any, name: str) -> None:
    given = getattr(sink, name)
    if microseconds(given, f"sink `{sink.kind}`: `{name}`") == 0:
        raise _error(sink.kind, f"`{name}` must be above 0; got {given!r}")


def _error(kind: str, sentence: str) -> RuleError:
    return RuleError(f"sink `{kind}`: {sentence}")
