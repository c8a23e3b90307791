"""The queries of `ranges-spark`, each measured in a process of its own, and the rows that they read."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.ranges_data import DOMAIN
from benchmarks.threshold_queries import BUCKETS, PARTITIONS, SESSION, NothingStep
from benchmarks.workloads import START_US
from tocsin.runtime.contract import Batch, Listener, Out, Pages, Pipeline, Step
from tocsin.runtime.session import Session

# Two of them are in each of two buckets.
SYMBOLS = ("AAPL", "MSFT", "AMZN", "IBM")
SCHEMAS = {
    "orders": "symbol string, ts long, came long, id string, action string, owner string, low double, high double, "
    "threshold double",
    "trades": "symbol string, ts long, came long, price double, volume double",
}
# Under this name what is weighed travels among the counts.
_WEIGHED = "weighed"


@dataclass(frozen=True)
class Size:
    """How much there is: queries and the files that register them, elements and theirs, and requests among those."""

    queries: int = 1_000_000
    elements: int = 500_000
    register_files: int = 8
    element_files: int = 10
    requests: int = 1000
    shards: int = 1

    @property
    def name(self) -> str:
        """Name of its folder."""
        return "_".join(str(part) for part in asdict(self).values())


def write(folder: Path, size: Size, seed: int = 1) -> None:
    """Write the workload: ranges and elements as in the paper of Qiao, Gan, Tao; one query in a hundred is reached."""
    rng = np.random.default_rng(seed)
    arrived = 0
    # What falls into a tenth of the domain in the whole stream, of one symbol: elements have weight 100 in the mean.
    most = max(1, round(100 * 100 * 0.1 * size.elements / len(SYMBOLS)))
    for number in range(size.register_files + size.element_files):
        registers = number < size.register_files
        asked = size.queries // size.register_files if registers else size.requests
        rows = 0 if registers else size.elements // size.element_files
        came = arrived + rng.permutation(asked + rows)
        arrived += asked + rows
        orders = _orders(rng, np.sort(came[:asked]), most, ends=not registers, queries=size.queries)
        for name, table in (("orders", orders), ("trades", _trades(rng, np.sort(came[asked:])))):
            (folder / name).mkdir(parents=True, exist_ok=True)
            path = folder / name / f"part-{number:05}.parquet"
            pq.write_table(table, path)
            os.utime(path, (number, number))  # Spark takes files in order of this time.


def _orders(rng: np.random.Generator, came: Any, most: int, *, ends: bool, queries: int) -> pa.Table:
    """Requests: new queries; if so asked, every other one ends a query that was there."""
    count = len(came)
    side = DOMAIN / 10
    low = np.clip(np.rint(rng.normal(DOMAIN / 2, 0.075 * DOMAIN, count) - side / 2), 0, DOMAIN - side)
    ended = (np.arange(count) % 2 == 1) & ends
    ids = np.where(ended, rng.integers(0, max(1, queries), count), came)
    symbol = np.array(SYMBOLS)[ids % len(SYMBOLS)]
    return pa.table(
        {
            "symbol": symbol,
            "ts": START_US + came,
            "came": came,
            "id": [f"q{number}" for number in ids.tolist()],
            "action": ["terminate" if one else "register" for one in ended.tolist()],
            "owner": [f"user {number % 5000}" for number in ids.tolist()],
            "low": low,
            "high": low + side,
            "threshold": rng.integers(1, most, count).astype(np.float64),
        }
    )


def _trades(rng: np.random.Generator, came: Any) -> pa.Table:
    count = len(came)
    price = rng.integers(0, DOMAIN + 1, count).astype(np.float64)
    volume = np.maximum(1, np.rint(rng.normal(100, 15, count)))
    symbol = np.array(SYMBOLS)[rng.integers(0, len(SYMBOLS), count)]
    return pa.table({"symbol": symbol, "ts": START_US + came, "came": came, "price": price, "volume": volume})


def child(query: str, size: str, folder: str, checkpoint: str, answer: str) -> None:
    """Measure one query; the body of a child process."""
    asked = Size(**json.loads(size))
    body = reference(asked, Path(folder)) if query == "reference" else streaming(query, asked, Path(folder), checkpoint)
    Path(answer).write_text(json.dumps(body), encoding="utf-8")


def rule(size: Size) -> Any:
    """The rule, as users write it."""
    from tocsin import RangeRule

    return RangeRule("Sold", "trades.price", "orders", weight="trades.volume", on="symbol", shards=size.shards)


def plan_of(size: Size) -> Any:
    """The plan of the rule."""
    from tocsin.local import explain

    streams = {name: {column.split()[0]: [] for column in text.split(", ")} for name, text in SCHEMAS.items()}
    return explain(streams, rule(size), arrival="came")


def reference(size: Size, folder: Path) -> dict[str, Any]:
    """Run the plan without Spark, file by file: compiles all, and tells what must be found and what the rule costs."""
    plan = plan_of(size)
    plan.warm_up()
    session, batches, found, begin = Session(Weighed(plan)), list[dict[str, Any]](), 0, time.perf_counter()
    for number in range(size.register_files + size.element_files):
        rows = [_batch(plan.ranges[0], name, folder / name / f"part-{number:05}.parquet") for name in SCHEMAS]
        out = session.push(rows)
        found += sum(map(len, out.alerts))
        session.changed_pages()
        batches.append(_told(number, size, sum(len(batch.time) for batch in rows), out.metrics.section("delays")))
    return {"seconds": time.perf_counter() - begin, "alerts": found, "batches": batches}


def _batch(watch: Any, name: str, path: Path) -> Batch:
    table = pq.read_table(path)
    symbols = {symbol: number for number, symbol in enumerate(SYMBOLS)}
    key = np.array([symbols[symbol] for symbol in table["symbol"].to_pylist()], np.int64)
    values = {column: table[column].to_numpy() for column in watch.columns(name)}
    payload = None
    if name == "orders":
        rest = table.select(["id", "action", "owner"]).to_pylist()
        payload = np.array([json.dumps(row) for row in rest] or [""], dtype=object)[: len(rest)]
    keys = [(symbol,) for symbol in SYMBOLS]
    return Batch(0, name, keys, key, table["ts"].to_numpy(), table["came"].to_numpy(), values, payload)


def streaming(query: str, size: Size, folder: Path, checkpoint: str) -> dict[str, Any]:
    """Run one streaming query to its end; give what Spark and the step say of each micro-batch."""
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as F

    from tocsin.spark.alerts import prepare
    from tocsin.spark.feeds import feeds_of
    from tocsin.spark.results import alerts, counted, merged_metrics
    from tocsin.spark.stateful import run_stateful

    builder = SparkSession.builder.master(f"local[{PARTITIONS}]")
    for name, value in SESSION.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    prepare(session, idle_timers=False)
    plan = plan_of(size)
    plan.warm_up()
    reader = session.readStream.option("maxFilesPerTrigger", 1)
    frames = {name: reader.schema(text).parquet(str(folder / name)) for name, text in SCHEMAS.items()}
    step: Step = Weighed(plan) if query == "tocsin" else NothingStep(0, tuple(SCHEMAS))
    rows = run_stateful(feeds_of(frames, plan.key_sets, "ts", "came"), step, BUCKETS)
    out = alerts(counted(rows, "said")).observe("found", F.count(F.lit(1)).alias("alerts"))
    begin = time.perf_counter()
    writer = out.writeStream.format("noop").option("checkpointLocation", checkpoint)
    running = writer.trigger(availableNow=True).start()
    running.awaitTermination()
    seconds = time.perf_counter() - begin
    progress = [one for one in running.recentProgress if one.numInputRows]
    batches, state_bytes = [], 0
    for number, one in enumerate(progress):
        metrics = merged_metrics(one.observedMetrics["said"]["metrics"] or ())
        state_bytes += metrics.section("state_bytes")
        times = {"ms": one.durationMs["triggerExecution"], "commit_ms": one.stateOperators[0].commitTimeMs}
        batches.append(
            _told(number, size, one.numInputRows, metrics.section("delays")) | times | {"state_bytes": state_bytes}
        )
    found = sum(one.observedMetrics["found"]["alerts"] for one in progress)
    session.stop()
    return {"seconds": seconds, "alerts": found, "batches": batches}


def _told(number: int, size: Size, rows: int, counts: Mapping[str, Mapping[str, int]]) -> dict[str, Any]:
    """What a micro-batch did."""
    weighed = counts.get(_WEIGHED, {})
    kind = "register" if number < size.register_files else "elements"
    return {"kind": kind, "rows": rows} | dict(weighed)


@dataclass(frozen=True)
class Weighed:
    """A step whose calls report their time and the pages that they stored."""

    step: Step

    def build_pipelines(self, pages: Pages, listener: Listener | None = None) -> Sequence[Pipeline]:
        return [WeighedPipeline(Session(self.step, pages))]

    def read_control(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        return row


class WeighedPipeline:
    """The session of a step. The time and the pages of each call travel as a metric with free labels."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.inputs = {place: columns for one in session.pipelines for place, columns in one.inputs.items()}
        self._pages: dict[str, bytes | None] = {}

    def on_data(self, batches: Sequence[Batch], now_us: int | None, out: Out) -> None:
        """Push rows and write the pages at once."""
        begin = time.perf_counter()
        out.add(self.session.push(batches, now_us))
        taken = time.perf_counter()
        self._pages = self.session.changed_pages()
        spans = {"logic_ms": taken - begin, "pages_ms": time.perf_counter() - taken}
        weighed = {name: round(1000 * span) for name, span in spans.items()}
        weighed |= {"pages": len(self._pages), "written_bytes": sum(len(page or b"") for page in self._pages.values())}
        for name, number in weighed.items():
            out.metrics.record("delays", number, _WEIGHED, name)

    def on_control(self, message: Mapping[str, Any], out: Out) -> None:
        """Forward the control row."""
        out.add(self.session.control([message]))

    def on_time(self, now_us: int, out: Out) -> None:
        """Forward the time."""
        out.add(self.session.advance(now_us))

    def on_end(self, out: Out) -> None:
        """Forward the end of the input."""
        out.add(self.session.end())

    def next_timer(self) -> int | None:
        """Return the timer of the session."""
        return self.session.next_timer()

    def changed_pages(self) -> dict[str, bytes | None]:
        """Return the pages of the last call."""
        pages, self._pages = self._pages, {}
        return pages
