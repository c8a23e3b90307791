"""Checkpoint: the resume point of a query, read from the files of Spark's checkpoint without Spark.

Spark writes `offsets/N` before micro-batch N, the state versions `N + 1` during it, and `commits/N` after it. It
resumes at N if `offsets/N` has no commit, and at N + 1 otherwise. It reads the offsets of the previous micro-batch too.
For a file source, the offsets are the number of a file list in `sources/`. The state of a partition has snapshots and
change logs: a version needs an older snapshot (or version 0) and all change logs since then.

A power failure can empty or remove the newest of these files, because Spark does not force them to disk.

Algorithm: try the resume points from the newest to the oldest, and take the first whose files are all readable. Newer
files and unreadable files must be removed before Spark resumes there.
Guarantee: a process that is killed leaves no file that must be removed, because Spark renames complete files.
Complexity: the listing of the checkpoint folders, and the text of the offsets and commits that are tried.
"""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

METADATA = "metadata"
_NUMBER = re.compile(r"(\d{1,18})(?:\.compact)?")
_VERSION = re.compile(r"(\d{1,18})(?:_[^.]*)?\.(changelog|delta|zip|snapshot)")
_SOURCE = re.compile(r'([^{]+):\{"logOffset":(\d{1,18})\}')


@dataclass(frozen=True)
class Checkpoint:
    """Files of a checkpoint that decide where Spark resumes.

    Attributes
    ----------
    query
        Id of the query; None if `metadata` is missing or unreadable.
    resume
        Number of the first micro-batch that Spark runs after the removals.
    is_planned
        Whether `offsets` of that micro-batch exist, so that it reads the same rows as before.
    unreadable
        Files that make Spark fail, relative to the checkpoint.
    removals
        Files that must be removed before Spark can resume, in the order of their removal.
    is_lost
        Whether the checkpoint has micro-batches but no usable resume point.
    is_empty
        Whether the checkpoint has no micro-batch.
    is_there
        Whether the folder of the checkpoint exists.
    """

    query: str | None = None
    resume: int = 0
    is_planned: bool = False
    unreadable: tuple[str, ...] = ()
    removals: tuple[str, ...] = ()
    is_lost: bool = False
    is_empty: bool = True
    is_there: bool = False


@dataclass
class _Partition:
    """State files of one partition by version: snapshots, change logs, and empty files."""

    snapshots: set[int] = field(default_factory=set)
    changes: set[int] = field(default_factory=set)
    empty: dict[int, list[str]] = field(default_factory=dict)

    def has_version(self, version: int) -> bool:
        """Return whether the state of a version can be loaded; only empty files are evidence that it cannot."""
        if version == 0 or not any(number <= version for number in self.empty):
            return True
        starts = [0, *(number for number in self.snapshots if number <= version)]
        return any(self.changes.issuperset(range(start + 1, version + 1)) for start in starts)


