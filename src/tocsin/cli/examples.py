"""Write the example files to a directory: rule files, unit tests, limits, requests, Prometheus and Grafana files.

    tocsin examples examples
    tocsin check examples/factory.yaml

The directory is created if it does not exist. No file is overwritten: if one of the files exists, nothing is written.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from tocsin.cli.arguments import CommandError, os_error_message, run_command
from tocsin.cli.live import ProgressLine

SUMMARY = "write the example files to a directory"
EPILOG = """\
exit codes:
  0  success
  1  a file exists already, or the directory cannot be written
  2  invalid arguments
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the directory."""
    parser.add_argument("directory", metavar="DIR", help="directory for the files, for example `examples`")


def run(arguments: argparse.Namespace) -> int:
    """Write the files; return 1 if that is not possible."""
    return run_command("examples", _write, arguments)


def _write(arguments: argparse.Namespace, progress: ProgressLine) -> int:
    source, target = find_examples(), Path(arguments.directory)
    files = sorted(path.relative_to(source) for path in source.rglob("*") if path.is_file() and path.suffix != ".pyc")
    # A link without a target counts as a file: opening it would fail after other files were written.
    existing = [str(target / file) for file in files if os.path.lexists(target / file)]
    if existing:
        message = f"DIR must not have files of the same names; {', '.join(existing)} already exist"
        raise CommandError(message)
    try:
        for file in files:
            (target / file).parent.mkdir(parents=True, exist_ok=True)
        for file in files:
            # Exclusive creation also protects a file that appeared after the check.
            with (target / file).open("xb") as output:
                output.write((source / file).read_bytes())
    except OSError as error:
        raise CommandError(os_error_message(error.filename or target, error)) from None
    progress.stop()
    for file in files:
        print(target / file)
    return 0


def find_examples() -> Path:
    """Return the folder of the example files: part of the installed package, or beside `src` in a checkout."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "examples", package.parents[1] / "examples"):
        if (folder / "factory.yaml").is_file():
            return folder
    message = "the example files are missing in this installation; install tocsin from a wheel"
    raise CommandError(message)
