"""The spool: numbers stand for the same messages, whatever happens to the process or the disk."""

from __future__ import annotations

import errno
import os
import struct
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.example_counts import examples
from tocsin.errors import RunError
from tocsin.spool import LOST, Message, SpoolReader, SpoolWriter, discard

MESSAGES = st.lists(
    st.builds(
        Message,
        arrived_us=st.integers(-(2**63), 2**63 - 1),
        topic=st.binary(max_size=20),
        payload=st.binary(max_size=200),
        size=st.integers(0, 2**32 - 1),
    ),
    max_size=30,
)


def message(number: int, size: int = 20) -> Message:
    return Message(number, b"t", f"{number:0{size}}".encode(), size)


def held(folder: Path) -> list[int]:
    spool = SpoolReader(folder)
    return [message.arrived_us for message in spool.read(*spool.span())]


@given(st.lists(MESSAGES, max_size=8), st.integers(1, 2_000), st.data())
@examples(80)
def test_any_range_gives_what_was_written(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[Message]], segment: int, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("spool")
    expected = [message for batch in batches for message in batch]
    writer, reader = SpoolWriter(folder, segment), SpoolReader(folder)
    for batch in batches:
        writer.append(batch)
        if data.draw(st.booleans()):
            writer.close()
            writer = SpoolWriter(folder, segment)
        assert reader.span() == (0, writer.next)
    writer.close()
    assert reader.span() == (0, len(expected))
    start = data.draw(st.integers(0, len(expected)))
    stop = data.draw(st.integers(start, len(expected)))
    assert list(SpoolReader(folder).read(start, stop)) == list(reader.read(start, stop)) == expected[start:stop]
    most, most_bytes = data.draw(st.integers(1, 20)), data.draw(st.integers(0, 1_000))
    upto = reader.reach(start, stop, most, most_bytes)
    assert min(start + 1, stop) <= upto <= min(stop, start + most)
    # One more would be too many messages or too many bytes.
    sizes = [30 + len(message.topic) + len(message.payload) for message in expected]
    assert sum(sizes[start:upto]) <= most_bytes or upto - start <= 1
    assert upto == min(stop, start + most) or sum(sizes[start : upto + 1]) > most_bytes


