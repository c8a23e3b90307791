"""Helpers that run `tocsin edge` as a child process, whose pipes the tests control."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

# Runs the command without the other commands.
CODE = "import sys; from tocsin.cli import edge, main; main.COMMANDS = (edge,); sys.exit(main.main())"
DEFAULTS = ("--time", "t", "--time-unit", "us", "--value", "v", "--interval", "20us", "--json")
LONG_S = 60.0


class Child(NamedTuple):
    """The child process, and the test's ends of its pipes."""

    process: subprocess.Popen[bytes]
    stdin: Any
    stdout: Any
    stderr: Any


@contextmanager
def start_edge(*options: str, defaults: Sequence[str] = DEFAULTS, code: str = CODE, **streams: Any) -> Iterator[Child]:
    """Start the command, and kill it at the end of the block. `streams` replaces the pipes stdin, stdout and stderr."""
    ends = {name: subprocess.PIPE for name in ("stdin", "stdout", "stderr")} | streams
    process = subprocess.Popen([sys.executable, "-c", code, "edge", *defaults, *options], bufsize=0, **ends)
    child = Child(process, process.stdin, process.stdout, process.stderr)
    try:
        yield child
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        for stream in child[1:]:
            if stream is not None:
                stream.close()


def run_edge(data: bytes, *options: str, defaults: Sequence[str] = DEFAULTS) -> tuple[bytes, dict[str, Any], int]:
    """Run the command over a complete input; return its output, its last counts and its exit code."""
    with start_edge(*options, defaults=defaults) as child:
        out, stderr = child.process.communicate(data, timeout=LONG_S)
        return out, last_counts(stderr), child.process.returncode


def last_counts(stderr: bytes) -> dict[str, Any]:
    """Return the last counts on standard error, and check the sum of each."""
    reports = [json.loads(line) for line in stderr.splitlines() if b'"received"' in line]
    assert reports, stderr
    for counts in reports:
        assert counts["received"] == counts["sent"] + counts["held"] + counts["omitted"] + counts["malformed"], counts
    return reports[-1]


def json_lines(count: int, start: int = 0, seed: int = 7) -> list[bytes]:
    """Return JSON lines of a random walk, a row per microsecond. Values are rounded, so they repeat."""
    values = np.round(np.cumsum(np.random.default_rng(seed).normal(0, 1, start + count)))
    return [b'{"t": %d, "v": %d}\n' % (t, values[t]) for t in range(start, start + count)]


def has_all_extremes(received: list[bytes], sent: list[bytes], length: int = 20) -> bool:
    """Return whether the sent rows have a maximum and a minimum of each window of the received rows."""
    assert set(sent) <= set(received)
    rows = [json.loads(line) for line in received]
    t, v = [row["t"] for row in rows], [row["v"] for row in rows]
    sent_lines = set(sent)
    # Each distinct content of a window begins or ends at a row, or half a step beside it.
    for start in sorted({at + shift for at in t for shift in (0, 0.5, -length, 0.5 - length)}):
        inside = range(bisect_left(t, start), bisect_right(t, start + length))
        values = [v[i] for i in inside]
        left = [v[i] for i in inside if received[i] in sent_lines]
        if values and (not left or max(left) != max(values) or min(left) != min(values)):
            return False
    return True


def read_up_to(fd: int, size: int, within_s: float = LONG_S) -> bytes:
    """Read `size` bytes, or less at the end of the file or of the time."""
    data, until = b"", time.monotonic() + within_s
    while len(data) < size and select.select([fd], [], [], max(0.0, until - time.monotonic()))[0]:
        more = os.read(fd, size - len(data))
        if not more:
            break
        data += more
    return data


def write_until_blocked(fd: int, data: bytes, patience_s: float = LONG_S) -> int:
    """Write until all is written or the reader accepts nothing for `patience_s`; return the number of bytes."""
    os.set_blocking(fd, False)
    done = 0
    while done < len(data) and select.select([], [fd], [], patience_s)[1]:
        done += os.write(fd, data[done : done + 4096])
    os.set_blocking(fd, True)
    return done


def write_and_read(inlet: int, outlet: int, data: bytes) -> bytes:
    """Write all data and read the output in turns. Then close the inlet and read to the end."""
    out = b""
    while data:
        data = data[write_until_blocked(inlet, data, patience_s=0.05) :]
        out += read_up_to(outlet, 1 << 20, within_s=0.05)
    os.close(inlet)
    return out + read_up_to(outlet, 1 << 24)


def wait_for_save(path: Path, received: int) -> None:
    """Wait until a state file with at least `received` rows is saved."""
    from tocsin.runtime.state_codec import unpack

    until = time.monotonic() + LONG_S
    while time.monotonic() < until:
        if path.exists() and unpack(path.read_bytes())[1]["counts"]["received"] >= received:
            return
        time.sleep(0.02)
    raise AssertionError(f"{path} was not saved in time")
