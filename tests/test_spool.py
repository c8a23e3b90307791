"""The spool: numbers stand for the same messages, whatever happens to the process or the disk."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tocsin.errors import RunError
from tocsin.spool import Message, SpoolReader, SpoolWriter, discard

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
@settings(max_examples=80, deadline=None)
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
    sizes = [22 + len(message.topic) + len(message.payload) for message in expected]
    assert sum(sizes[start:upto]) <= most_bytes or upto - start <= 1
    assert upto == min(stop, start + most) or sum(sizes[start : upto + 1]) > most_bytes


@given(st.integers(0, 400), st.booleans())
@settings(max_examples=60, deadline=None)
def test_a_torn_end_is_cut_off_and_put_aside(tmp_path_factory: pytest.TempPathFactory, cut: int, flip: bool) -> None:
    folder = tmp_path_factory.mktemp("spool")
    writer = SpoolWriter(folder)
    writer.append([message(number) for number in range(8)])
    writer.close()
    (path,) = folder.glob("*.spool")
    data = path.read_bytes()
    cut = min(cut, len(data) - 1)
    path.write_bytes(data[:cut] + (bytes([data[cut] ^ 255]) if flip else b""))
    whole = max(0, (cut - 15) // 43)
    again = SpoolWriter(folder)
    assert again.next == whole
    again.append([message(number) for number in range(whole, 10)])
    again.close()
    assert held(folder) == list(range(10))
    torn = path.with_suffix(".torn")
    assert torn.exists() == (flip or cut not in {0, 15 + 43 * whole})


def test_damage_inside_is_told_and_never_read_over(tmp_path: Path) -> None:
    writer = SpoolWriter(tmp_path, 100)
    for number in range(6):
        writer.append([message(number)])
    writer.close()
    first = min(tmp_path.glob("*.spool"))
    data = bytearray(first.read_bytes())
    data[-1] ^= 1
    first.write_bytes(bytes(data))
    with pytest.raises(RunError, match=r"message \d must be there and whole; .* ends before it"):
        held(tmp_path)


def test_damage_after_it_was_seen_is_told(tmp_path: Path) -> None:
    writer, reader = SpoolWriter(tmp_path), SpoolReader(tmp_path)
    writer.append([message(0), message(1)])
    assert len(list(reader.read(*reader.span()))) == 2
    (path,) = tmp_path.glob("*.spool")
    path.write_bytes(path.read_bytes()[:-3] + b"xxx")
    with pytest.raises(RunError, match=r"message 1 must be whole; it is damaged"):
        list(reader.read(0, 2))
    writer.close()


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
    with pytest.raises(RunError, match="one process at a time may write; another does"):
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
    with pytest.raises(RunError, match="message 0 must be there; it is not, or no more"):
        list(reader.read(0, 2))
    discard(tmp_path, 10_000)
    writer.close()
    again = SpoolWriter(tmp_path, 100)
    assert again.next == 10
    again.close()


def test_an_empty_folder_is_an_empty_spool(tmp_path: Path) -> None:
    assert SpoolReader(tmp_path / "none").span() == (0, 0)
    assert held(tmp_path / "none") == []
