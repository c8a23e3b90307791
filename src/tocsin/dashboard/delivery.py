"""What each sink did with a change of state, as its ledger tells: how far it has come and when, what it refused."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tocsin.delivery import Position
from tocsin.delivery.delivery import DELIVERY
from tocsin.delivery.sink_cursor import POSITIONS_SUFFIX
from tocsin.files import open_file
from tocsin.runtime.metrics import LARGEST

_MOST_BYTES = 1 << 23
# Behind every place.
_NEVER = Position(1 << 62, 0)


class Delivered(NamedTuple):
    """What a sink did with one change of state: in words, and whether that is as it should be."""

    sink: str
    kind: str
    what: str
    is_good: bool


def owed_by(status: Mapping[str, Any]) -> int:
    """How many changes of state a sink is still to be told, as its ledger says; 0 where it does not."""
    pending = status.get("pending")
    return pending if isinstance(pending, int) and 0 < pending <= LARGEST else 0


class _Refused(NamedTuple):
    """What a receiver said of alerts that it refused, by place; what it said of places before `since` is not read."""

    words: dict[Position, str]
    since: Position


class Delivery:
    """What the sinks of a run say at one moment; what each refused is read once, when it is first asked for."""

    def __init__(self, run_dir: Path, sinks: Mapping[str, Mapping[str, Any]]) -> None:
        self._folder, self._sinks = run_dir / DELIVERY, sinks
        self._refused: dict[str, _Refused] = {}
        self._taken: dict[str, list[tuple[Position, str]]] = {}

    def of(self, position: Position, state: str, alert: str = "") -> list[Delivered]:
        """What each sink did with the change of an alert, by its id, to a state at a place of the log."""
        return [
            Delivered(name, str(status.get("kind", "")), *self._said(name, status, position, state, alert))
            for name, status in self._sinks.items()
        ]

    def _said(
        self, name: str, status: Mapping[str, Any], position: Position, state: str, alert: str
    ) -> tuple[str, bool]:
        takes = status.get("acceptedStates")
        if isinstance(takes, list) and state not in takes:
            return f"not sent: the sink does not accept `{state}`", True
        reached = _place(status.get("position"))
        owed = status.get("unsent")
        is_owed = isinstance(owed, dict) and isinstance(owed.get(alert), list) and state in owed[alert]
        if reached is not None and position <= reached and not is_owed:
            if name not in self._refused:
                self._refused[name] = _refused(self._folder / f"{name}.rejected.jsonl")
            refused = self._refused[name].words.get(position)
            if refused is None and position < self._refused[name].since:
                return "delivered or rejected, no longer known", False
            return (f"rejected: {refused}", False) if refused else (f"delivered{self._by(name, position)}", True)
        if status.get("failing"):
            return f"not delivered yet: {status.get('lastError') or 'the last attempt failed'}", False
        return "not delivered yet", True

    def _by(self, name: str, position: Position) -> str:
        """By when a sink had come to a place; nothing where that is not known."""
        if name not in self._taken:
            self._taken[name] = _taken(self._folder / f"{name}{POSITIONS_SUFFIX}")
        moment = next((time for place, time in self._taken[name] if place >= position), None)
        return "" if moment is None else f" by {moment[:19].replace('T', ' ')}"


def _place(given: Any) -> Position | None:
    try:
        return Position(int(given[0]), int(given[1]))
    except (TypeError, ValueError, LookupError, OverflowError):
        return None


def _refused(path: Path) -> _Refused:
    """What a receiver said of alerts that it refused for good, the first word of each."""
    found: dict[Position, str] = {}
    lines, is_whole = _told(path)
    for told in lines:
        place = _place(told.get("position")) if isinstance(told, dict) else None
        if place is not None:
            found.setdefault(place, f"{told.get('status')} {told.get('response')}".strip())
    return _Refused(found, Position(0, 0) if is_whole else next(iter(found), _NEVER))


def _taken(path: Path) -> list[tuple[Position, str]]:
    """The places to which a sink came, in the order in which it did, and when."""
    found = []
    for told in _told(path)[0]:
        place = _place(told)
        if place is not None and len(told) == 3 and isinstance(told[2], str):
            found.append((place, told[2]))
    return found


def _told(path: Path) -> tuple[Iterator[Any], bool]:
    """The lines of a file that can be read, the newest of very many; and whether that is all of it."""
    try:
        with open_file(path) as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _MOST_BYTES))
            lines = file.read(_MOST_BYTES).split(b"\n")
    except OSError:
        return iter(()), True
    return _parsed(lines), size <= _MOST_BYTES


def _parsed(lines: Iterable[bytes]) -> Iterator[Any]:
    for line in lines:
        try:
            yield json.loads(line)
        except (ValueError, RecursionError):
            continue
