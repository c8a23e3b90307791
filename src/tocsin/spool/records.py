"""Records: a message as bytes of a segment, and how the next whole one is found behind damage.

A segment begins with a mark that says in which layout its records are. Layout 2, which is written, lets each record
begin with a mark of its own and say the how-manieth of its segment it is, so after any damage it is known how many are
lost. Layout 1, which is only read, has neither: the next record is where the length of a damaged one says, or the next
place from which on a checksum is right, and one counts as lost between.
"""

from __future__ import annotations

import struct
import zlib
from typing import NamedTuple

# The size of a message that is lost.
LOST = -1
# Time of arrival, size of the payload as it came, length of the topic; topic and payload follow.
_HEAD = struct.Struct("<qIH")


class Message(NamedTuple):
    """A message: when it arrived, where from, what it says, and how many bytes that had before it was cut."""

    arrived_us: int
    topic: bytes
    payload: bytes
    size: int


def lost(number: int) -> Message:
    """What is read in the place of a message that is damaged."""
    return Message(0, b"", b"message %d of the spool" % number, LOST)


class Layout:
    """Layout 2: a mark, the length of the body, a checksum of all that follows, the place in the segment, the body."""

    magic = b"tocsin-spool-2\n"
    frame = struct.Struct("<4sIII")
    sync = b"\xd7\xf1tS"
    # Where the bytes begin that the checksum covers.
    covered = 12

    def encode(self, message: Message, index: int) -> bytes:
        """Write a message that is the `index`-th of its segment, from 0 on."""
        body = _HEAD.pack(message.arrived_us, message.size, len(message.topic)) + message.topic + message.payload
        crc = zlib.crc32(body, zlib.crc32(struct.pack("<I", index)))
        return self.frame.pack(self.sync, len(body), crc, index) + body

    def whole(self, data: bytes, place: int, index: int) -> int | None:
        """Where the record that begins here ends; None if it is not there, whole, and the `index`-th."""
        found = self._whole(data, place)
        return found[0] if found is not None and found[1] == index else None

    def _whole(self, data: bytes, place: int) -> tuple[int, int] | None:
        """Where the record that begins here ends, and the how-manieth it is."""
        if len(data) < place + self.frame.size:
            return None
        sync, length, crc, index = self.frame.unpack_from(data, place)
        end = place + self.frame.size + length
        if sync != self.sync or not _is_right(data, place + self.covered, end, length, crc):
            return None
        return end, index

    def again(self, data: bytes, place: int, index: int) -> tuple[int, int] | None:
        """Where behind damage the next whole record begins, and the how-manieth it is; None if there is none."""
        at = place
        while (at := data.find(self.sync, at + 1)) >= 0:
            found = self._whole(data, at)
            # More than would have had room cannot be lost.
            if found is not None and 0 <= found[1] - index <= (at - place) // self.least + 1:
                return at, found[1]
        return None

    def decode(self, data: bytes, place: int, end: int) -> Message:
        """Read a whole record."""
        begin = place + self.frame.size
        arrived, size, topic = _HEAD.unpack_from(data, begin)
        body = data[begin + _HEAD.size : end]
        return Message(arrived, body[:topic], body[topic:], size)

    @property
    def least(self) -> int:
        """Bytes of the shortest record."""
        return self.frame.size + _HEAD.size


class OldLayout(Layout):
    """Layout 1: the length of the body, its checksum, the body."""

    magic = b"tocsin-spool-1\n"
    frame = struct.Struct("<II")
    covered = 8

    def whole(self, data: bytes, place: int, index: int) -> int | None:
        """Where the record that begins here ends; the how-manieth it is cannot be seen."""
        if len(data) < place + self.frame.size:
            return None
        length, crc = self.frame.unpack_from(data, place)
        begin = place + self.frame.size
        return begin + length if _is_right(data, begin, begin + length, length, crc) else None

    def again(self, data: bytes, place: int, index: int) -> tuple[int, int] | None:
        """Where behind damage the next whole record begins."""
        if len(data) >= place + self.frame.size:
            after = place + self.least - _HEAD.size + self.frame.unpack_from(data, place)[0]
            if self.whole(data, after, 0) is not None:
                return after, index + 1
        at = place + 3
        # No message has 16 MiB, so the last of the four bytes of its length is 0.
        while (at := data.find(b"\0", at + 1)) >= 0:
            if self.whole(data, at - 3, 0) is not None:
                return at - 3, index + 1
        return None


def _is_right(data: bytes, begin: int, end: int, length: int, crc: int) -> bool:
    return length >= _HEAD.size and end <= len(data) and zlib.crc32(memoryview(data)[begin:end]) == crc


NEW, OLD = Layout(), OldLayout()


def layout_of(data: bytes) -> Layout | None:
    """The layout of a segment by its mark, or, where that is damaged, by its records; None if nothing can be read."""
    for layout in (NEW, OLD):
        if data.startswith(layout.magic):
            return layout
    found = [layout for layout in (NEW, OLD) if layout.again(data, 0, 0) is not None]
    return found[0] if found else None
