"""What each sink did with one change of state, as its ledger tells: how far it has come, and what it refused."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tocsin.deliver import Position
from tocsin.deliver.run import DELIVERY

_MOST_BYTES = 1 << 23


def delivered(
    run_dir: Path, sinks: Mapping[str, Mapping[str, Any]], position: Position
) -> Iterator[tuple[str, str, str, bool]]:
    """Per sink: its name and kind, what became of the change in words, and whether that is as it should be."""
    for name, status in sinks.items():
        what, is_good = _said(run_dir, name, status, position)
        yield name, str(status.get("kind", "")), what, is_good


def _said(run_dir: Path, name: str, status: Mapping[str, Any], position: Position) -> tuple[str, bool]:
    reached = _place(status.get("position"))
    if reached is not None and position <= reached:
        refused = _refused(run_dir / DELIVERY / f"{name}.rejected.jsonl", position)
        return (f"refused: {refused}", False) if refused else ("taken", True)
    if status.get("failing"):
        return f"not yet: {status.get('lastError') or 'the last try failed'}", False
    return "not yet", True


def _place(given: Any) -> Position | None:
    try:
        return Position(int(given[0]), int(given[1]))
    except (TypeError, ValueError, IndexError):
        return None


def _refused(path: Path, position: Position) -> str:
    """What a receiver said when it refused an alert for good; nothing if it did not."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - _MOST_BYTES))
            lines = file.read().split(b"\n")
    except OSError:
        return ""
    for line in lines:
        try:
            told = json.loads(line)
            if _place(told["position"]) == position:
                return f"{told.get('status')} {told.get('answer')}".strip()
        except (ValueError, KeyError, TypeError, RecursionError):
            continue
    return ""
