"""Delivery: the alert log, and the sinks that read it.

    detection → RUN/alerts/*.jsonl → one reader per sink → console, copy, Kafka, Alertmanager, webhook, CloudEvents

This package does not import Spark. From the rule package it uses only durations and secrets.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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

_MODULES = {
    "AlertLog": "alert_log",
    "AlertWriter": "alert_log",
    "Delivery": "delivery",
    "Position": "alert_log",
    "deliver": "delivery",
    "read_status": "sink_cursor",
}


def __getattr__(name: str) -> Any:
    """Import the module of a public name at its first use: checks of sinks need no HTTP client."""
    if name not in __all__:
        message = f"module 'tocsin.delivery' has no attribute {name!r}"
        raise AttributeError(message)
    value = getattr(import_module(f"tocsin.delivery.{_MODULES.get(name, 'sinks')}"), name)
    globals()[name] = value
    return value
