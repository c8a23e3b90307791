"""Write examples/grafana.json, a Grafana dashboard of all metrics of a run.

Usage: .venv/bin/python scripts/grafana.py > examples/grafana.json
"""

from __future__ import annotations

import json
import sys
from typing import Any

from tocsin.runtime.metrics import METRICS

# Title, Grafana unit, width of 24, panel type, and the query and legend of each line.
PANELS: tuple[tuple[str, str, int, str, tuple[tuple[str, str], ...]], ...] = (
    ("Firing alerts", "short", 4, "stat", (("sum(tocsin_alerts_firing{$run})", "firing"),)),
    ("Rows per second", "rowsps", 4, "stat", (("sum(rate(tocsin_rows_received_total{$run}[1m]))", "rows/s"),)),
    ("State size", "bytes", 4, "stat", (("sum(tocsin_state_bytes{$run})", "state"),)),
    ("Largest lag", "s", 4, "stat", (("max(tocsin_lag_seconds{$run})", "lag"),)),
    # The maximum over all runs.
    (
        "Time since the last micro-batch",
        "s",
        4,
        "stat",
        (("time() - min(tocsin_batch_timestamp_seconds{$run})", "since the last micro-batch"),),
    ),
    (
        "Failing sinks and unreachable sources",
        "short",
        4,
        "stat",
        (
            ("sum(tocsin_sink_failing{$run})", "failing"),
            ("count(tocsin_source_up{$run} == 0) or vector(0)", "down"),
        ),
    ),
    (
        "Firing alerts by rule",
        "short",
        12,
        "timeseries",
        (("tocsin_alerts_firing{$run}", "{{instance}} {{alert}}"),),
    ),
    (
        "Alert events per minute",
        "short",
        12,
        "timeseries",
        (
            ("sum by (alert, state) (60 * rate(tocsin_alerts_total{$run}[5m]))", "{{alert}} {{state}}"),
            ("sum by (alert) (60 * rate(tocsin_late_results_dropped_total{$run}[5m]))", "{{alert}} dropped"),
        ),
    ),
    (
        "Rows per second by stream",
        "rowsps",
        12,
        "timeseries",
        (("rate(tocsin_rows_received_total{$run}[1m])", "{{instance}} {{stream}}"),),
    ),
    ("Lag by stream", "s", 12, "timeseries", (("tocsin_lag_seconds{$run}", "{{instance}} {{stream}}"),)),
    (
        "Row outcomes per second",
        "rowsps",
        12,
        "timeseries",
        (
            ("sum(rate(tocsin_rows_counted_total{$run}[5m]))", "all"),
            ("sum(rate(tocsin_rows_omitted_total{$run}[5m]))", "omitted"),
            ("sum(rate(tocsin_rows_duplicates_total{$run}[5m]))", "duplicates"),
            ("sum(rate(tocsin_rows_expired_total{$run}[5m]))", "expired"),
            ("sum(rate(tocsin_rows_late_dropped_total{$run}[5m]))", "late"),
            ("sum(rate(tocsin_rows_out_of_order_total{$run}[5m]))", "out of order"),
            ("sum(rate(tocsin_rows_quarantined_total{$run}[5m]))", "invalid"),
            ("sum(rate(tocsin_rows_shed_total{$run}[5m]))", "shed"),
            ("sum(rate(tocsin_rows_unprocessed_total{$run}[5m]))", "unprocessed"),
        ),
    ),
    (
        "Rows retained and buffered",
        "short",
        12,
        "timeseries",
        (
            ("tocsin_rows_retained{$run}", "{{instance}} {{stream}} retained"),
            ("tocsin_rows_buffered{$run}", "{{instance}} {{stream}} buffered"),
        ),
    ),
    (
        "Invalid rows and unreadable files per second",
        "rowsps",
        12,
        "timeseries",
        (
            ("rate(tocsin_rows_dead_letter_total{$run}[5m])", "{{instance}} {{stream}} invalid"),
            ("rate(tocsin_files_unreadable_total{$run}[5m])", "{{instance}} {{stream}} unreadable files"),
            ("rate(tocsin_rows_out_of_domain_total{$run}[5m])", "{{instance}} {{stream}} outside the domain"),
            ("rate(tocsin_rows_without_limits_total{$run}[5m])", "{{instance}} {{stream}} without limits"),
        ),
    ),
    (
        "Rows per second by delay",
        "rowsps",
        12,
        "timeseries",
        (("sum by (class) (rate(tocsin_rows_by_delay_total{$run}[5m]))", "{{class}}"),),
    ),
    ("State size", "bytes", 12, "timeseries", (("tocsin_state_bytes{$run}", "{{instance}}"),)),
    (
        "Micro-batch duration",
        "s",
        12,
        "timeseries",
        (
            ("histogram_quantile(0.5, sum by (le) (rate(tocsin_batch_seconds_bucket{$run}[5m])))", "median"),
            ("histogram_quantile(0.99, sum by (le) (rate(tocsin_batch_seconds_bucket{$run}[5m])))", "99th percentile"),
        ),
    ),
    ("Reorder wait", "s", 12, "timeseries", (("tocsin_wait_seconds{$run}", "{{instance}} {{alert}}"),)),
    (
        "Estimated in-order recall",
        "percentunit",
        12,
        "timeseries",
        (("tocsin_recall_estimated{$run}", "{{instance}} {{alert}}"),),
    ),
    (
        "Recall under the memory budget",
        "percentunit",
        12,
        "timeseries",
        (
            ("tocsin_memory_recall_predicted{$run}", "{{instance}} {{alert}} predicted"),
            ("tocsin_memory_recall_predicted_low{$run}", "{{instance}} {{alert}} predicted, lower end"),
            ("tocsin_memory_recall_predicted_high{$run}", "{{instance}} {{alert}} predicted, upper end"),
            ("tocsin_memory_recall_measured{$run}", "{{instance}} {{alert}} measured"),
        ),
    ),
    (
        "Memory budget by rule (bytes or rows)",
        "short",
        12,
        "timeseries",
        (("tocsin_memory_share{$run}", "{{instance}} {{alert}}"),),
    ),
    (
        "Relative standard error of samples under the memory budget",
        "percentunit",
        12,
        "timeseries",
        (
            ("tocsin_memory_error_predicted{$run}", "{{instance}} {{alert}} predicted"),
            ("tocsin_memory_error_reached{$run}", "{{instance}} {{alert}} measured"),
        ),
    ),
    (
        "Rows processed and results found under the CPU budget",
        "percentunit",
        12,
        "timeseries",
        (
            ("tocsin_cpu_rows_processed_ratio{$run}", "{{instance}} {{alert}} rows processed"),
            ("tocsin_cpu_recall_ratio{$run}", "{{instance}} {{alert}} results found"),
        ),
    ),
    (
        "Alerts not yet delivered",
        "short",
        12,
        "timeseries",
        (("tocsin_sink_backlog{$run}", "{{instance}} {{sink}}"),),
    ),
    (
        "Deliveries per second",
        "ops",
        12,
        "timeseries",
        (
            ("rate(tocsin_sink_delivered_total{$run}[5m])", "{{instance}} {{sink}} delivered"),
            ("rate(tocsin_sink_failures_total{$run}[5m])", "{{instance}} {{sink}} failures"),
            ("rate(tocsin_sink_rejected_total{$run}[5m])", "{{instance}} {{sink}} rejected"),
        ),
    ),
)
SOURCE = {"type": "prometheus", "uid": "${source}"}
RUN = 'job=~"$job", instance=~"$instance"'


