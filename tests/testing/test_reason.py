"""Why an alert that was expected is not there."""

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
    ("WarmFor", {M1: "20 21x3"}, "2m", "pending since 1m; `for` is 2m, over at 3m"),
    ("WarmFor", {M1: "20 21 20 20"}, "3m", "it was pending from 1m to 2m; `for` is 2m"),
    ("Warm", {M1: "21 21 20 20"}, "3m", "it began at 0s and was resolved at 2m"),
    ("Warm", {M1: "21 21 _x9"}, "9m", "it began at 0s and was resolved at 2m30s"),
    ("Warm", {M1: "18 19.5 17 20.5"}, "2m", "closest: margin -0.5 at 1m (air 19.5)"),
    ("Warm", {M1: "20"}, "2m", "closest: margin 0 at 0s (air 20)"),
    ("Warm", {M1: "-1e9 -2e9"}, "2m", "closest: margin -1e+09 at 0s (air -1000000000)"),
    ("Apart", {M1: "20 19 18", S1: "19x5"}, "2m", "closest: margin -1 at 0s (air 20, surface.temp 19)"),
    ("Warm", {M1: "_"}, "2m", "nothing was evaluated for these labels: no rows met, or the condition is undefined"),
    ("Apart", {M1: "30x3"}, "2m", "nothing was evaluated for these labels: no rows met, or the condition is undefined"),
    ("Undefined", {M1: "-1x3"}, "2m",
     "nothing was evaluated for these labels: no rows met, or the condition is undefined"),
    ("Reduced", {M1: "21x1"}, "1m",
     "closest: margin 1 at 0s (air 21); a rule of one stream that leaves rows out tells it 2m later"),
])  # fmt: skip
def test_the_reason_is_said(tmp_path: Path, alert: str, series: dict[str, str], time: str, expected: str) -> None:
    assert reason(tmp_path, alert, series, time) == expected


def test_a_key_that_stands_in_no_table_of_limits_is_named_with_the_table(tmp_path: Path) -> None:
    series = {'air{machine="m9"}': "25"}
    assert reason(tmp_path, "Limited", series, "1m", machine="m9") == (
        "no row in the table of limits `by_machine` for machine=m9: a comparison with its numbers is never true"
    )


def test_a_condition_that_holds_may_wait_for_a_slower_stream(tmp_path: Path) -> None:
    # Both streams have a row at 0s; at 10s the air meets the surface of 0s, whose row of 10s may still come.
    labels = "{machine: m1, team: hvac, severity: critical}"
    case = f"{{eval_time: 10s, alertname: Apart, exp_alerts: [exp_labels: {labels}]}}"
    text = one_test({M1: "20 21", S1: "18 18; 0s 1h"}, case).replace("interval: 1m", "interval: 10s")
    found = run(tmp_path, text)[0].cases[0].differences[0]
    assert found.reason == (
        "closest: margin 1 at 10s (air 21, surface.temp 18); "
        "it is not told before the slower streams have come so far, or count as idle"
    )


def test_rows_that_have_not_arrived_are_not_close(tmp_path: Path) -> None:
    assert reason(tmp_path, "Warm", {M1: "18 25; 0s 1h"}, "5m") == "closest: margin -2 at 0s (air 18)"


def test_only_the_key_that_was_asked_for_counts(tmp_path: Path) -> None:
    nothing = "nothing was evaluated for these labels: no rows met, or the condition is undefined"
    assert reason(tmp_path, "Warm", {M1: "25"}, "1m", machine="m2") == nothing
