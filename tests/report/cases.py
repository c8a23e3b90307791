"""Small results of backtests, made in this process."""

from __future__ import annotations

from typing import Any

import numpy as np

from tocsin import Rule, local
from tocsin.plan import Plan
from tocsin.report import Gatherer, Result
from tocsin.rules.no_data import AnyRule
from tocsin.runtime.metrics import Metrics
from tocsin.trace import KeyRows, Life, Traced, trace

MINUTE = 60_000_000
HOT = Rule(
    "Hot", "air - surface > 5", within="5m", on="machine", keep_firing_for="2m", allowed_lateness="1h",
    shapes={"air": "increasing", "surface": "decreasing"},
)  # fmt: skip


def streams(machines: list[str], minutes: int = 300) -> dict[str, dict[str, Any]]:
    """Readings a minute of two streams, which are apart for a while."""
    rng = np.random.default_rng(7)
    tables = {}
    for name, base in (("air", 20.0), ("surface", 18.0)):
        ts = np.tile(np.arange(minutes) * MINUTE, len(machines))
        value = base + rng.normal(0, 0.3, len(ts))
        value += np.where((ts > 100 * MINUTE) & (ts < 160 * MINUTE), 6.0, 0.0) * (name == "air")
        machine = np.repeat(np.array(machines, object), minutes)
        tables[name] = {"ts": ts, "machine": machine, "value": value}
    return tables


def result(tables: dict[str, dict[str, Any]], *rules: AnyRule, dead: list[dict[str, Any]] | None = None) -> Result:
    """Run rules in this process, as a backtest would."""
    plan = local.explain(tables, rules or HOT)
    gatherer = Gatherer("rules.yaml", plan)
    for machine in dict.fromkeys(tables["air"]["machine"].tolist()):
        traced = traced_key(plan, tables, machine)
        for change in traced.alerts:
            gatherer.take(change)
        times = {"newest_us": {"air": 299 * MINUTE}, "oldest_us": {"air": 0}}
        gatherer.count(Metrics(counts=traced.counts, version_bytes={"": traced.state_bytes}, **times))
    return gatherer.result(dead or [])


def traced_key(plan: Plan, tables: dict[str, dict[str, Any]], machine: str) -> Traced:
    rows = {name: key_rows(table, machine) for name, table in tables.items()}
    return trace(plan.watches[0], (machine,), rows)


def key_rows(table: dict[str, Any], machine: str) -> KeyRows:
    """The rows of one key."""
    mine = table["machine"] == machine
    return KeyRows(table["ts"][mine], table["ts"][mine], {"value": table["value"][mine]})


def life(start: int, end: int | None, *, alert: str = "Hot", machine: str = "m1", late: bool = False) -> Life:
    """Make a life that fired."""
    state = "firing" if end is None else "resolved"
    labels = {"machine": machine}
    return Life(alert, f"{start}", state, labels, start, start, end, 1.0, 1.0, (), is_late=late, has_fired=True)
