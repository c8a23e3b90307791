"""Sink cursor: position, counts and state of one sink, stored in the directory `delivery/` of a run.

- `<name>.json`: position, counts and state. The file is replaced atomically, so they are always consistent.
- `<name>.rejected.jsonl`: one line per rejected alert event with position, HTTP status, response and event.
- `<name>.positions.jsonl`: lines with batch, line and time. At this time, all events up to this position were
  delivered, rejected or skipped. The dashboard and the consistency check read the file. If it exceeds 1 MiB, the older
  half is deleted.
- `<name>.lock`: lock of the process that delivers to the sink.

Guarantees:
    - After the loss of a cursor file, delivery restarts at the start of the log. It repeats alert events with the same
      identities and loses no event. A damaged file is kept as `<name>.json.damaged`.
    - Two processes cannot hold the same cursor at the same time.

Complexity: each save writes one small file. It is forced to disk at most once per second.
"""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path
from typing import IO, Any

from tocsin.delivery.alert_json import format_time
from tocsin.delivery.alert_log import Position
from tocsin.delivery.backoff import Clock
from tocsin.delivery.sink_channel import SinkResponse
from tocsin.errors import RunError
from tocsin.files import append_line, lock_file, read_file, replace_file

VERSION = 2
COUNTS = ("delivered", "pending", "retries", "rejected", "skipped", "superseded", "corrupt")
SYNC_S = 1.0
POSITIONS_SUFFIX = ".positions.jsonl"
_MAX_CURSOR_BYTES, _MAX_POSITIONS_BYTES = 1 << 26, 1 << 20
_log = logging.getLogger("tocsin.delivery")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


