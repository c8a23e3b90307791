"""A rule file that is right, and a way to check changed ones: `»` in a text stands where a mistake is expected."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tocsin.delivery import make_sink
from tocsin.plan import plan_rules
from tocsin.rules.load import Checked, check_rule_file

TABLE = "machine,margin,max_temp\npress-1,1.5,6\npress-2,-0.5,4\n"
GOOD = """\
streams:
  air:
    source: {parquet: {path: data/air}}
    keys: [machine, site]
    values:
      value: {domain: [-40, 85], unit: celsius}
      temp:
    idle_timeout: 1m
    no_data: {for: 10m, labels: {severity: warning}}
  surface:
    source: {kafka: {servers: broker, topic: surface, password: "${PASS}"}}
    keys: [machine]
    values: {heat: {domain: "[0, 100)"}}
limits:
  by_machine: {file: limits.csv, on: [machine]}
  by_site: {file: sites.csv, on: site}
groups:
  - name: cold-store
    interval: 30s
    labels: {team: hvac}
    rules:
      - alert: Condensation
        expr: air - surface > by_machine.margin
        within: 10s
        on: [machine]
        for: 10m
        recovery: -1
        shapes: {air: increasing}
        labels: {severity: critical}
        annotations: {summary: "{{ $labels.machine }}: {{ $values.air }}"}
        stale: 1m
      - alert: Site
        expr: air > by_site.most
        on: site
      - alert: Pair
        expr: air.temp - surface > 15
        within:
          - {between: [air, surface], bounds: [-5s, 10s]}
        on: machine
        keep_firing_for: 1m
sinks:
  - console:
  - webhook: {url: "https://bell:${PASS}@host/x", headers: {X-Key: "${PASS}"}}
archive: {path: archive}
"""
ENVIRONMENT = {"PASS": "hunter2/@secret"}


def check(folder: Path, text: str | bytes, environment: Mapping[str, str] = ENVIRONMENT) -> Checked:
    """Check a rule file that lies beside the table of limits."""
    write_tables(folder)
    path = folder / "rules.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return check_rule_file(path, plan_rules, environment, make_sink)


def write_tables(folder: Path) -> None:
    """Write the tables that the good file names."""
    (folder / "limits.csv").write_text(TABLE, encoding="utf-8")
    (folder / "sites.csv").write_text("site,most\nnorth,8\n", encoding="utf-8")


def said(folder: Path, text: str | bytes) -> list[str]:
    """The mistakes of a file, without its path."""
    return [str(mistake).removeprefix(f"{folder / 'rules.yaml'}:") for mistake in check(folder, text).errors]


def marked(text: str) -> tuple[str, str]:
    """Take the mark out of a text; give the text and the place of the mark, as messages write it."""
    before, mark, after = text.partition("»")
    assert mark
    lines = before.split("\n")
    return before + after, f"{len(lines)}:{len(lines[-1]) + 1}"
