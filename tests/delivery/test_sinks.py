from __future__ import annotations

import dataclasses
from datetime import timedelta
from typing import Any

import pytest

from tocsin.delivery import (
    AlertmanagerSink,
    CloudEventsSink,
    ConsoleSink,
    KafkaSink,
    LogSink,
    WebhookSink,
    make_sink,
    name_sinks,
)
from tocsin.delivery.sinks import reveal_secret
from tocsin.errors import RuleError
from tocsin.rules.options import SINKS
from tocsin.rules.secret import Secret

EXAMPLES: dict[str, dict[str, Any]] = {
    "console": {"states": ("pending", "firing"), "dashboard": "http://h:8484"},
    "log": {"path": "copy", "format": "json"},
    "kafka": {
        "servers": "h:9092",
        "topic": "alerts",
        "username": Secret("u"),
        "password": Secret("p"),
        "security": "SASL_PLAINTEXT",
        "mechanism": "SCRAM-SHA-256",
        "dashboard": "http://h:8484",
    },
    "alertmanager": {
        "url": Secret("http://h:9093"),
        "resend": "30s",
        "timeout": timedelta(seconds=5),
        "interval": "15s",
        "max_age": "0s",
        "headers": {"Authorization": Secret("Bearer x")},
        "dashboard": "http://h:8484",
    },
    "webhook": {
        "url": "https://h/x",
        "timeout": "5s",
        "headers": {"Authorization": Secret("Bearer x")},
        "dashboard": "https://h/tocsin",
    },
    "cloudevents": {
        "url": "https://h/x",
        "source": "/plant/7",
        "timeout": "5s",
        "headers": {"Authorization": Secret("Bearer x")},
        "dashboard": "http://h:8484",
    },
}


@pytest.mark.parametrize("kind", SINKS)
def test_make_sink_accepts_every_kind_and_option_of_a_rule_file(kind: str) -> None:
    assert {field.name for field in SINKS[kind].fields} == set(EXAMPLES[kind])
    sink = make_sink(kind, EXAMPLES[kind])
    assert sink.kind == kind
    assert {field.name for field in dataclasses.fields(sink)} == set(EXAMPLES[kind])
    with pytest.raises(dataclasses.FrozenInstanceError):
        sink.kind = "other"  # type: ignore[misc]


