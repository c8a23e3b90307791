"""Results: read what the operator gives, which is rows of a kind (`stateful.Rows`) and JSON text."""

from __future__ import annotations

import json
from collections.abc import Iterable

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

from tocsin.runtime.contract import ALERT_TIMES
from tocsin.runtime.metrics import Metrics

_WITNESS = "struct<stream:string,time:long,values:map<string,double>,payload:map<string,string>>"
_ALERT = (
    "alert string, id string, state string, labels map<string,string>, startsAt long, "
    f"firesAt long, endsAt long, value double, margin double, witness array<{_WITNESS}>, quality string"
)


def alerts(rows: DataFrame) -> DataFrame:
    """Pick the alerts out of what `run_stateful` gave, in their public columns."""
    parsed = rows.where(F.col("kind") == "alert").select(F.from_json("json", _ALERT).alias("a")).select("a.*")
    witness = F.transform("witness", _public_witness)
    times = {name: F.timestamp_micros(F.col(name)) for name in ALERT_TIMES}
    return parsed.withColumns({**times, "witness": witness})


def _public_witness(part: Column) -> Column:
    return part.withField("time", F.timestamp_micros(part["time"]))


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
