"""Memory as a rule or a rule file states it: how much state may be kept, and what to prefer when it is short."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from tocsin.errors import RuleError

BYTES, ROWS = "bytes", "rows"
SUBSET, SAMPLE = "subset", "sample"
PREFERS = (SUBSET, SAMPLE)

_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}
_AMOUNT = re.compile(r"([0-9]{1,16}(?:\.[0-9]{1,9})?) ?([a-zA-Z]*)", re.ASCII)
# More than any machine has; sums of a few stay far from the end of 64 bits.
_MOST = 10**15


@dataclass(frozen=True)
class Memory:
    """How much state may be kept: `amount` bytes or rows."""

    amount: int
    unit: str = BYTES

    def __str__(self) -> str:
        """Say it as a rule file does."""
        return f"{self.amount:,} rows" if self.unit == ROWS else size_text(self.amount)


def size_text(size: float) -> str:
    """Write a number of bytes for people.

    >>> size_text(12_500_000), size_text(999)
    ('12.5MB', '999B')
    """
    for unit, name in ((10**9, "GB"), (10**6, "MB"), (10**3, "KB")):
        if size >= unit:
            return f"{size / unit:.4g}{name}"
    return f"{size:.0f}B"


def read_memory(given: str | int, name: str = "memory") -> Memory:
    """Read an amount: a whole number of bytes, `200MB`, `1.5GiB`, or `10000 rows`.

    >>> read_memory("64KiB"), read_memory("500 rows")
    (Memory(amount=65536, unit='bytes'), Memory(amount=500, unit='rows'))
    """
    found = None if isinstance(given, bool) else _AMOUNT.fullmatch(str(given).replace(",", ""))
    word = found[2].lower() if found else ""
    if found is None or not (word in _UNITS or word == ROWS) or (word == ROWS and "." in found[1]):
        message = f"`{name}` must be an amount such as 200MB, 64KiB or 10000 rows; got {given!r}"
        raise RuleError(message)
    amount = math.floor(float(found[1]) * _UNITS.get(word, 1))
    if not 1 <= amount <= _MOST:
        message = f"`{name}` must be at least 1 and at most {_MOST:,} bytes or rows; got {given!r}"
        raise RuleError(message)
    return Memory(amount, ROWS if word == ROWS else BYTES)
