"""A stream in a process of its own, which tests start, kill and restart.

`python -m spark.source_job FOLDER` reads FOLDER/job.json: kind and options of a source, jars, and `once`. What the
source gives is written as Parquet to FOLDER/out, over FOLDER/check. With `once` it takes what is there and ends; else
it goes on until FOLDER/stop is there.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from spark.conftest import SETTINGS
from tocsin.rules.rulefile import Source, Stream, Value
from tocsin.rules.secret import Secret

VALUES = ("value",)


def main(folder: Path) -> None:
    from pyspark.sql import SparkSession

    from tocsin.spark import LOCAL_DISK_CONF
    from tocsin.spark.sources.registry import read

    job = json.loads((folder / "job.json").read_text())
    more = {
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.driver.memory": "512m",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        **({"spark.jars": job["jars"]} if job.get("jars") else {}),
    }
    builder = SparkSession.builder.master("local[2]").appName("tocsin-tests-source")
    for name, value in {**SETTINGS, **LOCAL_DISK_CONF, **more}.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    options = {k: Secret(v) if k in {"username", "password"} else v for k, v in job["options"].items()}
    stream = Stream("air", Source(job["kind"], options), ("machine",), values={v: Value(v) for v in VALUES})
    frame = read(session, stream, streaming=True, run_dir=folder)
    writer = frame.writeStream.format("parquet").option("checkpointLocation", str(folder / "check"))
    if job.get("once"):
        writer.trigger(availableNow=True).start(str(folder / "out")).awaitTermination()
    else:
        query = writer.start(str(folder / "out"))
        while query.isActive and not (folder / "stop").exists():
            time.sleep(0.05)
        query.stop()
    (folder / "done").write_text("")
    session.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
