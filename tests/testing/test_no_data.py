"""`tocsin test` drives NoData as a run does: by rows of all streams of its keys, and by the clock."""

from __future__ import annotations

from pathlib import Path

from testing import files
from tocsin.testing.report import lines
from tocsin.testing.run import Result

RULES = """\
streams:
  air: {source: {csv: {path: air}}, keys: [machine], no_data: {for: 3m, labels: {team: hvac}}}
  surface: {source: {csv: {path: surface}}, keys: [machine], no_data: {for: 1h}}
  door: {source: {csv: {path: door}}, keys: [machine, site], no_data: {for: 2m}}
groups:
  - {name: rooms, rules: [{alert: Apart, expr: air - surface > 2, within: 1m, on: machine, stale: 90s}]}
"""


def ran(folder: Path, series: dict[str, str], cases: str) -> Result:
    (folder / "rules.yaml").write_text(RULES, encoding="utf-8")
    path = folder / "test.yaml"
    path.write_text(files.one_test(series, cases), encoding="utf-8")
    checked = files.SuiteLoader().check(path)
    assert [str(mistake) for mistake in checked.mistakes] == []
    assert checked.suite is not None
    with files.plain_kernels(0):
        (result,) = files.run_suite(checked.suite, checked.suite.scenarios)
    assert not any(case.error for case in result.cases)
    return result


def outcomes(folder: Path, series: dict[str, str], cases: str) -> list[list[tuple[str, str]]]:
    """Give per case what differs: its kind, and a label."""
    result = ran(folder, series, cases)
    return [[(one.kind, one.labels["machine"]) for one in case.differences] for case in result.cases]


def case(minutes: str, *machines: str, extra: str = "") -> str:
    labels = [f"{{exp_labels: {{machine: {one}, stream: air, team: hvac}}{extra}}}" for one in machines]
    return f"{{eval_time: {minutes}, alertname: NoData, exp_alerts: [{', '.join(labels)}]}}"


AIR = {"air{machine='m1'}": "1 1 _x5 1 1", "air{machine='m2'}": "1x8"}


def test_a_gap_fires_by_the_clock_and_is_over_with_the_next_row(tmp_path: Path) -> None:
    starts = ", exp_starts_at: 4m, exp_value: 180, exp_margin: 0"
    cases = [case("4m"), case("4m1s", "m1", extra=starts), case("6m", "m1"), case("7m"), case("20m", "m1", "m2")]
    assert outcomes(tmp_path, AIR, "\n".join(cases)) == [[]] * 5
    assert outcomes(tmp_path, AIR, case("6m", "m2")) == [[("missing", "m2"), ("unexpected", "m1")]]


def test_a_missing_alert_of_silence_has_its_reason_and_one_that_is_there_no_margin(tmp_path: Path) -> None:
    cases = [case("2m", "m1"), case("4m", "m3"), case("6m")]
    result = ran(tmp_path, AIR, "\n".join(cases))
    reasons = [one.reason for found in result.cases for one in found.differences if one.kind == "missing"]
    assert reasons == [
        "the last row of `air` is at 1m; `for` is 3m, over at 4m",
        "no row of `air` with these labels: a key is not silent before its first row",
    ]
    got = [line for line in lines([result]) if "got: {" in line]
    assert got == ['        got: {machine="m1", stream="air", team="hvac"} firing since 4m, value 180']


def test_other_streams_of_the_key_let_event_time_pass(tmp_path: Path) -> None:
    series = {"air{machine='m1'}": "1 _x9", "surface{machine='m1'}": "1x9"}
    cases = [case("3m"), case("4m", "m1"), "{eval_time: 9m, alertname: Apart}"]
    assert outcomes(tmp_path, series, "\n".join(cases)) == [[]] * 3


def test_a_row_without_a_usable_value_is_a_sign_of_life(tmp_path: Path) -> None:
    assert outcomes(tmp_path, {"air{machine='m1'}": "1 NaN NaN NaN NaN NaN NaN"}, case("6m")) == [[]]


def test_an_alert_of_silence_has_the_labels_of_its_stream_and_no_other(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(RULES, encoding="utf-8")
    wrong = "{eval_time: 1m, alertname: NoData, exp_alerts: [{exp_labels: {maschine: m1}}]}"
    (tmp_path / "test.yaml").write_text(files.one_test(AIR, wrong), encoding="utf-8")
    (mistake,) = files.SuiteLoader().check(tmp_path / "test.yaml").mistakes
    wanted = "`exp_labels` must name labels of 'NoData' (alertname, machine, team, stream, site)"
    assert f"{wanted}; got 'maschine'; did you mean `machine`?" in str(mistake)
