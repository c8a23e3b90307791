"""Fuzzed rows through each kind of source: the run goes on, and every row is accounted for.

`python -m benchmarks fuzz-sources --rows 1000000 --json FILE` writes fuzzed input, reads it through the source, and
compares what comes out with the oracle of `fuzzed.py`, row by row as a multiset. It fails if a row is missing, comes
twice, or is taken for usable or dead against the oracle.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import fuzzed
from tocsin.rules.rulefile import Source, Stream, Value

FILES = 4
KINDS = ("json", "csv", "parquet", "mqtt", "kafka")


def stream(kind: str, options: dict[str, Any]) -> Stream:
    """The stream that all kinds have."""
    return Stream("fuzz", Source(kind, options), ("machine",), values={name: Value(name) for name in fuzzed.VALUES})


def write_json(folder: Path, rows: int, seed: int) -> Counter[Any]:
    """Write lines with all three ends of line, and a byte order mark at the beginning of each file."""
    expected: Counter[Any] = Counter()
    lines = fuzzed.json_lines(rows, seed)
    for number in range(FILES):
        with (folder / f"{number}.json").open("wb") as file:
            file.write(b"\xef\xbb\xbf")
            for place, line in enumerate(islice(lines, -(-rows // FILES))):
                file.write(line + (b"\n", b"\r\n", b"\r")[place % 3])
                expected[_key(fuzzed.of_json(line))] += 1
    return expected


def write_csv(folder: Path, rows: int, seed: int) -> Counter[Any]:
    """Write lines under a header, which some files have twice."""
    expected: Counter[Any] = Counter()
    lines = fuzzed.csv_lines(rows, seed)
    for number in range(FILES):
        with (folder / f"{number}.csv").open("wb") as file:
            file.write(b"\xef\xbb\xbf" * (number % 2) + fuzzed.HEADER.encode() + b"\r\n")
            for line, meant in islice(lines, -(-rows // FILES)):
                file.write(line + b"\n")
                expected[_key(meant)] += 1
    return expected


def write_parquet(folder: Path, rows: int, seed: int) -> Counter[Any]:
    """Write columns of numbers with nulls, NaN, infinities and times of all centuries; keys that are not UTF-8."""
    draw = np.random.default_rng(seed)
    expected: Counter[Any] = Counter()
    for number in range(FILES):
        count = rows // FILES + (number < rows % FILES)
        keys = draw.choice([b"m1", b"m2", b"\xff\xfe", b"", "ü".encode()], count).tolist()
        times = draw.choice([0, -1, 1, 1_767_225_600_000_000, 4_102_444_800_000_000, 2**62, -(2**63), 2**63 - 1], count)
        numbers = [draw.choice([0.0, -0.0, 1.5, 5e-324, 1e308, np.nan, np.inf, -np.inf], count) for _ in fuzzed.VALUES]
        absent = [draw.random(count) < 0.1 for _ in range(4)]
        table = {
            "machine": _text(keys, absent[0]),
            "ts": pa.array(times, pa.int64(), mask=absent[1]),
            **{
                name: pa.array(numbers[i], mask=absent[2 + i], from_pandas=False)
                for i, name in enumerate(fuzzed.VALUES)
            },
        }
        pq.write_table(pa.table(table), folder / f"{number}.parquet")
        given = (keys, times.tolist(), *(column.tolist() for column in numbers))
        pairs = [zip(column, mask, strict=True) for column, mask in zip(given, absent, strict=True)]
        columns = [[None if no else value for value, no in column] for column in pairs]
        expected.update(_key(_of_columns(*row)) for row in zip(*columns, strict=True))
    return expected


def _text(keys: list[bytes], absent: np.ndarray[Any, Any]) -> pa.Array:
    """A column of text whose bytes nobody checked."""
    column = pa.array([None if no else key for key, no in zip(keys, absent, strict=True)], pa.binary())
    return pa.Array.from_buffers(pa.string(), len(column), column.buffers())


def _of_columns(key: bytes | None, time_us: int | None, *values: float | None) -> Any:
    bad_key = key is None or b"\xff" in key
    bad_time = time_us is None or not fuzzed.FIRST_US <= time_us <= fuzzed.LAST_US
    bad = any(value is not None and not np.isfinite(value) for value in values)
    if key is None or bad_key or bad_time or bad or all(value is None for value in values):
        return fuzzed.DEAD
    return key.decode(), time_us, values


def write_mqtt(folder: Path, rows: int, seed: int) -> Counter[Any]:
    """Write messages to a spool, as the client does."""
    from tocsin.spark.sources.mqtt_spool import Message, SpoolWriter

    expected: Counter[Any] = Counter()
    writer, lines = SpoolWriter(folder), fuzzed.json_lines(rows, seed)
    while batch := list(islice(lines, 1_000)):
        writer.append([Message(place, b"plant/a", line, len(line)) for place, line in enumerate(batch)])
        expected.update(_key(fuzzed.of_json(line, blank_is_row=True)) for line in batch)
    writer.close()
    return expected


def write_kafka(servers: str, topic: str, rows: int, seed: int) -> Counter[Any]:
    """Produce messages, some without a value."""
    import confluent_kafka

    producer = confluent_kafka.Producer({"bootstrap.servers": servers, "queue.buffering.max.messages": 1_000_000})
    expected: Counter[Any] = Counter()
    for place, line in enumerate(fuzzed.json_lines(rows, seed)):
        value = None if place % 97 == 0 else line
        while True:
            try:
                producer.produce(topic, value, key=str(place % 7))
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
        expected[_key(fuzzed.of_json(value, blank_is_row=True))] += 1
    if producer.flush(120):
        message = "the broker must take all messages; some are left"
        raise SystemExit(message)
    return expected


def _key(row: Any) -> Any:
    """A row as it can be counted; a key whose text the definition leaves open is one text for all."""
    if row is None or isinstance(row, str):
        return row
    key, time_us, values = row
    return ("?" if key is fuzzed.NONE else key, time_us, values)


OPEN_KEYS = ("[1]", "[]", "1.5")


def found_rows(frame: Any) -> Counter[Any]:
    """What a source gave, as the oracle counts it."""
    from pyspark.sql import functions as F

    dead = F.col("_tocsin_reason").isNotNull()
    columns = [F.col(name) for name in ("machine", "_tocsin_time", *fuzzed.VALUES)]
    rows = frame.select(*(F.when(~dead, column).alias(f"c{i}") for i, column in enumerate(columns)), dead.alias("dead"))
    counted: Counter[Any] = Counter()
    for *row, is_dead, count in rows.groupBy(*rows.columns).count().collect():
        key = "?" if row[0] in OPEN_KEYS else row[0]
        counted[fuzzed.DEAD if is_dead else (key, row[1], tuple(row[2:]))] += count
    return counted


def differences(expected: Counter[Any], found: Counter[Any]) -> list[str]:
    """What is in one and not in the other; empty if all is accounted for."""
    rows = Counter({row: count for row, count in expected.items() if row is not None})
    return [f"only expected: {row!r:.300} x{n}" for row, n in (rows - found).items()] + [
        f"only found: {row!r:.300} x{n}" for row, n in (found - rows).items()
    ]


def run(
    session: Any, kind: str, rows: int, seed: int, folder: Path, servers: str = "", topic: str = ""
) -> dict[str, Any]:
    """Write, read, compare."""
    from tocsin.spark.sources.registry import read

    write: dict[str, Callable[[Path, int, int], Counter[Any]]] = {
        "json": write_json, "csv": write_csv, "parquet": write_parquet, "mqtt": write_mqtt
    }  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    options: dict[str, Any] = {"path": str(folder)}
    if kind == "kafka":
        expected = write_kafka(servers, topic, rows, seed)
        options = {"servers": servers, "topic": topic}
    else:
        expected = write[kind](folder, rows, seed)
    if kind == "mqtt":
        options = {"host": "127.0.0.1", "topic": "plant/#", "spool": str(folder)}
    began = time.perf_counter()
    found = found_rows(read(session, stream(kind, options), streaming=False))
    return {
        "kind": kind,
        "rows": rows,
        "no row": expected[None],
        "dead": found[fuzzed.DEAD],
        "usable": found.total() - found[fuzzed.DEAD],
        "seconds": round(time.perf_counter() - began, 1),
        "differences": differences(expected, found),
    }


def _session(jars: str, folder: Path) -> Any:
    from pyspark.sql import SparkSession

    # Workers must have the packages of this interpreter, whatever `python3` is on the path.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    builder = SparkSession.builder.master("local[2]").appName("tocsin-fuzz-sources")
    for name, value in {**settings, **({"spark.jars": jars} if jars else {})}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def main(argv: list[str]) -> int:
    """Run all kinds that were asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks fuzz-sources", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=20260101)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS[:4]))
    parser.add_argument("--servers", default="", help="brokers of Kafka, for the kind kafka")
    parser.add_argument("--topic", default="fuzz")
    parser.add_argument("--jars", default="", help="jars of Spark's Kafka connector")
    parser.add_argument("--json", type=Path)
    told = parser.parse_args(argv)
    results = []
    with tempfile.TemporaryDirectory(prefix="tocsin-fuzz-") as name:
        session = _session(told.jars, Path(name))
        for kind in told.kinds:
            results.append(run(session, kind, told.rows, told.seed, Path(name) / kind, told.servers, told.topic))
            print(results[-1], flush=True)
        session.stop()
    if told.json:
        told.json.write_text(json.dumps(results, indent=1))
    return int(any(result["differences"] for result in results))
