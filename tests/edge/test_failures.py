"""What goes wrong at the edge: the output stands still or goes away, the process is stopped or killed."""

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
    counts,
    edge,
    excused,
    read_some,
    rows,
    run_through,
    wait_for,
    whole,
    write_some,
)

PATIENT = ("--flush-after", "1h")


@contextmanager
def pipe() -> Iterator[tuple[int, int]]:
    """Make a pipe whose ends the test may close early."""
    ends = os.pipe()
    try:
        yield ends
    finally:
        for end in ends:
            close(end)


def close(fd: int) -> None:
    """Close what may be closed already."""
    try:
        os.close(fd)
    except OSError:
        return


def test_a_blocked_output_does_not_stop_reading_and_what_waits_is_reduced() -> None:
    lines = rows(40_000)
    data = b"".join(lines)
    free, _, _ = whole(data, "--hold", "0")
    assert free == data
    with edge("--hold", "0", "--max-backlog", "100000") as child:
        # Nobody reads, and all of the input is taken: far more than the pipes hold.
        assert write_some(child.stdin.fileno(), data) == len(data)
        child.stdin.close()
        time.sleep(0.5)
        out = read_some(child.stdout.fileno(), len(data) + 1)
        assert child.process.wait(LONG_S) == 0
        told = counts(child.stderr.read())
    assert told["received"] == len(lines)
    assert told["sent"] == len(out.splitlines())
    assert len(out) < len(data) / 2
    sent = out.splitlines(keepends=True)
    assert excused(lines[:3000], [line for line in sent if line in set(lines[:3000])])
    # Beyond what the pipe took at first, what was sent is nearly as little as a hold of the interval would send.
    held, _, _ = whole(data, "--hold", "20us")
    assert len(out) < len(held) + 2 * 65_536


def test_when_the_backlog_is_full_reading_waits_and_nothing_is_lost() -> None:
    # No two rows share a window, so none can be left out.
    lines = [b'{"t": %d, "v": 1}\n' % (1000 * i) for i in range(40_000)]
    data = b"".join(lines)
    with edge("--hold", "0", "--max-backlog", "500") as child:
        taken = write_some(child.stdin.fileno(), data, patience_s=2.0)
        assert taken < len(data) / 2
        inlet = os.dup(child.stdin.fileno())
        child.stdin.close()
        assert run_through(inlet, child.stdout.fileno(), data[taken:]) == data
        assert child.process.wait(LONG_S) == 0


def test_a_full_backlog_of_held_rows_is_sent_early() -> None:
    lines = rows(2_000)
    plain = ("--time", "t", "--time-unit", "us", "--value", "v", "--json")
    out, told, code = whole(b"".join(lines), "--interval", "1h", "--max-backlog", "10", plain=plain)
    assert (code, told["held"]) == (0, 0)
    assert excused(lines, out.splitlines(keepends=True), length=3_600_000_000)


@pytest.mark.parametrize("hold", ["0", "20us"])
@pytest.mark.parametrize("read", [1, 30_000])
def test_after_a_broken_pipe_the_next_run_goes_on_and_no_line_is_lost(tmp_path: Path, hold: str, read: int) -> None:
    lines, options = rows(12_000), ("--state", str(tmp_path / "edge.state"), "--hold", hold, *PATIENT)
    data = b"".join(lines)
    with pipe() as (source, inlet):
        with edge(*options, stdin=source) as child:
            # The first row is held or sent, and then the reader goes away in the middle of a line.
            fed = write_some(inlet, data[:200_001])
            first = read_some(child.stdout.fileno(), read)
            child.stdout.close()
            fed += write_some(inlet, data[fed:], patience_s=1.0)
            assert child.process.wait(LONG_S) == 3
            told = child.stderr.read()
            assert b"Broken pipe" in told
            assert counts(told)["held"] > 0
        with edge(*options, stdin=source) as child:
            close(source)
            second = run_through(inlet, child.stdout.fileno(), data[fed:])
            assert child.process.wait(LONG_S) == 0
            told_all = counts(child.stderr.read())
    assert len(first) == read
    before, after = first[: first.rfind(b"\n") + 1].splitlines(keepends=True), second.splitlines(keepends=True)
    # The line that was cut comes again, whole; no other comes twice.
    assert len(set(before + after)) == len(before + after)
    assert after[0].startswith(first[first.rfind(b"\n") + 1 :])
    assert told_all["received"] == len(lines)
    assert excused(lines, before + after)


