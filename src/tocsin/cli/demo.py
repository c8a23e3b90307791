"""Run a small example on local Spark: a stream is silent for five hours, and no alarm is missed.

It can be watched in a browser meanwhile; its first line says where. On a terminal that stays so until Ctrl-C.
"""

from __future__ import annotations

import argparse
import sys
import threading
from contextlib import suppress

SUMMARY = "run a small example on this machine"
EPILOG = "It needs Java 17 or newer and takes about a minute. Exit code: 0, or what Python gives for a failed run."


def configure(parser: argparse.ArgumentParser) -> None:
    """Take no options."""


def run(arguments: argparse.Namespace) -> int:
    """Run the demo."""
    # Imported here because the demo starts an engine, and asking for help should not.
    from pathlib import Path
    from tempfile import TemporaryDirectory

    from tocsin import demo
    from tocsin.cli.beside import dashboard_beside, needs_dashboard
    from tocsin.cli.given import GivenUpError

    port: int | None = 0
    try:
        needs_dashboard()
    except GivenUpError as error:
        print(f"{error}: there are no pages to look at", file=sys.stderr)
        port = None
    with TemporaryDirectory(prefix="tocsin-demo-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        with dashboard_beside(folder / demo.RUN, port):
            demo.main(folder=folder)
            if port is not None and sys.stdin.isatty() and sys.stdout.isatty():
                print("The dashboard stays until Ctrl-C.")
                with suppress(KeyboardInterrupt):
                    threading.Event().wait()
    return 0
