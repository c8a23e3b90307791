"""Run directories without Spark: the real recorder writes them, and this module writes the files of Spark and sinks."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa

from delivery.alerts import row
from rule_files import load_file
from tests.alert_batches import batches_of
from tocsin import files
from tocsin.delivery import AlertLog
from tocsin.plan import describe_plan, plan_file
from tocsin.run_directory import Manifest, RunDir, read_manifest
from tocsin.run_directory.manifest import build_manifest
from tocsin.runtime.alert_arrow import pack_alerts

RULES = """\
streams:
  air: {source: {json: {path: in}}, keys: [machine]}
groups:
  - name: g
    rules:
      - {alert: Hot, expr: air > 30, on: [machine]}
"""
QUERY = "7fdae450-775a-44d9-a1c8-bfad4e6418bb"
# Alerts per micro-batch; a micro-batch without alerts has rows.
ALERTS = (2, 0, 3, 1, 4)


class CrashError(BaseException):
    """The process ends here."""


@dataclass
class Frame:
    """Result of one micro-batch, in place of a DataFrame."""

    alerts: list[dict[str, Any]]

    def toArrow(self) -> pa.Table:
        """Return the result as the operator returns it."""
        sections = {"counts": {"air": {"received": 10, "retained": 10}}, "newest_us": {"air": 1}, "state_bytes": 7}
        metrics = json.dumps({"bucket": 0, "metrics": sections})
        rows = [("alerts", None, data) for data in pack_alerts(batches_of(self.alerts))]
        kinds, texts, alerts = zip(*rows, ("metrics", metrics, None), strict=True)
        return pa.table({"kind": kinds, "json": texts, "alerts": pa.array(alerts, pa.binary())})


@dataclass
class Crash:
    """Ends the process at a write; `is_torn` leaves half of an appended line."""

    writes: int
    is_torn: bool = False
    done: int = 0

    def before(self, torn: Callable[[], None] | None = None) -> None:
        """Count a write, and end the process if it is the last."""
        if self.done == self.writes:
            if self.is_torn and torn is not None:
                torn()
            raise CrashError
        self.done += 1


@dataclass
class SyntheticRun:
    """A run of micro-batches in a folder; `crash` ends it at a write."""

    folder: Path
    crash: Crash = field(default_factory=lambda: Crash(10**9))

    def __post_init__(self) -> None:
        self.run_dir = RunDir(self.folder)
        self.checkpoint = self.run_dir.checkpoint

    def manifest(self) -> Manifest:
        """Return the manifest; write it if the run is new."""
        found = read_manifest(self.folder)
        if found is None:
            path = self.folder.with_name(f"{self.folder.name}.yaml")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(RULES)
            file = load_file(path)
            plan = plan_file(file)
            found = build_manifest(file, plan, (), 1)
            found = replace(found, state=describe_plan(plan), query=QUERY, started=("2026-01-01T00:00:00Z",))
            self.folder.mkdir(parents=True, exist_ok=True)
            found.write(self.folder)
        return found

    def run(self, batches: range, sinks: dict[str, int | None] | None = None) -> None:
        """Run micro-batches as Spark does: plan, record, commit; sinks then deliver all but some of the lines."""
        from tocsin.spark.record import Recorder
        from tocsin.spark.unreadable import UnreadableFiles

        manifest, path = self.manifest(), self.folder.with_name(f"{self.folder.name}.yaml")
        file = load_file(path)
        unreadable = UnreadableFiles(self.run_dir.skipped, ())
        recorder = Recorder(self.run_dir, plan_file(file), file.rules, None, (), unreadable, manifest.first_batch)
        self._spark("metadata", json.dumps({"id": manifest.query or "new"}))
        for batch in batches:
            self._spark(f"sources/air/{batch}", f'v1\n{{"path":"{batch}"}}')
            if not (self.checkpoint / f"offsets/{batch}").exists():
                self._spark(f"offsets/{batch}", f'v2\n{{"batchWatermarkMs":0}}\nair:{{"logOffset":{batch}}}')
            with self._crashing():
                recorder(Frame(alerts_of(batch)), batch)  # type: ignore[arg-type]
            for partition in range(2):
                self._spark(f"state/0/{partition}/{batch + 1}.changelog", "changes")
            self._deliver(sinks or {})
            self._spark(f"commits/{batch}", 'v1\n{"nextBatchWatermarkMs":0}')

    def log(self) -> dict[int, list[str]]:
        """Return the ids of the alerts in the log, by micro-batch."""
        found: dict[int, list[str]] = {}
        for position, alert in AlertLog(self.run_dir.alerts.folder).read():
            found.setdefault(position.batch, []).append(alert["id"])
        return found

    def write_cursor(self, name: str, position: tuple[int, int] | None) -> None:
        """Write how far a sink is."""
        self.run_dir.delivery.mkdir(exist_ok=True)
        status = {"version": 2, "sink": name, "position": position and list(position), "state": None, "unsent": {}}
        files.replace_file(self.run_dir.delivery / f"{name}.json", json.dumps(status).encode())
        if position is not None:
            line = json.dumps([*position, "2026-01-01T00:00:00Z"])
            files.append_line(self.run_dir.delivery / f"{name}.positions.jsonl", line.encode())

    def _deliver(self, sinks: dict[str, int | None]) -> None:
        lines = [(batch, line) for batch, alerts in self.log().items() for line in range(len(alerts))]
        for name, left in sinks.items():
            done = lines if left == 0 else lines[: -(left or len(lines))]
            self.write_cursor(name, done[-1] if done else None)

    def _spark(self, name: str, text: str) -> None:
        """Write a file of the checkpoint as Spark does: whole, under a temporary name, then renamed."""
        self.crash.before()
        path = self.checkpoint / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_name(f".{path.name}.tmp").write_text(text)
        path.with_name(f".{path.name}.tmp").rename(path)

    @contextmanager
    def _crashing(self) -> Iterator[None]:
        replaced, appended = files.replace_file, files.append_line

        def replace_file(path: Path, data: Any, *, sync: bool = True) -> None:
            self.crash.before()
            replaced(path, data, sync=sync)

        def append_line(path: Path, line: bytes) -> None:
            self.crash.before(lambda: appended(path, line[: len(line) // 2]))
            appended(path, line)

        with (
            patch("tocsin.delivery.alert_log.replace_file", replace_file),
            patch("tocsin.run_directory.dead_letters.replace_file", replace_file),
            patch("tocsin.run_directory.layout.replace_file", replace_file),
            patch("tocsin.run_directory.checksums.append_line", append_line),
            patch("tocsin.run_directory.progress.append_line", append_line),
        ):
            yield


def alerts_of(batch: int) -> list[dict[str, Any]]:
    """Return the alerts of a micro-batch of Spark."""
    number = ALERTS[batch % len(ALERTS)]
    return [
        row(alert="Hot", key=f"m{batch}", start=batch, minute=line) | {"id": f"{batch}:{line}"}
        for line in range(number)
    ]


def copy_of(run: SyntheticRun, folder: Path) -> SyntheticRun:
    """Return a copy of a run in another folder."""
    shutil.copytree(run.folder, folder / "run")
    shutil.copy(run.folder.with_name(f"{run.folder.name}.yaml"), folder / "run.yaml")
    return SyntheticRun(folder / "run")