@pytest.mark.parametrize("kind", ["alertmanager", "webhook"])
@pytest.mark.parametrize(
    "address",
    ["board:8484", "ftp://board", "http://", "http://b oard", "http://u:hunter2@h", "http://h/?hunter2", "http://h#x"],
)
def test_sink_raises_an_error_without_secrets_when_the_dashboard_url_is_invalid(kind: str, address: str) -> None:
    with pytest.raises(RuleError, match=f"sink `{kind}`: `dashboard` must be an http or https URL") as caught:
        make_sink(kind, {"url": "http://h", "dashboard": address})
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("kind", SINKS)
def test_sink_uses_the_default_when_an_option_is_null(kind: str) -> None:
    needed = {field.name: EXAMPLES[kind][field.name] for field in SINKS[kind].fields if field.required}
    unset = {field.name: None for field in SINKS[kind].fields if not field.required}
    assert make_sink(kind, {**needed, **unset}) == make_sink(kind, needed)


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("webhok", {}, "sink: kind must be one of .*; got 'webhok'; did you mean `webhook`"),
        ("webhook", {}, "sink `webhook`: `url` is required"),
        ("webhook", {"url": "http://h", "header": {}}, "got 'header'; did you mean `headers`"),
        (
            "webhook",
            {"url": "ftp://bell:hunter2@h/"},
            "`url` must be an http or https URL; the URL has another scheme",
        ),
        ("webhook", {"url": "h:80/hunter2"}, "`url` must be an http or https URL; the URL has another scheme"),
        ("webhook", {"url": "/hunter2"}, "the URL has no scheme"),
        ("webhook", {"url": "http:///hunter2"}, "the URL has no host"),
        ("webhook", {"url": "http://h:99999/hunter2"}, "the URL is malformed"),
        ("webhook", {"url": "http://[hunter2/"}, "the URL is malformed"),
        ("webhook", {"url": "http://h/hunter2 x"}, "the URL contains spaces or control characters"),
        ("webhook", {"url": "http://h/hunter2\r\nX: y"}, "the URL contains spaces or control characters"),
        ("webhook", {"url": "http://h", "timeout": "0s"}, "sink `webhook`: `timeout` must be above 0; got '0s'"),
        ("webhook", {"url": "http://h", "timeout": "soon"}, "sink `webhook`: `timeout` must be a duration"),
        ("webhook", {"url": "http://h", "headers": {"a b": "hunter2"}}, "must be HTTP tokens; got 'a b'"),
        (
            "webhook",
            {"url": "http://h", "headers": {"X": "hunter2\r\nY: z"}},
            "the value of header `X` must be printable",
        ),
        (
            "webhook",
            {"url": "http://h", "headers": {"X": "hunter2\u20ac"}},
            "the value of header `X` must be printable",
        ),
        ("webhook", {"url": "http://h", "headers": {"Host": "hunter2"}}, "`headers` must not contain `Host`"),
        ("alertmanager", {"url": "http://h", "resend": "-1m"}, "`resend` must not be negative"),
        ("cloudevents", {"url": "http://h", "source": ""}, "`source` must be a URI reference; got ''"),
        ("kafka", {"servers": "", "topic": "t"}, "`servers` must be brokers as host:port"),
        ("kafka", {"servers": "h:1", "topic": "a/b"}, "`topic` must be a valid name of a Kafka topic; got 'a/b'"),
        (
            "kafka",
            {"servers": "h:1", "topic": "t", "password": "hunter2"},
            "must be set together; got only one of them",
        ),
        (
            "kafka",
            {"servers": "h:1", "topic": "t", "security": "TLS"},
            "`security` must be one of PLAINTEXT, SSL, SASL_",
        ),
        (
            "kafka",
            {"servers": "h:1", "topic": "t", "username": "u", "password": "p", "security": "SSL"},
            "`security` must be a SASL protocol with a `username`, and another protocol without; got 'SSL'",
        ),
        ("kafka", {"servers": "h:1", "topic": "t", "mechanism": "PLAN"}, "`mechanism` must be one of PLAIN, .*'PLAN'"),
        ("console", {"states": ["fired"]}, "`states` must contain one or more of pending, .*; got 'fired'"),
        ("console", {"states": []}, "`states` must contain one or more of pending, .*; got an empty list"),
        ("log", {"path": "x", "format": "csv"}, "`format` must be json or parquet; got 'csv'"),
    ],
)
def test_make_sink_raises_an_error_without_secrets_when_an_option_is_invalid(
    kind: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(RuleError, match=message) as caught:
        make_sink(kind, options)
    assert "hunter2" not in str(caught.value)


def test_sink_shows_no_secret_but_reveals_it_to_the_connection() -> None:
    url = "https://bell:hunter2@example.org:8443/services/hunter2?token=hunter2"
    sinks = [
        AlertmanagerSink(url, headers={"X": "hunter2"}),
        WebhookSink(url, headers={"Authorization": "Bearer hunter2"}),
        CloudEventsSink(url),
        KafkaSink("h:9092", "alerts", "hunter2", "hunter2"),
        LogSink("copy"),
        ConsoleSink(),
    ]
    shown = repr(sinks) + str(sinks) + repr([dataclasses.asdict(sink) for sink in sinks]) + repr(name_sinks(sinks))
    assert "hunter2" not in shown
    assert "bell" not in shown
    assert "https://example.org:8443" in shown
    assert reveal_secret(sinks[1].headers["Authorization"]) == "Bearer hunter2"  # type: ignore[union-attr]


def test_sink_names_are_stable_when_sinks_are_reordered_or_a_password_changes() -> None:
    first, second = WebhookSink("https://a:1@h/x"), WebhookSink("https://h/y", headers={"X": "1"})
    names = name_sinks([first, second, ConsoleSink()])
    assert names == {name: names[name] for name in name_sinks([second, ConsoleSink(), first])}
    assert list(name_sinks([WebhookSink("https://a:2@h/x")])) == list(names)[:1]
    assert len(names) == 3


def test_name_sinks_raises_an_error_when_two_sinks_have_one_target() -> None:
    with pytest.raises(RuleError, match="two sinks must not have the same target"):
        name_sinks([ConsoleSink(), ConsoleSink()])
