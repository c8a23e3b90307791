"""A stream in its intermediate representation, batch by batch: `Stored` with its layout, pages and invariants."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tocsin.hashing import mix
from tocsin.jit import kernel
from tocsin.runtime.contract import Float, Int
from tocsin.runtime.state_codec import pack, unpack
from tocsin.stages.promising.layout import Layout
from tocsin.stages.promising.stored import (
    BEGIN,
    COUNT,
    GRAIN,
    LAST,
    NODE,
    OLDEST,
    PER_TUPLE,
    START,
    TIME,
    ZONES,
    Rows,
    Stored,
    insert_rows,
    new_stored,
    with_room,
)
from tocsin.stages.promising.summary import widened

# So many tuples are taken at once: what they drive out makes room for the next.
_BLOCK = 8192
# Buckets must not go with the places of a sketch, which mixes the same values.
_APART = 0x5851F42D4C957F2D


class Representation:
    """A stream: its tuples and their summaries."""

    def __init__(self, layout: Layout, attributes: int = 0) -> None:
        self.layout, self.limits = layout, layout.limits()
        self.stored = new_stored(layout, attributes)

    def insert(self, keys: Int, times: Int, rows: Int, values: Float | None = None) -> None:
        """Take tuples in order of time."""
        keys, times, rows = (whole_numbers(column, len(keys)) for column in (keys, times, rows))
        check_order(times, self.newest_us)
        values = np.zeros((len(keys), self.stored.values.shape[1])) if values is None else values
        for begin in range(0, len(keys), _BLOCK):
            part = slice(begin, begin + _BLOCK)
            places, buckets = places_of(self.layout, keys[part]), bucket_all(keys[part], self.layout.parts)
            self.make_room(len(places))
            taken = Rows(keys[part], times[part], rows[part], buckets, places, values[part])
            insert_rows(self.stored, self.limits, taken, 0, len(places))

    @property
    def newest_us(self) -> int | None:
        """The time of the newest tuple that is kept."""
        facts = self.stored.facts
        if facts[OLDEST] == facts[COUNT]:
            return None
        return int(self.stored.tuples[(facts[COUNT] - 1) % len(self.stored.tuples), TIME])

    def make_room(self, more: int) -> None:
        """Have room for more tuples, and for all values that the scheme knows by now."""
        self.stored = with_room(self.stored, more)
        if self.layout.nodes:
            self.stored = self.stored._replace(tables=widened(self.stored.tables, self.layout.scheme.width))

    @property
    def size(self) -> int:
        """The bytes of all arrays."""
        return sum(array.nbytes for array in self.stored)

    def zones(self) -> list[tuple[int, list[int]]]:
        """Of each zone, oldest first: its granularity, and the numbers of arrival of its tuples that are kept."""
        facts = self.stored.facts
        zones = self.stored.zone[: facts[ZONES]].tolist()
        ends = [*(zone[BEGIN] for zone in zones[1:]), int(facts[COUNT])]
        oldest = int(facts[OLDEST])
        return [
            (zone[GRAIN], list(range(max(oldest, zone[BEGIN]), end))) for zone, end in zip(zones, ends, strict=False)
        ]

    def check(self) -> None:
        """Assert what always holds of the state."""
        stored, layout = self.stored, self.layout
        if not layout.nodes:
            return
        zones, most = stored.zone[: stored.facts[ZONES]], layout.most_zones
        assert stored.used.sum() == len(zones)
        assert np.all(np.diff(zones[:, GRAIN]) <= 0)
        assert np.all(np.diff(zones[:, BEGIN]) > 0)
        assert np.all(zones[:, START] <= zones[:, LAST])
        total = np.zeros_like(stored.tables[0])
        for grain in range(layout.depth):
            own = stored.tables[zones[zones[:, GRAIN] == grain, NODE]].sum(axis=0)
            assert np.array_equal(stored.tables[most + grain], own)
            total += own
        assert np.array_equal(stored.tables[-1], total)

    def page(self) -> bytes:
        """Write the state; of the slots, those in use."""
        return pack(arrays_of(self.stored) | self.layout.scheme.learnt())

    def read(self, page: bytes) -> None:
        """Go on from a state that was written."""
        arrays = unpack(page)[0]
        self.stored = stored_of(arrays)
        self.layout.scheme.relearn(arrays)


def places_of(layout: Layout, keys: Int) -> Int:
    """Give places in summaries; none where nothing is summarised."""
    return layout.scheme.places(keys, learn=True) if layout.nodes else np.zeros((len(keys), 0), np.int64)


def whole_numbers(column: NDArray[Any], length: int) -> Int:
    """Give a column as 64-bit whole numbers; refuse another length, and what is no whole number."""
    column = np.asarray(column)
    column = column if column.size else column.astype(np.int64)
    if column.dtype.kind not in "iub" or column.shape != (length,):
        message = f"columns must have {length} integers each; got {column.dtype} of shape {column.shape}"
        raise ValueError(message)
    return np.ascontiguousarray(column, np.int64)


def check_order(times: Int, newest_us: int | None) -> None:
    """Refuse times that fall."""
    begin = times[:1] if newest_us is None else np.array([newest_us])
    falls = np.flatnonzero(np.diff(np.concatenate([begin, times])) < 0)
    if len(falls):
        at = int(falls[0])
        message = f"`times` must not decrease: sort the rows first; row {at} has {times[at]} after a later time"
        raise ValueError(message)


def arrays_of(stored: Stored) -> dict[str, NDArray[Any]]:
    """Give the arrays of a state without the slots that are free."""
    alive = np.arange(stored.facts[OLDEST], stored.facts[COUNT]) % len(stored.tuples)
    return {name: array[alive] if name in PER_TUPLE else array for name, array in stored._asdict().items()}


def stored_of(arrays: dict[str, NDArray[Any]]) -> Stored:
    """Make a state of arrays; slots are numbered anew."""
    begin, end = int(arrays["facts"][OLDEST]), int(arrays["facts"][COUNT])
    room = max(64, 1 << max(0, end - begin - 1).bit_length())
    spread = {}
    for name in PER_TUPLE:
        column = np.zeros((room, *arrays[name].shape[1:]), arrays[name].dtype)
        column[np.arange(begin, end) % room] = arrays[name]
        spread[name] = column
    return Stored(**{**{name: arrays[name] for name in Stored._fields}, **spread})


def bucket_all(keys: Int, buckets: int) -> Int:
    """Hash keys to buckets."""
    out = np.zeros(len(keys), np.int64)
    if buckets > 1:
        hash_buckets(keys, buckets, out)
    return out


@kernel
def hash_buckets(keys: Int, buckets: int, out: Int) -> None:
    """Write the bucket of each key."""
    for i in range(keys.shape[0]):
        out[i] = ((mix(int(keys[i]) ^ _APART) >> 20) & 0xFFFFFFFF) % buckets
