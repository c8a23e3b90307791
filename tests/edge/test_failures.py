"""Failures of the edge filter: the output blocks or is closed, the process is stopped or killed."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.edge.command import (
    LONG_S,
    has_all_extremes,
    json_lines,
    last_counts,
    read_up_to,
    run_edge,
    start_edge,
    wait_for_save,
    write_and_read,
    write_until_blocked,
)

NO_FLUSH = ("--flush-after", "1h")


@contextmanager
def pipe() -> Iterator[tuple[int, int]]:
    """Create a pipe whose ends the test may close early."""
    ends = os.pipe()
    try:
        yield ends
    finally:
        for end in ends:
            close(end)


def close(fd: int) -> None:
    """Close a file descriptor, which may be closed already."""
    try:
        os.close(fd)
    except OSError:
        return


def test_waiting_rows_are_omitted_and_reading_continues_when_the_output_is_blocked() -> None:
    lines = json_lines(40_000)
    data = b"".join(lines)
    unblocked, _, _ = run_edge(data, "--max-delay", "0")
    assert unblocked == data
    with start_edge("--max-delay", "0", "--max-backlog", "100000") as child:
        # The filter reads all input, which is larger than the pipes, although the test does not read its output.
        assert write_until_blocked(child.stdin.fileno(), data) == len(data)
        child.stdin.close()
        time.sleep(0.5)
        out = read_up_to(child.stdout.fileno(), len(data) + 1)
        assert child.process.wait(LONG_S) == 0
        counts = last_counts(child.stderr.read())
    assert counts["received"] == len(lines)
    assert counts["sent"] == len(out.splitlines())
    assert len(out) < len(data) / 2
    sent = out.splitlines(keepends=True)
    assert has_all_extremes(lines[:3000], [line for line in sent if line in set(lines[:3000])])
    # Except for the content of the pipes, the output is nearly as small as with a maximum delay of the interval.
    smallest, _, _ = run_edge(data, "--max-delay", "20us")
    assert len(out) < len(smallest) + 2 * 65_536


def test_reading_waits_and_no_line_is_lost_when_the_backlog_is_full() -> None:
    # No two rows share a window, so no row can be omitted.
    lines = [b'{"t": %d, "v": 1}\n' % (1000 * i) for i in range(40_000)]
    data = b"".join(lines)
    with start_edge("--max-delay", "0", "--max-backlog", "500") as child:
        written = write_until_blocked(child.stdin.fileno(), data, patience_s=2.0)
        assert written < len(data) / 2
        inlet = os.dup(child.stdin.fileno())
        child.stdin.close()
        assert write_and_read(inlet, child.stdout.fileno(), data[written:]) == data
        assert child.process.wait(LONG_S) == 0


def test_held_rows_are_sent_early_when_they_fill_the_backlog() -> None:
    lines = json_lines(2_000)
    defaults = ("--time", "t", "--time-unit", "us", "--value", "v", "--json")
    out, counts, code = run_edge(b"".join(lines), "--interval", "1h", "--max-backlog", "10", defaults=defaults)
    assert (code, counts["held"]) == (0, 0)
    assert has_all_extremes(lines, out.splitlines(keepends=True), length=3_600_000_000)


@pytest.mark.parametrize("max_delay", ["0", "20us"])
@pytest.mark.parametrize("read", [1, 30_000])
def test_next_run_continues_without_lost_lines_when_the_output_was_closed(
    tmp_path: Path, max_delay: str, read: int
) -> None:
    lines, options = json_lines(12_000), ("--state", str(tmp_path / "edge.state"), "--max-delay", max_delay, *NO_FLUSH)
    data = b"".join(lines)
    with pipe() as (source, inlet):
        with start_edge(*options, stdin=source) as child:
            # The reader closes the pipe in the middle of a line.
            written = write_until_blocked(inlet, data[:200_001])
            first = read_up_to(child.stdout.fileno(), read)
            child.stdout.close()
            written += write_until_blocked(inlet, data[written:], patience_s=1.0)
            assert child.process.wait(LONG_S) == 3
            stderr = child.stderr.read()
            assert b"Broken pipe" in stderr
            assert last_counts(stderr)["held"] > 0
        with start_edge(*options, stdin=source) as child:
            close(source)
            second = write_and_read(inlet, child.stdout.fileno(), data[written:])
            assert child.process.wait(LONG_S) == 0
            counts = last_counts(child.stderr.read())
    assert len(first) == read
    before, after = first[: first.rfind(b"\n") + 1].splitlines(keepends=True), second.splitlines(keepends=True)
    # Only the line that was partly sent is sent again.
    assert len(set(before + after)) == len(before + after)
    assert after[0].startswith(first[first.rfind(b"\n") + 1 :])
    assert counts["received"] == len(lines)
    assert has_all_extremes(lines, before + after)


def test_lost_lines_are_reported_when_the_output_is_closed_without_a_state_file() -> None:
    with start_edge("--max-delay", "20us", *NO_FLUSH) as child:
        child.stdout.close()
        write_until_blocked(child.stdin.fileno(), b"".join(json_lines(5_000)), patience_s=0.5)
        assert child.process.wait(LONG_S) == 4
        stderr = child.stderr.read()
    assert b"Broken pipe" in stderr
    assert b"unsent lines are lost: use `--state FILE` to save them" in stderr
    assert last_counts(stderr)["held"] > 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_next_run_sends_the_same_lines_as_a_single_run_when_a_signal_stopped_the_first(
    tmp_path: Path, number: int
) -> None:
    lines, options = json_lines(600), ("--state", str(tmp_path / "edge.state"), *NO_FLUSH)
    data, cut = b"".join(lines), 7_001
    expected, expected_counts, _ = run_edge(data)
    with start_edge(*options) as child:
        child.stdin.write(data[:cut])
        first = os.read(child.stdout.fileno(), 1 << 16)
        child.process.send_signal(number)
        child.process.wait(LONG_S)  # The end of the input would send all held rows.
        out, stderr = child.process.communicate(timeout=LONG_S)
        assert child.process.returncode == 0
        assert f"stopped by {signal.Signals(number).name}".encode() in stderr
        first += out
    assert last_counts(stderr)["held"] > 0
    second, counts, code = run_edge(data[cut:], *options)
    assert code == 0
    assert first + second == expected
    assert {name: counts[name] for name in ("received", "sent", "omitted", "bytes_in", "bytes_out")} == {
        name: expected_counts[name] for name in ("received", "sent", "omitted", "bytes_in", "bytes_out")
    }


def test_held_rows_are_sent_when_a_signal_arrives_without_a_state_file() -> None:
    lines = json_lines(100)
    with start_edge(*NO_FLUSH) as child:
        child.stdin.write(b"".join(lines))
        first = os.read(child.stdout.fileno(), 1 << 16)
        child.process.terminate()
        out, stderr = child.process.communicate(timeout=LONG_S)
    assert child.process.returncode == 0
    assert last_counts(stderr)["held"] == 0
    assert has_all_extremes(lines, (first + out).splitlines(keepends=True))


def test_lost_lines_are_reported_when_a_signal_arrives_at_a_blocked_output_without_a_state_file() -> None:
    with start_edge("--max-delay", "0") as child:
        write_until_blocked(child.stdin.fileno(), b"".join(json_lines(40_000)))
        child.process.terminate()
        assert child.process.wait(LONG_S) == 4
        assert b"unsent lines are lost" in child.stderr.read()


def test_next_run_reads_the_file_from_the_last_save_when_the_process_was_killed(tmp_path: Path) -> None:
    lines = json_lines(20_000)
    (tmp_path / "in").write_bytes(b"".join(lines))
    options = (
        "--state",
        str(tmp_path / "edge.state"),
        "--save-every",
        "50ms",
        "--max-delay",
        "3us",
        "--max-backlog",
        "3000",
    )
    with (tmp_path / "in").open("rb") as source, start_edge(*options, stdin=source) as child:
        # The test does not read the output: the pipe fills, then the backlog, and reading waits.
        wait_for_save(tmp_path / "edge.state", 5_000)
        child.process.kill()
        first = read_up_to(child.stdout.fileno(), 1 << 20)
    with (tmp_path / "in").open("rb") as source, start_edge(*options, stdin=source) as child:
        second, stderr = child.process.communicate(timeout=LONG_S)
        assert child.process.returncode == 0
    before, after = first[: first.rfind(b"\n") + 1].splitlines(keepends=True), second.splitlines(keepends=True)
    assert 0 < last_counts(stderr)["received"] <= len(lines)
    assert lines[0] not in after
    assert has_all_extremes(lines, before + after)


def test_rows_before_the_last_save_are_not_lost_when_the_process_was_killed(tmp_path: Path) -> None:
    lines, options = json_lines(300), ("--state", str(tmp_path / "edge.state"), "--save-every", "50ms", *NO_FLUSH)
    with start_edge(*options) as child:
        child.stdin.write(b"".join(lines[:200]))
        wait_for_save(tmp_path / "edge.state", 200)
        child.stdin.write(b"".join(lines[200:]))
        child.process.kill()
        first = read_up_to(child.stdout.fileno(), 1 << 20)
    second, counts, code = run_edge(b"", *options)
    assert code == 0
    assert counts["received"] >= 200
    assert has_all_extremes(
        lines[:200], [line for line in (first + second).splitlines(keepends=True) if line in lines[:200]]
    )


def test_second_run_reads_only_the_added_lines_when_the_file_has_grown(tmp_path: Path) -> None:
    lines, options = json_lines(200), ("--state", str(tmp_path / "edge.state"), "--max-delay", "0")
    out = b""
    for stop in (100, 100, 200):
        (tmp_path / "in").write_bytes(b"".join(lines[:stop]))
        with (tmp_path / "in").open("rb") as source, start_edge(*options, stdin=source) as child:
            out += child.process.communicate(timeout=LONG_S)[0]
    assert out == b"".join(lines)


def test_filter_continues_with_a_message_when_the_state_file_becomes_unwritable(tmp_path: Path) -> None:
    folder = tmp_path / "removed"
    folder.mkdir()
    lines = json_lines(50)
    with start_edge("--state", str(folder / "edge.state"), "--save-every", "50ms", *NO_FLUSH) as child:
        child.stdin.write(b"".join(lines))
        wait_for_save(folder / "edge.state", 50)
        (folder / "edge.state").unlink()
        folder.rmdir()
        out, stderr = child.process.communicate(timeout=LONG_S)
    assert child.process.returncode == 0
    assert b"`--state`" in stderr
    assert has_all_extremes(lines, out.splitlines(keepends=True))
