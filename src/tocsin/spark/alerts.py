"""DataFrames and rules in, a DataFrame of alerts out."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from tocsin.errors import PlanError
from tocsin.plan import Plan, make_plan
from tocsin.plan.calibrate import unit_nanoseconds
from tocsin.rules import AnyRule
from tocsin.rules.cpu import read_cpu
from tocsin.rules.durations import AHEAD, Duration, microseconds
from tocsin.rules.memory import read_memory
from tocsin.spark.feeds import feeds_of, without_future
from tocsin.spark.results import alerts as public_alerts
from tocsin.spark.results import counted, total
from tocsin.spark.rows import MOST_BUCKETS
from tocsin.spark.stateful import NO_DATA_BATCHES, SETTINGS, run_stateful
from tocsin.spark.worker_python import check_worker_python

METRICS = "tocsin"
_SPARK_DEFAULT_PARTITIONS = "200"

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Beside:
    """What a run has beside its streams.

    Parameters
    ----------
    passing
        Is called with each stream that is read, and gives the rows to read instead.
    ticks
        Each of its rows lets all keys act, as rows of their own would; its text may be a control row in JSON.
    aside
        A folder that driver and workers share, for rows not usable that are too many to travel.
    """

    passing: Callable[[str, DataFrame], DataFrame] | None = None
    ticks: DataFrame | None = None
    aside: str | None = None


_NOTHING = Beside()
_NO_LIMITS: Mapping[str, Any] = {}


def alerts(  # noqa: PLR0913 - all but two are options by name
    streams: Mapping[str, DataFrame],
    rules: AnyRule | Iterable[AnyRule],
    *,
    time: str = "ts",
    arrival: str | None = None,
    ahead: Duration | None = AHEAD,
    buckets: int | None = None,
    key_ttl: Duration | None = None,
    act_in_silence: bool = False,
    memory: str | int | None = None,
    cpu: str | None = None,
) -> DataFrame:
    """Watch streams by rules and give their alerts as a DataFrame, streaming if the streams are.

    Parameters
    ----------
    streams
        A DataFrame per stream, all streaming or all bounded. A variable `air` of a rule reads its column `value`, or
        the only column besides time and keys; `air.temp` reads `temp`; the columns that no rule reads travel with a row
        as payload.
    rules
        One or several Rules, Ranges for standing queries, and NoData for streams whose keys must be heard (with
        `act_in_silence`, also when all streams are silent).
    time
        Column of event time: a timestamp, or whole microseconds since 1970.
    arrival
        Column by which rows arrived (a timestamp or a whole number); without it the rows of a micro-batch are taken in
        order of event time.
    ahead
        In a streaming query, a row whose event time is later than the time of its micro-batch by more than this is
        quarantined: otherwise one row with a wrong date makes all later rows of its key late. None accepts all times.
        A bounded input is not checked, because its rows need not come from the present.
    buckets
        Into how many parts keys are divided, at most 32,767; default: as many as shuffle partitions. State is bound to
        this number.
    key_ttl
        Forget keys that were silent for this long, in processing time, and have no open alert but NoData, which is
        resolved then.
    act_in_silence
        Let a streaming query also act while all its input is silent (resolve, stop waiting, raise NoData, forget keys),
        at the price of empty micro-batches; such a query never ends by itself, so not with `availableNow`. Without it,
        what is due happens with the next rows of any key. It is a setting of the session, read when a query starts:
        start each query before the next one is made, or it is refused.
    memory
        How much state all joins together may keep, as `200MB`: an even part of it in each bucket.
    cpu
        How much processor time all joins of two streams that emit all may use together, as `50%` of a core: an even
        part of it in each bucket. What a unit of work takes is measured when a streaming query is made, and kept in its
        state; for bounded input it is a fixed number.

    Counts per stream (received, retained, omitted, late, ...) are observed metrics of the query; `counts_of` reads
    them.
    """
    ahead_us = None if ahead is None else microseconds(ahead, "`ahead`")

    def passing(_: str, frame: DataFrame) -> DataFrame:
        return frame if ahead_us is None or not frame.isStreaming else without_future(frame, time, ahead_us)

    return public_alerts(
        rows_of(
            streams,
            rules,
            time=time,
            arrival=arrival,
            buckets=buckets,
            key_ttl=key_ttl,
            act_in_silence=act_in_silence,
            beside=Beside(passing),
            limits={"memory": None if memory is None else read_memory(memory), "cpu": read_cpu(cpu, None)},
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
    act_in_silence: bool = False,
    beside: Beside = _NOTHING,
    limits: Mapping[str, Any] = _NO_LIMITS,
) -> DataFrame:
    """Watch streams like `alerts`, and give all that the operator says: alerts, counts and rows not usable, as text.

    Rules may be planned already; else `limits` are those of `make_plan`.
    """
    check_frames(streams)
    columns = {name: frame.columns for name, frame in streams.items()}
    planned = isinstance(rules, Plan)
    first = next(iter(streams.values()))
    plan = rules
    if not isinstance(plan, Plan):
        plan = make_plan(plan, columns, time=time, arrival=arrival, key_ttl=key_ttl, **limits)
        if first.isStreaming and plan.is_limited_in_work:
            plan = plan.calibrated(unit_nanoseconds())
    acts = act_in_silence if first.isStreaming else None
    partitions = prepare(first.sparkSession, act_in_silence=acts)
    number = partitions if buckets is None else buckets
    check_buckets(number)
    plan = plan if planned else plan.over(number)
    read = {name for watch in plan.key_sets for name in watch.streams}
    passing = beside.passing or (lambda _, frame: frame)
    frames = {name: passing(name, streams[name]) for name in streams if name in read}
    feeds = feeds_of(frames, plan.key_sets, time, arrival)
    plan.warm_up()
    rows = run_stateful(feeds, plan, number, beside.ticks, acts=acts, aside=beside.aside)
    return counted(rows, f"{METRICS}_{plan.fingerprint}")


def check_buckets(number: int) -> None:
    """Refuse a number of buckets that is no number of parts, or more than rows can be sorted by."""
    if not isinstance(number, int) or number < 1:
        message = f"`buckets` must be a whole number from 1; got {number!r}"
        raise PlanError(message)
    if number > MOST_BUCKETS:
        message = f"`buckets` must be at most {MOST_BUCKETS}; got {number}"
        raise PlanError(message)


def counts_of(metrics: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    """Read the counts per stream out of the observed metrics of a query's progress (`progress.observedMetrics`)."""
    for name, row in metrics.items():
        if name.startswith(f"{METRICS}_"):
            return total(row["counts"] or ())[0].counts
    return {}


