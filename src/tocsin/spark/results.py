"""Results: the output rows of the operator (`stateful.Rows`) as DataFrames, counts and reports."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

from tocsin.runtime.alert_arrow import to_arrow, unpack_alerts
from tocsin.runtime.metrics import Metrics

_WITNESS = "struct<stream:string,time:timestamp,values:map<string,double>,payload:map<string,string>>"
_ALERT = (
    "alert string, id string, state string, labels map<string,string>, startsAt timestamp, firesAt timestamp, "
    f"endsAt timestamp, value double, margin double, witness array<{_WITNESS}>, quality string"
)


def alerts(rows: DataFrame) -> DataFrame:
    """Return the alerts among the output rows of `run_stateful`, in their public columns."""
    return rows.where(F.col("kind") == "alerts").select("alerts").mapInArrow(_public_columns, _ALERT)


def _public_columns(packed: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for data in packed:
        for value in data.column(0):
            yield from map(to_arrow, unpack_alerts(value.as_py()))


def counted(rows: DataFrame, name: str | Observation, *more: Column) -> DataFrame:
    """Observe the metrics of each call, and further columns. `merged_metrics` merges the metrics.

    All metrics are one list of texts, because one aggregate per metric would add to the planning of each micro-batch.
    """
    metrics = F.collect_list(F.when(F.col("kind") == "metrics", F.col("json"))).alias("metrics")
    return rows.observe(name, metrics, *more)


def read_metrics(text: str) -> tuple[int, Metrics]:
    """Return the bucket and the metrics of a call."""
    row = json.loads(text)
    return row["bucket"], Metrics(**row["metrics"])


def merged_metrics(texts: Iterable[str]) -> Metrics:
    """Return the metrics of all calls of a micro-batch."""
    merged = Metrics()
    for text in texts:
        merged.merge(read_metrics(text)[1])
    return merged
