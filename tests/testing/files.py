"""A rule file for tests of `tocsin test`, and functions that check and run test files next to it."""

from __future__ import annotations

from pathlib import Path

from tocsin.jit import use_interpreted_kernels
from tocsin.testing import CheckedSuite, Result, SuiteLoader, run_suite

RULES = """\
streams:
  air: {source: {csv: {path: air}}, keys: [machine], values: {value: , hum: }}
  surface: {source: {csv: {path: surface}}, keys: [machine], values: {temp: }}
  door: {source: {kafka: {servers: b, topic: t, password: "${NOT_SET}"}}, keys: [machine, site]}
limits:
  by_machine: {file: limits.csv, on: [machine]}
groups:
  - name: rooms
    labels: {team: hvac}
    rules:
      - {alert: Warm, expr: air > 20, on: machine, stale: 90s}
      - {alert: Damp, expr: air.hum > 20, on: machine, stale: 90s}
      - {alert: Both, expr: air - 10 * air.hum > 0, on: machine, stale: 90s}
      - {alert: WarmFor, expr: air > 20, on: machine, stale: 90s, for: 2m}
      - {alert: WarmKept, expr: air > 20, on: machine, stale: 90s, keep_firing_for: 3m}
      - alert: Apart
        expr: air - surface > 2
        within: 10s
        on: machine
        stale: 90s
        labels: {severity: critical}
        annotations: {summary: "{{ $labels.machine }}: {{ $value }}", cause: "{{ $values.surface.temp }}"}
      - {alert: Slow, expr: air - surface > 2, within: 10s, on: machine, stale: 90s, shapes: {air: increasing}}
      - {alert: Reduced, expr: air > 20, within: 2m, on: machine, shapes: {air: increasing}}
      - {alert: Matches, expr: air - surface > 2, within: 10s, on: machine, emit: all}
      - {alert: Two, expr: air > 20, on: machine, stale: 90s, labels: {severity: warning}}
      - {alert: Two, expr: air > 22, on: machine, stale: 90s, labels: {severity: critical}}
      - {alert: Limited, expr: air > by_machine.most, on: machine}
      - {alert: Recovers, expr: air > 20, on: machine, recovery: 18}
      - {alert: Door, expr: door > 0, on: site, stale: 90s}
      - {alert: Undefined, expr: ln(air) > 5, on: machine, stale: 90s}
"""


def write_rules(folder: Path) -> None:
    """Write the rule file and its table of limits."""
    (folder / "rules.yaml").write_text(RULES, encoding="utf-8")
    (folder / "limits.csv").write_text("machine,most\nm1,20\n", encoding="utf-8")


def check(folder: Path, text: str | bytes) -> CheckedSuite:
    """Write a test file next to the rule file, and check it."""
    write_rules(folder)
    path = folder / "test.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return SuiteLoader().check(path)


def errors_of(folder: Path, text: str | bytes) -> list[str]:
    """Return the errors of a test file, without its directory."""
    return [str(error).replace(f"{folder}/", "") for error in check(folder, text).errors]


def run(folder: Path, text: str, *, is_debugging: bool = False) -> list[Result]:
    """Run the tests of a file."""
    checked = check(folder, text)
    assert [str(error) for error in checked.errors] == []
    assert checked.suite is not None
    with use_interpreted_kernels(0):
        return list(run_suite(checked.suite, checked.suite.scenarios, is_debugging=is_debugging))


def one_test(series: dict[str, str], cases: str, **options: str) -> str:
    """Return a test file with one test. `series` has the values and `; delay`; `cases` is in flow style."""
    lines = ["rule_files: [rules.yaml]", *(f"{name}: {value}" for name, value in options.items()), "tests:"]
    lines += ["  - name: one", "    interval: 1m", "    input_series:"]
    for name, values in series.items():
        samples, _, delay = values.partition(";")
        lines += [f"      - series: {name}", f"        values: {samples}"]
        lines += [f"        delay: {delay}"] if delay else []
    return (
        "\n".join([*lines, "    alert_rule_test:", *(f"      - {case}" for case in cases.strip().split("\n"))]) + "\n"
    )
