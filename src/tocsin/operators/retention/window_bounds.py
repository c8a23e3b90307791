"""Window bounds: checks of the arguments of a reduction, and their conversion to columns and window keys.

The callers are `threshold_sorter.py` and `edge/settings.py`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tocsin.operators.retention.bracketing import CLOSED, HOPPING, OPEN, Reach, hopping_windows

Array = NDArray[Any]
Float = NDArray[np.float64]
Int = NDArray[np.int64]

SHAPES = ("quasiconvex", "increasing", "decreasing")
ENDS = ("both", "left", "right", "neither")

# Largest integer time and length. Sums and doubled values fit into 64 bits.
MAX_TIME = 2**60


def check_arguments(interval: Any, shape: str, closed: str, hop: Any) -> None:
    """Raise an error for an invalid window, shape or hop."""
    if not (_is_number(interval) and 0 <= interval <= MAX_TIME):
        message = f"`interval` must be a finite number from 0 to 2^60; got {interval!r}"
        raise ValueError(message)
    if shape not in SHAPES:
        message = f"`shape` must be one of {', '.join(SHAPES)}; got {shape!r}"
        raise ValueError(message)
    if closed not in ENDS:
        message = f"`closed` must be one of {', '.join(ENDS)}; got {closed!r}"
        raise ValueError(message)
    if hop is not None and not (_is_number(hop) and 0 < hop <= MAX_TIME):
        message = f"`hop` must be a finite number above 0 and at most 2^60, or None; got {hop!r}"
        raise ValueError(message)


def check_integer_lengths(t: Array, interval: Any, hop: Any) -> None:
    """Raise an error for a fractional length with integer times. The comparison would round the length."""
    if t.dtype.kind == "f":
        return
    for name, length in (("interval", interval), ("hop", hop)):
        if length is not None and length != int(length):
            message = f"`{name}` must be an integer if the times are integers; got {length!r}"
            raise ValueError(message)


def to_columns(t: ArrayLike, v: ArrayLike) -> tuple[Array, Float]:
    """Return times as int64 or float64 and values as float64, one per tuple. The caller must not write to them."""
    times, values = np.asarray(t), np.asarray(v)
    for name, column in (("t", times), ("v", values)):
        if column.dtype.kind not in "iufb" and column.size:
            message = f"`{name}` must contain numbers; got {column.dtype}"
            raise ValueError(message)
        if column.ndim != 1:
            message = f"`{name}` must have one dimension; got {column.ndim}"
            raise ValueError(message)
    if times.size != values.size:
        message = f"`t` and `v` must have the same length; got {times.size} and {values.size}"
        raise ValueError(message)
    kind = np.float64 if times.dtype.kind == "f" else np.int64
    if kind is np.int64 and times.size and not -MAX_TIME <= int(times.min()) <= int(times.max()) <= MAX_TIME:
        message = f"`t` must be between -2^60 and 2^60; got {times.min()} to {times.max()}"
        raise ValueError(message)
    return np.ascontiguousarray(times, kind), np.ascontiguousarray(values, np.float64)


def is_sorted(t: Array) -> bool:
    """Return whether times never decrease."""
    return bool((t[1:] >= t[:-1]).all())


def group_segments(t: Array, group: ArrayLike | None) -> tuple[Int | None, Int]:
    """Return the order that sorts tuples by group and time, and the offsets of the groups.

    The order is None if the tuples are sorted already.
    """
    if group is None:
        return (None if is_sorted(t) else np.argsort(t)), np.array([0, t.size])
    labels = np.asarray(group)
    if labels.shape != t.shape:
        message = f"`group` must have one label per tuple; got {labels.size} for {t.size}"
        raise ValueError(message)
    names, number = np.unique(labels, return_inverse=True)
    order = np.lexsort((t, number))
    return order, np.concatenate(([0], np.cumsum(np.bincount(number, minlength=names.size))))


def window_keys_and_reach(
    t: Array, interval: Any, shape: str, closed: str, hop: Any
) -> tuple[tuple[Array, Array], Reach]:
    """Return the window keys of sorted times, and the reach of the windows in the type of the times."""
    plain = float if t.dtype.kind == "f" else int
    off, length = plain(-1), plain(interval if hop is None else 0)
    kind = HOPPING if hop is not None else OPEN if closed == "neither" else CLOSED
    reach = Reach(off if shape == "decreasing" else length, off if shape == "increasing" else length, kind)
    return ((t, t) if hop is None else hopping_windows(t, plain(interval), plain(hop), closed)), reach


def to_python_number(x: Any) -> Any:
    """Return a number as a Python number. Small NumPy types would overflow when the number is doubled."""
    return x.item() if isinstance(x, np.generic) else x


def _is_number(x: Any) -> bool:
    return isinstance(x, int | float | np.integer | np.floating) and not isinstance(x, bool) and math.isfinite(x)
