"""MQTT spool: a number refers to the same message after kills, torn writes, full disks and damage."""

from __future__ import annotations

import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.example_counts import examples
from tocsin.errors import RunError
from tocsin.spark.sources.mqtt_spool import LOST, Message, SpoolReader, SpoolWriter, discard

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
# Appends groups of 1 to 40 messages without end, and prints the next number after each acknowledged group.
WRITER = """
import sys
from tests.spark.test_mqtt_spool import message
from tocsin.spark.sources.mqtt_spool import SpoolWriter
writer = SpoolWriter(sys.argv[1])
while True:
    writer.append([message(number, 900) for number in range(writer.next, writer.next + 1 + writer.next % 40)])
    print(writer.next, flush=True)
"""


def message(number: int, size: int = 20) -> Message:
    return Message(number, b"t", f"{number:0{size}}".encode(), size)


def stored(folder: Path) -> list[int | None]:
    """Return the numbers in the payloads of all messages, None for lost messages."""
    spool = SpoolReader(folder)
    return [None if found.size == LOST else int(found.payload) for found in spool.read(*spool.span())]


@given(st.lists(MESSAGES, max_size=8), st.data())
@examples(80)
def test_any_range_returns_the_written_messages(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[Message]], data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("spool")
    expected = [message for batch in batches for message in batch]
    writer, reader = SpoolWriter(folder), SpoolReader(folder)
    for batch in batches:
        writer.append(batch)
        if data.draw(st.booleans()):
            writer.close()
            writer = SpoolWriter(folder)
        assert reader.span() == (0, writer.next)
    writer.close()
    assert reader.span() == (0, len(expected))
    start = data.draw(st.integers(0, len(expected)))
    stop = data.draw(st.integers(start, len(expected)))
    assert list(reader.read(start, stop)) == expected[start:stop]
    most, most_bytes = data.draw(st.integers(1, 20)), data.draw(st.integers(0, 1_000))
    end = reader.end_within(start, stop, most, most_bytes)
    assert min(start + 1, stop) <= end <= min(stop, start + most)
    # One more message would exceed the number of messages or of bytes.
    sizes = [30 + len(message.topic) + len(message.payload) for message in expected]
    assert sum(sizes[start:end]) <= most_bytes or end - start <= 1
    assert end == min(stop, start + most) or sum(sizes[start : end + 1]) > most_bytes


