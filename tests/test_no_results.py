"""Rules without a result: no statement has a recall of them, for each budget and each wait."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.driver import parts_of
from tests.test_memory import zipf_streams
from tocsin import Rule, local
from tocsin.plan import Plan, make_plan
from tocsin.report import Gatherer
from tocsin.run_directory.layout import RunDir
from tocsin.run_directory.progress import Progress
from tocsin.runtime.alert_arrow import pack_alerts
from tocsin.runtime.contract import Out
from tocsin.runtime.metrics import METRICS, Metrics
from tocsin.runtime.session import Session
from tocsin.spark.record import Recorder
from tocsin.spark.results import read_metrics
from tocsin.spark.unreadable import UnreadableFiles

BUDGETS: dict[str, dict[str, Any]] = {
    "memory": {"quality": {"memory": "60 rows"}, "emit": "all"},
    "memory of a sample": {
        "quality": {"memory": "60 rows", "prefer": "sample", "model": {"by": "key"}},
        "emit": "all",
    },
    "memory that is not full": {"quality": {"memory": "1MB"}},
    "cpu": {"quality": {"cpu": "1 core"}, "emit": "all"},
    "wait by results": {"quality": {"recall": 0.9, "in_order": True, "period": "1s", "adapt_every": "100ms"}},
    "wait by delays": {
        "quality": {"recall": 0.9, "in_order": True, "period": "1s", "adapt_every": "100ms", "strategy": "eqsel"}
    },
}
ROWS = 1_500


def planned(threshold: float, **given: Any) -> tuple[dict[str, Any], Plan]:
    """Return streams with rows out of order, and the plan of a rule over them."""
    streams = zipf_streams(ROWS, 20, 1, disorder=20_000)
    settings = {"within": "100ms", "on": "machine", "allowed_lateness": "200ms"} | given
    columns = {name: list(table) for name, table in streams.items()}
    return streams, make_plan(Rule("pair", f"a + b > {threshold}", **settings), columns, arrival="arrival")


def statements(tmp_path: Path, threshold: float, given: dict[str, Any]) -> tuple[list[Progress], Gatherer, Out]:
    """Run a rule in calls; return the progress of a run, the numbers of a backtest, and the output of the logic."""
    streams, plan = planned(threshold, **given)
    plan = plan.calibrated(100.0)
    whole, progress = Out(), list[Progress]()
    session, gatherer = Session(plan), Gatherer("rules.yaml", plan)
    run = RunDir(tmp_path)
    recorder = Recorder(run, plan, [], None, [progress.append], UnreadableFiles(run.skipped, ()))
    for batch, part in enumerate(parts_of(plan, streams, range(500, 2 * ROWS, 500), "arrival")):
        out = session.push(part)
        whole.add(out)
        text = json.dumps({"bucket": 0, "metrics": out.metrics.to_json()})
        rows = [("metrics", text, None), *(("alerts", None, data) for data in pack_alerts(out.alerts))]
        recorder(_Rows(rows), batch)  # type: ignore[arg-type]
        gatherer.count(read_metrics(text)[1])
        for alerts in out.alerts:
            gatherer.take_batch(alerts)
    return progress, gatherer, whole


def known_recalls(metrics: Metrics) -> set[str]:
    """Return the names of the known metrics that need results."""
    return {metric.name for metric in METRICS if metric.needs_results and list(metrics.items(metric.name))}


class _Rows:
    """Rows of the operator, as a micro-batch returns them."""

    def __init__(self, rows: list[tuple[str, str | None, bytes | None]]) -> None:
        self.rows = rows

    def toArrow(self) -> pa.Table:
        return pa.table({name: [row[i] for row in self.rows] for i, name in enumerate(("kind", "json", "alerts"))})


@pytest.mark.parametrize("budget", BUDGETS)
def test_no_recall_is_reported_when_a_rule_has_no_results(budget: str, tmp_path: Path) -> None:
    progress, gatherer, _ = statements(tmp_path, 99.0, BUDGETS[budget])
    assert progress
    for one in progress:
        assert known_recalls(one.total) == set()
    found = gatherer.result()
    assert {number for one in found.limited for number in one.found.values()} <= {None}
    assert {one.whole for one in found.recalls} <= {None}
    settings = {"within": "100ms", "on": "machine", "allowed_lateness": "200ms"} | BUDGETS[budget]
    streams = zipf_streams(ROWS, 20, 1, disorder=20_000)
    result = local.run_local_detailed(streams, Rule("pair", "a + b > 99", **settings), arrival="arrival")
    assert result.alerts == []
    assert known_recalls(result.metrics) == set()


@pytest.mark.parametrize("budget", BUDGETS)
def test_a_recall_is_reported_when_a_rule_has_results(budget: str, tmp_path: Path) -> None:
    progress, gatherer, whole = statements(tmp_path, 1.0, BUDGETS[budget])
    assert whole.alert_rows()
    last = progress[-1]
    if "wait" in budget:
        assert last.waits["pair"]["recall"] is not None
    if "memory" in budget:
        assert set(last.memory["pair"].values()) != {None}
        assert set(gatherer.result().limited[0].found.values()) != {None}
