"""The ledger of a sink: how far it has come, what it counted, and what was refused.

`DELIVERY/<name>.json` holds position, counts and state together and is replaced whole, so they never disagree.
`DELIVERY/<name>.rejected.jsonl` gets one line per refused alert: position, status, answer, alert.
`DELIVERY/<name>.taken.jsonl` gets one line per step of the position: batch, line, and when it was reached; of very many
the newest are kept.
Guarantee: a ledger that was lost or damaged costs repeats, never an alert: delivery begins anew, under the same
identities; a damaged one is kept as `<name>.json.damaged`. Two processes cannot hold one ledger at a time.
Cost: a small file per save, forced to disk at most once a second.
"""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path
from typing import IO, Any

from tocsin.deliver.alertlog import Position
from tocsin.deliver.channel import Answer
from tocsin.deliver.clock import Clock
from tocsin.deliver.encode import time_text
from tocsin.errors import RunError
from tocsin.files import append_line, lock_file, read_file, replace_file

VERSION = 1
COUNTS = ("delivered", "pending", "retries", "rejected", "skipped", "superseded", "corrupt")
SYNC_S = 1.0
TAKEN = ".taken.jsonl"
_MOST_BYTES, _MOST_TAKEN = 1 << 26, 1 << 20
_log = logging.getLogger("tocsin.deliver")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


