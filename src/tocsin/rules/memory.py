"""Memory as a rule or a rule file states it: how much state may be kept, and what to prefer when it is short."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tocsin.errors import RuleError
from tocsin.rules.durations import duration_text, microseconds
from tocsin.rules.nearest import nearest

BYTES, ROWS = "bytes", "rows"
SUBSET, SAMPLE = "subset", "sample"
PREFERS = (SUBSET, SAMPLE)
AUTO, KEY, AGE, NONE = "auto", "key", "age", "none"
BY = (AUTO, KEY, AGE, NONE)
# What `model` may say.
PARTS = ("by", "granularity")

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


@dataclass(frozen=True)
class Model:
    """By what rows are judged when memory is short: what is found to fit, or what is set by hand.

    Ages are told apart by `granularity_us`; 0: by a twentieth of the window.
    """

    by: str = AUTO
    granularity_us: int = 0

    def __str__(self) -> str:
        """Say what is set; nothing if nothing is."""
        words = {AUTO: "", KEY: "rows are judged by key", AGE: "rows are judged by age", NONE: "no model is used"}
        fine = f"ages are told apart by {duration_text(self.granularity_us)}" if self.granularity_us else ""
        said = " and ".join(part for part in (words[self.by], fine) if part)
        return f"{said}, as the rule says" if said else ""


def read_model(given: Mapping[str, Any] | None) -> Model:
    """Read what a rule says of the model; a mistake is a RuleError that begins with the name of its field.

    >>> read_model({"by": "age", "granularity": "10s"})
    Model(by='age', granularity_us=10000000)
    """
    if given is None:
        return Model()
    if not isinstance(given, Mapping):
        message = f"`model` must be a mapping such as {{by: key}}; got {given!r:.60}"
        raise RuleError(message)
    for name in given:
        if name not in PARTS:
            hint = nearest(str(name), PARTS) or f"; known are {', '.join(PARTS)}"
            message = f"`model.{str(name)[:60]}` is not a key of `model`{hint}"
            raise RuleError(message)
    by = given.get("by", AUTO)
    if by not in BY:
        message = f"`model.by` must be one of {', '.join(BY)}; got {by!r:.60}"
        raise RuleError(message + nearest(str(by), BY))
    fine_us = microseconds(given["granularity"], "`model.granularity`") if "granularity" in given else 0
    if "granularity" in given and fine_us < 1:
        message = f"`model.granularity` must be longer than 0; got {given['granularity']!r}"
        raise RuleError(message)
    return Model(by, fine_us)


def size_text(size: float) -> str:
    """Write a number of bytes for people.

    >>> size_text(12_500_000), size_text(999)
    ('12.5MB', '999B')
    """
    for unit, name in ((10**9, "GB"), (10**6, "MB"), (10**3, "KB")):
        if size >= unit:
            return f"{size / unit:.4g}{name}"
    return f"{size:.0f}B"


def read_memory(given: str | int) -> Memory:
    """Read an amount: a whole number of bytes, `200MB`, `1.5GiB`, or `10000 rows`.

    >>> read_memory("64KiB"), read_memory("500 rows")
    (Memory(amount=65536, unit='bytes'), Memory(amount=500, unit='rows'))
    """
    found = None if isinstance(given, bool) else _AMOUNT.fullmatch(str(given).replace(",", ""))
    word = found[2].lower() if found else ""
    if found is None or not (word in _UNITS or word == ROWS) or (word == ROWS and "." in found[1]):
        message = f"`memory` must be an amount such as 200MB, 64KiB or 10000 rows; got {given!r}"
        raise RuleError(message)
    amount = math.floor(float(found[1]) * _UNITS.get(word, 1))
    if not 1 <= amount <= _MOST:
        message = f"`memory` must be at least 1 and at most {_MOST:,} bytes or rows; got {given!r}"
        raise RuleError(message)
    return Memory(amount, ROWS if word == ROWS else BYTES)
