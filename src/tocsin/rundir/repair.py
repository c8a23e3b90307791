"""Repair: the steps of a repair plan, applied to a run directory.

Guarantee: a process that is killed between two steps leaves a run directory that the same repair completes. The
manifest, and with it the new numbers, is written last: until then the run directory has a fault, and no run starts.
Nothing is deleted but files of the checkpoint that Spark cannot use; a checkpoint that is replaced is renamed.
"""

from __future__ import annotations

import json
import time
import uuid
from dataclasses import replace
from itertools import count
from pathlib import Path

from tocsin.deliver.encode import time_text
from tocsin.deliver.ledger import move_cursor
from tocsin.files import replace_file, sync_path
from tocsin.rundir.checkpoint import METADATA
from tocsin.rundir.consistency import RepairPlan, RunFacts
from tocsin.rundir.folder import RunDir
from tocsin.rundir.manifest import Manifest
from tocsin.rundir.progress import Progress, Tally


def apply_repair(place: RunDir, plan: RepairPlan, facts: RunFacts, manifest: Manifest) -> Manifest:
    """Apply a plan, write the manifest of the start, and return this manifest."""
    for checksum in plan.checksums:
        place.checksums.add(checksum)
    for name, position in plan.cursors.items():
        move_cursor(place.delivery, name, position)
    if plan.last is not None:
        _add_progress(place, plan.last, facts.last)
    if plan.first_batch is not None:
        _add_progress(place, facts.recorded + 1, plan.before)
        manifest = replace(manifest, first_batch=plan.first_batch)
    if plan.sets_aside:
        manifest = replace(manifest, query=None)
        _set_aside(place.checkpoint)
    for name in plan.removals:
        _remove(place.checkpoint / name)
    if plan.restores_metadata:
        query = {"id": manifest.query or str(uuid.uuid4())}
        replace_file(place.checkpoint / METADATA, json.dumps(query).encode())
        _remove(place.checkpoint / f".{METADATA}.crc")
    manifest.write(place.folder)
    return manifest


def _add_progress(place: RunDir, batch: int, before: Progress | None) -> None:
    """Append a line of progress without results, whose totals the next micro-batch continues."""
    kept = before or Progress(-1, "", Tally(), Tally())
    place.progress().add(replace(kept, batch=batch, time=time_text(time.time()), gained=Tally(), milliseconds={}))


def _set_aside(checkpoint: Path) -> None:
    names = (checkpoint.with_name(f"{checkpoint.name}.damaged{number or ''}") for number in count())
    if checkpoint.exists():
        checkpoint.rename(next(path for path in names if not path.exists()))
        sync_path(checkpoint.parent)


def _remove(path: Path) -> None:
    # Hadoop keeps the checksum of a file in a hidden file.
    for one in (path, path.with_name(f".{path.name}.crc")):
        one.unlink(missing_ok=True)
    sync_path(path.parent)
