"""What each sink did with a change of state, as its ledger tells: how far it has come, and what it refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tocsin.deliver import Position
from tocsin.deliver.run import DELIVERY

_MOST_BYTES = 1 << 23


class Delivered(NamedTuple):
    """What a sink did with one change of state: in words, and whether that is as it should be."""

    sink: str
    kind: str
    what: str
    is_good: bool


class Delivery:
    """What the sinks of a run say at one moment; what each refused is read once, when it is first asked for."""

    def __init__(self, run_dir: Path, sinks: Mapping[str, Mapping[str, Any]]) -> None:
        self._folder, self._sinks = run_dir / DELIVERY, sinks
        self._refused: dict[str, dict[Position, str]] = {}

    def of(self, position: Position) -> list[Delivered]:
        """What each sink did with the change of state at a place of the log."""
        return [
            Delivered(name, str(status.get("kind", "")), *self._said(name, status, position))
            for name, status in self._sinks.items()
        ]

    def _said(self, name: str, status: Mapping[str, Any], position: Position) -> tuple[str, bool]:
        reached = _place(status.get("position"))
        if reached is not None and position <= reached:
            if name not in self._refused:
                self._refused[name] = _refused(self._folder / f"{name}.rejected.jsonl")
            refused = self._refused[name].get(position)
            return (f"refused: {refused}", False) if refused else ("taken", True)
        if status.get("failing"):
            return f"not yet: {status.get('lastError') or 'the last try failed'}", False
        return "not yet", True


def _place(given: Any) -> Position | None:
    try:
        return Position(int(given[0]), int(given[1]))
    except (TypeError, ValueError, IndexError):
        return None


def _refused(path: Path) -> dict[Position, str]:
    """What a receiver said of alerts that it refused for good, the first word of each."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - _MOST_BYTES))
            lines = file.read().split(b"\n")
    except OSError:
        return {}
    found: dict[Position, str] = {}
    for line in lines:
        try:
            told = json.loads(line)
            place = _place(told["position"])
            if place is not None:
                found.setdefault(place, f"{told.get('status')} {told.get('answer')}".strip())
        except (ValueError, KeyError, TypeError, RecursionError, AttributeError):
            continue
    return found