def test_a_broken_pipe_without_a_state_file_says_what_is_lost() -> None:
    with edge("--hold", "20us", *PATIENT) as child:
        child.stdout.close()
        write_some(child.stdin.fileno(), b"".join(rows(5_000)), patience_s=0.5)
        assert child.process.wait(LONG_S) == 4
        told = child.stderr.read()
    assert b"Broken pipe" in told
    assert b"are lost: `--state FILE` would keep them" in told
    assert counts(told)["held"] > 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves_and_the_next_run_sends_what_one_run_would_have(tmp_path: Path, number: int) -> None:
    lines, options = rows(600), ("--state", str(tmp_path / "edge.state"), *PATIENT)
    data, cut = b"".join(lines), 7_001
    expected, all_counts, _ = whole(data)
    with edge(*options) as child:
        child.stdin.write(data[:cut])
        first = os.read(child.stdout.fileno(), 1 << 16)
        child.process.send_signal(number)
        child.process.wait(LONG_S)  # Before its input ends, which would send all that is held.
        out, told = child.process.communicate(timeout=LONG_S)
        assert child.process.returncode == 0
        assert f"stopped by {signal.Signals(number).name}".encode() in told
        first += out
    assert counts(told)["held"] > 0
    second, told_all, code = whole(data[cut:], *options)
    assert code == 0
    assert first + second == expected
    assert {name: told_all[name] for name in ("received", "sent", "omitted", "bytes_in", "bytes_out")} == {
        name: all_counts[name] for name in ("received", "sent", "omitted", "bytes_in", "bytes_out")
    }


def test_a_signal_without_a_state_file_sends_what_is_held() -> None:
    lines = rows(100)
    with edge(*PATIENT) as child:
        child.stdin.write(b"".join(lines))
        first = os.read(child.stdout.fileno(), 1 << 16)
        child.process.terminate()
        out, told = child.process.communicate(timeout=LONG_S)
    assert child.process.returncode == 0
    assert counts(told)["held"] == 0
    assert excused(lines, (first + out).splitlines(keepends=True))


def test_a_signal_while_the_output_is_blocked_and_no_state_file_says_what_is_lost() -> None:
    with edge("--hold", "0") as child:
        write_some(child.stdin.fileno(), b"".join(rows(40_000)))
        child.process.terminate()
        assert child.process.wait(LONG_S) == 4
        assert b"lines that were not sent are lost" in child.stderr.read()


def test_after_a_kill_a_file_is_read_on_from_the_last_save(tmp_path: Path) -> None:
    lines = rows(20_000)
    (tmp_path / "in").write_bytes(b"".join(lines))
    options = (
        "--state",
        str(tmp_path / "edge.state"),
        "--save-every",
        "50ms",
        "--hold",
        "3us",
        "--max-backlog",
        "3000",
    )
    with (tmp_path / "in").open("rb") as source, edge(*options, stdin=source) as child:
        # Nobody reads: the pipe fills, then the backlog, and reading waits.
        wait_for(tmp_path / "edge.state", 5_000)
        child.process.kill()
        first = read_some(child.stdout.fileno(), 1 << 20)
    with (tmp_path / "in").open("rb") as source, edge(*options, stdin=source) as child:
        second, told = child.process.communicate(timeout=LONG_S)
        assert child.process.returncode == 0
    before, after = first[: first.rfind(b"\n") + 1].splitlines(keepends=True), second.splitlines(keepends=True)
    assert 0 < counts(told)["received"] <= len(lines)
    assert lines[0] not in after
    assert excused(lines, before + after)


def test_after_a_kill_what_was_received_before_the_last_save_is_not_lost(tmp_path: Path) -> None:
    lines, options = rows(300), ("--state", str(tmp_path / "edge.state"), "--save-every", "50ms", *PATIENT)
    with edge(*options) as child:
        child.stdin.write(b"".join(lines[:200]))
        wait_for(tmp_path / "edge.state", 200)
        child.stdin.write(b"".join(lines[200:]))
        child.process.kill()
        first = read_some(child.stdout.fileno(), 1 << 20)
    second, told, code = whole(b"", *options)
    assert code == 0
    assert told["received"] >= 200
    assert excused(lines[:200], [line for line in (first + second).splitlines(keepends=True) if line in lines[:200]])


def test_a_second_run_over_the_same_file_takes_only_what_was_added(tmp_path: Path) -> None:
    lines, options = rows(200), ("--state", str(tmp_path / "edge.state"), "--hold", "0")
    out = b""
    for stop in (100, 100, 200):
        (tmp_path / "in").write_bytes(b"".join(lines[:stop]))
        with (tmp_path / "in").open("rb") as source, edge(*options, stdin=source) as child:
            out += child.process.communicate(timeout=LONG_S)[0]
    assert out == b"".join(lines)


def test_a_state_file_that_cannot_be_written_any_more_is_told_and_stops_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    lines = rows(50)
    with edge("--state", str(folder / "edge.state"), "--save-every", "50ms", *PATIENT) as child:
        child.stdin.write(b"".join(lines))
        wait_for(folder / "edge.state", 50)
        (folder / "edge.state").unlink()
        folder.rmdir()
        out, told = child.process.communicate(timeout=LONG_S)
    assert child.process.returncode == 0
    assert b"`--state`" in told
    assert excused(lines, out.splitlines(keepends=True))
