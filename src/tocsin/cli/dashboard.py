"""Serve a web dashboard of runs and backtests: alerts and their reasons, omitted rows, delays of rows.

    tocsin dashboard runs/cold-store
    tocsin dashboard runs/january runs/february --port 9000
    tocsin dashboard runs/cold-store --address 0.0.0.0 --token-file token.txt --name alerts.example.org

The dashboard reads the run directories of `tocsin run` and `tocsin backtest --run-dir`, also while a run writes them,
and never changes them. An index in --index-dir keeps the alerts for the next start. Pages of a running query update
themselves. Spark and Java are not needed.

By default only this machine can connect. With --address other machines can connect, and every request needs the token.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from tocsin.cli.arguments import CommandError, os_error_message, run_command, tocsin_errors_as_message
from tocsin.cli.live import ProgressLine, Status
from tocsin.dashboard import PORT

if TYPE_CHECKING:
    from tocsin.dashboard.store import Store

SUMMARY = "serve a web dashboard of runs and backtests"
_STDIN = 0
# Seconds that a run waits for its dashboard to exit.
_EXIT_S = 5.0
# Run directories that an error names.
_MOST_NAMES = 5
EPILOG = """\
exit codes:
  0  stopped by a signal
  1  RUN_DIR is missing or is not a run directory, the port is in use, or the token is missing
  2  invalid arguments

This command needs tocsin[dashboard].
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.add_argument("runs", nargs="+", metavar="RUN_DIR", help="run directory of a run or a backtest")
    parser.add_argument(
        "--port",
        type=int,
        default=PORT,
        metavar="PORT",
        help="port of the server (default: %(default)s; 0: a free one)",
    )
    parser.add_argument(
        "--address", default="127.0.0.1", metavar="ADDRESS", help="address of the server (default: %(default)s)"
    )
    parser.add_argument("--token-file", metavar="FILE", help="file with the access token, at least 16 characters")
    parser.add_argument(
        "--name",
        action="append",
        default=[],
        metavar="HOST",
        help="host name that browsers may use for the server; repeatable",
    )
    parser.add_argument(
        "--index-dir",
        metavar="DIR",
        type=Path,
        default=_default_index_dir(),
        help="directory of the alert indexes, which make a restart fast (default: ~/.cache/tocsin/dashboard)",
    )
    parser.add_argument("--open", action="store_true", help="open a browser")
    # For `serve_dashboard`: exit when the calling command closes standard input, even if it was killed.
    parser.add_argument("--until-input-ends", action="store_true", help=argparse.SUPPRESS)
    parser.set_defaults(usage_error=parser.error)


def run(arguments: argparse.Namespace) -> int:
    """Serve until a signal; return 1 if the server cannot start."""
    return run_command("dashboard", _serve, arguments)


def _serve(arguments: argparse.Namespace, progress: ProgressLine) -> int:
    if not 0 <= arguments.port < 1 << 16:
        arguments.usage_error(f"`--port` must be from 0 to 65535; got {arguments.port}")
    folders = [Path(path) for path in arguments.runs]
    for folder in folders:
        if not folder.is_dir():
            problem = "is not a directory" if folder.exists() else "does not exist"
            message = f"RUN_DIR must be a run directory; {folder} {problem}"
            raise CommandError(message)
    try:
        from tocsin.dashboard.serve import Where, serve
    except ImportError as error:
        message = f"the dashboard needs {error.name}; install tocsin[dashboard]"
        raise CommandError(message) from None
    if arguments.until_input_ends:
        # The run that started this process fills its directory later, and shows its own progress.
        progress.stop()
        threading.Thread(target=_exit_with_input, daemon=True).start()
    else:
        for folder in folders:
            _check_run_dir(folder)

    def on_ready(address: str, store: Store) -> None:
        progress.start_phase(lambda: _reading_status(store))
        _print_address(address, is_opened=arguments.open)

    where = Where(arguments.address, arguments.port, _token(arguments.token_file), tuple(arguments.name))
    with tocsin_errors_as_message():
        serve(folders, where, on_ready, arguments.index_dir)
    return 0


def _reading_status(store: Store) -> Status | None:
    """Return how much of the alert logs is read, or None after all of them are read."""
    return None if store.has_read else Status("reading alert logs", store.changes_read, unit="alert events")


def _check_run_dir(folder: Path) -> None:
    """Raise an error if no run and no backtest wrote the directory. The error names the run directories inside it."""
    from tocsin.dashboard.rundata import RunData
    from tocsin.run_directory.manifest import MANIFEST

    if RunData(folder.name, folder).is_run:
        return
    inside = sorted(path.parent for path in folder.glob(f"*/{MANIFEST}"))
    names = ", ".join(map(str, inside[:_MOST_NAMES])) + ", ..." * (len(inside) > _MOST_NAMES)
    advice = f"; it contains the run directories {names}" if inside else ""
    message = (
        f"RUN_DIR must be a directory that `tocsin run` or `tocsin backtest --run-dir` wrote; {folder} has no "
        f"{MANIFEST}{advice}"
    )
    raise CommandError(message)


def _default_index_dir() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "tocsin" / "dashboard"


def _token(path: str | None) -> str | None:
    if path is None:
        return None
    try:
        return Path(path).read_text("utf-8").strip()
    except OSError as error:
        raise CommandError(os_error_message(f"`--token-file`: {path}", error)) from None
    except ValueError:
        message = f"`--token-file` must be UTF-8 text; {path} is not"
        raise CommandError(message) from None


def _print_address(address: str, *, is_opened: bool) -> None:
    print(f"dashboard at {address}", flush=True)
    if is_opened:
        import webbrowser

        webbrowser.open(address)


def _exit_with_input() -> None:
    """Stop the server when standard input is closed.

    The thread reads the descriptor, because Python cannot exit while a thread holds the lock of a buffered stream.
    """
    while os.read(_STDIN, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def require_dashboard() -> None:
    """Raise a CommandError if the web server is not installed."""
    missing = [name for name in ("starlette", "uvicorn", "jinja2") if find_spec(name) is None]
    if missing:
        message = f"the dashboard needs {missing[0]}; install tocsin[dashboard]"
        raise CommandError(message)


@contextmanager
def serve_dashboard(run_dir: Path, port: int | None) -> Iterator[None]:
    """Run the dashboard in a child process until the calling command exits. Without a port, do nothing.

    The child prints its address on standard error. A failure of the child does not affect the caller.
    """
    if port is None:
        yield
        return
    run_dir.mkdir(parents=True, exist_ok=True)
    # -P keeps Python from importing modules of the current directory.
    tocsin = [sys.executable, "-P", "-m", "tocsin"]
    command = [*tocsin, "dashboard", str(run_dir), "--port", str(port), "--until-input-ends"]
    # A new session, so that Ctrl-C reaches the calling command only. That command stops the child when it exits.
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=sys.stderr.fileno(), start_new_session=True)
    try:
        yield
    finally:
        assert child.stdin is not None
        child.stdin.close()
        try:
            child.wait(_EXIT_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
