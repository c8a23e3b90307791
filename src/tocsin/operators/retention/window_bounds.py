"""What a caller of the reduction asks for: arguments checked, columns made plain, windows turned into keys."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tocsin.operators.retention.bracketing import CLOSED, HOPPING, OPEN, Reach, hops

Array = NDArray[Any]
Float = NDArray[np.float64]
Int = NDArray[np.int64]

SHAPES = ("quasiconvex", "increasing", "decreasing")
ENDS = ("both", "left", "right", "neither")

# Whole times and lengths up to here can be added and doubled without leaving 64 bits.
MOST = 2**60


def check(interval: Any, shape: str, closed: str, hop: Any) -> None:
    """Refuse what cannot be a window or a shape."""
    if not (_is_number(interval) and 0 <= interval <= MOST):
        message = f"`interval` must be a finite number from 0 to 2^60; got {interval!r}"
        raise ValueError(message)
    if shape not in SHAPES:
        message = f"`shape` must be one of {', '.join(SHAPES)}; got {shape!r}"
        raise ValueError(message)
    if closed not in ENDS:
        message = f"`closed` must be one of {', '.join(ENDS)}; got {closed!r}"
        raise ValueError(message)
    if hop is not None and not (_is_number(hop) and 0 < hop <= MOST):
        message = f"`hop` must be a finite number above 0 and at most 2^60, or None; got {hop!r}"
        raise ValueError(message)


def check_whole(t: Array, interval: Any, hop: Any) -> None:
    """Refuse a fraction as a length where times are whole: they would be compared after rounding."""
    if t.dtype.kind == "f":
        return
    for name, length in (("interval", interval), ("hop", hop)):
        if length is not None and length != int(length):
            message = f"`{name}` must be an integer if the times are integers; got {length!r}"
            raise ValueError(message)


def columns(t: ArrayLike, v: ArrayLike) -> tuple[Array, Float]:
    """Give times as int64 or float64 and values as float64, one of each per tuple, never written to."""
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
    if kind is np.int64 and times.size and not -MOST <= int(times.min()) <= int(times.max()) <= MOST:
        message = f"`t` must be between -2^60 and 2^60; got {times.min()} to {times.max()}"
        raise ValueError(message)
    return np.ascontiguousarray(times, kind), np.ascontiguousarray(values, np.float64)


def in_order(t: Array) -> bool:
    """Tell whether times never fall."""
    return bool((t[1:] >= t[:-1]).all())


def segments(t: Array, group: ArrayLike | None) -> tuple[Int | None, Int]:
    """Give the order that sorts tuples by group and time (None: they are sorted), and the offsets of the groups."""
    if group is None:
        return (None if in_order(t) else np.argsort(t)), np.array([0, t.size])
    labels = np.asarray(group)
    if labels.shape != t.shape:
        message = f"`group` must have one label per tuple; got {labels.size} for {t.size}"
        raise ValueError(message)
    names, number = np.unique(labels, return_inverse=True)
    order = np.lexsort((t, number))
    return order, np.concatenate(([0], np.cumsum(np.bincount(number, minlength=names.size))))


def keys_and_reach(t: Array, interval: Any, shape: str, closed: str, hop: Any) -> tuple[tuple[Array, Array], Reach]:
    """Give the keys of sorted times, and how far windows reach, in the type of the times."""
    plain = float if t.dtype.kind == "f" else int
    off, length = plain(-1), plain(interval if hop is None else 0)
    kind = HOPPING if hop is not None else OPEN if closed == "neither" else CLOSED
    reach = Reach(off if shape == "decreasing" else length, off if shape == "increasing" else length, kind)
    return ((t, t) if hop is None else hops(t, plain(interval), plain(hop), closed)), reach


def plain_number(x: Any) -> Any:
    """A number as Python has it: one of NumPy's small types would overflow when it is doubled."""
    return x.item() if isinstance(x, np.generic) else x


def _is_number(x: Any) -> bool:
    return isinstance(x, int | float | np.integer | np.floating) and not isinstance(x, bool) and math.isfinite(x)
