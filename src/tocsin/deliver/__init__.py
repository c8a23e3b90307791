"""Deliver: the alert log, and the sinks that read it.

    detection → RUN/alerts/*.jsonl → one reader per sink → console, copy, Kafka, Alertmanager, webhook, CloudEvents

Nothing here knows of Spark or of rules beyond their words for durations and secrets.
"""

from tocsin.deliver.alertlog import AlertLog, AlertWriter, Position
from tocsin.deliver.ledger import read_status
from tocsin.deliver.run import Delivery, deliver
from tocsin.deliver.sinks import (
    AlertmanagerSink,
    CloudEventsSink,
    ConsoleSink,
    KafkaSink,
    LogSink,
    Sink,
    WebhookSink,
    make_sink,
    name_sinks,
)

__all__ = [
    "AlertLog",
    "AlertWriter",
    "AlertmanagerSink",
    "CloudEventsSink",
    "ConsoleSink",
    "Delivery",
    "KafkaSink",
    "LogSink",
    "Position",
    "Sink",
    "WebhookSink",
    "deliver",
    "make_sink",
    "name_sinks",
    "read_status",
]
