"""A dashboard beside a command that goes on: a process of its own, which ends when the command does, in any way."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from tocsin.cli.given import GivenUpError

_END_S = 5.0


def needs_dashboard() -> None:
    """Refuse to go on where what serves pages is not installed."""
    missing = [name for name in ("starlette", "uvicorn", "jinja2") if find_spec(name) is None]
    if missing:
        message = f"the dashboard needs {missing[0]}; install tocsin[dashboard]"
        raise GivenUpError(message)


@contextmanager
def dashboard_beside(run_dir: Path, port: int | None) -> Iterator[None]:
    """Serve pages of a run while it runs; it says itself where, on standard error. None serves nothing.

    What happens to it is nothing to the run: should it fail, it says so, and the run goes on.
    """
    if port is None:
        yield
        return
    run_dir.mkdir(parents=True, exist_ok=True)
    # Without -P it would import what lies in the folder that the run was started in.
    tocsin = [sys.executable, "-P", "-m", "tocsin"]
    command = [*tocsin, "dashboard", str(run_dir), "--port", str(port), "--until-input-ends"]
    # A session of its own: Ctrl-C is for the run, which ends it when it has ended itself.
    started = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=sys.stderr.fileno(), start_new_session=True)
    try:
        yield
    finally:
        assert started.stdin is not None
        started.stdin.close()
        try:
            started.wait(_END_S)
        except subprocess.TimeoutExpired:
            started.kill()
            started.wait()
