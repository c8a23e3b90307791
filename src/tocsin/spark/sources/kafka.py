"""Kafka as a source, through Spark's own connector: values of messages are lines, which arrived when the broker says.

Guarantee: offsets are kept in the checkpoint of the query, so every message is read exactly once by a query that is
restarted; what the broker deleted unread stops the query, unless its option `failOnDataLoss` is `false`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tocsin.rules.rulefile import Stream
from tocsin.rules.secret import Secret
from tocsin.spark.sources.data_sources import load
from tocsin.spark.sources.raw_fields import ARRIVED, LINE, Fields, of_csv, of_json


def read(session: SparkSession, stream: Stream, *, streaming: bool) -> Fields:
    """Open a topic; a bounded read takes all that the broker has, whatever `starting_offsets` says."""
    options = stream.source.options
    told = kafka_options(options, streaming=streaming)
    rows = load(session, "kafka", stream.name, told, streaming=streaming)
    arrived = F.unix_micros("timestamp").alias(ARRIVED)
    lines = rows.select(F.col("value").cast("string").alias(LINE), arrived)
    return of_json(lines) if options.get("format", "json") == "json" else of_csv(lines, columns(stream))


def columns(stream: Stream) -> list[str]:
    """The columns of messages in CSV, which have no header: those that the rule file names, in its order."""
    names = [*stream.keys, stream.time, *[stream.arrival] * (stream.arrival is not None), *stream.values]
    return list(dict.fromkeys(name for name in names if name))


def kafka_options(options: Mapping[str, Any], *, streaming: bool) -> dict[str, str]:
    """What Spark's connector is told; what the user gives under `options` comes last and wins."""
    told = {"kafka.bootstrap.servers": str(options["servers"]), "subscribe": str(options["topic"])}
    if streaming:
        told["startingOffsets"] = str(options.get("starting_offsets") or "latest")
    more = {str(name): str(value) for name, value in dict(options.get("options") or {}).items()}
    if options.get("username"):
        told |= _login(options, more.get("kafka.sasl.mechanism", "PLAIN"))
    return told | more


def _login(options: Mapping[str, Any], mechanism: str) -> dict[str, str]:
    """SASL over TLS. Spark hides an option whose name or text speaks of a password, Kafka never logs this one."""
    module = "scram.ScramLoginModule" if mechanism.startswith("SCRAM") else "plain.PlainLoginModule"
    user, password = (_quoted(options.get(name)) for name in ("username", "password"))
    login = f"org.apache.kafka.common.security.{module} required username={user} password={password};"
    return {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": mechanism,
        "kafka.sasl.jaas.config": login,
    }


def _quoted(text: Any) -> str:
    plain = text.reveal() if isinstance(text, Secret) else str(text or "")
    return '"' + plain.replace("\\", "\\\\").replace('"', '\\"') + '"'
