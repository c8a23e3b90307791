"""`tocsin test` evaluates NoData rules as a run does: rows of all streams and processing time advance them."""

from __future__ import annotations

from pathlib import Path

from testing import files
from tocsin.testing.report import lines
from tocsin.testing.test_runner import Result

RULES = """\
streams:
  air: {source: {csv: {path: air}}, keys: [machine], no_data: {for: 3m, labels: {team: hvac}}}
  surface: {source: {csv: {path: surface}}, keys: [machine], no_data: {for: 1h}}
  door: {source: {csv: {path: door}}, keys: [machine, site], no_data: {for: 2m}}
groups:
  - {name: rooms, rules: [{alert: Apart, expr: air - surface > 2, within: 1m, on: machine, stale: 90s}]}
"""


def run_test(folder: Path, series: dict[str, str], cases: str) -> Result:
    (folder / "rules.yaml").write_text(RULES, encoding="utf-8")
    path = folder / "test.yaml"
    path.write_text(files.one_test(series, cases), encoding="utf-8")
    checked = files.SuiteLoader().check(path)
    assert [str(error) for error in checked.errors] == []
    assert checked.suite is not None
    with files.use_interpreted_kernels(0):
        (result,) = files.run_suite(checked.suite, checked.suite.scenarios)
    assert not any(case.error for case in result.cases)
    return result


def outcomes(folder: Path, series: dict[str, str], cases: str) -> list[list[tuple[str, str]]]:
    """Return the kind and the machine of each difference, per case."""
    result = run_test(folder, series, cases)
    return [[(one.kind, one.labels["machine"]) for one in case.differences] for case in result.cases]


def case(minutes: str, *machines: str, extra: str = "") -> str:
    labels = [f"{{exp_labels: {{machine: {one}, stream: air, team: hvac}}{extra}}}" for one in machines]
    return f"{{eval_time: {minutes}, alertname: NoData, exp_alerts: [{', '.join(labels)}]}}"


AIR = {"air{machine='m1'}": "1 1 _x5 1 1", "air{machine='m2'}": "1x8"}


def test_no_data_fires_by_processing_time_and_ends_with_the_next_row(tmp_path: Path) -> None:
    starts = ", exp_starts_at: 4m, exp_value: 180, exp_margin: 0"
    cases = [case("4m"), case("4m1s", "m1", extra=starts), case("6m", "m1"), case("7m"), case("20m", "m1", "m2")]
    assert outcomes(tmp_path, AIR, "\n".join(cases)) == [[]] * 5
    assert outcomes(tmp_path, AIR, case("6m", "m2")) == [[("missing", "m2"), ("unexpected", "m1")]]


def test_no_data_report_has_a_reason_when_missing_and_no_margin_when_unexpected(tmp_path: Path) -> None:
    cases = [case("2m", "m1"), case("4m", "m3"), case("6m")]
    result = run_test(tmp_path, AIR, "\n".join(cases))
    reasons = [one.reason for found in result.cases for one in found.differences if one.kind == "missing"]
    assert reasons == [
        "the last row of `air` is at 1m; `for` is 3m, ends at 4m",
        "no row of `air` with these labels: a no-data alert needs a first row",
    ]
    got = [line for line in lines([result]) if "got: {" in line]
    assert got == ['        got: {machine="m1", stream="air", team="hvac"} firing since 4m, value 180']


def test_no_data_fires_when_other_streams_of_the_key_advance_event_time(tmp_path: Path) -> None:
    series = {"air{machine='m1'}": "1 _x9", "surface{machine='m1'}": "1x9"}
    cases = [case("3m"), case("4m", "m1"), "{eval_time: 9m, alertname: Apart}"]
    assert outcomes(tmp_path, series, "\n".join(cases)) == [[]] * 3


def test_no_data_does_not_fire_when_rows_have_no_valid_value(tmp_path: Path) -> None:
    assert outcomes(tmp_path, {"air{machine='m1'}": "1 NaN NaN NaN NaN NaN NaN"}, case("6m")) == [[]]


def test_no_data_rejects_labels_when_its_stream_does_not_have_them(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(RULES, encoding="utf-8")
    wrong = "{eval_time: 1m, alertname: NoData, exp_alerts: [{exp_labels: {maschine: m1}}]}"
    (tmp_path / "test.yaml").write_text(files.one_test(AIR, wrong), encoding="utf-8")
    (error,) = files.SuiteLoader().check(tmp_path / "test.yaml").errors
    wanted = "`exp_labels` must contain labels of 'NoData' (alertname, machine, team, stream, site)"
    assert f"{wanted}; got 'maschine'; did you mean `machine`?" in str(error)
