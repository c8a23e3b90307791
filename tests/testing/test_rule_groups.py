"""Rules are planned for tests as in a run, so they share the same options and rows."""

from __future__ import annotations

from pathlib import Path

from tests.testing.files import one_test, run

M1, HUM = 'air{machine="m1"}', 'air.hum{machine="m1"}'

SAME_NAME = """\
streams:
  air: {source: {csv: {path: air}}, keys: [machine]}
groups:
  - name: rooms
    rules:
      - {alert: Hot, expr: air > 20, on: machine, allowed_lateness: 1m, labels: {severity: warning}}
      - {alert: Hot, expr: air > 22, on: machine, allowed_lateness: 1h, labels: {severity: critical}}
"""


def test_rules_with_equal_keys_share_the_allowed_lateness(tmp_path: Path) -> None:
    (tmp_path / "same.yaml").write_text(SAME_NAME, encoding="utf-8")
    labels = [f"exp_labels: {{machine: m1, severity: {word}}}" for word in ("warning", "critical")]
    case = f"{{eval_time: 11m, alertname: Hot, exp_alerts: [{labels[0]}, {labels[1]}]}}"
    # The sample of 5m arrives after the samples of 10m: 5 minutes late, more than the first rule alone allows.
    series = {M1: "20 _x4 25 _x4 20; 0s x5 6m"}
    (result,) = run(tmp_path, one_test(series, case).replace("rules.yaml", "same.yaml"))
    assert [[one.kind for one in found.differences] for found in result.cases] == [[]]


def test_row_with_a_missing_column_is_used_by_rules_that_read_other_columns(tmp_path: Path) -> None:
    expected = "exp_alerts: [exp_labels: {machine: m1, team: hvac}]"
    cases = "\n".join(f"{{eval_time: 1m, alertname: {name}, {expected}}}" for name in ("Warm", "Damp"))
    (result,) = run(tmp_path, one_test({M1: "20 21", HUM: "25 _"}, cases))
    assert result.ok
