"""Repair: the steps of a repair plan, applied to a run directory.

Guarantee: a process that is killed between two steps leaves a run directory that the same repair completes. The
manifest is written last, because it has the first micro-batch of the repaired run. Until then the run directory has a
fault, and no run starts. Only checkpoint files that Spark cannot use are deleted. A checkpoint that is replaced is
renamed.
"""

from __future__ import annotations

import json
import time
import uuid
from dataclasses import replace
from itertools import count
from pathlib import Path

from tocsin.delivery.alert_json import format_time
from tocsin.delivery.sink_cursor import move_cursor
from tocsin.files import replace_file, sync_path
from tocsin.run_directory.checkpoint import METADATA
from tocsin.run_directory.consistency import RepairPlan, RunFacts
from tocsin.run_directory.layout import RunDir
from tocsin.run_directory.manifest import Manifest
from tocsin.run_directory.progress import Progress, Tally


def apply_repair(run_dir: RunDir, plan: RepairPlan, facts: RunFacts, manifest: Manifest) -> Manifest:
    """Apply a plan, write the manifest of the start, and return this manifest."""
    for checksum in plan.checksums:
        run_dir.checksums.add(checksum)
    for name, position in plan.cursors.items():
        move_cursor(run_dir.delivery, name, position)
    if plan.last is not None:
        _add_progress(run_dir, plan.last, facts.last)
    if plan.first_batch is not None:
        _add_progress(run_dir, facts.recorded + 1, plan.before)
        manifest = replace(manifest, first_batch=plan.first_batch)
    if plan.replaces_checkpoint:
        manifest = replace(manifest, query=None)
        _rename_damaged(run_dir.checkpoint)
    for name in plan.removals:
        _remove(run_dir.checkpoint / name)
    if plan.restores_metadata:
        query = {"id": manifest.query or str(uuid.uuid4())}
        replace_file(run_dir.checkpoint / METADATA, json.dumps(query).encode())
        _remove(run_dir.checkpoint / f".{METADATA}.crc")
    manifest.write(run_dir.folder)
    return manifest


def _add_progress(run_dir: RunDir, batch: int, before: Progress | None) -> None:
    """Append a line of progress without results, whose totals the next micro-batch continues."""
    kept = before or Progress(-1, "", Tally(), Tally())
    run_dir.progress().add(replace(kept, batch=batch, time=format_time(time.time()), gained=Tally(), milliseconds={}))


def _rename_damaged(checkpoint: Path) -> None:
    names = (checkpoint.with_name(f"{checkpoint.name}.damaged{number or ''}") for number in count())
    if checkpoint.exists():
        checkpoint.rename(next(path for path in names if not path.exists()))
        sync_path(checkpoint.parent)


def _remove(path: Path) -> None:
    # Hadoop keeps the checksum of a file in a hidden file.
    for one in (path, path.with_name(f".{path.name}.crc")):
        one.unlink(missing_ok=True)
    sync_path(path.parent)
