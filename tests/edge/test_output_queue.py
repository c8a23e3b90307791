"""Output queue in front of outputs that accept a part, accept nothing, or are closed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.edge.line_buffer import DueLine, LineBuffer
from tocsin.edge.output_queue import OutputGoneError, OutputQueue

LINES = [b"%d" % i * (1 + i % 5) + b"\n" for i in range(200)]
LONG = b"x" * 50_000 + b"\n"


@pytest.fixture
def pipe() -> Iterator[list[int]]:
    ends = list(os.pipe())
    yield ends
    for end in ends:
        os.close(end)


def _queue(fd: int, lines: list[bytes]) -> OutputQueue:
    output = OutputQueue(fd, LineBuffer())
    output.put(DueLine(0, number, line) for number, line in enumerate(lines))
    return output


def _unsent(output: OutputQueue) -> bytes:
    return b"".join(output.buffer.lines[number] for number in output.queue)


def test_write_fills_a_pipe_without_blocking_when_it_is_not_read(pipe: list[int]) -> None:
    output = _queue(pipe[1], [LONG] * 3)
    output.write()
    read = os.read(pipe[0], 1 << 20)
    assert 0 < len(read) < 3 * len(LONG)
    assert output.is_inside_line
    assert output.buffer.held == 3 - output.buffer.sent
    while output.has_lines:
        output.write()
        read += os.read(pipe[0], 1 << 20)
    assert read == LONG * 3
    assert (output.buffer.sent, output.buffer.bytes_out, output.buffer.held) == (3, len(read), 0)


@given(st.integers(0, 1200), st.integers(0, 180), st.integers(0, 20))
def test_unread_lines_return_to_the_queue_when_a_pipe_is_closed(size: int, before: int, again: int) -> None:
    reader, writer = os.pipe()
    output = _queue(writer, LINES[:before])
    output.write()
    data = os.read(reader, size) if before and size else b""
    os.close(reader)
    output.put(DueLine(0, number, line) for number, line in enumerate(LINES[before : before + again], before))
    if again:
        with pytest.raises(OutputGoneError, match="Broken pipe"):
            output.write()
    output.restore_unread()
    os.close(writer)
    everything = b"".join(LINES[: before + again])
    # Complete lines that were read, and the unsent lines, are all lines. The line that was read partly is unsent.
    assert data[: data.rfind(b"\n") + 1] + _unsent(output) == everything
    assert output.buffer.sent + output.buffer.held == before + again


def test_partly_written_line_is_removed_from_the_file_when_the_disk_is_full(tmp_path: Path) -> None:
    path = tmp_path / "out"
    with path.open("wb", buffering=0) as file:
        file.write(b"before\n")
        output = _queue(file.fileno(), LINES[:10])
        sizes = iter([15])

        def write_part(data: bytes) -> int:
            size = next(sizes, 0)
            if size == 0:
                raise OSError(28, "No space left on device")
            return os.write(file.fileno(), data[:size])

        output._send = write_part
        with pytest.raises(OutputGoneError, match="No space left"):
            output.write()
        output.restore_unread()
    assert path.read_bytes() + _unsent(output) == b"before\n" + b"".join(LINES[:10])
    assert output.buffer.sent == len(path.read_bytes().splitlines()) - 1


def test_omitted_lines_are_not_written_when_they_are_queued(tmp_path: Path) -> None:
    with (tmp_path / "out").open("wb", buffering=0) as file:
        output = _queue(file.fileno(), LINES[:5])
        output.buffer.omit(1)
        output.buffer.omit(4)
        output.write()
    assert (tmp_path / "out").read_bytes() == b"".join(LINES[i] for i in (0, 2, 3))
    assert (output.buffer.sent, output.buffer.omitted, output.has_lines) == (3, 2, False)
