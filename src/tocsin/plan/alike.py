"""Alike: one number per row that equals where all its values do, so that a row which comes again is known by it."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from tocsin.runtime.contract import Float, Int


def tags(values: Iterable[Float], rows: int) -> Int:
    """Whole numbers of 64 bits, mixed from all values of each row; both zeros are one."""
    tag = np.zeros(rows, np.int64)
    with np.errstate(over="ignore"):
        for value in values:
            tag = (tag ^ (value + 0.0).view(np.int64)) * np.int64(-7046029254386353131)
            tag ^= tag >> np.int64(29)
    return tag


def marks(values: Iterable[Float], rows: int) -> Float:
    """The same as doubles of 2^1022 and above: larger than any number that rows are compared by."""
    fraction = (tags(values, rows) >> np.int64(12)) & np.int64(2**52 - 1)
    return np.asarray((1.0 + fraction * 2.0**-52) * 2.0**1022)
