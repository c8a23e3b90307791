"""Exporter: the metrics of a run for Prometheus, from the totals of the last micro-batch.

Names, types and labels are those of `runtime.metrics.METRICS`. Values continue after a restart, because the progress
records continue. Only the histogram of the duration of micro-batches begins again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from tocsin.plan import Plan
from tocsin.run_directory import Progress, Tally
from tocsin.run_directory.manifest import package_version
from tocsin.runtime.metrics import BY_NAME, COUNTER, METRICS, Merge, Metric, Metrics

Labels = tuple[str, ...]
Samples = Mapping[Labels, float]
Sinks = Callable[[], Mapping[str, Mapping[str, Any]]]
Sources = Callable[[], Mapping[str, bool]]


_BUCKETS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 60.0, 120.0, 300.0)


# By the name in the status of a sink.
_SINKS = {
    "delivered": "sink_delivered_total",
    "retries": "sink_failures_total",
    "rejected": "sink_rejected_total",
    "pending": "sink_backlog",
    "failing": "sink_failing",
}


class Meter(Collector):
    """Metrics of one run as of its last micro-batch. Sinks, sources and lag are measured at each request."""

    def __init__(self, sinks: Sinks, progress: Progress | None, plan: Plan, sources: Sources = dict) -> None:
        self.sinks, self.sources, self.progress, self.zeros = sinks, sources, progress, zero_counters(plan)
        self.registry = CollectorRegistry()
        seconds = BY_NAME["batch_seconds"]
        self.seconds = Histogram(seconds.public_name, seconds.help, registry=self.registry, buckets=_BUCKETS)
        self.registry.register(self)

    def note(self, progress: Progress) -> None:
        """Replace the metrics of the last micro-batch."""
        self.progress = progress

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        """Yield all metrics except the histogram."""
        measured, total = self._measured(), self._total()
        for metric in METRICS:
            samples = measured.get(metric.name) if not metric.place else _samples(metric, total)
            if samples is not None and metric.exported:
                family = CounterMetricFamily if metric.kind == COUNTER else GaugeMetricFamily
                shown = family(metric.public_name.removesuffix("_total"), metric.help, labels=metric.labels)
                for labels, number in samples.items():
                    shown.add_metric(labels, number)
                yield shown

    def _total(self) -> Metrics:
        """Return the totals of the run. A counter begins at 0, because its first increase is lost otherwise."""
        total = self.zeros.select(Merge)
        views = {} if self.progress is None else self.progress.total.section("counts")
        for metric in METRICS:
            if metric.place.startswith("counts/"):
                for view in views:
                    total.record(metric.name, 0, view)
        if self.progress is not None:
            total.advance(self.progress.total)
        return total

    def _measured(self) -> dict[str, Samples]:
        """Return the metrics that the exporter measures, by name."""
        status = self.sinks()
        found: dict[str, Samples] = {
            name: {(sink,): float(one[key]) for sink, one in status.items()} for key, name in _SINKS.items()
        }
        found["build_info"] = {(package_version(),): 1}
        found["source_up"] = {(stream,): float(is_up) for stream, is_up in self.sources().items()}
        zeros = Tally(**self.zeros.to_json())
        progress = self.progress
        firing = zeros.firing() if progress is None else zeros.plus(progress.total).firing()
        found["alerts_firing"] = {(alert,): number for alert, number in firing.items()}
        if progress is not None:
            now = time.time()
            newest = progress.newest_us.items()
            found["batch_rows"] = {(): sum(progress.gained.rows.values())}
            found["batch_timestamp_seconds"] = {(): progress.seconds}
            found["lag_seconds"] = {(name,): now - us / 1e6 for name, us in newest if name not in progress.historic}
        return found


def _samples(metric: Metric, total: Metrics) -> Samples:
    """Return the known values of a metric in the unit for Prometheus."""
    return {labels: value * metric.scale for labels, value in total.items(metric.name)}


def zero_counters(plan: Plan) -> Tally:
    """Return each counter of a plan with the value 0."""
    zeros = Tally(batches=0, state_bytes=0)
    for view, stream in (pair for watch in plan.key_sets for pair in watch.counted):
        for metric in METRICS:
            if metric.place in {"rows/*", "dead/*", "unreadable/*"}:
                zeros.record(metric.name, 0, stream)
            elif metric.place.startswith("counts/"):
                zeros.record(metric.name, 0, view)
    states: list[tuple[str, str]] = []
    for watch in plan.watches:
        for rule in watch.rules:
            zeros.record("dropped_results", 0, rule.alert)
            pending = ("pending", "inactive") if rule.for_us else ()
            states += [
                (rule.alert, one) for one in (("match",) if rule.emit == "all" else (*pending, "firing", "resolved"))
            ]
        states += [(silence.alert, state) for silence in watch.silences for state in ("firing", "resolved")]
    states += [(ranges.alert, "match") for ranges in plan.ranges]
    for alert, state in states:
        zeros.record("alerts", 0, alert, state)
    return zeros
