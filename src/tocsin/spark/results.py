"""Results: the output rows of the operator (`stateful.Rows`) as DataFrames, counts and reports."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

from tocsin.plan import Said
from tocsin.run_directory.progress import add_counts_by_name
from tocsin.runtime.alert_arrow import to_arrow, unpack_alerts
from tocsin.runtime.contract import Out
from tocsin.spark.stateful import COUNTED

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
    """Observe the counts of each call, and more columns, as metrics of the query. `total` adds the counts up.

    The metric is one list of texts. Spark would plan an aggregate per stream and count again in each micro-batch.
    """
    counts = F.collect_list(F.when(F.col("kind") == "counts", F.col("json"))).alias("counts")
    return rows.observe(name, counts, *more)


def delays(texts: Iterable[str]) -> dict[str, dict[str, int]]:
    """Return the number of rows by stream and class of delay, over all calls."""
    whole: dict[str, dict[str, int]] = {}
    for text in texts:
        whole = add_counts_by_name(whole, json.loads(text)["delays"])
    return whole


def hear_buckets(said: Said, texts: Iterable[str]) -> None:
    """Pass the reports of buckets to `said`."""
    for one in map(json.loads, texts):
        said.hear(one["bucket"], one["memory"], one["cpu"])


def total(texts: Iterable[str]) -> tuple[Out, int]:
    """Return the sum of rows of counts, and the growth of the state in bytes."""
    whole, state_bytes = Out(), 0
    for text in texts:
        said = json.loads(text)
        whole.add(Out(**{part: said[part] for part in COUNTED}))
        state_bytes += said["state_bytes"]
    return whole, state_bytes
