"""Metrics: the table of all quantities that a run measures, row outcomes, and the quality text of an alert.

`METRICS` is the only definition of a quantity. Operators record values into `Metrics`. The table states how values are
merged over buckets and over time. Progress records, the Prometheus exporter and the reference page are generated from
it. A new quantity needs one line of the table and one call that records it.

Guarantees:
    - A merge over buckets is commutative and associative. A merge over time is associative.
    - `Metrics.count_rows` is the only function that counts rows. It adds each change of an outcome to `received`, so
      received rows are the sum of the outcomes.

Complexity: a merge costs one step per value.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, IntEnum
from functools import lru_cache
from typing import Any, Self

Labels = tuple[str, ...]
# Values that are not known. JSON represents them as null.
UNKNOWN = math.nan
# Largest absolute value that is read from a file. Sums of a few values stay exact integers or finite numbers.
LARGEST = 1 << 62


class RowOutcome(IntEnum):
    """Outcome of a received row. At any time a row has exactly one outcome."""

    BUFFERED = 0
    RETAINED = 1
    EXPIRED = 2
    OMITTED = 3
    DUPLICATE = 4
    SHED = 5
    LATE = 6
    QUARANTINED = 7
    UNPROCESSED = 8

    @property
    def label(self) -> str:
        """Name in progress records and in summaries."""
        return OUTCOMES[self]


# By the number of the row outcome.
OUTCOMES = ("held", "retained", "expired", "omitted", "duplicates", "shed", "late", "quarantined", "unprocessed")


class Merge(Enum):
    """Rule that merges two values of one metric and the same labels.

    `MIN` and `MAX` ignore unknown values. `MIN_OF_ALL` and `MAX_OF_ALL` are unknown if any value is unknown, because a
    prediction for all buckets needs a prediction for each bucket.
    """

    SUM = "sum"
    MIN = "minimum"
    MAX = "maximum"
    MIN_OF_ALL = "minimum if all are known"
    MAX_OF_ALL = "maximum if all are known"
    LATEST = "latest"

    def apply(self, one: float, other: float) -> float:
        """Return the merged value. `LATEST` returns `other`."""
        if self is Merge.SUM:
            return one + other
        if self is Merge.LATEST:
            return other
        if math.isnan(one) or math.isnan(other):
            if self in {Merge.MIN_OF_ALL, Merge.MAX_OF_ALL}:
                return UNKNOWN
            return other if math.isnan(one) else one
        return min(one, other) if self in {Merge.MIN, Merge.MIN_OF_ALL} else max(one, other)


class Unit(Enum):
    """Unit of a metric in progress records. `RATIO` alone has fractions."""

    ROWS = "rows"
    KEYS = "keys"
    EVENTS = "alert events"
    BATCHES = "micro-batches"
    FILES = "files"
    BYTES = "bytes"
    BUDGET = "bytes or rows"
    MICROSECONDS = "microseconds"
    RATIO = "ratio"
    SECONDS = "seconds"
    STATUS = "0 or 1"


COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"


@dataclass(frozen=True)
class Metric:
    """One quantity.

    Attributes
    ----------
    name
        Name in the code.
    exported
        Name for Prometheus without the prefix `tocsin_`. Empty if only a backtest reads the quantity; then progress
        records do not contain it either.
    kind
        Type for Prometheus.
    labels
        Names of the labels.
    place
        Place in `gained` and `total` of a progress record; `*` stands for a label. Empty if the exporter measures the
        quantity itself.
    unit
        Unit in progress records.
    help
        Meaning in one line.
    buckets, time
        Rules that merge values of several buckets, and values of one bucket or run at several times.
    scale
        Factor that converts the unit of progress records to the unit for Prometheus.
    needs_results
        Whether the value is unknown until the alert has its first result. Estimates before are about pairs of rows.
    """

    name: str
    exported: str
    kind: str
    labels: Labels
    place: str
    unit: Unit
    help: str
    buckets: Merge = Merge.SUM
    time: Merge = Merge.SUM
    scale: float = 1.0
    needs_results: bool = False

    @property
    def public_name(self) -> str:
        """Name in the exposition for Prometheus."""
        return f"tocsin_{self.exported}"


def _rows(name: str, exported: str, text: str, kind: str = COUNTER) -> Metric:
    """Return a number of rows by input view."""
    return Metric(name, exported, kind, ("stream",), f"counts/*/{name}", Unit.ROWS, text)


def _quality(name: str, exported: str, place: str, text: str, buckets: Merge, *, needs_results: bool = True) -> Metric:
    """Return a share or an error of the results of an alert."""
    latest = {"buckets": buckets, "time": Merge.LATEST, "needs_results": needs_results}
    return Metric(name, exported, GAUGE, ("alert",), place, Unit.RATIO, text, **latest)  # type: ignore[arg-type]


def _measured(exported: str, kind: str, labels: Labels, unit: Unit, text: str) -> Metric:
    """Return a quantity that the exporter measures itself."""
    return Metric(exported, exported, kind, labels, "", unit, text, Merge.LATEST, Merge.LATEST)


_STREAM, _ALERT, _SINK = ("stream",), ("alert",), ("sink",)

METRICS: tuple[Metric, ...] = (
    Metric("rows", "rows_received_total", COUNTER, _STREAM, "rows/*", Unit.ROWS, "rows received"),
    Metric(
        *("dead", "rows_dead_letter_total", COUNTER, _STREAM, "dead/*", Unit.ROWS),
        "rows written to `RUN/dead`, with the reason",
    ),
    Metric(
        *("unreadable", "files_unreadable_total", COUNTER, _STREAM, "unreadable/*", Unit.FILES),
        "source files with damaged content, skipped",
    ),
    _rows("received", "rows_counted_total", "rows received by an input view: the sum of all row outcomes"),
    _rows("held", "rows_buffered", "rows in the reorder buffer now", GAUGE),
    _rows("retained", "rows_retained", "rows retained now", GAUGE),
    _rows("expired", "rows_expired_total", "rows expired, because no partner can arrive"),
    _rows("omitted", "rows_omitted_total", "rows omitted, because a proof shows that no alarm needs them"),
    _rows(
        "duplicates", "rows_duplicates_total", "rows equal to an earlier row of their key and stream, not used again"
    ),
    _rows("shed", "rows_shed_total", "rows evicted, because the memory budget was exceeded"),
    _rows("late", "rows_late_dropped_total", "rows dropped, because they are later than `allowed_lateness`"),
    _rows("quarantined", "rows_quarantined_total", "rows with an invalid key, time or value"),
    _rows("unprocessed", "rows_unprocessed_total", "rows evicted before all their pairs were processed"),
    _rows("out_of_domain", "rows_out_of_domain_total", "rows with a value outside its domain, used and marked"),
    _rows("behind", "rows_out_of_order_total", "rows that arrived after the reorder wait; they are used out of order"),
    _rows("without_limits", "rows_without_limits_total", "rows with a key that a table of `limits` does not contain"),
    Metric(
        *("freed_keys", "keys_expired_total", COUNTER, _STREAM, "counts/*/freed_keys", Unit.KEYS),
        "keys expired, because they had no rows",
    ),
    Metric(
        *("delays", "rows_by_delay_total", COUNTER, ("stream", "class"), "delays/*/*", Unit.ROWS),
        "rows by class of their arrival delay: class n has delays up to 2^n ms, class -1 negative delays",
    ),
    Metric("alerts", "alerts_total", COUNTER, ("alert", "state"), "alerts/*/*", Unit.EVENTS, "state changes of alerts"),
    _measured("alerts_firing", GAUGE, _ALERT, Unit.EVENTS, "alerts firing now"),
    Metric(
        *("batches", "batches_total", COUNTER, (), "batches", Unit.BATCHES),
        "micro-batches with rows, alerts or changed state",
    ),
    _measured("batch_seconds", HISTOGRAM, (), Unit.SECONDS, "duration of micro-batches, including the work of Spark"),
    _measured("batch_rows", GAUGE, (), Unit.ROWS, "rows of the last micro-batch"),
    _measured("batch_timestamp_seconds", GAUGE, (), Unit.SECONDS, "time at which the last micro-batch finished"),
    Metric("state_bytes", "state_bytes", GAUGE, (), "state_bytes", Unit.BYTES, "bytes of state"),
    _measured(
        "source_up",
        GAUGE,
        _STREAM,
        Unit.STATUS,
        "1 if the Kafka or MQTT broker of the stream accepts connections, else 0",
    ),
    Metric(
        *("newest_us", "newest_event_timestamp_seconds", GAUGE, _STREAM, "newest_us/*", Unit.MICROSECONDS),
        *("newest event time", Merge.MAX, Merge.MAX, 1e-6),
    ),
    _measured(
        "lag_seconds",
        GAUGE,
        _STREAM,
        Unit.SECONDS,
        "time from the newest event time to now; absent if the stream holds history",
    ),
    Metric(
        *("wait_us", "wait_seconds", GAUGE, _ALERT, "waits/*/wait_us", Unit.MICROSECONDS),
        *("reorder wait of rows", Merge.MAX, Merge.LATEST, 1e-6),
    ),
    _quality(
        "wait_recall",
        "recall_estimated",
        "waits/*/recall",
        "estimated share of results in order with this wait",
        Merge.MIN,
    ),
    Metric(
        *("memory_share", "memory_share", GAUGE, _ALERT, "shares/*", Unit.BUDGET),
        *("memory share of all buckets, in the unit of the budget", Merge.SUM, Merge.LATEST),
    ),
    _quality(
        "memory_predicted",
        "memory_recall_predicted",
        "memory/*/predicted",
        "predicted share of results found with the memory budget",
        Merge.MIN_OF_ALL,
    ),
    _quality(
        "memory_predicted_low",
        "memory_recall_predicted_low",
        "memory/*/predicted_low",
        "lower end of the 95 % interval of the predicted recall with the memory budget",
        Merge.MIN_OF_ALL,
    ),
    _quality(
        "memory_predicted_high",
        "memory_recall_predicted_high",
        "memory/*/predicted_high",
        "upper end of the 95 % interval of the predicted recall with the memory budget",
        Merge.MIN_OF_ALL,
    ),
    _quality(
        "memory_reached",
        "memory_recall_measured",
        "memory/*/reached",
        "measured share of results found with the memory budget",
        Merge.MIN,
    ),
    _quality(
        "memory_error_predicted",
        "memory_error_predicted",
        "memory/*/error_predicted",
        "predicted standard error of sampled results, from their number",
        Merge.MAX_OF_ALL,
    ),
    _quality(
        "memory_error_reached",
        "memory_error_reached",
        "memory/*/error_reached",
        "standard error of sampled results, from the probabilities of their rows",
        Merge.MAX,
    ),
    _quality(
        "cpu_rows",
        "cpu_rows_processed_ratio",
        "cpu/*/rows",
        "recent share of rows processed with the CPU budget",
        Merge.MIN,
        needs_results=False,
    ),
    _quality(
        "cpu_results",
        "cpu_recall_ratio",
        "cpu/*/results",
        "recent estimated share of results found with the CPU budget",
        Merge.MIN,
    ),
    _measured("sink_delivered_total", COUNTER, _SINK, Unit.EVENTS, "alerts delivered"),
    _measured("sink_failures_total", COUNTER, _SINK, Unit.EVENTS, "failed attempts that are repeated"),
    _measured("sink_rejected_total", COUNTER, _SINK, Unit.EVENTS, "alerts that the receiver rejected"),
    _measured("sink_backlog", GAUGE, _SINK, Unit.EVENTS, "alerts of the log that are not delivered yet"),
    _measured("sink_failing", GAUGE, _SINK, Unit.STATUS, "1 if the last attempt failed, else 0"),
    _measured("build_info", GAUGE, ("version",), Unit.STATUS, "1, with the version of Tocsin"),
    Metric(
        *("dropped_results", "late_results_dropped_total", COUNTER, _ALERT, "dropped_results/*", Unit.EVENTS),
        "results out of order that `order: strict` dropped",
    ),
    # Only backtests read the other metrics.
    Metric(
        *("results_in_order", "", COUNTER, ("alert", "period"), "results/*/*/in_order", Unit.EVENTS),
        "results in order by period of event time, which its first microsecond names",
    ),
    Metric(
        *("results", "", COUNTER, ("alert", "period"), "results/*/*/all", Unit.EVENTS),
        "results by period of event time",
    ),
    Metric(
        *("oldest_us", "", GAUGE, _STREAM, "oldest_us/*", Unit.MICROSECONDS, "oldest event time"),
        *(Merge.MIN, Merge.MIN),
    ),
    Metric(
        *("version_bytes", "", GAUGE, ("version",), "version_bytes/*", Unit.BYTES),
        "bytes of state of a version of the rules",
    ),
)
BY_NAME: Mapping[str, Metric] = {metric.name: metric for metric in METRICS}
# Metrics with a place in JSON, and their places by parts.
_PLACES = tuple((metric, tuple(metric.place.split("/"))) for metric in METRICS if metric.place)
_SECTIONS: dict[str, list[tuple[Metric, tuple[str, ...]]]] = {}
for _metric, _parts in _PLACES:
    _SECTIONS.setdefault(_parts[0], []).append((_metric, _parts))


class Metrics:
    """Values of metrics by name and labels.

    The constructor reads sections as in `to_json`, for example `Metrics(rows={"air": 3}, batches=1)`.
    """

    __slots__ = ("_values",)

    def __init__(self, **sections: Any) -> None:
        self._values: dict[str, dict[Labels, float]] = {}
        for metric, parts in _PLACES:
            if parts[0] in sections:
                for labels, value in _read(metric, sections[parts[0]], parts[1:]):
                    self._values.setdefault(metric.name, {})[labels] = value

    def __bool__(self) -> bool:
        """Return whether there are values."""
        return any(self._values.values())

    def __eq__(self, other: object) -> bool:
        """Return whether all values are equal. Unknown values are equal."""
        return isinstance(other, Metrics) and self.to_json() == other.to_json()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        """Return the sections."""
        return f"{type(self).__name__}({self.to_json()})"

    def count_rows(self, stream: str, outcomes: Mapping[RowOutcome, int]) -> None:
        """Add changes of row outcomes of an input view. The sum of the changes is the number of new rows."""
        for outcome, rows in outcomes.items():
            self.record(OUTCOMES[outcome], rows, stream)
        self.record("received", sum(outcomes.values()), stream)

    def record(self, name: str, value: float | None, *labels: str) -> None:
        """Record a value of this call. A second value with the same labels is merged like a value of another bucket."""
        values, new = self._values.setdefault(name, {}), UNKNOWN if value is None else value
        values[labels] = BY_NAME[name].buckets.apply(values[labels], new) if labels in values else new

    def merge(self, other: Metrics) -> None:
        """Merge the values of another bucket."""
        for name, found in other._values.items():
            values, rule = self._values.setdefault(name, {}), BY_NAME[name].buckets
            for labels, value in found.items():
                values[labels] = rule.apply(values[labels], value) if labels in values else value

    def advance(self, later: Metrics) -> None:
        """Merge values that the same bucket or run recorded later."""
        for name, found in later._values.items():
            values, rule = self._values.setdefault(name, {}), BY_NAME[name].time
            for labels, value in found.items():
                values[labels] = rule.apply(values[labels], value) if labels in values else value

    def items(self, name: str) -> Iterator[tuple[Labels, float]]:
        """Yield the known values of a metric with their labels."""
        return ((labels, value) for labels, value in self._values.get(name, {}).items() if not math.isnan(value))

    def section(self, name: str) -> Any:
        """Return the metrics of a section, nested by their labels as in JSON. An unknown value is None.

        >>> Metrics(waits={"Hot": {"wait_us": 5, "recall": None}}).section("waits")
        {'Hot': {'wait_us': 5, 'recall': None}}
        """
        nested: dict[str, Any] = {}
        for metric, parts in _SECTIONS[name]:
            _write(nested, parts, self._values.get(metric.name, {}))
        return nested.get(name, {} if _SECTIONS[name][0][0].labels else 0)

    def results_by_period(self) -> dict[str, dict[int, tuple[int, int]]]:
        """Return the results in order and all results, by alert and by the first microsecond of a period."""
        found: dict[str, dict[int, tuple[int, int]]] = {}
        in_order = self._values.get("results_in_order", {})
        for labels, number in self._values.get("results", {}).items():
            found.setdefault(labels[0], {})[int(labels[1])] = int(in_order[labels]), int(number)
        return found

    def select(self, time: Iterable[Merge]) -> Self:
        """Return the metrics whose values are merged over time by one of some rules."""
        rules, selected = set(time), type(self)()
        selected._values = {name: dict(one) for name, one in self._values.items() if BY_NAME[name].time in rules}
        return selected

    def with_prefix(self, prefix: str) -> Metrics:
        """Return the metrics with a prefix of the first label. Metrics without labels are omitted."""
        prefixed = Metrics()
        for name, found in self._values.items():
            if BY_NAME[name].labels:
                prefixed._values[name] = {(prefix + first, *rest): value for (first, *rest), value in found.items()}
        return prefixed

    def without_prefix(self, prefix: str) -> Metrics:
        """Return the metrics whose first label has a prefix, without the prefix."""
        found = Metrics()
        for name, values in self._values.items():
            mine = {
                (labels[0].removeprefix(prefix), *labels[1:]): value
                for labels, value in values.items()
                if labels and labels[0].startswith(prefix)
            }
            if mine:
                found._values[name] = mine
        return found

    def without_zero_counts(self) -> Self:
        """Return the metrics without row counts of 0."""
        found = self.select(Merge)
        for metric, _ in _SECTIONS["counts"]:
            if metric.name in found._values:
                found._values[metric.name] = {labels: n for labels, n in found._values[metric.name].items() if n}
        return found

    def drop_recalls(self, alerts: Container[str]) -> None:
        """Make the metrics that need results unknown for all alerts except `alerts`, which have results."""
        for metric in METRICS:
            if metric.needs_results:
                values = self._values.get(metric.name, {})
                for labels in values:
                    if labels[0] not in alerts:
                        values[labels] = UNKNOWN

    def to_json(self) -> dict[str, Any]:
        """Return the values by section and label. The constructor reads them."""
        nested: dict[str, Any] = {}
        for metric, parts in _PLACES:
            _write(nested, parts, self._values.get(metric.name, {}))
        return nested


def _write(nested: dict[str, Any], parts: tuple[str, ...], values: Mapping[Labels, float]) -> None:
    """Add the values of a metric to nested mappings."""
    for labels, value in values.items():
        names = iter(labels)
        *path, last = (next(names) if part == "*" else part for part in parts)
        node = nested
        for name in path:
            node = node.setdefault(name, {})
        node[last] = None if math.isnan(value) else value


def _read(metric: Metric, node: Any, parts: tuple[str, ...], labels: Labels = ()) -> Iterator[tuple[Labels, float]]:
    """Yield the values of a metric in nested mappings, or raise ValueError."""
    if not parts:
        yield labels, _check(metric, node)
    elif not isinstance(node, Mapping):
        message = f"`{metric.place}` must be an object; got {node!r:.99}"
        raise ValueError(message)
    elif parts[0] == "*":
        for name, inner in node.items():
            yield from _read(metric, inner, parts[1:], (*labels, str(name)))
    elif parts[0] in node:
        yield from _read(metric, node[parts[0]], parts[1:], labels)


def _check(metric: Metric, value: Any) -> float:
    """Return a stored value, or raise ValueError if it has another type or is too large."""
    if value is None and metric.unit is Unit.RATIO:
        return UNKNOWN
    kinds = int | float if metric.unit is Unit.RATIO else int
    if isinstance(value, bool) or not isinstance(value, kinds) or not abs(value) <= LARGEST:
        must = "a finite number" if metric.unit is Unit.RATIO else "an integer"
        message = f"`{metric.place}` must be {must} of at most 2^62; got {value!r:.99}"
        raise ValueError(message)
    return value


class LatestMetrics:
    """Latest values of the metrics that are not merged over time, for each bucket.

    Most micro-batches call few buckets. The latest values of the other buckets remain valid. After a start each bucket
    is called once.
    """

    def __init__(self) -> None:
        self._buckets: dict[int, Metrics] = {}

    def receive(self, bucket: int, metrics: Metrics) -> None:
        """Store the values of a call."""
        self._buckets.setdefault(bucket, Metrics()).advance(metrics.select([Merge.LATEST]))

    def merged(self) -> Metrics:
        """Return the values of all buckets."""
        merged = Metrics()
        for metrics in self._buckets.values():
            merged.merge(metrics)
        return merged


@dataclass(frozen=True, slots=True)
class QualityLoss:
    """Loss of results, because rows were evicted or not processed.

    Attributes
    ----------
    until_us
        Event time up to which results can be missing.
    share
        Expected share of results that are found, or None if it is not known.
    """

    until_us: int
    share: float | None = None


@lru_cache(maxsize=1 << 12)
def quality_text(
    loss: QualityLoss | None = None,
    *,
    probability: float = 1.0,
    is_late: bool = False,
    is_out_of_domain: bool = False,
    end: str = "",
) -> str:
    """Return the quality of an alert.

    `probability` is the probability with which a sample contains the result. `end` is the reason why an alert ended
    without an evaluation.

    >>> quality_text(), quality_text(QualityLoss(0, 0.712), is_late=True), quality_text(QualityLoss(0))
    ('exact', 'subset 0.71 late', 'subset')
    >>> quality_text(probability=0.25, is_out_of_domain=True), quality_text(end="rule-changed")
    ('sample 0.25 out-of-domain', 'exact rule-changed')
    """
    if loss is not None:
        text = "subset" if loss.share is None else f"subset {loss.share:.2f}"
    else:
        text = "exact" if probability >= 1 else f"sample {probability:.6g}"
    marks = " late" * is_late + " out-of-domain" * is_out_of_domain
    return f"{text}{marks}{f' {end}' if end else ''}"
