"""Write down Spark's classes as a JVM has them in memory: one that starts with the file needs half of the time.

A JVM that finds the file to be of another Java or of other jars starts without it. Cost: half a minute, and 150 MB.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path


def main(target: Path) -> None:
    """Run a little of what tests run, let the JVM end, and put its file in place whole."""
    new = target.with_suffix(".new")
    new.unlink(missing_ok=True)
    write = f"-XX:ArchiveClassesAtExit={new.resolve()}"
    os.environ["SPARK_SUBMIT_OPTS"] = f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xlog:disable {write}"
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    with tempfile.TemporaryDirectory() as folder:
        _run(Path(folder))
    if new.exists():
        new.replace(target)
    else:
        print(f"{target}: this Java does not write it; tests start without it")


def _run(folder: Path) -> None:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    store = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    builder = builder.config("spark.sql.streaming.stateStore.providerClass", store)
    session = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    session.range(9).selectExpr("id", "string(id) name").write.json(str(folder / "in"))
    rows = session.readStream.schema("id long, name string").json(str(folder / "in")).groupBy("name").count()
    writer = rows.writeStream.format("memory").queryName("seen").outputMode("complete")
    writer.option("checkpointLocation", str(folder / "check")).trigger(availableNow=True).start().awaitTermination()
    session.table("seen").collect()
    process = SparkContext._gateway.proc
    session.stop()
    # A JVM of PySpark ends with its standard input, and writes the file at its end.
    process.stdin.close()
    process.wait()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
