"""Run one command: `tocsin check`, `certify`, `explain`, `test`, `backtest`, `run`, `dashboard`, and so on."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from tocsin.cli import (
    backtest,
    certify,
    check,
    dashboard,
    demo,
    edge,
    examples,
    explain,
    query,
    ranges,
    run,
    schema,
    test,
)

COMMANDS = (check, schema, certify, explain, test, backtest, run, dashboard, ranges, query, edge, demo, examples)
EPILOG = (
    "`tocsin COMMAND --help` describes a command. Exit codes: 0 success; 1 errors in a file, a failed run or a "
    "missing file; 2 invalid arguments. TOCSIN_PROGRESS=off turns progress lines off."
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    chosen = parser().parse_args(arguments)
    try:
        code = chosen.run(chosen)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader of the output closed it. Python would print the same error again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return int(code)


class _Version(argparse.Action):
    """Action of --version. It reads the version only on use, because commands must start fast."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from tocsin.run_directory.manifest import package_version

        print(f"tocsin {package_version()}")
        parser.exit()


def parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    tocsin = argparse.ArgumentParser(
        prog="tocsin", description="Raise alerts from conditions over joined streams.", epilog=EPILOG
    )
    tocsin.add_argument("--version", action=_Version, nargs=0, help="show the version and exit")
    commands = tocsin.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in COMMANDS:
        command_parser = commands.add_parser(
            command.__name__.rpartition(".")[2],
            help=command.SUMMARY,
            description=command.__doc__,
            epilog=command.EPILOG,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.configure(command_parser)
        command_parser.set_defaults(run=command.run)
    return tocsin
