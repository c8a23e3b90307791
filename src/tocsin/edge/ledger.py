"""Ledger: the lines that have come and not gone out, and what became of all others.

*Guarantee*: at any moment received = sent + held + omitted + malformed. A row is in exactly one of these; `held` is
counted from the lines themselves, not worked out from the other three.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any, NamedTuple

_KEPT = ("received", "sent", "omitted", "malformed", "out_of_domain", "bytes_in", "bytes_out")


class Due(NamedTuple):
    """A line that must leave: the arrival that made it due, its own number, its bytes."""

    by: int
    number: int
    line: bytes


class Ledger:
    """Lines by number: rows are numbered from 0 on as they arrive, lines that only pass through from -1 down.

    `lines` are those that are here, `begun` those of them that are being written and can no longer be left out.
    """

    def __init__(self) -> None:
        self.lines: dict[int, bytes] = {}
        self.begun: deque[tuple[int, bytes]] = deque()
        self.serial = 0
        self.received = 0
        self.sent = 0
        self.omitted = 0
        self.malformed = 0
        self.out_of_domain = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.why: dict[str, int] = {}
        self.passed = 0

    @property
    def held(self) -> int:
        """How many rows are here, waiting for a bracket or for the output."""
        return sum(number >= 0 for number in self.lines) + sum(number >= 0 for number, _ in self.begun)

    def __len__(self) -> int:
        return len(self.lines) + len(self.begun)

    def number(self, count: int) -> int:
        """Give the first of `count` numbers for lines that have arrived."""
        first = self.serial
        self.serial += count
        return first

    def omit(self, number: int) -> None:
        """Leave a row out, unless it has left already."""
        if self.lines.pop(number, None) is not None:
            self.omitted += 1

    def passing(self, line: bytes, by: int) -> Due:
        """Number a line that is no row and goes out as it came."""
        self.passed += 1
        return Due(by, -self.passed, line)

    def refuse(self, reason: str) -> None:
        """Count a malformed line, as received too."""
        self.received += 1
        self.malformed += 1
        self.why[reason] = self.why.get(reason, 0) + 1

    def counts(self) -> dict[str, Any]:
        """Give what became of the rows."""
        names = (*_KEPT[:2], "held", *_KEPT[2:])
        return {name: getattr(self, name) for name in names} | {"why": dict(self.why)}

    def recall(self, counts: dict[str, Any], lines: Iterable[tuple[int, bytes]]) -> None:
        """Go on from counts that were given earlier, and the lines that were here."""
        for name in _KEPT:
            setattr(self, name, int(counts[name]))
        self.why = {str(reason): int(count) for reason, count in counts["why"].items()}
        self.lines = dict(lines)
