"""Run a small example on local Spark: sensors fail, send their rows later, and no alert is missed.

The first line shows the address of a dashboard. On a terminal the dashboard stays open until Ctrl-C.
"""

from __future__ import annotations

import argparse
import sys
import threading
from contextlib import suppress

from tocsin.cli.live import ProgressLine

SUMMARY = "run a small example on this machine"
EPILOG = """\
exit codes:
  0  success
  1  the run failed
  2  invalid arguments

This command needs Java 17 or newer and tocsin[spark]. It takes about a minute.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add no options."""


def run(arguments: argparse.Namespace) -> int:
    """Run the demo."""
    # These imports load an engine; `--help` must not need one.
    from pathlib import Path
    from tempfile import TemporaryDirectory

    from tocsin import demo
    from tocsin.cli.arguments import CommandError, report_failure, require_spark
    from tocsin.cli.dashboard import require_dashboard, serve_dashboard

    try:
        require_spark()
    except CommandError as error:
        return report_failure("demo", error, as_json=False)
    port: int | None = 0
    try:
        require_dashboard()
    except CommandError as error:
        print(f"tocsin demo: {error}; the demo runs without a dashboard", file=sys.stderr)
        port = None
    with TemporaryDirectory(prefix="tocsin-demo-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        with serve_dashboard(folder / demo.RUN, port):
            with ProgressLine("demo") as progress:
                progress.start_phase("running the example on local Spark")
                demo.main(folder=folder)
            if port is not None and sys.stdin.isatty() and sys.stdout.isatty():
                print("The dashboard stays open until Ctrl-C.")
                with suppress(KeyboardInterrupt):
                    threading.Event().wait()
    return 0
