"""Delivery: the alert log, and the sinks that read it.

    detection → RUN/alerts/*.jsonl → one reader per sink → console, copy, Kafka, Alertmanager, webhook, CloudEvents

This package does not import Spark. From the rule package it uses only durations and secrets.
"""

from tocsin.delivery.alert_log import AlertLog, AlertWriter, Position
from tocsin.delivery.delivery import Delivery, deliver
from tocsin.delivery.sink_cursor import read_status
from tocsin.delivery.sinks import (
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
