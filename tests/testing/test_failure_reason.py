"""Reasons why an expected alert is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.testing.files import one_test, run

M1 = 'air{machine="m1"}'
S1 = 'surface{machine="m1"}'


def reason(folder: Path, alert: str, series: dict[str, str], time: str, machine: str = "m1") -> str:
    severity = ", severity: critical" if alert == "Apart" else ""
    labels = f"exp_labels: {{machine: {machine}, team: hvac{severity}}}"
    text = one_test(series, f"{{eval_time: {time}, alertname: {alert}, exp_alerts: [{labels}]}}")
    found = run(folder, text)[0].cases[0].differences
    assert [one.kind for one in found if one.labels["machine"] == machine] == ["missing"]
    return found[0].reason


@pytest.mark.parametrize(("alert", "series", "time", "expected"), [
    ("WarmFor", {M1: "20 21x3"}, "2m", "pending since 1m; `for` is 2m and ends at 3m"),
    ("WarmFor", {M1: "20 21 20 20"}, "3m", "it was pending from 1m to 2m; `for` is 2m"),
    ("Warm", {M1: "21 21 20 20"}, "3m", "it started at 0s and was resolved at 2m"),
    ("Warm", {M1: "21 21 _x9"}, "9m", "it started at 0s and was resolved at 2m30s"),
    ("Warm", {M1: "18 19.5 17 20.5"}, "2m", "closest: margin -0.5 at 1m (air 19.5)"),
    ("Warm", {M1: "20"}, "2m", "closest: margin 0 at 0s (air 20)"),
    ("Warm", {M1: "-1e9 -2e9"}, "2m", "closest: margin -1e+09 at 0s (air -1000000000)"),
    ("Apart", {M1: "20 19 18", S1: "19x5"}, "2m", "closest: margin -1 at 0s (air 20, surface.temp 19)"),
    ("Warm", {M1: "_"}, "2m", "no evaluation for these labels: no rows joined, or the condition is undefined"),
    ("Apart", {M1: "30x3"}, "2m", "no evaluation for these labels: no rows joined, or the condition is undefined"),
    ("Undefined", {M1: "-1x3"}, "2m",
     "no evaluation for these labels: no rows joined, or the condition is undefined"),
    ("Reduced", {M1: "21x1"}, "1m",
     "closest: margin 1 at 0s (air 21); a rule that omits rows of a single stream emits it 2m later"),
])  # fmt: skip
def test_reason_explains_the_missing_alert(
    tmp_path: Path, alert: str, series: dict[str, str], time: str, expected: str
) -> None:
    assert reason(tmp_path, alert, series, time) == expected


def test_reason_names_the_limits_table_when_it_has_no_row_for_the_key(tmp_path: Path) -> None:
    series = {'air{machine="m9"}': "25"}
    assert reason(tmp_path, "Limited", series, "1m", machine="m9") == (
        "no row for machine=m9 in the limits table `by_machine`: a comparison with its columns is never true"
    )


def test_reason_names_slower_streams_when_the_condition_is_true(tmp_path: Path) -> None:
    # Both streams have a row at 0s. At 10s, air joins surface at 0s, because the surface row of 10s is delayed.
    labels = "{machine: m1, team: hvac, severity: critical}"
    case = f"{{eval_time: 10s, alertname: Apart, exp_alerts: [exp_labels: {labels}]}}"
    text = one_test({M1: "20 21", S1: "18 18; 0s 1h"}, case).replace("interval: 1m", "interval: 10s")
    found = run(tmp_path, text)[0].cases[0].differences[0]
    assert found.reason == (
        "closest: margin 1 at 10s (air 21, surface.temp 18); "
        "it is emitted when the slower streams reach this time or are idle"
    )


def test_reason_shows_the_labels_of_the_rule_when_the_expected_labels_differ(tmp_path: Path) -> None:
    case = "{eval_time: 1m, alertname: Apart, exp_alerts: [exp_labels: {machine: m1, team: hvac}]}"
    found = run(tmp_path, one_test({M1: "21x3", S1: "18x3"}, case))[0].cases[0].differences
    assert [(one.kind, one.reason) for one in found] == [
        ("missing", 'alerts of this rule have the labels {machine="m1", severity="critical", team="hvac"}'),
        ("unexpected", ""),
    ]


def test_reason_ignores_rows_that_have_not_arrived(tmp_path: Path) -> None:
    assert reason(tmp_path, "Warm", {M1: "18 25; 0s 1h"}, "5m") == "closest: margin -2 at 0s (air 18)"


def test_reason_ignores_rows_of_other_keys(tmp_path: Path) -> None:
    nothing = "no evaluation for these labels: no rows joined, or the condition is undefined"
    assert reason(tmp_path, "Warm", {M1: "25"}, "1m", machine="m2") == nothing