def check_frames(streams: Mapping[str, DataFrame]) -> None:
    """Refuse what is no stream, and streams of both kinds together."""
    if not isinstance(streams, Mapping) or not streams:
        found = "none" if isinstance(streams, Mapping) else type(streams).__name__
        message = f"`streams` must map names to DataFrames; got {found}"
        raise PlanError(message)
    for name, frame in streams.items():
        if not hasattr(frame, "isStreaming") or not hasattr(frame, "sparkSession"):
            kind = type(frame)
            found = kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
            message = f"stream `{name}` must be a DataFrame of Spark (pyspark.sql.DataFrame); got {found}"
            raise PlanError(message)
    kinds = {name: frame.isStreaming for name, frame in streams.items()}
    if len(set(kinds.values())) > 1:
        first = {kind: name for name, kind in kinds.items()}
        streaming, bounded = first[True], first[False]
        message = f"streams must be all streaming or all bounded; `{streaming}` is streaming and `{bounded}` is not"
        raise PlanError(message)


def prepare(session: SparkSession, *, act_in_silence: bool | None) -> int:
    """Set what the operator needs, for all queries of the session started from now on; give the shuffle partitions.

    `act_in_silence` is None where the input is bounded: then it is left to the streaming queries of the session.
    """
    check_worker_python(session)
    # Timers alone would make an empty micro-batch twice a second, and `availableNow` would never end.
    if act_in_silence is not None:
        session.conf.set(NO_DATA_BATCHES, str(act_in_silence).lower())
    for name, value in SETTINGS.items():
        session.conf.set(name, value)
    partitions = session.conf.get("spark.sql.shuffle.partitions") or _SPARK_DEFAULT_PARTITIONS
    if partitions == _SPARK_DEFAULT_PARTITIONS:
        # 200 tasks per micro-batch would cost more than the work in them.
        partitions = str(_parallelism(session))
        session.conf.set("spark.sql.shuffle.partitions", partitions)
        log.info("spark.sql.shuffle.partitions was Spark's default of 200; set to %s", partitions)
    return int(partitions)


def _parallelism(session: SparkSession) -> int:
    """Cores of the session; a remote session does not tell."""
    try:
        return max(1, int(session.sparkContext.defaultParallelism))
    except Exception:  # Spark Connect raises its own kind of error for what it lacks.
        return 4
