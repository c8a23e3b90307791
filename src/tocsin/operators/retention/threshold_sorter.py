"""Threshold sorter: sort a stream by time, and retain only the tuples that a threshold function over its windows needs.

`retained` reduces complete arrays. `ThresholdSorter` reduces tuples that arrive in pieces and in any order. Both need
only NumPy and are fast with Numba.

Guarantees: every window keeps its extremes, as in `bracketing.py`. For tuples in order, a sorter retains the same
minimum set as `retained` for all pushed tuples. After out-of-order tuples it may retain a few more.

Complexity: `retained` sorts the tuples if necessary, and then takes constant time for each tuple. A push of tuples in
order costs the batch and the last two intervals of the state. Another push costs the part of the state within two
intervals of the times of the batch.

References: Cai et al., PVLDB 14(6), section 6.1. This module merges batches instead of single tuples.
"""

from __future__ import annotations

import json
import struct
import zlib
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tocsin.operators.retention.bracketing import sweep, sweep_new_rows
from tocsin.operators.retention.window_bounds import (
    check_arguments,
    check_integer_lengths,
    group_segments,
    is_sorted,
    to_columns,
    to_python_number,
    window_keys_and_reach,
)

Array = NDArray[Any]
Bool = NDArray[np.bool_]
Float = NDArray[np.float64]
Int = NDArray[np.int64]

MAGIC, VERSION = b"tocsin-sorter\0", 1
_HEAD, _CHECKSUM = struct.Struct("<HI"), struct.Struct("<I")


def retained(
    t: ArrayLike,
    v: ArrayLike,
    interval: float,
    *,
    shape: str = "quasiconvex",
    closed: str = "both",
    hop: float | None = None,
    group: ArrayLike | None = None,
) -> Bool:
    """Return a mask of the smallest set of tuples that alarms need, with one tuple of exact duplicates.

    Parameters
    ----------
    t, v
        Times (integers are exact) and values, in any order.
    interval
        Length of the windows.
    shape
        Shape of the threshold function in the value: `quasiconvex`, `increasing` or `decreasing`.
    closed
        Ends that belong to a window: `both`, `left`, `right` or `neither`.
    hop
        Windows are [k hop, k hop + interval] for integer k; without it they slide.
    group
        Labels: the tuples of each label are a stream.

    Examples
    --------
    >>> retained([0, 1, 2, 3, 4], [5.0, 1.0, 3.0, 2.0, 6.0], interval=10)
    array([ True,  True, False,  True,  True])
    """
    check_arguments(interval, shape, closed, hop)
    times, values = to_columns(t, v)
    if not (np.isfinite(times).all() and np.isfinite(values).all()):
        message = "`t` and `v` must be finite; got NaN or infinity"
        raise ValueError(message)
    check_integer_lengths(times, interval, hop)
    order, offsets = group_segments(times, group)
    if order is not None:
        times, values = times[order], values[order]
    omitted = np.zeros(times.size, np.uint8)
    keys, reach = window_keys_and_reach(times, interval, shape, closed, hop)
    sweep(offsets, keys, values, reach, omitted)
    mask: Bool = omitted == 0
    if order is None:
        return mask
    scattered = np.empty(times.size, np.bool_)
    scattered[order] = mask
    return scattered


