from __future__ import annotations

import dataclasses
from datetime import timedelta
from typing import Any

import pytest

from tocsin.deliver import (
    AlertmanagerSink,
    CloudEventsSink,
    ConsoleSink,
    KafkaSink,
    LogSink,
    WebhookSink,
    make_sink,
    name_sinks,
)
from tocsin.deliver.sinks import reveal
from tocsin.errors import RuleError
from tocsin.rules.options import SINKS
from tocsin.rules.secret import Secret

EXAMPLES: dict[str, dict[str, Any]] = {
    "console": {"states": ("pending", "firing")},
    "log": {"path": "copy", "format": "json"},
    "kafka": {
        "servers": "h:9092",
        "topic": "alerts",
        "username": Secret("u"),
        "password": Secret("p"),
        "security": "SASL_PLAINTEXT",
        "mechanism": "SCRAM-SHA-256",
    },
    "alertmanager": {
        "url": Secret("http://h:9093"),
        "resend": "30s",
        "timeout": timedelta(seconds=5),
        "interval": "15s",
        "show_past": "0s",
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
    },
}


@pytest.mark.parametrize("kind", SINKS)
def test_every_kind_and_option_of_a_rule_file_makes_a_sink(kind: str) -> None:
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
def test_a_dashboard_address_raises_an_error_without_its_text_when_no_link_can_start_with_it(
    kind: str, address: str
) -> None:
    with pytest.raises(RuleError, match=f"sink `{kind}`: `dashboard` must be an address with http or https") as caught:
        make_sink(kind, {"url": "http://h", "dashboard": address})
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("kind", SINKS)
def test_an_option_left_open_takes_its_default(kind: str) -> None:
    needed = {field.name: EXAMPLES[kind][field.name] for field in SINKS[kind].fields if field.required}
    open_ones = {field.name: None for field in SINKS[kind].fields if not field.required}
    assert make_sink(kind, {**needed, **open_ones}) == make_sink(kind, needed)


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("webhok", {}, "sink: the kind must be one of .*; got 'webhok'; did you mean `webhook`"),
        ("webhook", {}, "sink `webhook`: `url` must be given; it is missing"),
        ("webhook", {"url": "http://h", "header": {}}, "got 'header'; did you mean `headers`"),
        (
            "webhook",
            {"url": "ftp://bell:hunter2@h/"},
            "`url` must be an address with http or https; it has another scheme",
        ),
        ("webhook", {"url": "h:80/hunter2"}, "`url` must be an address with http or https; it has another scheme"),
        ("webhook", {"url": "/hunter2"}, "it has no scheme"),
        ("webhook", {"url": "http:///hunter2"}, "it has no host"),
        ("webhook", {"url": "http://h:99999/hunter2"}, "it cannot be read"),
        ("webhook", {"url": "http://[hunter2/"}, "it cannot be read"),
        ("webhook", {"url": "http://h/hunter2 x"}, "it has blanks or control characters"),
        ("webhook", {"url": "http://h/hunter2\r\nX: y"}, "it has blanks or control characters"),
        ("webhook", {"url": "http://h", "timeout": "0s"}, "sink `webhook`: `timeout` must be above 0; got '0s'"),
        ("webhook", {"url": "http://h", "timeout": "soon"}, "sink `webhook`: `timeout` must be a duration"),
        ("webhook", {"url": "http://h", "headers": {"a b": "hunter2"}}, "must be a token of HTTP; got 'a b'"),
        (
            "webhook",
            {"url": "http://h", "headers": {"X": "hunter2\r\nY: z"}},
            "header `X` must have a value of printable",
        ),
        (
            "webhook",
            {"url": "http://h", "headers": {"X": "hunter2\u20ac"}},
            "header `X` must have a value of printable",
        ),
        ("webhook", {"url": "http://h", "headers": {"Host": "hunter2"}}, "must leave `Host` to the request itself"),
        ("alertmanager", {"url": "http://h", "resend": "-1m"}, "`resend` must not be negative"),
        ("cloudevents", {"url": "http://h", "source": ""}, "`source` must be a URI reference; got ''"),
        ("kafka", {"servers": "", "topic": "t"}, "`servers` must name brokers"),
        ("kafka", {"servers": "h:1", "topic": "a/b"}, "`topic` must be a name of Kafka; got 'a/b'"),
        ("kafka", {"servers": "h:1", "topic": "t", "password": "hunter2"}, "must come together; got only one"),
        (
            "kafka",
            {"servers": "h:1", "topic": "t", "security": "TLS"},
            "`security` must be one of PLAINTEXT, SSL, SASL_",
        ),
        (
            "kafka",
            {"servers": "h:1", "topic": "t", "username": "u", "password": "p", "security": "SSL"},
            "`security` must be a protocol with SASL where there is a `username`, and only there; got 'SSL'",
        ),
        ("kafka", {"servers": "h:1", "topic": "t", "mechanism": "PLAN"}, "`mechanism` must be one of PLAIN, .*'PLAN'"),
        ("console", {"states": ["fired"]}, "`states` must name some of pending, .*; got 'fired'"),
        ("console", {"states": []}, "`states` must name some of pending, .*; got none"),
        ("log", {"path": "x", "format": "csv"}, "`format` must be json or parquet; got 'csv'"),
    ],
)
def test_a_mistake_is_told_without_what_is_secret(kind: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(RuleError, match=message) as caught:
        make_sink(kind, options)
    assert "hunter2" not in str(caught.value)


def test_a_sink_shows_no_secret_and_gives_it_up_to_the_connection() -> None:
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
    assert reveal(sinks[1].headers["Authorization"]) == "Bearer hunter2"  # type: ignore[union-attr]


def test_names_stay_when_sinks_are_reordered_or_a_password_changes() -> None:
    first, second = WebhookSink("https://a:1@h/x"), WebhookSink("https://h/y", headers={"X": "1"})
    names = name_sinks([first, second, ConsoleSink()])
    assert names == {name: names[name] for name in name_sinks([second, ConsoleSink(), first])}
    assert list(name_sinks([WebhookSink("https://a:2@h/x")])) == list(names)[:1]
    assert len(names) == 3


def test_two_sinks_with_one_target_are_refused() -> None:
    with pytest.raises(RuleError, match="two sinks must not have the same target"):
        name_sinks([ConsoleSink(), ConsoleSink()])
