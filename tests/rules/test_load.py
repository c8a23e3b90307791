"""A rule file that is right becomes objects, with defaults filled in."""

from __future__ import annotations

import math
import re
from datetime import timedelta
from pathlib import Path

import pytest

from rules.files import ENVIRONMENT, GOOD, check, write_tables
from tocsin import NoData, Rule
from tocsin.delivery import AlertmanagerSink, WebhookSink, make_sink
from tocsin.delivery.alert_json import alert_page_url
from tocsin.expr import parser
from tocsin.plan import plan_rules
from tocsin.rules import compose, scope
from tocsin.rules.context import RuleFileError
from tocsin.rules.load import load_rule_file
from tocsin.rules.rulefile import Domain, RuleFile, Value
from tocsin.rules.secret import Secret

MINUTE = 60 * 10**6


def _load(folder: Path, text: str = GOOD) -> RuleFile:
    checked = check(folder, text)
    assert checked.errors == ()
    assert checked.file is not None
    return checked.file


def test_streams_have_their_columns_and_settings(tmp_path: Path) -> None:
    air = _load(tmp_path).streams["air"]
    assert (air.name, air.keys, air.time, air.time_unit, air.arrival) == ("air", ("machine", "site"), "ts", "us", None)
    assert air.values == {"value": Value("value", Domain(-40, 85), "celsius"), "temp": Value("temp")}
    assert air.idle_timeout_us == MINUTE
    assert air.column(None) == "value"
    assert air.column("temp") == "temp"
    assert air.column("heat") is None


def test_a_stream_that_must_be_heard_has_a_silence_on_its_own_keys(tmp_path: Path) -> None:
    file = _load(tmp_path)
    silence = NoData("air", timedelta(minutes=10), ("machine", "site"), {"severity": "warning"})
    assert file.streams["air"].no_data == silence
    assert file.no_data == (silence,)
    assert all(isinstance(rule, Rule) for rule in file.rules)


def test_a_stream_without_values_has_one_called_value(tmp_path: Path) -> None:
    file = _load(tmp_path, GOOD.replace('    values: {heat: {domain: "[0, 100)"}}\n', ""))
    assert file.streams["surface"].values == {"value": Value("value")}


@pytest.mark.parametrize(
    ("start", "wanted"),
    [("now", "now"), ("1970-01-01T00:00:01Z", 1_000_000), ("'1970-01-02 02:00+02:00'", 86_400_000_000)],
)
def test_a_factory_begins_now_or_at_a_time(tmp_path: Path, start: str, wanted: object) -> None:
    file = _load(tmp_path, GOOD.replace("{parquet: {path: data/air}}", f"{{factory: {{start: {start}}}}}"))
    assert file.streams["air"].source.options["start"] == wanted


@pytest.mark.parametrize("kind", ["webhook", "alertmanager"])
def test_alerts_link_to_their_page_when_a_sink_of_the_rule_file_has_a_dashboard(tmp_path: Path, kind: str) -> None:
    text = f"  - {kind}: {{url: http://host, dashboard: http://board:8484/}}"
    file = _load(tmp_path, re.sub(r"  - webhook: .*", text, GOOD))
    sink = make_sink(file.sinks[1].kind, file.sinks[1].options)
    assert isinstance(sink, WebhookSink | AlertmanagerSink)
    assert alert_page_url(sink.dashboard.rstrip("/"), "1f") == "http://board:8484/alerts/1f"


@pytest.mark.parametrize("kind", ["console", "webhook", "alertmanager", "cloudevents", "kafka"])
def test_all_sinks_link_to_the_dashboard_of_the_rule_file_when_they_have_no_other(tmp_path: Path, kind: str) -> None:
    needed = {"console": "", "kafka": "servers: h:9092, topic: t"}.get(kind, "url: http://host")
    for more, wanted in (("", "http://board:8484"), ("dashboard: http://other", "http://other")):
        options = ", ".join(filter(None, [needed, more]))
        sinks = f"  - {kind}: {{{options}}}"
        text = re.sub(r"  - webhook: .*", sinks, GOOD) if kind != "console" else re.sub(r"  - console.*", sinks, GOOD)
        file = _load(tmp_path, "dashboard: http://board:8484\n" + text)
        found = [sink.options.get("dashboard") for sink in file.sinks if sink.kind == kind]
        assert found == [wanted]


def test_an_invalid_dashboard_of_the_rule_file_is_an_error(tmp_path: Path) -> None:
    found = [error.sentence for error in check(tmp_path, "dashboard: board:8484\n" + GOOD).errors]
    assert found
    assert all("`dashboard` must be an http or https URL" in message for message in found)


def test_options_of_sources_and_sinks_have_defaults_and_types(tmp_path: Path) -> None:
    file = _load(tmp_path)
    assert file.streams["air"].source.options == {"path": str(tmp_path / "data/air")}
    assert file.streams["surface"].source.options == {
        "servers": "broker", "topic": "surface", "format": "json", "starting_offsets": "latest",
        "password": Secret(ENVIRONMENT["PASS"]),
    }  # fmt: skip
    console, webhook = file.sinks
    assert (console.kind, console.options) == ("console", {})
    assert webhook.options["timeout"] == timedelta(seconds=10)
    assert webhook.options["headers"] == {"X-Key": Secret(ENVIRONMENT["PASS"])}
    assert webhook.options["url"].reveal() == "https://bell:hunter2%2F%40secret@host/x"
    assert file.archive == str(tmp_path / "archive")