class ThresholdSorter:
    """Reduced stream: the tuples that alarms need, sorted by time. Tuples can arrive in pieces and in any order.

    Tuples without a finite time and value are counted in `quarantined` and ignored.

    Examples
    --------
    >>> sorter = ThresholdSorter(interval=10)
    >>> sorter.push([0, 2, 1], [5.0, 3.0, 1.0])
    >>> sorter.push([4, 3], [6.0, 2.0])
    >>> sorter.retained()
    (array([0, 1, 3, 4]), array([5., 1., 2., 6.]))
    """

    def __init__(
        self, interval: float, *, shape: str = "quasiconvex", closed: str = "both", hop: float | None = None
    ) -> None:
        check_arguments(interval, shape, closed, hop)
        self.interval, self.shape, self.closed, self.hop = (
            to_python_number(interval),
            shape,
            closed,
            to_python_number(hop),
        )
        self.quarantined = 0
        self._next_id = 0
        self._start, self._stop = 0, 0
        whole = all(length is None or length == int(length) for length in (interval, hop))
        self._t: Array = np.empty(1024, np.int64 if whole else np.float64)
        self._v: Float = np.empty(1024, np.float64)
        self._id: Int = np.empty(1024, np.int64)

    def __len__(self) -> int:
        return self._stop - self._start

    def push(self, t: ArrayLike, v: ArrayLike, ids: ArrayLike | None = None) -> None:
        """Add tuples in any order. Without `ids`, assign consecutive ids in arrival order."""
        times, values = to_columns(np.atleast_1d(t), np.atleast_1d(v))
        numbers = self._assign_ids(times.size, ids)
        good = np.isfinite(times) & np.isfinite(values)
        if not good.all():
            self.quarantined += int(times.size - np.count_nonzero(good))
            times, values, numbers = times[good], values[good], numbers[good]
        if times.size == 0:
            return
        times = self._convert_times(times)
        if not is_sorted(times):
            order = np.argsort(times)
            times, values, numbers = times[order], values[order], numbers[order]
        if len(self) == 0 or times[0] >= self._t[self._stop - 1]:
            self._append(times, values, numbers)
        else:
            self._merge(times, values, numbers)

    def trim(self, t: float) -> int:
        """Remove the tuples before time t and return their number."""
        _check_time(t)
        before = self._start
        self._start += int(np.searchsorted(self._t[self._start : self._stop], t, side="left"))
        return self._start - before

    def retained(self) -> tuple[Array, Float]:
        """Return times and values of the retained tuples, sorted by time."""
        return self._t[self._start : self._stop].copy(), self._v[self._start : self._stop].copy()

    def retained_ids(self) -> Int:
        """Return the ids of the retained tuples, sorted by time."""
        return self._id[self._start : self._stop].copy()

    def flush(self, t: float) -> tuple[Array, Float, Int]:
        """Remove the retained tuples up to time t, and return their times, values and ids, sorted by time."""
        _check_time(t)
        stop = self._start + int(np.searchsorted(self._t[self._start : self._stop], t, side="right"))
        part = slice(self._start, stop)
        self._start = stop
        return self._t[part].copy(), self._v[part].copy(), self._id[part].copy()

    def snapshot(self) -> bytes:
        """Return the state as bytes."""
        head = {name: getattr(self, name) for name in ("interval", "shape", "closed", "hop", "quarantined")}
        head |= {"next_id": self._next_id, "time": self._t.dtype.kind, "rows": len(self)}
        part = slice(self._start, self._stop)
        return _pack(head, (self._t[part], self._v[part], self._id[part]))

    @classmethod
    def restore(cls, data: bytes) -> ThresholdSorter:
        """Return the sorter of a snapshot."""
        head, rows = _unpack(data)
        sorter = cls(head["interval"], shape=head["shape"], closed=head["closed"], hop=head["hop"])
        sorter.quarantined, sorter._next_id = head["quarantined"], head["next_id"]
        sorter._t, sorter._v, sorter._id = rows
        sorter._stop = sorter._t.size
        return sorter

    def _assign_ids(self, count: int, ids: ArrayLike | None) -> Int:
        fresh = np.arange(self._next_id, self._next_id + count)
        numbers = fresh if ids is None else np.atleast_1d(np.asarray(ids, np.int64))
        if numbers.shape != (count,):
            message = f"`ids` must have one number per tuple; got {numbers.size} for {count}"
            raise ValueError(message)
        self._next_id += count
        return numbers

    def _convert_times(self, times: Array) -> Array:
        """Convert times to the type of the state. Change the state to float times with the first float times."""
        if times.dtype.kind == "f" and self._t.dtype.kind == "i":
            self._t = self._t.astype(np.float64)
        return times.astype(self._t.dtype, copy=False)

    def _append(self, t: Array, v: Float, ids: Int) -> None:
        """Append tuples that are not older than the state. Only the last two intervals can change."""
        own = self._t[self._start : self._stop]
        back = int(np.searchsorted(own, own[-1] - 2 * self.interval, side="left")) if own.size else 0
        inside = self._start + back
        keep = self._sweep(self._stop - inside, *self._concatenate(inside, self._stop, (t, v), None))
        self._replace(inside, self._stop, (t, v, ids), keep, None)

    def _merge(self, t: Array, v: Float, ids: Int) -> None:
        """Merge out-of-order tuples: sweep the part of the state within two intervals of their times again."""
        own = self._t[self._start : self._stop]
        lo = self._start + int(np.searchsorted(own, t[0] - 2 * self.interval, side="left"))
        hi = self._start + int(np.searchsorted(own, t[-1] + 2 * self.interval, side="right"))
        order = np.argsort(np.concatenate((self._t[lo:hi], t)), kind="stable")
        keep = self._sweep(0, *self._concatenate(lo, hi, (t, v), order))
        self._replace(lo, hi, (t, v, ids), keep, order)

    def _concatenate(self, lo: int, hi: int, new: tuple[Array, Float], order: Int | None) -> tuple[Array, Float]:
        t, v = np.concatenate((self._t[lo:hi], new[0])), np.concatenate((self._v[lo:hi], new[1]))
        return (t, v) if order is None else (t[order], v[order])

    def _sweep(self, known: int, t: Array, v: Float) -> Bool:
        omitted = np.zeros(t.size, np.uint8)
        keys, reach = window_keys_and_reach(t, self.interval, self.shape, self.closed, self.hop)
        sweep_new_rows(known, keys, v, reach, omitted)
        keep: Bool = omitted == 0
        return keep

    def _replace(self, lo: int, hi: int, new: tuple[Array, Float, Int], keep: Bool, order: Int | None) -> None:
        """Replace the rows from `lo` to `hi` by the retained ones among these rows and the new rows."""
        kept = np.flatnonzero(keep) if order is None else order[keep]
        rest, lo, hi = self._stop - hi, *self._reserve(lo, hi, kept.size)
        for own, column in zip((self._t, self._v, self._id), new, strict=True):
            own_part = np.concatenate((own[lo:hi], column))[kept]
            own[lo + kept.size : lo + kept.size + rest] = own[hi : hi + rest].copy()
            own[lo : lo + kept.size] = own_part
        self._stop = lo + kept.size + rest

    def _reserve(self, lo: int, hi: int, size: int) -> tuple[int, int]:
        """Reserve space for `size` rows in place of the rows from `lo` to `hi`, and return their new positions.

        If the arrays are full, all rows move to the front of longer arrays.
        """
        need = self._stop - hi + lo + size
        if need <= self._t.size:
            return lo, hi
        start, live = self._start, len(self)
        rows, size = slice(start, start + live), 2 * (need - start) + 1024
        self._t, self._v, self._id = (_grow(own[rows], size) for own in (self._t, self._v, self._id))
        self._start, self._stop = 0, live
        return lo - start, hi - start


