"""Run Tocsin from the command line: `python -m tocsin demo`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and give its exit status."""
    parser = argparse.ArgumentParser(prog="python -m tocsin", description="Alerts from conditions over joined streams.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    commands.add_parser("demo", help="run a small example on this machine")
    parser.parse_args(arguments)
    # Imported here because the demo starts an engine, and asking for help should not.
    from tocsin import demo

    demo.main()
    return 0


if __name__ == "__main__":
    sys.exit(main())
