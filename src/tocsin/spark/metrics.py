"""Metrics: the numbers of a run for Prometheus, out of the same progress that `RUN/progress.jsonl` has.

`METRICS` is the one table of them; scripts/generate_reference.py writes the reference page. Numbers go on after a
restart, since progress does; only the histogram of batch times begins anew.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from tocsin.plan import Plan
from tocsin.run_directory import Progress, Tally
from tocsin.run_directory.manifest import package_version

Labels = tuple[str, ...]
Samples = Mapping[Labels, float]
Sinks = Callable[[], Mapping[str, Mapping[str, Any]]]
Sources = Callable[[], Mapping[str, bool]]


@dataclass(frozen=True)
class Metric:
    """A metric: its name, what kind it is, its labels, and what it counts in one line."""

    name: str
    kind: str
    labels: Labels
    meaning: str


def _rows(name: str, meaning: str, kind: str = "counter") -> Metric:
    return Metric(f"tocsin_rows_{name}", kind, ("stream",), meaning)


_COUNTED = {
    "omitted": _rows("omitted_total", "rows omitted, because a proof shows that no alarm needs them"),
    "duplicates": _rows("duplicates_total", "rows equal to an earlier row of their key and stream, not used again"),
    "expired": _rows("expired_total", "rows expired, because no partner can arrive"),
    "late": _rows("late_dropped_total", "rows dropped, because they are later than `allowed_lateness`"),
    "quarantined": _rows("quarantined_total", "rows with an invalid key, time or value"),
    "shed": _rows("shed_total", "rows evicted, because the memory budget was exceeded"),
    "unprocessed": _rows("unprocessed_total", "rows evicted before all their pairs were processed"),
    "out_of_domain": _rows("out_of_domain_total", "rows with a value outside its domain; they are used and marked"),
    "behind": _rows("out_of_order_total", "rows that arrived after the reorder wait; they are used out of order"),
    "without_limits": _rows("without_limits_total", "rows with a key that a table of `limits` does not contain"),
    "retained": _rows("retained", "rows retained now", "gauge"),
    "held": _rows("buffered", "rows in the reorder buffer now", "gauge"),
    "freed_keys": Metric("tocsin_keys_expired_total", "counter", ("stream",), "keys expired, because they had no rows"),
}
_SINKS = {
    "delivered": Metric("tocsin_sink_delivered_total", "counter", ("sink",), "alerts delivered"),
    "retries": Metric("tocsin_sink_failures_total", "counter", ("sink",), "failed attempts that are repeated"),
    "rejected": Metric("tocsin_sink_rejected_total", "counter", ("sink",), "alerts that the receiver rejected"),
    "pending": Metric("tocsin_sink_backlog", "gauge", ("sink",), "alerts of the log that are not delivered yet"),
    "failing": Metric("tocsin_sink_failing", "gauge", ("sink",), "1 if the last attempt failed, else 0"),
}
_RECEIVED = _rows("received_total", "rows received")
_DEAD = _rows("dead_letter_total", "rows written to `RUN/dead`, with the reason")
_UNREADABLE = Metric(
    "tocsin_files_unreadable_total", "counter", ("stream",), "source files with damaged content, skipped"
)
_ALERTS = Metric("tocsin_alerts_total", "counter", ("alert", "state"), "state changes of alerts")
_FIRING = Metric("tocsin_alerts_firing", "gauge", ("alert",), "alerts firing now")
_BATCHES = Metric("tocsin_batches_total", "counter", (), "micro-batches with rows, alerts or changed state")
_BATCH_ROWS = Metric("tocsin_batch_rows", "gauge", (), "rows of the last micro-batch")
_BATCH_TIME = Metric("tocsin_batch_timestamp_seconds", "gauge", (), "time at which the last micro-batch finished")
_SECONDS = Metric("tocsin_batch_seconds", "histogram", (), "duration of micro-batches, including the work of Spark")
_STATE = Metric("tocsin_state_bytes", "gauge", (), "bytes of state")
_SOURCE_UP = Metric(
    "tocsin_source_up", "gauge", ("stream",), "1 if the Kafka or MQTT broker of the stream accepts connections, else 0"
)
_NEWEST = Metric("tocsin_newest_event_timestamp_seconds", "gauge", ("stream",), "newest event time")
_LAG = Metric(
    "tocsin_lag_seconds",
    "gauge",
    ("stream",),
    "time from the newest event time to now; absent if the stream holds history",
)
_WAIT = Metric("tocsin_wait_seconds", "gauge", ("alert",), "reorder wait of rows")
_RECALL = Metric("tocsin_recall_estimated", "gauge", ("alert",), "estimated share of results in order with this wait")
_PREDICTED = Metric(
    "tocsin_memory_recall_predicted", "gauge", ("alert",), "predicted share of results found with the memory budget"
)
_MEASURED = Metric(
    "tocsin_memory_recall_measured", "gauge", ("alert",), "measured share of results found with the memory budget"
)
_PREDICTED_ERROR = Metric(
    "tocsin_memory_error_predicted",
    "gauge",
    ("alert",),
    "predicted standard error of sampled results, from their number",
)
_MEASURED_ERROR = Metric(
    "tocsin_memory_error_reached",
    "gauge",
    ("alert",),
    "standard error of sampled results, from the probabilities of their rows",
)
_ROWS_PROCESSED = Metric(
    "tocsin_cpu_rows_processed_ratio", "gauge", ("alert",), "recent share of rows processed with the CPU budget"
)
_CPU_RECALL = Metric(
    "tocsin_cpu_recall_ratio", "gauge", ("alert",), "recent estimated share of results found with the CPU budget"
)
_INFO = Metric("tocsin_build_info", "gauge", ("version",), "1, with the version of Tocsin")
# In the order of `Found`, and of the shares of `cpu`.
_MEMORY = (_PREDICTED, _MEASURED, _PREDICTED_ERROR, _MEASURED_ERROR)
_CPU = (_ROWS_PROCESSED, _CPU_RECALL)

METRICS = (
    *(_RECEIVED, _DEAD, _UNREADABLE, *_COUNTED.values()),
    *(_ALERTS, _FIRING),
    *(_BATCHES, _SECONDS, _BATCH_ROWS, _BATCH_TIME, _STATE, _SOURCE_UP, _NEWEST, _LAG),
    *(_WAIT, _RECALL, *_MEMORY, *_CPU),
    *_SINKS.values(),
    _INFO,
)
_BUCKETS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 60.0, 120.0, 300.0)


class Meter(Collector):
    """The numbers of one run as of its last micro-batch; sinks, sources and lag are read at each request."""

    def __init__(self, sinks: Sinks, progress: Progress | None, plan: Plan, sources: Sources = dict) -> None:
        self.sinks, self.sources, self.progress, self.noughts = sinks, sources, progress, _noughts(plan)
        self.registry = CollectorRegistry()
        self.seconds = Histogram(_SECONDS.name, _SECONDS.meaning, registry=self.registry, buckets=_BUCKETS)
        self.registry.register(self)

    def note(self, progress: Progress) -> None:
        """Take the numbers of a micro-batch."""
        self.progress = progress

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        """Give all but the histogram."""
        for metric, samples in self.samples():
            family = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
            shown = family(metric.name.removesuffix("_total"), metric.meaning, labels=metric.labels)
            for labels, number in samples.items():
                shown.add_metric(labels, number)
            yield shown

    def samples(self) -> Iterator[tuple[Metric, Samples]]:
        """Every metric with its numbers, by labels."""
        yield _INFO, {(package_version(),): 1}
        status = self.sinks()
        for name, metric in _SINKS.items():
            yield metric, {(sink,): float(told[name]) for sink, told in status.items()}
        yield _SOURCE_UP, {(stream,): float(is_up) for stream, is_up in self.sources().items()}
        yield from _of_total(self.noughts.plus(Tally() if self.progress is None else self.progress.total))
        if self.progress is not None:
            yield from _of_progress(self.progress)


def _noughts(plan: Plan) -> Tally:
    """What a plan will count, each at nought: a counter that first appears with a number hides that it rose to it."""
    counted = [pair for watch in plan.key_sets for pair in watch.counted]
    alerts: dict[str, dict[str, int]] = {}
    for watch in plan.watches:
        for rule in watch.rules:
            waits = ("pending", "inactive") if rule.for_us else ()
            states = ("match",) if rule.emit == "all" else (*waits, "firing", "resolved")
            alerts.setdefault(rule.alert, {}).update(dict.fromkeys(states, 0))
        for silence in watch.silences:
            alerts.setdefault(silence.alert, {}).update({"firing": 0, "resolved": 0})
    for ranges in plan.ranges:
        alerts.setdefault(ranges.alert, {}).update({"match": 0})
    return Tally({stream: 0 for _, stream in counted}, {name: {} for name, _ in counted}, alerts)


def _of_total(whole: Tally) -> Iterator[tuple[Metric, Samples]]:
    yield _RECEIVED, {(stream,): number for stream, number in whole.rows.items()}
    yield _DEAD, {(stream,): whole.dead.get(stream, 0) for stream in whole.rows}
    for name, metric in _COUNTED.items():
        yield metric, {(store,): parts.get(name, 0) for store, parts in whole.counts.items()}
    states: Samples = {(alert, state): n for alert, parts in whole.alerts.items() for state, n in parts.items()}
    yield _ALERTS, states
    yield _FIRING, {(alert,): number for alert, number in whole.firing().items()}
    yield _BATCHES, {(): whole.batches}
    yield _STATE, {(): whole.state_bytes}


def _of_progress(progress: Progress) -> Iterator[tuple[Metric, Samples]]:
    yield _UNREADABLE, {(stream,): progress.unreadable.get(stream, 0) for stream in progress.total.rows}
    yield _BATCH_ROWS, {(): sum(progress.gained.rows.values())}
    now = time.time()
    yield _BATCH_TIME, {(): progress.seconds}
    newest: Samples = {(stream,): time_us / 1e6 for stream, time_us in progress.newest_us.items()}
    yield _NEWEST, newest
    yield _LAG, {labels: now - seconds for labels, seconds in newest.items() if labels[0] not in progress.historic}
    yield _WAIT, {(alert,): wait_us / 1e6 for alert, (wait_us, _) in progress.waits.items()}
    yield _RECALL, {(alert,): recall for alert, (_, recall) in progress.waits.items() if recall is not None}
    for metrics, known in ((_MEMORY, progress.memory), (_CPU, progress.cpu)):
        for i, metric in enumerate(metrics):
            numbers = ((alert, told[i]) for alert, told in known.items())
            yield metric, {(alert,): number for alert, number in numbers if number is not None}