@given(st.integers(0, 450), st.booleans())
@examples(60)
def test_a_torn_end_is_cut_off_and_put_aside(tmp_path_factory: pytest.TempPathFactory, cut: int, flip: bool) -> None:
    folder = tmp_path_factory.mktemp("spool")
    writer = SpoolWriter(folder)
    writer.append([message(number) for number in range(8)])
    writer.close()
    (path,) = folder.glob("*.spool")
    data = path.read_bytes()
    cut = min(cut, len(data) - 1)
    path.write_bytes(data[:cut] + (bytes([data[cut] ^ 255]) if flip else b""))
    whole = max(0, (cut - 15) // 51)
    again = SpoolWriter(folder)
    assert again.next == whole
    again.append([message(number) for number in range(whole, 10)])
    again.close()
    assert held(folder) == list(range(10))
    torn = path.with_suffix(".torn")
    assert torn.exists() == (flip or cut not in {0, 15 + 51 * whole})


def numbers(messages: Iterable[Message]) -> list[int | None]:
    """The numbers that messages have in their payload, None for those that are lost."""
    return [None if message.size == LOST else int(message.payload) for message in messages]


def old_segment(path: Path, messages: Sequence[Message]) -> None:
    """Write messages as they were written before records had marks and numbers."""
    bodies = [struct.pack("<qIH", m.arrived_us, m.size, len(m.topic)) + m.topic + m.payload for m in messages]
    frames = [struct.pack("<II", len(body), zlib.crc32(body)) + body for body in bodies]
    path.write_bytes(b"tocsin-spool-1\n" + b"".join(frames))


@given(st.integers(0, 15 + 8 * 51 - 1), st.integers(1, 255), st.booleans())
def test_a_flipped_byte_costs_the_message_that_has_it_and_no_other(
    tmp_path_factory: pytest.TempPathFactory, place: int, flip: int, last: bool
) -> None:
    folder = tmp_path_factory.mktemp("spool")
    writer = SpoolWriter(folder, 10_000 if last else 15 + 8 * 51)
    writer.append([message(number) for number in range(8)])
    writer.append([message(number) for number in range(8, 10)])
    writer.close()
    flip_byte(folder / f"{0:020}.spool", place, flip)
    hit = (place - 15) // 51
    expected = [None if number == hit else number for number in range(10)]
    reader = SpoolReader(folder)
    assert reader.span() == (0, 10)
    assert numbers(reader.read(0, 10)) == expected
    assert numbers(reader.read(4, 6)) == expected[4:6]
    again = SpoolWriter(folder)
    assert again.next == 10
    again.append([message(10)])
    assert numbers(reader.read(*reader.span())) == [*expected, 10]
    again.close()
    assert not list(folder.glob("*.torn"))


def flip_byte(path: Path, place: int, flip: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= flip
    path.write_bytes(bytes(data))


@given(st.integers(15, 15 + 9 * 51 - 1), st.integers(1, 200), st.integers(0, 255))
def test_damage_over_many_messages_costs_just_those(
    tmp_path_factory: pytest.TempPathFactory, place: int, size: int, byte: int
) -> None:
    folder = tmp_path_factory.mktemp("spool")
    writer = SpoolWriter(folder)
    writer.append([message(number) for number in range(10)])
    writer.close()
    path = folder / f"{0:020}.spool"
    data = path.read_bytes()
    end = min(place + size, 15 + 9 * 51)
    path.write_bytes(data[:place] + bytes([byte]) * (end - place) + data[end:])
    found = numbers(SpoolReader(folder).read(0, 10))
    for number, is_there in enumerate(found):
        begin = 15 + 51 * number
        untouched = end <= begin or begin + 51 <= place
        # A byte may be written over by an equal one.
        assert is_there == number if untouched else is_there in {None, number}


@given(st.integers(15, 15 + 7 * 43 - 1), st.integers(1, 255))
def test_segments_in_the_old_layout_are_read_and_gone_on_from(
    tmp_path_factory: pytest.TempPathFactory, place: int, flip: int
) -> None:
    folder = tmp_path_factory.mktemp("spool")
    path = folder / f"{5:020}.spool"
    old_segment(path, [message(number) for number in range(5, 13)])
    assert numbers(SpoolReader(folder).read(5, 13)) == list(range(5, 13))
    flip_byte(path, place, flip)
    hit = 5 + (place - 15) // 43
    expected = [None if number == hit else number for number in range(5, 13)]
    writer = SpoolWriter(folder)
    assert writer.next == 13
    writer.append([message(13)])
    writer.close()
    assert numbers(SpoolReader(folder).read(5, 14)) == [*expected, 13]


def test_an_empty_segment_in_the_old_layout_is_begun_anew(tmp_path: Path) -> None:
    old_segment(tmp_path / f"{5:020}.spool", [])
    writer = SpoolWriter(tmp_path)
    writer.append([message(5)])
    writer.close()
    assert numbers(SpoolReader(tmp_path).read(5, 6)) == [5]


def test_a_segment_that_lost_its_end_still_counts_what_it_had(tmp_path: Path) -> None:
    writer = SpoolWriter(tmp_path, 15 + 4 * 51)
    for first in (0, 4):
        writer.append([message(number) for number in range(first, first + 4)])
    writer.close()
    path = tmp_path / f"{0:020}.spool"
    for size, left in ((15 + 2 * 51 + 7, [0, 1]), (3, [])):
        path.write_bytes(path.read_bytes()[:size])
        reader = SpoolReader(tmp_path)
        assert numbers(reader.read(0, 8)) == [*left, *[None] * (4 - len(left)), 4, 5, 6, 7]


def test_damage_to_the_newest_message_is_told_while_the_writer_lives(tmp_path: Path) -> None:
    writer, reader = SpoolWriter(tmp_path), SpoolReader(tmp_path)
    writer.append([message(0), message(1)])
    assert numbers(reader.read(*reader.span())) == [0, 1]
    flip_byte(tmp_path / f"{0:020}.spool", -1, 1)
    assert numbers(reader.read(0, 2)) == [0, None]
    writer.append([message(2)])
    assert numbers(reader.read(*reader.span())) == [0, None, 2]
    writer.close()


def test_a_second_torn_end_is_put_beside_the_first(tmp_path: Path) -> None:
    path = tmp_path / f"{0:020}.spool"
    for tail in (b"one", b"two", b"three"):
        SpoolWriter(tmp_path).close()
        with path.open("ab") as file:
            file.write(tail)
    SpoolWriter(tmp_path).close()
    assert sorted(torn.read_bytes() for torn in tmp_path.glob("*.torn*")) == [b"one", b"three", b"two"]


def test_a_full_disk_leaves_the_spool_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer, write, left = SpoolWriter(tmp_path, 300), os.write, [1_000_000]
    writer.append([message(0)])

    def full(file: int, data: bytes) -> int:
        if left[0] <= 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        taken = write(file, bytes(data)[: left[0]])
        left[0] -= taken
        return taken

    monkeypatch.setattr(os, "write", full)
    for space in (0, 1, 50, 120):
        left[0] = space
        with pytest.raises(OSError, match="No space left"):
            writer.append([message(number) for number in range(1, 9)])
        assert held(tmp_path) == [0]
    left[0] = 1_000_000
    writer.append([message(1)])
    writer.close()
    assert held(tmp_path) == [0, 1]


def test_one_process_writes_and_others_see_only_what_is_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, reader = SpoolWriter(tmp_path), SpoolReader(tmp_path)
    writer.append([message(0)])
    with pytest.raises(RunError, match="is in use by another process"):
        SpoolWriter(tmp_path)
    seen = []
    monkeypatch.setattr(os, "fsync", lambda file: seen.append(reader.span()))
    writer.append([message(1)])
    assert (seen, reader.span()) == ([(0, 1)], (0, 2))
    writer.close()
    SpoolWriter(tmp_path).close()


def test_what_is_let_go_is_gone_but_numbers_go_on(tmp_path: Path) -> None:
    writer = SpoolWriter(tmp_path, 100)
    for number in range(10):
        writer.append([message(number)])
    reader = SpoolReader(tmp_path)
    assert discard(tmp_path, 0) == 0
    discard(tmp_path, 5)
    first, stop = reader.span()
    assert (0 < first <= 5, stop) == (True, 10)
    with pytest.raises(RunError, match="message 0 is missing or was removed"):
        list(reader.read(0, 2))
    discard(tmp_path, 10_000)
    writer.close()
    again = SpoolWriter(tmp_path, 100)
    assert again.next == 10
    again.close()


def test_an_empty_folder_is_an_empty_spool(tmp_path: Path) -> None:
    assert SpoolReader(tmp_path / "none").span() == (0, 0)
    assert held(tmp_path / "none") == []