class Ledger:
    """Position, counts and state of one sink, on disk."""

    def __init__(self, folder: Path, name: str, kind: str, clock: Clock) -> None:
        if not _NAME.fullmatch(name):
            message = f"delivery: the name of a sink must be letters, digits, `_`, `-` or `.`; got {name!r}"
            raise RunError(message)
        self.name, self.kind, self.clock = name, kind, clock
        self.path = folder / f"{name}.json"
        self.rejected_path = folder / f"{name}.rejected.jsonl"
        self.taken_path = folder / f"{name}{TAKEN}"
        self.position: Position | None = None
        self.counts = dict.fromkeys(COUNTS, 0)
        self.last_error: str | None = None
        self.last_error_at: str | None = None
        self.last_success: str | None = None
        self.failing = False
        # The states that the receiver is told, if whoever serves it says so; all others are skipped.
        self.takes: list[str] | None = None
        # By id of an alert the states at or before the position that the receiver has not been told.
        self.owed: dict[str, list[str]] = {}
        self.state: Any = None
        self._saved: dict[str, Any] = {}
        self._noted: Position | None = None
        self._synced_at = 0.0
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = _locked(folder / f"{name}.lock", name)
        self._load()

    def add(self, **counts: int) -> None:
        """Count."""
        for name, number in counts.items():
            self.counts[name] += number

    def succeeded(self) -> None:
        """Note that the receiver took something."""
        self.last_success = time_text(self.clock.now())
        if self.failing:
            _log.info("sink %s: delivers again", self.name)
        self.failing = False

    def failed(self, text: str) -> None:
        """Note what went wrong; the text must hold no secret."""
        self.last_error, self.last_error_at = text, time_text(self.clock.now())
        if not self.failing:
            _log.warning("sink %s: %s", self.name, text)
        self.failing = True

    def reject(self, position: Position, alert: Any, answer: Answer) -> None:
        """Put an alert that the receiver refuses on disk, with the answer."""
        line = {
            "position": list(position),
            "at": time_text(self.clock.now()),
            "status": answer.status,
            "answer": answer.text,
            "alert": alert,
        }
        append_line(self.rejected_path, json.dumps(line, ensure_ascii=False).encode("utf-8", "replace"))
        self.failed(answer.text)

    def save(self, *, sync: bool = False) -> None:
        """Put position, counts and state on disk together."""
        sync = sync or self.clock.now() - self._synced_at >= SYNC_S
        status = self.status()
        data = json.dumps({"version": VERSION, **status, "state": self.state}, ensure_ascii=False)
        replace_file(self.path, data.encode("utf-8", "replace"), sync=sync)
        if self.position is not None and self.position != self._noted and not self.owed:
            self._note_taken(self.position)
        self._saved = status
        if sync:
            self._synced_at = self.clock.now()

    def _note_taken(self, position: Position) -> None:
        """Note when a position was reached, for those who look; a line that is lost costs a moment, nothing else."""
        self._noted = position
        with self.taken_path.open("ab") as file:
            file.write(json.dumps([*position, time_text(self.clock.now())]).encode() + b"\n")
            is_full = file.tell() > _MOST_TAKEN
        if is_full:
            data = self.taken_path.read_bytes()
            replace_file(self.taken_path, data[data.index(b"\n", len(data) // 2) + 1 :], sync=False)

    def save_news(self) -> None:
        """Save if people would see something new."""
        if self.status() != self._saved:
            self.save()

    def status(self) -> dict[str, Any]:
        """What people and metrics want to know."""
        return {
            "sink": self.name,
            "kind": self.kind,
            "position": None if self.position is None else list(self.position),
            **self.counts,
            "failing": self.failing,
            "takes": self.takes,
            "owed": self.owed,
            "lastError": self.last_error,
            "lastErrorAt": self.last_error_at,
            "lastSuccess": self.last_success,
        }

    def close(self) -> None:
        """Let another process have the ledger."""
        self._lock.close()

    def _load(self) -> None:
        try:
            stored = json.loads(self.path.read_bytes())
            version = stored["version"]
            if version == VERSION:
                self._take(stored)
                return
        except FileNotFoundError:
            return
        except (ValueError, KeyError, TypeError, RecursionError):
            self.path.replace(self.path.with_name(f"{self.path.name}.damaged"))
            self.failed("the ledger was damaged: delivery begins anew at the start of the log")
            return
        self.close()
        message = f"{self.path.name}: `version` must be {VERSION}; got {version!r}: run the Tocsin that wrote it"
        raise RunError(message)

    def _take(self, stored: dict[str, Any]) -> None:
        place = stored["position"]
        position = None if place is None else Position(int(place[0]), int(place[1]))
        counts = {name: int(stored[name]) for name in COUNTS}
        texts = [stored[name] for name in ("lastError", "lastErrorAt", "lastSuccess")]
        self.position, self.counts, self.state = position, counts, stored["state"]
        self.last_error, self.last_error_at, self.last_success = texts
        self.failing, self.owed = bool(stored["failing"]), dict(stored.get("owed", {}))
        # A position is noted as taken when nothing is owed at it any more.
        self._noted = None if self.owed else position


def move_cursor(folder: Path, name: str, position: Position | None) -> None:
    """Move the position of a sink that no process serves; at the start of the log its state is discarded."""
    path = folder / f"{name}.json"
    with _locked(folder / f"{name}.lock", name):
        stored = json.loads(read_file(path, _MOST_BYTES))
        stored["position"] = None if position is None else list(position)
        if position is None:
            stored |= {"state": None, "owed": {}}
        replace_file(path, json.dumps(stored, ensure_ascii=False).encode("utf-8", "replace"))


def read_status(folder: Path | str) -> dict[str, dict[str, Any]]:
    """Read the status of all sinks from disk; what cannot be read is left out."""
    found = {}
    for path in sorted(Path(folder).glob("*.json")):
        try:
            stored = json.loads(read_file(path, _MOST_BYTES))
        except (OSError, ValueError, RecursionError):
            continue
        if isinstance(stored, dict) and stored.get("sink") == path.stem:
            found[path.stem] = {key: value for key, value in stored.items() if key not in {"version", "state"}}
    return found


def _locked(path: Path, name: str) -> IO[bytes]:
    lock = lock_file(path)
    if lock is None:
        message = f"delivery: sink `{name}` must be served by one process at a time; another one holds {path.name}"
        raise RunError(message)
    return lock
