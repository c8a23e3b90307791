"""Run one command: `tocsin check`, `certify`, `explain`, `test`, `backtest`, `run`, `dashboard`, and so on."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from tocsin.cli import backtest, certify, check, dashboard, demo, edge, explain, query, ranges, run, test

COMMANDS = (check, certify, explain, test, backtest, run, dashboard, ranges, query, edge, demo)
EPILOG = "`tocsin COMMAND --help` says more. Exit codes: 0 fine, 1 mistakes, a failure or no such file, 2 wrong usage."


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and give its exit code."""
    chosen = parser().parse_args(arguments)
    try:
        code = chosen.run(chosen)
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read the output has seen enough; Python would complain once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return int(code)


class _Version(argparse.Action):
    """Looks the version up only when it is asked for: commands must start fast."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from tocsin.rundir.manifest import package_version

        print(f"tocsin {package_version()}")
        parser.exit()


def parser() -> argparse.ArgumentParser:
    """Make the parser of all commands."""
    whole = argparse.ArgumentParser(
        prog="tocsin", description="Alerts from conditions over joined streams.", epilog=EPILOG
    )
    whole.add_argument("--version", action=_Version, nargs=0, help="say which version this is, and end")
    commands = whole.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in COMMANDS:
        name = command.__name__.rpartition(".")[2]
        mine = commands.add_parser(
            name,
            help=command.SUMMARY,
            description=command.__doc__,
            epilog=command.EPILOG,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.configure(mine)
        mine.set_defaults(run=command.run)
    return whole
