"""Run `tocsin edge` as a process, with pipes that tests hold the other ends of."""

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

# The command alone, as `tocsin` runs it.
CODE = "import sys; from tocsin.cli import edge, main; main.COMMANDS = (edge,); sys.exit(main.main())"
PLAIN = ("--time", "t", "--time-unit", "us", "--value", "v", "--interval", "20us", "--json")
LONG_S = 60.0


class Child(NamedTuple):
    """The process, and our ends of its pipes."""

    process: subprocess.Popen[bytes]
    stdin: Any
    stdout: Any
    stderr: Any


@contextmanager
def edge(*options: str, plain: Sequence[str] = PLAIN, code: str = CODE, **streams: Any) -> Iterator[Child]:
    """Start the command; `streams` are stdin, stdout and stderr, pipes unless told. It does not outlive the block."""
    given = {name: subprocess.PIPE for name in ("stdin", "stdout", "stderr")} | streams
    process = subprocess.Popen([sys.executable, "-c", code, "edge", *plain, *options], bufsize=0, **given)
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


def whole(data: bytes, *options: str, plain: Sequence[str] = PLAIN) -> tuple[bytes, dict[str, Any], int]:
    """Run the command over all of an input; give its output, its counts, and its exit code."""
    with edge(*options, plain=plain) as child:
        out, told = child.process.communicate(data, timeout=LONG_S)
        return out, counts(told), child.process.returncode


def counts(told: bytes) -> dict[str, Any]:
    """Give the last counts that were told, and check that they add up."""
    found = [json.loads(line) for line in told.splitlines() if b'"received"' in line]
    assert found, told
    for one in found:
        assert one["received"] == one["sent"] + one["held"] + one["omitted"] + one["malformed"], one
    return found[-1]


def rows(count: int, start: int = 0, seed: int = 7) -> list[bytes]:
    """Make JSON lines, one per microsecond: a random walk that is rounded, so that values repeat."""
    values = np.round(np.cumsum(np.random.default_rng(seed).normal(0, 1, start + count)))
    return [b'{"t": %d, "v": %d}\n' % (t, values[t]) for t in range(start, start + count)]


def excused(received: list[bytes], sent: list[bytes], length: int = 20) -> bool:
    """Tell whether every window of what was received, by time, has its largest and smallest among what was sent."""
    assert set(sent) <= set(received)
    found = [json.loads(line) for line in received]
    t, v = [row["t"] for row in found], [row["v"] for row in found]
    kept = set(sent)
    # Windows with all distinct contents begin at a row, or end at one; half steps lie between those.
    for start in sorted({at + shift for at in t for shift in (0, 0.5, -length, 0.5 - length)}):
        inside = range(bisect_left(t, start), bisect_right(t, start + length))
        values = [v[i] for i in inside]
        left = [v[i] for i in inside if received[i] in kept]
        if values and (not left or max(left) != max(values) or min(left) != min(values)):
            return False
    return True


def read_some(fd: int, size: int, within_s: float = LONG_S) -> bytes:
    """Read until there are so many bytes, the end is reached, or time is up."""
    data, until = b"", time.monotonic() + within_s
    while len(data) < size and select.select([fd], [], [], max(0.0, until - time.monotonic()))[0]:
        more = os.read(fd, size - len(data))
        if not more:
            break
        data += more
    return data


def write_some(fd: int, data: bytes, patience_s: float = LONG_S) -> int:
    """Write without blocking, until nothing has been taken for a while; give how much was taken."""
    os.set_blocking(fd, False)
    done = 0
    while done < len(data) and select.select([], [fd], [], patience_s)[1]:
        done += os.write(fd, data[done : done + 4096])
    os.set_blocking(fd, True)
    return done


def run_through(inlet: int, outlet: int, data: bytes) -> bytes:
    """Write all of the data and read what comes, in turns; close the inlet, and read to the end."""
    out = b""
    while data:
        data = data[write_some(inlet, data, patience_s=0.05) :]
        out += read_some(outlet, 1 << 20, within_s=0.05)
    os.close(inlet)
    return out + read_some(outlet, 1 << 24)


def wait_for(path: Path, received: int) -> None:
    """Wait until a state file has so many rows received."""
    from tocsin.pages import unpack

    until = time.monotonic() + LONG_S
    while time.monotonic() < until:
        if path.exists() and unpack(path.read_bytes())[1]["counts"]["received"] >= received:
            return
        time.sleep(0.02)
    raise AssertionError(f"{path} was not saved in time")
