"""A segment: one file of a spool, with where each of its messages is."""

from __future__ import annotations

import logging
from array import array
from collections.abc import Iterator
from pathlib import Path

from tocsin.errors import RunError
from tocsin.spool.records import NEW, Layout, Message, layout_of, lost

_log = logging.getLogger(__name__)


class Segment:
    """One file; message i of it lies between `ends[i]` and `ends[i + 1]`, where a lost one may have no bytes."""

    def __init__(self, folder: Path, first: int) -> None:
        self.path, self.first = folder / f"{first:020}.spool", first
        self.layout: Layout = NEW
        self.ends: array[int] = array("Q")

    @property
    def stop(self) -> int:
        """The number behind the last message that is known."""
        return self.first + max(0, len(self.ends) - 1)

    def extend(self, upto: int | None) -> None:
        """Take in what was written since; stop before what has nothing whole behind it, which may yet be written.

        `upto` is the number up to which messages were there, if that is known: with it the next segment begins.
        """
        begin = self.ends[-1] if self.ends else 0
        with self.path.open("rb") as file:
            file.seek(begin)
            data = file.read()
        if not self.ends:
            self._begin(data, upto)
        if self.ends:
            self._walk(data, begin)
        if upto is not None and self.stop < upto:
            self.ends.extend([begin + len(data)] * (upto - self.stop))

    def _begin(self, data: bytes, upto: int | None) -> None:
        layout = layout_of(data)
        if layout is not None:
            self.layout = layout
            self.ends.append(len(layout.magic) if data.startswith(layout.magic) else 0)
        elif upto is not None:
            self.ends.append(len(data))

    def _walk(self, data: bytes, begin: int) -> None:
        place, index = self.ends[-1] - begin, len(self.ends) - 1
        while True:
            while (after := self.layout.whole(data, place, index)) is not None:
                place, index = after, index + 1
                self.ends.append(begin + place)
            found = self.layout.again(data, place, index)
            if found is None:
                return
            place, next_index = found
            # What is damaged belongs to the first that is lost; if none is, to nobody.
            if next_index == index:
                self.ends[-1] = begin + place
            self.ends.extend([begin + place] * (next_index - index))
            index = next_index

    def read(self, start: int, stop: int, upto: int | None) -> Iterator[Message]:
        """Give messages; one that is damaged is given as lost."""
        data, right = self._load(start, stop)
        if not all(right):
            # What a failed write had left may have been looked at, and written anew since.
            self.ends = array("Q")
            self.extend(upto)
            if self.stop < stop:
                what = f"spool {self.path.parent}: message {self.stop}"
                message = f"{what} is incomplete; {self.path.name} ends before its end"
                raise RunError(message)
            data, right = self._load(start, stop)
        begin = self.ends[start - self.first]
        for number, fine in zip(range(start, stop), right, strict=True):
            index = number - self.first
            place, end = self.ends[index] - begin, self.ends[index + 1] - begin
            if not fine:
                _log.error("spool %s: message %d is damaged and lost", self.path.parent, number)
            yield self.layout.decode(data, place, end) if fine else lost(number)

    def _load(self, start: int, stop: int) -> tuple[bytes, list[bool]]:
        """The bytes of messages, and which of them are whole."""
        ends = self.ends[start - self.first : stop - self.first + 1]
        with self.path.open("rb") as file:
            file.seek(ends[0])
            data = file.read(ends[-1] - ends[0])
        places = [end - ends[0] for end in ends]
        right = [
            self.layout.whole(data, places[i], start - self.first + i) == places[i + 1] for i in range(stop - start)
        ]
        return data, right
