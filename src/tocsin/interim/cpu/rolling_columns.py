"""Rolling columns: rows come at the end and go at the front, or, many at a time, out of the midst.

Cost: O(1) for each row in the long run; at most eight times the room that the rows need, or that of 64.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

_LEAST_ROOM, _SPARE = 64, 8


class Rolling:
    """Columns of equal length, by name. One of objects may come later than the others: rows before it have None."""

    def __init__(self, columns: Mapping[str, NDArray[Any]]) -> None:
        self._room, self._first, self._end = dict(columns), 0, len(next(iter(columns.values())))

    def __len__(self) -> int:
        """How many rows there are."""
        return self._end - self._first

    def __contains__(self, name: str) -> bool:
        """Whether there is such a column."""
        return name in self._room

    def __getitem__(self, name: str) -> NDArray[Any]:
        """A column as it is now; what is written to it is written to the rows."""
        return self._room[name][self._first : self._end]

    def add(self, new: Mapping[str, NDArray[Any]]) -> None:
        """Put rows behind the others; of columns of objects that are not named, None."""
        more = len(next(iter(new.values())))
        if self._end + more > len(next(iter(self._room.values()))):
            self._move(2 * (len(self) + more))
        for name in new.keys() - self._room.keys():
            self._room[name] = np.full(len(next(iter(self._room.values()))), None, dtype=object)
        for name, column in self._room.items():
            column[self._end : self._end + more] = new.get(name)
        self._end += more

    def drop(self, count: int) -> None:
        """Let the first rows go."""
        for column in self._room.values():
            if column.dtype == object:
                column[self._first : self._first + count] = None
        self._first += count
        self._shrink()

    def keep(self, wanted: NDArray[np.bool_]) -> None:
        """Let all other rows go."""
        kept = self._first + int(np.count_nonzero(wanted))
        for name, column in self._room.items():
            column[self._first : kept] = self[name][wanted]
            if column.dtype == object:
                column[kept : self._end] = None
        self._end = kept
        self._shrink()

    def _shrink(self) -> None:
        if _SPARE * max(len(self), _LEAST_ROOM) < len(next(iter(self._room.values()))):
            self._move(2 * len(self))

    def _move(self, room: int) -> None:
        """Move rows to the front of arrays with more room."""
        for name in self._room:
            rows = self[name]
            self._room[name] = np.empty((max(room, _LEAST_ROOM), *rows.shape[1:]), rows.dtype)
            self._room[name][: len(rows)] = rows
        self._first, self._end = 0, len(self)