def dashboard() -> dict[str, Any]:
    """Return the dashboard: variables that select runs, and the panels in rows of width 24."""
    x = y = height = 0
    panels = []
    for number, (title, unit, width, kind, lines) in enumerate(PANELS, 1):
        if x + width > 24:
            x, y = 0, y + height
        height = 4 if kind == "stat" else 8
        place = {"h": height, "w": width, "x": x, "y": y}
        panels.append(_panel(number, title, unit, kind, lines, place))
        x += width
    return {
        "title": "Tocsin",
        "uid": "tocsin",
        "tags": ["tocsin"],
        "schemaVersion": 39,
        "timezone": "browser",
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [_source(), _variable("job"), _variable("instance")]},
        "panels": panels,
    }


def _panel(number: int, title: str, unit: str, kind: str, lines: Any, place: dict[str, int]) -> dict[str, Any]:
    meanings = {metric.public_name: metric.help for metric in METRICS if metric.exported}
    described = [f"{name}: {text}" for name, text in meanings.items() if any(name in query for query, _ in lines)]
    return {
        "id": number,
        "title": title,
        "description": "; ".join(described),
        "type": kind,
        "datasource": SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": unit}, "overrides": []},
        "targets": [
            {"refId": chr(65 + i), "datasource": SOURCE, "expr": query.replace("$run", RUN), "legendFormat": legend}
            for i, (query, legend) in enumerate(lines)
        ],
    }


def _source() -> dict[str, Any]:
    return {"name": "source", "label": "Data source", "type": "datasource", "query": "prometheus"}


def _variable(label: str) -> dict[str, Any]:
    query = f"label_values(tocsin_build_info, {label})"
    more = {"multi": True, "includeAll": True, "refresh": 2, "current": {"text": "All", "value": "$__all"}}
    return {"name": label, "label": label, "type": "query", "datasource": SOURCE, "query": query, **more}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(dashboard(), indent=2) + "\n")