def _check_time(t: float) -> None:
    if not isinstance(t, int | float | np.integer | np.floating) or t != t:
        message = f"`t` must be a number; got {t!r}"
        raise ValueError(message)


def _grow(column: Array, size: int) -> Array:
    longer = np.empty(size, column.dtype)
    longer[: column.size] = column
    return longer


def _pack(head: dict[str, Any], rows: tuple[Array, Float, Int]) -> bytes:
    text = json.dumps(head, default=lambda number: number.item()).encode()
    parts = [column.astype(column.dtype.newbyteorder("<")).tobytes() for column in rows]
    body = b"".join([_HEAD.pack(VERSION, len(text)), text, *parts])
    return MAGIC + body + _CHECKSUM.pack(zlib.crc32(body))


def _unpack(data: bytes) -> tuple[dict[str, Any], tuple[Array, Float, Int]]:
    if not isinstance(data, bytes | bytearray | memoryview):
        message = f"`data` must be bytes; got {type(data).__name__}"
        raise ValueError(message)
    body = bytes(data[len(MAGIC) : -_CHECKSUM.size])
    if data[: len(MAGIC)] != MAGIC or len(body) < _HEAD.size:
        message = "`data` must be a snapshot of a threshold sorter; its header is different"
        raise ValueError(message)
    version, size = _HEAD.unpack_from(body)
    if version > VERSION:
        message = f"`data` must be a snapshot of version {VERSION} or older; got version {version}"
        raise ValueError(message)
    if _CHECKSUM.pack(zlib.crc32(body)) != data[-_CHECKSUM.size :]:
        message = "`data` must be an undamaged snapshot; its checksum is wrong"
        raise ValueError(message)
    head = json.loads(body[_HEAD.size : _HEAD.size + size])
    start, step = _HEAD.size + size, 8 * head["rows"]
    kinds = ("<f8" if head["time"] == "f" else "<i8", "<f8", "<i8")
    parts = (np.frombuffer(body, kind, head["rows"], start + place * step) for place, kind in enumerate(kinds))
    t, v, ids = (part.astype(part.dtype.newbyteorder("=")) for part in parts)
    return head, (t, v, ids)
