"""The folder of a run: where everything is, and the lock that keeps two runs apart."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tocsin.deliver.alertlog import AlertWriter
from tocsin.deliver.run import ALERTS, DELIVERY
from tocsin.errors import RunError
from tocsin.files import lock_file, replace_file
from tocsin.rundir.checksums import CHECKSUMS, ChecksumList
from tocsin.rundir.dead import DEAD, LATE, DeadWriter
from tocsin.rundir.manifest import MANIFEST
from tocsin.rundir.progress import PROGRESS, ProgressLog

CHECKPOINT, TICKS, LOCK, SPARK_LOG, LOG_SETTINGS = "checkpoint", "ticks", "lock", "spark.log", "log4j2.properties"
SKIPPED = "skipped.log"
# What only a backtest leaves.
SUMMARY = "summary.json"


class RunDir:
    """The places of a run; `held` takes it for this process, and only then may it be written to."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        self.checkpoint = self.folder / CHECKPOINT
        self.delivery = self.folder / DELIVERY
        self.spark_log = self.folder / SPARK_LOG
        self.log_settings = self.folder / LOG_SETTINGS
        self.skipped = self.folder / SKIPPED
        self.ticks = self.folder / TICKS
        self.summary = self.folder / SUMMARY
        self.alerts = AlertWriter(self.folder / ALERTS)
        self.checksums = ChecksumList(self.folder / CHECKSUMS)
        self.dead = DeadWriter(self.folder / DEAD)
        self.late = DeadWriter(self.folder / LATE)

    @contextmanager
    def held(self) -> Iterator[RunDir]:
        """Make the folder if need be, and hold it: a second run in it is refused, whoever started it."""
        self._check()
        path = self.folder / LOCK
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = lock_file(path)
        except OSError as error:
            message = f"run directory {self.folder} must be writable; {(error.strerror or 'it is not').lower()}"
            raise RunError(message) from None
        if lock is None:
            holder = path.read_text("ascii", "replace").strip()[:20]
            who = f"process {holder}" if holder else "another process"
            message = f"run directory {self.folder} must belong to one run at a time; {who} holds it"
            raise RunError(message)
        with lock:
            lock.truncate(0)
            lock.write(f"{os.getpid()}\n".encode())
            lock.flush()
            yield self
            lock.truncate(0)

    def tick(self, name: str, rows: Iterable[Mapping[str, Any]] = ()) -> None:
        """Put a file where the query looks for something to do, and for control rows; what was read goes away there."""
        self.ticks.mkdir(exist_ok=True)
        lines = "".join(f"{json.dumps(row)}\n" for row in rows) or "\n"
        replace_file(self.ticks / name, lines.encode())

    def progress(self) -> ProgressLog:
        """Open the record of micro-batches."""
        return ProgressLog(self.folder / PROGRESS)

    def _check(self) -> None:
        """Refuse a folder with other things in it: a slip in `--run-dir` must not strew files there."""
        try:
            names = set(os.listdir(self.folder))
        except FileNotFoundError:
            return
        except OSError as error:
            message = f"run directory {self.folder} must be a folder; {(error.strerror or 'it is not').lower()}"
            raise RunError(message) from None
        if MANIFEST not in names and names - {LOCK, SPARK_LOG, LOG_SETTINGS, SKIPPED}:
            message = f"run directory {self.folder} must be new, empty, or that of a run; it has other files"
            raise RunError(message)
