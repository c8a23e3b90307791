"""Show runs and backtests in a browser: what fires and why, what was left out, how late rows come.

    tocsin dashboard runs/cold-store
    tocsin dashboard runs/january runs/february --port 9000
    tocsin dashboard runs/cold-store --address 0.0.0.0 --token-file token.txt --name alerts.example.org

It reads what `tocsin run` and `tocsin backtest --run-dir` wrote, while they write it, and changes nothing there. Pages
follow a run that goes on without being loaded again. Spark and Java are not needed.

Only this machine can reach it, unless --address says otherwise; then everybody who asks must have the token.
"""

from __future__ import annotations

import argparse
import threading
from pathlib import Path

from tocsin.cli.given import GivenUpError, attempt, run_errors
from tocsin.dashboard import PORT

SUMMARY = "show runs and backtests in a browser"
_INPUT = 0
# Run directories that an error names.
_MOST_NAMES = 5
EPILOG = """\
exit codes:
  0  a signal asked to stop
  1  a directory that is missing or is not a run directory, a port that is not free, or a missing token
  2  wrong usage

It needs tocsin[dashboard]. docs/dashboard.md shows the pages.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.add_argument("runs", nargs="+", metavar="RUN_DIR", help="the directory of a run or a backtest")
    parser.add_argument("--port", type=int, default=PORT, metavar="PORT", help="(default: %(default)s; 0: a free one)")
    parser.add_argument(
        "--address", default="127.0.0.1", metavar="ADDRESS", help="where to listen (default: this machine alone)"
    )
    parser.add_argument(
        "--token-file", metavar="FILE", help="a file with the token that is asked for, 16 letters or more"
    )
    parser.add_argument(
        "--name",
        action="append",
        default=[],
        metavar="HOST",
        help="a host name under which it may be asked; repeatable",
    )
    parser.add_argument("--open", action="store_true", help="open a browser")
    # For a run that starts it: it ends when whoever started it has ended, however that came.
    parser.add_argument("--until-input-ends", action="store_true", help=argparse.SUPPRESS)
    parser.set_defaults(refuse=parser.error)


def run(arguments: argparse.Namespace) -> int:
    """Serve until a signal; give 1 if that cannot be done."""
    return attempt("dashboard", _serve, arguments)


def _serve(arguments: argparse.Namespace) -> int:
    if not 0 <= arguments.port < 1 << 16:
        arguments.refuse(f"`--port` must be from 0 to 65535; got {arguments.port}")
    folders = [Path(path) for path in arguments.runs]
    for folder in folders:
        if not folder.is_dir():
            message = f"RUN_DIR must be the directory of a run; {folder} is not there"
            raise GivenUpError(message)
    try:
        from tocsin.dashboard.serve import Where, serve
    except ImportError as error:
        message = f"the dashboard needs {error.name}; install tocsin[dashboard]"
        raise GivenUpError(message) from None
    if arguments.until_input_ends:
        # The run that started this process fills its folder later.
        threading.Thread(target=_end_with_input, daemon=True).start()
    else:
        for folder in folders:
            _check_run_dir(folder)
    where = Where(arguments.address, arguments.port, _token(arguments.token_file), tuple(arguments.name))
    with run_errors():
        serve(folders, where, lambda address: _tell(address, is_opened=arguments.open))
    return 0


def _check_run_dir(folder: Path) -> None:
    """Raise an error if no run and no backtest wrote the folder; name the run directories inside it."""
    from tocsin.dashboard.rundata import RunData
    from tocsin.rundir.manifest import MANIFEST

    if RunData(folder.name, folder).is_run:
        return
    inside = sorted(path.parent for path in folder.glob(f"*/{MANIFEST}"))
    names = ", ".join(map(str, inside[:_MOST_NAMES])) + ", ..." * (len(inside) > _MOST_NAMES)
    advice = f"; it has run directories inside: {names}" if inside else ""
    message = (
        f"RUN_DIR must be a directory that `tocsin run` or `tocsin backtest --run-dir` wrote; {folder} has no "
        f"{MANIFEST}{advice}"
    )
    raise GivenUpError(message)


def _token(path: str | None) -> str | None:
    if path is None:
        return None
    try:
        return Path(path).read_text("utf-8").strip()
    except (OSError, ValueError) as error:
        what = getattr(error, "strerror", None) or "it is not text"
        message = f"`--token-file` must be readable; {path}: {what.lower()}"
        raise GivenUpError(message) from None


def _tell(address: str, *, is_opened: bool) -> None:
    print(f"dashboard at {address}", flush=True)
    if is_opened:
        import webbrowser

        webbrowser.open(address)


def _end_with_input() -> None:
    """End with whoever holds the other end of standard input.

    It is read as a descriptor: a buffer would be locked while it waits, and Python cannot end then.
    """
    import os
    import signal

    while os.read(_INPUT, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