@pytest.mark.parametrize("kills", [4])
def test_acknowledged_messages_survive_when_the_writer_is_killed(tmp_path: Path, kills: int) -> None:
    acknowledged = 0
    for kill in range(kills):
        command = [sys.executable, "-c", WRITER, str(tmp_path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            # The writer is in the middle of the next group when it is killed.
            for _ in range(5 + 37 * kill):
                acknowledged = int(process.stdout.readline())
            process.send_signal(signal.SIGKILL)
            acknowledged = int(([acknowledged, *process.stdout.read().split()])[-1])
        # Readers need no writer to recover the log.
        found = stored(tmp_path)
        assert found == list(range(len(found)))
        assert acknowledged <= len(found) <= acknowledged + 40
    again = SpoolWriter(tmp_path)
    assert again.next == len(found)
    again.close()


@given(st.integers(0, 40_000), st.booleans())
@examples(60)
def test_a_torn_log_costs_whole_groups_at_its_end_only(
    tmp_path_factory: pytest.TempPathFactory, cut: int, flip: bool
) -> None:
    folder, copy = tmp_path_factory.mktemp("spool"), tmp_path_factory.mktemp("copy")
    writer = SpoolWriter(folder)
    for first in range(0, 40, 8):
        writer.append([message(number) for number in range(first, first + 8)])
    shutil.copy(folder / "spool.db", copy)
    log = (folder / "spool.db-wal").read_bytes()
    writer.close()
    cut = min(cut, len(log) - 1)
    (copy / "spool.db-wal").write_bytes(log[:cut] + (bytes([log[cut] ^ 255]) if flip else b""))
    again = SpoolWriter(copy)
    assert again.next % 8 == 0
    again.append([message(number) for number in range(again.next, 50)])
    again.close()
    assert stored(copy) == list(range(50))


@given(st.integers(0, 10**9), st.integers(1, 255))
@examples(150)
def test_a_flipped_byte_never_changes_a_message(
    tmp_path_factory: pytest.TempPathFactory, place: int, flip: int
) -> None:
    folder = tmp_path_factory.mktemp("spool")
    writer = SpoolWriter(folder)
    writer.append([message(number, 400) for number in range(60)])
    writer.close()
    path = folder / "spool.db"
    data = bytearray(path.read_bytes())
    data[place % len(data)] ^= flip
    path.write_bytes(bytes(data))
    found = list[int | None]()
    with suppress(RunError):
        SpoolWriter(folder).close()
        found = stored(folder)
        assert len(found) >= 60
        assert sum(value is not None for value in found) >= 59
    assert all(value in {None, number} for number, value in enumerate(found))


def test_a_damaged_payload_costs_its_message_only(tmp_path: Path) -> None:
    writer = SpoolWriter(tmp_path)
    writer.append([message(number) for number in range(8)])
    writer.close()
    path = tmp_path / "spool.db"
    path.write_bytes(path.read_bytes().replace(b"%020d" % 5, b"%020d" % 4))
    assert stored(tmp_path) == [0, 1, 2, 3, 4, None, 6, 7]
    again = SpoolWriter(tmp_path)
    again.append([message(8)])
    again.close()
    assert stored(tmp_path) == [0, 1, 2, 3, 4, None, 6, 7, 8]


def test_a_full_disk_leaves_the_spool_unchanged(tmp_path: Path) -> None:
    writer = SpoolWriter(tmp_path)
    writer.append([message(0)])
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    for size in (20_000, 60_000, 150_000):
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
        try:
            with pytest.raises(OSError, match="disk"):
                writer.append([message(number, 1_000) for number in range(1, 400)])
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert stored(tmp_path) == [0]
    writer.append([message(1)])
    writer.close()
    assert stored(tmp_path) == [0, 1]


def test_a_full_spool_rejects_messages_until_some_are_discarded(tmp_path: Path) -> None:
    writer = SpoolWriter(tmp_path, max_bytes=100_000)
    for first in range(0, 50, 10):
        writer.append([message(number, 1_000) for number in range(first, first + 10)])
    with pytest.raises(OSError, match="full"):
        writer.append([message(number, 1_000) for number in range(50, 100)])
    assert writer.next % 10 == 0
    assert stored(tmp_path) == list(range(writer.next))
    assert (tmp_path / "spool.db").stat().st_size <= 100_000
    before = writer.next
    discard(tmp_path, before - 10)
    for _ in range(3):
        writer.append([message(number, 1_000) for number in range(writer.next, writer.next + 10)])
    assert stored(tmp_path) == list(range(before - 10, before + 30))
    writer.close()
    assert (tmp_path / "spool.db").stat().st_size <= 100_000


def test_one_process_writes_and_others_see_committed_messages_only(tmp_path: Path) -> None:
    writer, reader = SpoolWriter(tmp_path), SpoolReader(tmp_path)
    writer.append([message(0)])
    with pytest.raises(RunError, match="is in use by another process"):
        SpoolWriter(tmp_path)
    rows = reader.read(0, 1)
    first = next(rows)
    writer.append([message(1)])
    assert (first, list(rows), reader.span()) == (message(0), [], (0, 2))
    writer.close()
    # FULL: SQLite syncs the log before it publishes a transaction.
    writer = SpoolWriter(tmp_path)
    assert writer._database.execute("PRAGMA synchronous").fetchone() == (2,)
    writer.close()


def test_numbers_continue_when_all_messages_are_discarded(tmp_path: Path) -> None:
    writer = SpoolWriter(tmp_path)
    writer.append([message(number) for number in range(10)])
    reader = SpoolReader(tmp_path)
    assert (discard(tmp_path, 0), discard(tmp_path, 5), reader.span()) == (0, 5, (5, 10))
    with pytest.raises(RunError, match="message 0 is missing or was removed"):
        list(reader.read(0, 2))
    with pytest.raises(RunError, match="message 10 is missing or was removed"):
        list(reader.read(9, 12))
    discard(tmp_path, 10_000)
    assert reader.span() == (9, 10)
    writer.close()
    again = SpoolWriter(tmp_path)
    assert again.next == 10
    again.close()


def test_a_foreign_file_raises_an_error(tmp_path: Path) -> None:
    (tmp_path / "spool.db").write_bytes(b"no database" * 100)
    with pytest.raises(RunError, match=r"the database cannot be read \(file is not a database\)"):
        SpoolWriter(tmp_path)
    with pytest.raises(RunError, match="the database cannot be read"):
        SpoolReader(tmp_path).span()
    (tmp_path / "spool.db").unlink()
    SpoolWriter(tmp_path).close()


def test_a_folder_without_messages_is_an_empty_spool(tmp_path: Path) -> None:
    assert SpoolReader(tmp_path / "absent").span() == (0, 0)
    assert stored(tmp_path / "absent") == []
    # A writer that was killed before its table exists.
    sqlite3.connect(tmp_path / "spool.db").close()
    assert SpoolReader(tmp_path).span() == (0, 0)


def test_client_and_spool_do_not_import_pyspark() -> None:
    code = "import sys, tocsin.spark.sources.mqtt_client; print('pyspark' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "False"
