"""DataFrames and rules in, a DataFrame of alerts out."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from tocsin.errors import PlanError
from tocsin.plan import Plan, make_plan, unit_nanoseconds
from tocsin.rules import AnyRule
from tocsin.rules.durations import MAX_AHEAD, Duration, microseconds
from tocsin.rules.quality import NO_QUALITY, RUN_KEYS, Quality, parse_quality
from tocsin.spark.feeds import feeds_of, without_future
from tocsin.spark.results import alerts as public_alerts
from tocsin.spark.results import counted, merged_metrics
from tocsin.spark.rows import MOST_BUCKETS
from tocsin.spark.stateful import LOCAL_DISK_CONF, LOCAL_MASTER_CONF, NO_DATA_BATCHES, SETTINGS, run_stateful
from tocsin.spark.worker_python import check_worker_python

METRICS = "tocsin"
_SPARK_DEFAULT_PARTITIONS = "200"

log = logging.getLogger(__name__)
# Applications of Spark and groups of settings that `warn_of_settings` has checked.
_checked: set[tuple[str, str]] = set()


@dataclass(frozen=True)
class Beside:
    """What a run has beside its streams.

    Parameters
    ----------
    passing
        Is called with each stream that is read, and gives the rows to read instead.
    control
        Each of its rows lets all keys act, as rows of their own would; its text may be a control row in JSON.
    aside
        A folder that driver and workers share, for rows not usable that are too many to travel.
    """

    passing: Callable[[str, DataFrame], DataFrame] | None = None
    control: DataFrame | None = None
    aside: str | None = None


_NOTHING = Beside()


def alerts(
    streams: Mapping[str, DataFrame],
    rules: AnyRule | Iterable[AnyRule],
    *,
    time: str = "ts",
    arrival: str | None = None,
    max_ahead: Duration | None = MAX_AHEAD,
    buckets: int | None = None,
    key_ttl: Duration | None = None,
    idle_timers: bool = False,
    quality: Mapping[str, Any] | None = None,
) -> DataFrame:
    """Return the alerts of rules over streams as a DataFrame, which is streaming if the streams are.

    Parameters
    ----------
    streams
        A DataFrame per stream, all streaming or all bounded. A variable `air` of a rule reads its column `value`, or
        the only column besides time and keys; `air.temp` reads `temp`. The other columns are the payload of
        a row for this rule.
    rules
        One or several Rules, RangeRules for range requests, and NoData for keys without rows (with `idle_timers`, also
        while all streams are silent).
    time
        Column of event time: a timestamp, or integer microseconds since 1970.
    arrival
        Column of the arrival (a timestamp or an integer). Without it, the rows of a micro-batch are processed in order
        of event time.
    max_ahead
        In a streaming query, a row whose event time is later than the time of its micro-batch by more than this is
        invalid: otherwise one row with a wrong date makes all later rows of its key late. None accepts all times. A
        bounded input is not checked.
    buckets
        Number of buckets of keys, at most 32,767; default: the number of shuffle partitions. State depends on it: pass
        the number of the checkpoint if the number of shuffle partitions changes.
    key_ttl
        Evict keys without rows for this processing time and without open alerts. No-data alerts are resolved then.
    idle_timers
        Run timers of a streaming query while all its input is silent: resolve alerts, release buffered rows, raise
        no-data alerts, evict keys. This needs empty micro-batches, and such a query never ends, so it is not for
        `availableNow`. Without it, timers run with the next rows of any key. It is a setting of the session,
        read at the start of a query: start each query before you create the next one, otherwise an error is raised.
    quality
        Budgets of all rules together, divided evenly between buckets: `{"memory": "200MB"}` for the state of joins,
        `{"cpu": "50%", "deadline": "5s"}` for the processing of rules with `emit` all. A streaming query measures the
        time per unit of work when it is created and keeps it in its state. For bounded input, this time is a constant.

    Notes
    -----
    Counts per stream (received, retained, omitted, late, ...) are observed metrics of the query; `row_outcomes` reads
    them.
    """
    max_ahead_us = None if max_ahead is None else microseconds(max_ahead, "`max_ahead`")

    def passing(_: str, frame: DataFrame) -> DataFrame:
        return frame if max_ahead_us is None or not frame.isStreaming else without_future(frame, time, max_ahead_us)

    return public_alerts(
        rows_of(
            streams,
            rules,
            time=time,
            arrival=arrival,
            buckets=buckets,
            key_ttl=key_ttl,
            idle_timers=idle_timers,
            beside=Beside(passing),
            quality=parse_quality(quality, RUN_KEYS),
        )
    )


def rows_of(
    streams: Mapping[str, DataFrame],
    rules: AnyRule | Iterable[AnyRule] | Plan,
    *,
    time: str = "ts",
    arrival: str | None = None,
    buckets: int | None = None,
    key_ttl: Duration | None = None,
    idle_timers: bool = False,
    beside: Beside = _NOTHING,
    quality: Quality = NO_QUALITY,
) -> DataFrame:
    """Watch streams like `alerts`, and give all that the operator says: alerts, counts and rows not usable, as text.

    `rules` can be a plan; otherwise `quality` has the budgets of the run.
    """
    check_frames(streams)
    columns = {name: frame.columns for name, frame in streams.items()}
    planned = isinstance(rules, Plan)
    first = next(iter(streams.values()))
    plan = rules
    if not isinstance(plan, Plan):
        plan = make_plan(plan, columns, time=time, arrival=arrival, key_ttl=key_ttl, quality=quality)
        if first.isStreaming and plan.is_limited_in_work:
            plan = plan.calibrated(unit_nanoseconds())
    acts = idle_timers if first.isStreaming else None
    partitions = prepare(first.sparkSession, idle_timers=acts)
    number = partitions if buckets is None else buckets
    check_buckets(number)
    plan = plan if planned else plan.over(number)
    read = {name for watch in plan.key_sets for name in watch.streams}
    passing = beside.passing or (lambda _, frame: frame)
    frames = {name: passing(name, streams[name]) for name in streams if name in read}
    feeds = feeds_of(frames, plan.key_sets, time, arrival)
    plan.warm_up()
    rows = run_stateful(feeds, plan, number, beside.control, acts=acts, aside=beside.aside)
    return counted(rows, f"{METRICS}_{plan.fingerprint}")


def check_buckets(number: int) -> None:
    """Refuse a number of buckets that is no number of parts, or more than rows can be sorted by."""
    if not isinstance(number, int) or number < 1:
        message = f"`buckets` must be an integer from 1; got {number!r}"
        raise PlanError(message)
    if number > MOST_BUCKETS:
        message = f"`buckets` must be at most {MOST_BUCKETS}; got {number}"
        raise PlanError(message)


def row_outcomes(metrics: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    """Return the row outcomes per stream from the observed metrics of a query (`progress.observedMetrics`)."""
    for name, row in metrics.items():
        if name.startswith(f"{METRICS}_"):
            counts: dict[str, dict[str, int]] = merged_metrics(row["metrics"] or ()).section("counts")
            return counts
    return {}


def check_frames(streams: Mapping[str, DataFrame]) -> None:
    """Refuse what is no stream, and streams of both kinds together."""
    if not isinstance(streams, Mapping) or not streams:
        found = "an empty mapping" if isinstance(streams, Mapping) else type(streams).__name__
        message = f"`streams` must map names to DataFrames; got {found}"
        raise PlanError(message)
    for name, frame in streams.items():
        if not hasattr(frame, "isStreaming") or not hasattr(frame, "sparkSession"):
            kind = type(frame)
            found = kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
            message = f"stream `{name}` must be a Spark DataFrame (pyspark.sql.DataFrame); got {found}"
            raise PlanError(message)
    kinds = {name: frame.isStreaming for name, frame in streams.items()}
    if len(set(kinds.values())) > 1:
        first = {kind: name for name, kind in kinds.items()}
        streaming, bounded = first[True], first[False]
        message = f"streams must be all streaming or all bounded; `{streaming}` is streaming and `{bounded}` is bounded"
        raise PlanError(message)


def prepare(session: SparkSession, *, idle_timers: bool | None) -> int:
    """Set what the operator needs, for all queries of the session started from now on; give the shuffle partitions.

    `idle_timers` is None where the input is bounded: then it is left to the streaming queries of the session.
    """
    check_worker_python(session)
    # Timers alone would make an empty micro-batch twice a second, and `availableNow` would never end.
    if idle_timers is not None:
        session.conf.set(NO_DATA_BATCHES, str(idle_timers).lower())
    warn_of_settings(session, is_streaming=idle_timers is not None)
    for name, value in SETTINGS.items():
        session.conf.set(name, value)
    partitions = session.conf.get("spark.sql.shuffle.partitions") or _SPARK_DEFAULT_PARTITIONS
    if partitions == _SPARK_DEFAULT_PARTITIONS:
        # 200 tasks per micro-batch would cost more than the work in them.
        partitions = str(_parallelism(session))
        session.conf.set("spark.sql.shuffle.partitions", partitions)
        log.info("spark.sql.shuffle.partitions was Spark's default of 200; set to %s", partitions)
    return int(partitions)


def warn_of_settings(session: SparkSession, *, is_streaming: bool) -> None:
    """Log one warning per application and group of settings that would make its queries start or run faster.

    A bounded query has no checkpoint, so the settings for checkpoints are checked at the first streaming query.
    """
    context = getattr(session, "_sc", None)
    # A remote session and a cluster have other settings.
    if context is None or not context.master.startswith("local"):
        return
    given = session.conf.get("spark.sql.streaming.checkpointLocation", "") or ""
    is_remote = ":" in given and not given.startswith("file:")
    groups = {"LOCAL_DISK_CONF": LOCAL_DISK_CONF} if is_streaming and not is_remote else {}
    for name, settings in (groups | {"LOCAL_MASTER_CONF": LOCAL_MASTER_CONF}).items():
        missing = [key for key in settings if not session.conf.get(key, None)]
        if missing and (context.applicationId, name) not in _checked:
            log.warning(
                "the session does not set %s, so a query starts later or its micro-batches take longer; "
                "add `tocsin.spark.%s` to the settings of the session before it starts",
                ", ".join(missing),
                name,
            )
        _checked.add((context.applicationId, name))


def _parallelism(session: SparkSession) -> int:
    """Cores of the session; a remote session does not tell."""
    try:
        return max(1, int(session.sparkContext.defaultParallelism))
    except Exception:  # Spark Connect raises its own kind of error for what it lacks.
        return 4
