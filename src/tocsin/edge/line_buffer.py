"""Line buffer: the lines that were received and not yet sent, and the counts of all others.

Guarantee: at any moment received = sent + held + omitted + malformed. Each row is in exactly one of the last four
counts. `held` is counted from the buffered lines and not derived from the other counts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any, NamedTuple

_COUNTERS = ("received", "sent", "omitted", "malformed", "out_of_domain", "bytes_in", "bytes_out")


class DueLine(NamedTuple):
    """A line that must be sent.

    Attributes
    ----------
    due_by
        Serial number of the line whose arrival made this line due.
    number
        Number of the line itself (see `LineBuffer`).
    line
        Bytes of the line.
    """

    due_by: int
    number: int
    line: bytes


class LineBuffer:
    """Buffered lines by number.

    Rows have their serial number, from 0 in arrival order. Lines that only pass through (malformed lines and the CSV
    header) have negative numbers, from -1 downwards.

    Attributes
    ----------
    lines
        Lines that can still be omitted: delayed rows, and lines that wait for the output.
    in_progress
        Lines that are being written. They can no longer be omitted.
    serial
        Next serial number.
    passed
        Number of lines that passed through.
    reasons
        Number of malformed lines by reason.
    received, sent, omitted, malformed, out_of_domain, bytes_in, bytes_out
        Counters. Rows outside their domain count as sent too.
    """

    def __init__(self) -> None:
        self.lines: dict[int, bytes] = {}
        self.in_progress: deque[tuple[int, bytes]] = deque()
        self.serial = 0
        self.received = 0
        self.sent = 0
        self.omitted = 0
        self.malformed = 0
        self.out_of_domain = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.reasons: dict[str, int] = {}
        self.passed = 0

    @property
    def held(self) -> int:
        """Number of buffered rows: delayed rows, and rows that wait for the output."""
        return sum(number >= 0 for number in self.lines) + sum(number >= 0 for number, _ in self.in_progress)

    def __len__(self) -> int:
        return len(self.lines) + len(self.in_progress)

    def assign_serials(self, count: int) -> int:
        """Reserve serial numbers for received lines, and return the first."""
        first = self.serial
        self.serial += count
        return first

    def omit(self, number: int) -> None:
        """Remove a row and count it as omitted, if it is still buffered."""
        if self.lines.pop(number, None) is not None:
            self.omitted += 1

    def pass_through(self, line: bytes, due_by: int) -> DueLine:
        """Return a line that is not a row as a due line."""
        self.passed += 1
        return DueLine(due_by, -self.passed, line)

    def count_malformed(self, reason: str) -> None:
        """Count a malformed line, which is a received line too."""
        self.received += 1
        self.malformed += 1
        self.reasons[reason] = self.reasons.get(reason, 0) + 1

    def counts(self) -> dict[str, Any]:
        """Return all counts by name; `why` has the malformed lines by reason."""
        names = (*_COUNTERS[:2], "held", *_COUNTERS[2:])
        return {name: getattr(self, name) for name in names} | {"why": dict(self.reasons)}

    def restore(self, counts: dict[str, Any], lines: Iterable[tuple[int, bytes]]) -> None:
        """Restore the counts and the lines of an earlier run."""
        for name in _COUNTERS:
            setattr(self, name, int(counts[name]))
        self.reasons = {str(reason): int(count) for reason, count in counts["why"].items()}
        self.lines = dict(lines)