def test_whole_numbers_and_addresses_of_stores_are_read(tmp_path: Path) -> None:
    source = "mqtt: {host: h, topic: t, port: 8883}"
    file = _load(
        tmp_path, GOOD.replace("parquet: {path: data/air}", source).replace("path: archive", "path: s3a://b/x")
    )
    assert file.streams["air"].source.options == {"host": "h", "topic": "t", "port": 8883, "qos": 1}
    assert file.archive == "s3a://b/x"


def test_a_rule_is_a_rule_with_labels_domains_limits_and_idle_of_its_surroundings(tmp_path: Path) -> None:
    file = _load(tmp_path)
    (group,) = file.groups
    first, _, second = group.rules
    assert (group.name, group.interval_us, group.labels) == ("cold-store", MINUTE // 2, {"team": "hvac"})
    assert first == Rule(
        "Condensation",
        "air - surface > by_machine.margin",
        within="10s",
        on=("machine",),
        shapes={"air": "increasing"},
        domains={"air": (-40.0, 85.0), "surface": (0.0, math.nextafter(100, 0))},
        for_=timedelta(minutes=10),
        keep_firing_for=timedelta(0),
        stale=timedelta(minutes=1),
        idle_timeout=timedelta(minutes=1),
        labels={"team": "hvac", "severity": "critical"},
        annotations={"summary": "{{ $labels.machine }}: {{ $values.air }}"},
        recovery=-1,
        limits={"by_machine": file.limits["by_machine"]},
    )
    assert second.within == {("air", "surface"): ("-5s", "10s")}
    assert second.domains == {"surface": (0.0, math.nextafter(100, 0))}
    assert file.rules == group.rules


def test_the_labels_of_a_rule_hide_those_of_its_group(tmp_path: Path) -> None:
    file = _load(tmp_path, GOOD.replace("labels: {severity: critical}", "labels: {team: night}"))
    assert file.rules[0].labels == {"team": "night"}


def test_limits_are_read_by_key(tmp_path: Path) -> None:
    table = _load(tmp_path).limits["by_machine"]
    assert (table.on, table.columns) == (("machine",), ("margin", "max_temp"))
    assert table.rows == {("press-1",): (1.5, 6.0), ("press-2",): (-0.5, 4.0)}
    assert table.column("max_temp") == [6.0, 4.0]


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        ("[-.inf, 5]", -math.inf, 5),
        ("[0, .inf]", 0, math.inf),
        ('"(0, 1]"', math.nextafter(0, 1), 1),
        ('"[ -1.5 , 1e3 )"', -1.5, math.nextafter(1000, 0)),
        ('"(-inf, +.Inf)"', -math.inf, math.inf),
    ],
)
def test_a_domain_may_be_open_or_endless(tmp_path: Path, text: str, low: float, high: float) -> None:
    file = _load(tmp_path, GOOD.replace("[-40, 85]", text))
    assert file.rules[0].domains["air"] == (low, high)


def test_words_are_read_as_written_and_not_as_truths_or_numbers(tmp_path: Path) -> None:
    file = _load(tmp_path, GOOD.replace("team: hvac", "team: no, zone: 1:30, rack: 012").replace("celsius", "on"))
    assert file.groups[0].labels == {"team": "no", "zone": "1:30", "rack": "012"}
    assert file.streams["air"].values["value"].unit == "on"


def test_anchors_and_aliases_are_followed(tmp_path: Path) -> None:
    text = GOOD.replace("on: [machine]\n        for", "on: &on [machine]\n        for").replace(
        "on: machine", "on: *on"
    )
    assert _load(tmp_path, text).rules[2].on == ("machine",)


def test_load_raises_all_mistakes_together(tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text(GOOD.replace("for: 10m", "for: soon").replace("console", "consle"))
    write_tables(tmp_path)
    with pytest.raises(RuleFileError, match=r"for` must be a duration(.|\n)*`consle` is not a kind of sink") as caught:
        load_rule_file(path, plan_rules, ENVIRONMENT)
    assert len(caught.value.diagnostics) == 3


def test_a_file_is_composed_once_and_each_condition_parsed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    composed, parsed = [], []
    compose_document, parse_text = compose._Composer.document, parser._Parser.parse_text
    scope.read_condition.cache_clear()
    monkeypatch.setattr(
        compose._Composer, "document", lambda self, text: composed.append(text) or compose_document(self, text)
    )
    monkeypatch.setattr(parser._Parser, "parse_text", lambda self: parsed.append(self._text) or parse_text(self))
    file = _load(tmp_path)
    assert len(composed) == 1
    assert [text for text in parsed if ">" in text] == [rule.expr for rule in file.rules]


def test_what_nothing_reads_gives_a_warning(tmp_path: Path) -> None:
    text = GOOD.replace("  by_site", "  unread: {file: limits.csv, on: machine}\n  by_site")
    text = text.replace("limits:\n", "  spare: {source: {csv: {path: x}}}\nlimits:\n")
    warnings = [str(warning).partition("rules.yaml:")[2] for warning in check(tmp_path, text).warnings]
    assert warnings == [
        '14:3: warning: stream "spare": no rule reads it',
        '17:3: warning: limits "unread": no rule reads it',
    ]


def test_a_stream_that_is_watched_for_silence_is_of_use(tmp_path: Path) -> None:
    text = GOOD.replace("limits:\n", "  spare: {source: {csv: {path: x}}, no_data: {for: 1h}}\nlimits:\n")
    assert check(tmp_path, text).warnings == ()