class _Files:
    """Listing of a checkpoint; texts are read on demand."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.offsets, self.commits = self._list_numbers("offsets"), self._list_numbers("commits")
        # Empty files of each source by number.
        self.sources: dict[str, dict[int, str]] = {}
        for source in sorted(path for path in folder.glob("sources/*") if path.is_dir()):
            found = self._list_numbers(f"sources/{source.name}")
            self.sources[source.name] = {number: name for number, name in found.items() if self._is_empty(name)}
        states = sorted(path for path in folder.glob("state/*/*") if path.is_dir())
        self.partitions = [self._read_partition(path) for path in states if path.name.isdigit()]
        # Schemas and operators: Spark writes these files once, and cannot resume without them.
        others = (path for state in states if not state.name.isdigit() for path in sorted(state.rglob("[!.]*")))
        self.lost = [self._name(path) for path in others if path.is_file() and path.stat().st_size == 0]
        self._read: dict[str, Mapping[str, int] | None] = {}

    def has_offsets(self, batch: int) -> bool:
        """Return whether the offsets of a micro-batch and the file lists that they refer to are readable."""
        found = self._source_offsets(self.offsets[batch]) if batch in self.offsets else None
        if found is None:
            return False
        return not any(number <= found.get(name, -1) for name, empty in self.sources.items() for number in empty)

    def has_no_damage(self, batch: int) -> bool:
        """Return whether the offsets of a micro-batch are readable, or were deleted by Spark."""
        return batch not in self.offsets or self.is_readable(self.offsets[batch])

    def has_commit(self, batch: int) -> bool:
        """Return whether the commit of a micro-batch is readable."""
        return batch in self.commits and self.is_readable(self.commits[batch])

    def has_state(self, version: int) -> bool:
        """Return whether all partitions have a version of the state."""
        return all(partition.has_version(version) for partition in self.partitions)

    def is_readable(self, name: str) -> bool:
        """Return whether a file of offsets or commits is readable."""
        return self._source_offsets(name) is not None

    def empty_files(self) -> list[str]:
        """Return the empty files of sources and state."""
        found = [name for empty in self.sources.values() for name in empty.values()]
        return found + [name for one in self.partitions for names in one.empty.values() for name in names]

    def _source_offsets(self, name: str) -> Mapping[str, int] | None:
        """Return the file sources with their offsets in a file of offsets or commits; None if it is unreadable."""
        if name not in self._read:
            self._read[name] = _parse_log((self.folder / name).read_text("utf-8", "replace"))
        return self._read[name]

    def _list_numbers(self, folder: str) -> dict[int, str]:
        paths = (self.folder / folder).glob("[0-9]*")
        found = ((_NUMBER.fullmatch(path.name), path) for path in paths if path.is_file())
        return {int(match[1]): f"{folder}/{path.name}" for match, path in found if match}

    def _is_empty(self, name: str) -> bool:
        return (self.folder / name).stat().st_size == 0

    def _read_partition(self, folder: Path) -> _Partition:
        found = _Partition()
        tables = [path for path in sorted(folder.glob("SSTs/*.sst")) if path.stat().st_size == 0]
        for path in sorted(folder.iterdir()):
            match = _VERSION.fullmatch(path.name)
            if match is None or not path.is_file():
                continue
            used = [table for table in tables if match[2] == "zip" and _is_in_snapshot(path, table.name)]
            if path.stat().st_size == 0 or used:
                names = [self._name(one) for one in (path, *used)]
                found.empty.setdefault(int(match[1]), []).extend(names)
            elif match[2] in {"zip", "snapshot"}:
                found.snapshots.add(int(match[1]))
            else:
                found.changes.add(int(match[1]))
        return found

    def _name(self, path: Path) -> str:
        return path.relative_to(self.folder).as_posix()


def read_checkpoint(folder: Path) -> Checkpoint:
    """Read where a query resumes; a missing folder is an empty checkpoint."""
    files = _Files(folder)
    query = _read_query_id(folder / METADATA)
    newest = max([*files.offsets, *files.commits], default=-1)
    chosen = None if files.lost else _resume_point(files, newest)
    resume, is_planned = chosen or (0, False)
    removals = [files.commits[number] for number in sorted(files.commits, reverse=True) if number >= resume]
    first_offsets = resume + is_planned
    removals += [files.offsets[number] for number in sorted(files.offsets, reverse=True) if number >= first_offsets]
    unreadable = files.lost + [name for name in removals if not files.is_readable(name)]
    # Empty files are removed last, so an interrupted repair finds the same resume point again.
    empty = list(dict.fromkeys(files.empty_files()))
    if query is None and ((folder / METADATA).exists() or newest >= 0):
        unreadable.append(METADATA)
    is_lost = chosen is None and newest >= 0
    return Checkpoint(
        query=query,
        resume=resume,
        is_planned=is_planned,
        unreadable=(*unreadable, *empty),
        removals=(*removals, *empty),
        is_lost=is_lost,
        is_empty=newest < 0,
        is_there=folder.exists(),
    )


def _resume_point(files: _Files, newest: int) -> tuple[int, bool] | None:
    """Return the newest usable resume point, and whether its rows are planned already."""
    for batch in range(newest + 1, -1, -1):
        if not files.has_state(batch) or not files.has_no_damage(batch - 1):
            continue
        if files.has_offsets(batch):
            return batch, True
        is_next = files.has_offsets(batch - 1) and files.has_commit(batch - 1)
        if is_next and files.has_no_damage(batch - 2):
            return batch, False
    return None


def _parse_log(text: str) -> dict[str, int] | None:
    r"""Return the file sources and their offsets in a log file of Spark; None for other texts.

    >>> _parse_log('v2\n{"batchWatermarkMs":0}\nair:{"logOffset":3}\nbus:{"bus":{"0":7}}')
    {'air': 3}
    >>> _parse_log("") is None, _parse_log("v1\\n{") is None
    (True, True)
    """
    version, *lines = text.split("\n")
    if not re.fullmatch(r"v\d+", version) or not lines or not isinstance(_parse_json(lines[0]), dict):
        return None
    return {match[1]: int(match[2]) for match in map(_SOURCE.fullmatch, lines[1:]) if match}


def _read_query_id(path: Path) -> str | None:
    try:
        found = _parse_json(path.read_text("utf-8", "replace"))
    except OSError:
        return None
    return str(found["id"]) if isinstance(found, dict) and "id" in found else None


def _is_in_snapshot(snapshot: Path, table: str) -> bool:
    """Return whether a snapshot of the state needs a file of its folder `SSTs`."""
    try:
        with zipfile.ZipFile(snapshot) as archive:
            return table.encode() in archive.read("metadata")
    except (OSError, KeyError, zipfile.BadZipFile):
        return True


def _parse_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
