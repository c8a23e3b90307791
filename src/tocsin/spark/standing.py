"""The alive requests of a run, read from its checkpoint: as of the last micro-batch that is done, while it runs or not.

Spark's reader of state gives the pages of all buckets. Where they lie, each bucket's are read and told as rows, so the
driver holds only what was asked for.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tocsin.plan import RANGES, Alive, alive_requests
from tocsin.spark.stateful import SETTINGS

# Columns that are JSON.
_TEXTS = ("labels", "key", "ends", "payload")
_COLUMNS = (
    "alert string, labels string, key string, query string, since_us long, ends string, threshold long, total long"
)


@dataclass(frozen=True)
class Wanted:
    """Which requests to tell: of a rule, of a key (or some columns of it), by ids; and at most how many."""

    rule: str | None
    key: Mapping[str, str]
    ids: tuple[str, ...]
    most: int


def find_requests(session: SparkSession, checkpoint: Path, wanted: Wanted) -> dict[str, Any]:
    """Return the number of active requests that match, and those that are closest to their thresholds."""
    found = standing(session, checkpoint)
    if wanted.rule is not None:
        found = found.where(F.col("alert") == wanted.rule)
    for name, value in wanted.key.items():
        found = found.where(F.from_json("key", "map<string,string>")[name] == value)
    if wanted.ids:
        found = found.where(F.col("query").isin(*wanted.ids))
    found = found.persist(StorageLevel.DISK_ONLY)
    try:
        order = (F.col("total") / F.col("threshold")).desc()
        rows = [row.asDict() for row in found.orderBy(order, "alert", "key", "query").limit(wanted.most).collect()]
        active = found.count()
    finally:
        found.unpersist()
    for row in rows:
        row |= {name: json.loads(row[name]) for name in _TEXTS}
    return {"active": active, "requests": rows}


def standing(session: SparkSession, checkpoint: Path) -> DataFrame:
    """Give a row per alive request; `labels`, `key`, `ends` and `payload` are JSON."""
    for name, value in SETTINGS.items():
        session.conf.set(name, value)
    # The reader asks for a service that Spark starts with the first look at its streaming queries.
    assert session.streams.active is not None
    state = session.read.format("statestore").option("path", str(checkpoint)).option("stateVarName", "pages").load()
    pages = state.select(
        F.col("key.bucket").alias("bucket"),
        F.col("user_map_key.name").alias("name"),
        F.col("user_map_value.page").alias("page"),
    )
    return (
        pages.where(F.col("name").startswith(RANGES))
        .groupBy("bucket")
        .applyInPandas(_told, f"{_COLUMNS}, payload string")
    )


def _told(pages: pd.DataFrame) -> pd.DataFrame:
    """The alive requests of one bucket."""
    found = alive_requests({name: bytes(page) for name, page in zip(pages["name"], pages["page"], strict=True)})
    rows = [tuple(json.dumps(v) if n in _TEXTS else v for n, v in one._asdict().items()) for one in found]
    return pd.DataFrame(rows, columns=list(Alive._fields))
