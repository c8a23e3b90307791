"""Print the JSON Schema of rule files or of test files.

    tocsin schema > rules.schema.json
    tocsin schema test > test.schema.json

Editors with a YAML language server complete and check a file whose first line is

    # yaml-language-server: $schema=rules.schema.json

The schema has all keys with their meanings. `tocsin check` also checks names, conditions and everything else that a
JSON Schema cannot express.
"""

from __future__ import annotations

import argparse
from importlib.resources import files

from tocsin.cli.arguments import run_command
from tocsin.cli.live import ProgressLine

SUMMARY = "print the JSON Schema of rule files or test files"
EPILOG = """\
exit codes:
  0  success
  2  invalid arguments
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.add_argument("kind", nargs="?", choices=("rules", "test"), default="rules", help="kind of file")


def run(arguments: argparse.Namespace) -> int:
    """Print the schema."""
    return run_command("schema", _print, arguments)


def _print(arguments: argparse.Namespace, progress: ProgressLine) -> int:
    package = {"rules": "tocsin.rules", "test": "tocsin.testing"}[arguments.kind]
    print((files(package) / "schema.json").read_text("utf-8"), end="")
    return 0