class SinkCursor:
    """Position, counts and state of one sink.

    Attributes
    ----------
    position
        Position of the last line that was processed; None before the first line. The Alertmanager worker counts a line
        as processed when it has read the line, and stores its unsent events in `state`.
    counts
        Counts by the names in `COUNTS`.
    last_error
        Latest error message, without secrets.
    failing
        Whether the latest result was an error: a failed or rejected request, or an unreadable line.
    accepted_states
        States that the sink receives; all others are skipped. None if unknown.
    unsent
        States by alert id, at or before the position, that the receiver has not received.
    state
        State of the sink worker as JSON values.
    """

    def __init__(self, folder: Path, name: str, kind: str, clock: Clock) -> None:
        if not _NAME.fullmatch(name):
            message = (
                "delivery: the name of a sink must start with a letter or digit and have at most 100 letters, digits, "
                f"`_`, `-` or `.`; got {name!r}"
            )
            raise RunError(message)
        self.name, self.kind, self.clock = name, kind, clock
        self.path = folder / f"{name}.json"
        self.rejected_path = folder / f"{name}.rejected.jsonl"
        self.positions_path = folder / f"{name}{POSITIONS_SUFFIX}"
        self.position: Position | None = None
        self.counts = dict.fromkeys(COUNTS, 0)
        self.last_error: str | None = None
        self.last_error_at: str | None = None
        self.last_success: str | None = None
        self.failing = False
        self.accepted_states: list[str] | None = None
        self.unsent: dict[str, list[str]] = {}
        self.state: Any = None
        self._saved: dict[str, Any] = {}
        self._recorded_position: Position | None = None
        self._synced_at = 0.0
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = _acquire_lock(folder / f"{name}.lock", name)
        self._load()

    def add(self, **counts: int) -> None:
        """Add to counts."""
        for name, count in counts.items():
            self.counts[name] += count

    def record_success(self) -> None:
        """Record that the receiver accepted a request."""
        self.last_success = format_time(self.clock.now())
        if self.failing:
            _log.info("sink %s: delivery works again", self.name)
        self.failing = False

    def record_failure(self, text: str) -> None:
        """Record an error. The text must not contain secrets."""
        self.last_error, self.last_error_at = text, format_time(self.clock.now())
        if not self.failing:
            _log.warning("sink %s: %s", self.name, text)
        self.failing = True

    def record_rejection(self, position: Position, alert: Any, response: SinkResponse) -> None:
        """Append a rejected alert event and the response of the receiver to the file of rejected events."""
        line = {
            "position": list(position),
            "at": format_time(self.clock.now()),
            "status": response.http_status,
            "response": response.text,
            "alert": alert,
        }
        append_line(self.rejected_path, json.dumps(line, ensure_ascii=False).encode("utf-8", "replace"))
        self.record_failure(response.text)

    def save(self, *, sync: bool = False) -> None:
        """Write position, counts and state to the cursor file. With `sync`, force it to disk."""
        sync = sync or self.clock.now() - self._synced_at >= SYNC_S
        status = self.status()
        data = json.dumps({"version": VERSION, **status, "state": self.state}, ensure_ascii=False)
        replace_file(self.path, data.encode("utf-8", "replace"), sync=sync)
        if self.position is not None and self.position != self._recorded_position and not self.unsent:
            self._record_position(self.position)
        self._saved = status
        if sync:
            self._synced_at = self.clock.now()

    def _record_position(self, position: Position) -> None:
        """Append position and time to the file of positions.

        The file is not forced to disk. If lines are lost, readers see a later time for these positions.
        """
        self._recorded_position = position
        with self.positions_path.open("ab") as file:
            file.write(json.dumps([*position, format_time(self.clock.now())]).encode() + b"\n")
            is_full = file.tell() > _MAX_POSITIONS_BYTES
        if is_full:
            data = self.positions_path.read_bytes()
            replace_file(self.positions_path, data[data.index(b"\n", len(data) // 2) + 1 :], sync=False)

    def save_if_changed(self) -> None:
        """Save if the status changed since the last save."""
        if self.status() != self._saved:
            self.save()

    def status(self) -> dict[str, Any]:
        """Return the status of the sink for users and metrics."""
        return {
            "sink": self.name,
            "kind": self.kind,
            "position": None if self.position is None else list(self.position),
            **self.counts,
            "failing": self.failing,
            "acceptedStates": self.accepted_states,
            "unsent": self.unsent,
            "lastError": self.last_error,
            "lastErrorAt": self.last_error_at,
            "lastSuccess": self.last_success,
        }

    def close(self) -> None:
        """Release the lock, so that another process can deliver to the sink."""
        self._lock.close()

    def _load(self) -> None:
        try:
            stored = json.loads(self.path.read_bytes())
            version = stored["version"]
            if version == VERSION:
                self._restore(stored)
                return
        except FileNotFoundError:
            return
        except (ValueError, KeyError, TypeError, RecursionError):
            damaged = self.path.with_name(f"{self.path.name}.damaged")
            self.path.replace(damaged)
            self.record_failure(
                f"{self.path.name} was damaged (kept as {damaged.name}); delivery restarts from the start"
            )
            return
        self.close()
        message = (
            f"{self.path.name}: `version` must be {VERSION}; got {version!r}: use the Tocsin version that wrote it"
        )
        raise RunError(message)

    def _restore(self, stored: dict[str, Any]) -> None:
        pair = stored["position"]
        position = None if pair is None else Position(int(pair[0]), int(pair[1]))
        counts = {name: int(stored[name]) for name in COUNTS}
        texts = [stored[name] for name in ("lastError", "lastErrorAt", "lastSuccess")]
        self.position, self.counts, self.state = position, counts, stored["state"]
        self.last_error, self.last_error_at, self.last_success = texts
        self.failing, self.unsent = bool(stored["failing"]), dict(stored["unsent"])
        # A position is recorded when no event at or before it is unsent.
        self._recorded_position = None if self.unsent else position


def move_cursor(folder: Path, name: str, position: Position | None) -> None:
    """Set the position of a sink that no process delivers to. If it is None, also discard the state of the sink."""
    path = folder / f"{name}.json"
    with _acquire_lock(folder / f"{name}.lock", name):
        stored = json.loads(read_file(path, _MAX_CURSOR_BYTES))
        stored["position"] = None if position is None else list(position)
        if position is None:
            stored |= {"state": None, "unsent": {}}
        replace_file(path, json.dumps(stored, ensure_ascii=False).encode("utf-8", "replace"))


def read_status(folder: Path | str) -> dict[str, dict[str, Any]]:
    """Return the stored status of all sinks by name; omit unreadable files."""
    statuses = {}
    for path in sorted(Path(folder).glob("*.json")):
        try:
            stored = json.loads(read_file(path, _MAX_CURSOR_BYTES))
        except (OSError, ValueError, RecursionError):
            continue
        if isinstance(stored, dict) and stored.get("sink") == path.stem:
            statuses[path.stem] = {key: value for key, value in stored.items() if key not in {"version", "state"}}
    return statuses


def _acquire_lock(path: Path, name: str) -> IO[bytes]:
    lock = lock_file(path)
    if lock is None:
        message = f"delivery: sink `{name}` is in use by another process, which holds {path.name}; stop that process"
        raise RunError(message)
    return lock
