"""A query in a process of its own, which tests start, kill and restart.

`python -m spark.job FOLDER SCENARIO MASTER MODE` reads FOLDER/in (see `Scenario.write`), and writes to FOLDER/result
the alerts in a form that compares. MODE `stream` runs over FOLDER/out and FOLDER/check, and goes on where a killed run
stopped; `batch` takes the input as bounded; `shipped` does so with the package sent to the workers as
FOLDER/tocsin.zip, and says from where they took it. MASTER may be `connect`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import tocsin
from spark.conftest import SETTINGS
from spark.scenarios import SCENARIOS, plain
from tocsin.jvm import BOUNDED

BUCKETS = 4


def main(folder: Path, name: str, master: str, mode: str) -> None:
    session = _session(master, folder)
    if mode == "shipped":
        session.sparkContext.addPyFile(str(folder / "tocsin.zip"))
        print("workers import", session.range(1).mapInArrow(_where_tocsin_is, "path string").collect()[0][0])
    scenario = SCENARIOS[name]()
    frames = scenario.frames(session, folder / "in", streaming=mode == "stream")
    out = tocsin.alerts(frames, scenario.rule, arrival=scenario.arrival, buckets=BUCKETS)
    if mode == "stream":
        writer = out.writeStream.format("parquet").option("checkpointLocation", str(folder / "check"))
        writer.trigger(availableNow=True).start(str(folder / "out")).awaitTermination()
        out = session.read.parquet(str(folder / "out"))
    (folder / "result.part").write_text(repr(plain(out.collect())))
    (folder / "result.part").rename(folder / "result")
    session.stop()


def _session(master: str, folder: Path) -> Any:
    from pyspark.sql import SparkSession

    from tocsin.spark import LOCAL_DISK_CONF

    builder = SparkSession.builder.appName("tocsin-tests-job")
    builder = builder.remote("local[2]") if master == "connect" else builder.master(master)
    more = {
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.driver.memory": "512m",
        # Two executors must fit on two workers of 1 GB, and nothing may listen beyond this machine.
        "spark.executor.memory": "512m",
        "spark.executor.cores": "1",
        "spark.executor.extraJavaOptions": " ".join(BOUNDED),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }
    for key, value in {**SETTINGS, **LOCAL_DISK_CONF, **more}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _where_tocsin_is(batches: Any) -> Any:
    import pyarrow as pa

    import tocsin as found

    list(batches)
    yield pa.RecordBatch.from_pydict({"path": [found.__file__]})


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
