"""Listen to the query: one line of key=value per micro-batch, and how long each took, Spark's own work included."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from tocsin.run_directory import Progress
from tocsin.runtime.metrics import OUTCOMES

log = logging.getLogger("tocsin.run")
# Told always; other fates where a row has one. Of rows that are there it is told how many there are now.
_COUNTS = ("retained", "expired", "omitted", "late", "quarantined")
_NOW = ("held", "retained")
_KEPT = 64


class BatchListener(StreamingQueryListener):
    """Puts what was recorded of a micro-batch and what Spark says of it into one line."""

    def __init__(self, took: Callable[[float], None], first_batch: int = 0) -> None:
        self.took, self.first_batch = took, first_batch
        self.run_id = ""
        self._recorded: dict[int, Progress] = {}

    def note(self, progress: Progress) -> None:
        """Learn what was recorded; Spark speaks of the same micro-batch a moment later."""
        self._recorded[progress.batch] = progress
        while len(self._recorded) > _KEPT:
            del self._recorded[next(iter(self._recorded))]

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Nothing to do."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Write the line of a micro-batch that is done; one with nothing in it is not worth a line to most."""
        spark = event.progress
        number = spark.batchId + self.first_batch
        progress = self._recorded.pop(number, None) if str(spark.runId) == self.run_id else None
        if progress is None:
            return
        seconds = spark.batchDuration / 1000
        self.took(seconds)
        level = logging.DEBUG if progress.gained.is_quiet else logging.INFO
        log.log(level, "%s", line_of(progress, {"seconds": seconds}))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Nothing to do."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Nothing to do."""


def line_of(progress: Progress, more: Mapping[str, float]) -> str:
    """One line of key=value: what the micro-batch gained, and what there is now."""
    gained, whole = progress.gained, progress.total
    parts: dict[str, object] = {"batch": progress.batch, "rows": sum(gained.rows.values())}
    for name in OUTCOMES:
        source = whole if name in _NOW else gained
        number = sum(counts.get(name, 0) for counts in source.counts.values())
        parts |= {name: number} if number or name in _COUNTS else {}
    parts["dead"] = sum(gained.dead.values())
    unlimited = sum(counts.get("without_limits", 0) for counts in gained.counts.values())
    parts |= {"without_limits": unlimited} if unlimited else {}
    for state in ("pending", "firing", "resolved", "inactive", "match"):
        number = sum(states.get(state, 0) for states in gained.alerts.values())
        parts |= {f"alerts_{state}": number} if number else {}
    parts |= {"firing_now": sum(whole.firing().values()), "state_bytes": whole.state_bytes}
    lag = progress.lag_s
    parts |= {"lag_seconds": max(lag.values())} if lag else {}
    parts |= more
    parts |= {f"{name}_ms": number for name, number in progress.milliseconds.items()}
    return " ".join(f"{name}={value}" for name, value in parts.items())
