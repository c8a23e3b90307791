"""The outbox against outputs that take a part, nothing, or go away."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.edge.ledger import Due, Ledger
from tocsin.edge.outbox import Outbox, OutputGoneError

LINES = [b"%d" % i * (1 + i % 5) + b"\n" for i in range(200)]
LONG = b"x" * 50_000 + b"\n"


@pytest.fixture
def pipe() -> Iterator[list[int]]:
    ends = list(os.pipe())
    yield ends
    for end in ends:
        os.close(end)


def _outbox(fd: int, lines: list[bytes]) -> Outbox:
    outbox = Outbox(fd, Ledger())
    outbox.put(Due(0, number, line) for number, line in enumerate(lines))
    return outbox


def _left(outbox: Outbox) -> bytes:
    return b"".join(outbox.ledger.lines[number] for number in outbox.queue)


def test_a_pipe_that_nobody_reads_takes_what_it_holds_and_never_blocks(pipe: list[int]) -> None:
    outbox = _outbox(pipe[1], [LONG] * 3)
    outbox.write()
    taken = os.read(pipe[0], 1 << 20)
    assert 0 < len(taken) < 3 * len(LONG)
    assert outbox.cut
    assert outbox.ledger.held == 3 - outbox.ledger.sent
    while outbox.waiting:
        outbox.write()
        taken += os.read(pipe[0], 1 << 20)
    assert taken == LONG * 3
    assert (outbox.ledger.sent, outbox.ledger.bytes_out, outbox.ledger.held) == (3, len(taken), 0)


@given(st.integers(0, 1200), st.integers(0, 180), st.integers(0, 20))
def test_what_a_pipe_had_taken_and_nobody_had_read_is_put_back(size: int, before: int, again: int) -> None:
    reader, writer = os.pipe()
    outbox = _outbox(writer, LINES[:before])
    outbox.write()
    data = os.read(reader, size) if before and size else b""
    os.close(reader)
    outbox.put(Due(0, number, line) for number, line in enumerate(LINES[before : before + again], before))
    if again:
        with pytest.raises(OutputGoneError, match="Broken pipe"):
            outbox.write()
    outbox.take_back()
    os.close(writer)
    whole = b"".join(LINES[: before + again])
    # All is there: what was read, and what is left, from the line that was cut on.
    assert data[: data.rfind(b"\n") + 1] + _left(outbox) == whole
    assert outbox.ledger.sent + outbox.ledger.held == before + again


def test_a_line_that_a_full_disk_has_cut_is_taken_off_the_file(tmp_path: Path) -> None:
    path = tmp_path / "out"
    with path.open("wb", buffering=0) as file:
        file.write(b"before\n")
        outbox = _outbox(file.fileno(), LINES[:10])
        taking = iter([15])

        def take_a_part(data: bytes) -> int:
            size = next(taking, 0)
            if size == 0:
                raise OSError(28, "No space left on device")
            return os.write(file.fileno(), data[:size])

        outbox._send = take_a_part
        with pytest.raises(OutputGoneError, match="No space left"):
            outbox.write()
        outbox.take_back()
    assert path.read_bytes() + _left(outbox) == b"before\n" + b"".join(LINES[:10])
    assert outbox.ledger.sent == len(path.read_bytes().splitlines()) - 1


def test_what_was_left_out_while_it_waited_is_not_written(tmp_path: Path) -> None:
    with (tmp_path / "out").open("wb", buffering=0) as file:
        outbox = _outbox(file.fileno(), LINES[:5])
        outbox.ledger.omit(1)
        outbox.ledger.omit(4)
        outbox.write()
    assert (tmp_path / "out").read_bytes() == b"".join(LINES[i] for i in (0, 2, 3))
    assert (outbox.ledger.sent, outbox.ledger.omitted, outbox.waiting) == (3, 2, False)
