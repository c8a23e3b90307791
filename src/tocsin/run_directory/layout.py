"""Layout: the paths of a run directory, and the lock that prevents two runs in one directory."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tocsin.delivery.alert_log import AlertWriter
from tocsin.delivery.delivery import ALERTS, DELIVERY
from tocsin.errors import RunError
from tocsin.files import lock_file, replace_file
from tocsin.run_directory.checksums import CHECKSUMS, ChecksumList
from tocsin.run_directory.dead_letters import DEAD, LATE, DeadLetterWriter
from tocsin.run_directory.manifest import MANIFEST
from tocsin.run_directory.progress import PROGRESS, SUMMARY, ProgressLog

CHECKPOINT, CONTROL, LOCK, SPARK_LOG, LOG_SETTINGS = "checkpoint", "control", "lock", "spark.log", "log4j2.properties"
SKIPPED = "skipped.log"


class RunDir:
    """Paths and writers of a run directory. A process must hold `lock` before it writes.

    Attributes
    ----------
    folder
        The run directory itself.
    checkpoint, delivery, control, summary, spark_log, log_settings, skipped
        Paths in it.
    alerts, checksums, dead, late
        Writers of its files.
    """

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        self.checkpoint = self.folder / CHECKPOINT
        self.delivery = self.folder / DELIVERY
        self.spark_log = self.folder / SPARK_LOG
        self.log_settings = self.folder / LOG_SETTINGS
        self.skipped = self.folder / SKIPPED
        self.control = self.folder / CONTROL
        self.summary = self.folder / SUMMARY
        self.alerts = AlertWriter(self.folder / ALERTS)
        self.checksums = ChecksumList(self.folder / CHECKSUMS)
        self.dead = DeadLetterWriter(self.folder / DEAD)
        self.late = DeadLetterWriter(self.folder / LATE)

    @contextmanager
    def lock(self) -> Iterator[RunDir]:
        """Create the run directory if it is missing, and lock it. Raise RunError if another run has the lock."""
        self._reject_other_files()
        path = self.folder / LOCK
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = lock_file(path)
        except OSError as error:
            message = f"run directory {self.folder} must be writable; {(error.strerror or 'unknown error').lower()}"
            raise RunError(message) from None
        if lock is None:
            process_id = path.read_text("ascii", "replace").strip()[:20]
            process = f"process {process_id}" if process_id else "another process"
            message = f"run directory {self.folder} is in use by {process}"
            raise RunError(message)
        with lock:
            lock.truncate(0)
            lock.write(f"{os.getpid()}\n".encode())
            lock.flush()
            yield self
            lock.truncate(0)

    def write_control_rows(self, name: str, rows: Iterable[Mapping[str, Any]] = ()) -> None:
        """Write a file of control rows for the query. A file without rows also starts a micro-batch."""
        self.control.mkdir(exist_ok=True)
        lines = "".join(f"{json.dumps(row)}\n" for row in rows) or "\n"
        replace_file(self.control / name, lines.encode())

    def progress(self) -> ProgressLog:
        """Open the progress log."""
        return ProgressLog(self.folder / PROGRESS)

    def _reject_other_files(self) -> None:
        """Raise RunError if the folder has other files. A wrong `--run-dir` must not add files to them."""
        try:
            names = set(os.listdir(self.folder))
        except FileNotFoundError:
            return
        except OSError as error:
            message = f"run directory {self.folder} must be a folder; {(error.strerror or 'unknown error').lower()}"
            raise RunError(message) from None
        if MANIFEST not in names and names - {LOCK, SPARK_LOG, LOG_SETTINGS, SKIPPED}:
            message = f"run directory {self.folder} must be new, empty, or have a `{MANIFEST}`; it has other files"
            raise RunError(message)
