"""Check rule files: report all errors and warnings, each with its position.

    tocsin check cold-store.yaml
    tocsin check --strict rules/*.yaml
    tocsin check --proofs cold-store.yaml
    tocsin check --json rules/*.yaml | jq '.files[].errors[]'

An error has the format of compilers, and underlines the text that it is about:

    cold-store.yaml:12:14: group "cold-store": rule "Condensation": `for` must not be negative; got '-5s'
      for: -5s
           ^^^

A warning reports a valid but suspicious setting: a stream that no rule reads, a password in the file, a rule that will
flap. A note reports a property of a rule, such as a delay of its alerts. The command reads the rule files and their
limits tables only; it connects to no source and no sink. `${VAR}` is read from the environment and never printed.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tocsin.cli.arguments import run_command
from tocsin.cli.live import ProgressLine

if TYPE_CHECKING:
    from tocsin.errors import Diagnostic
    from tocsin.plan import Watch
    from tocsin.rules.load import Checked

SUMMARY = "check rule files and report all errors"
EPILOG = """\
exit codes:
  0  no errors; with --strict, no warnings either
  1  errors, or a file cannot be read
  2  invalid arguments

Errors and warnings go to standard error. For each file without errors, one line and the notes go to standard output.
With --json, everything goes to standard output. docs/reference/rule-file.md describes the rule file.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.add_argument("files", nargs="+", metavar="FILE", help="rule file")
    parser.add_argument("--json", action="store_true", help="write one JSON object instead of text")
    parser.add_argument("--strict", action="store_true", help="exit with code 1 if there are warnings")
    parser.add_argument(
        "--proofs", action="store_true", help="show which rows each rule omits, and the proof that no alarm needs them"
    )


def run(arguments: argparse.Namespace) -> int:
    """Check the files; return 1 if there are errors."""
    return run_command("check", _check, arguments)


def _check(arguments: argparse.Namespace, progress: ProgressLine) -> int:
    from tocsin.cli.arguments import check_file

    # All objects stay in use, so garbage collection would free nothing. It would take a tenth of the time.
    gc.disable()
    try:
        checked = [check_file(path, os.environ, progress) for path in arguments.files]
    finally:
        gc.enable()
    progress.start_phase("planning rules")
    watches = [_watches(one) if arguments.proofs else () for one in checked]
    progress.stop()
    if arguments.json:
        files = [_object(one, plan, proofs=arguments.proofs) for one, plan in zip(checked, watches, strict=True)]
        print(json.dumps({"ok": _is_ok(checked, arguments), "files": files}, indent=2))
    else:
        for one, plan in zip(checked, watches, strict=True):
            _print(one, plan)
    return 0 if _is_ok(checked, arguments) else 1


def _is_ok(checked: Sequence[Checked], arguments: argparse.Namespace) -> bool:
    return not any(one.errors or (arguments.strict and one.warnings) for one in checked)


def write_errors(checked: Checked) -> None:
    """Write the errors and warnings of a file to standard error, each with the text that it is about."""
    from tocsin.cli.live import write_line
    from tocsin.errors import ERROR
    from tocsin.rules.context import sort_diagnostics

    # Errors in limits tables follow the errors in the rule file.
    for one in sort_diagnostics([*checked.errors, *checked.warnings], checked.path):
        write_line(str(one), sys.stderr, "red" if one.severity == ERROR else "yellow")
        if one.excerpt:
            print(one.excerpt.removeprefix("\n"), file=sys.stderr)


def _print(checked: Checked, watches: Sequence[Watch]) -> None:
    from tocsin.cli.live import write_line
    from tocsin.errors import printable

    write_errors(checked)
    if checked.file is not None:
        counts = _counts(checked)
        parts = ", ".join(f"{count} {name if count != 1 else name[:-1]}" for name, count in counts.items())
        write_line(f"{checked.path}: {parts}: ok", sys.stdout, "green")
        for note in checked.notes:
            print(note)
        for watch in watches:
            used = sorted({store for rule in watch.rules for store in rule.stores})
            for line in [*watch.store_lines(used), *(line for rule in watch.rules for line in watch.rule_lines(rule))]:
                print("  " + printable(line))


def _watches(checked: Checked) -> Sequence[Watch]:
    """Return the plans of the rules of a file."""
    from tocsin.plan import plan_file

    return plan_file(checked.file).watches if checked.file is not None and checked.file.rules else ()


def _counts(checked: Checked) -> dict[str, int]:
    if checked.file is None:
        return {}
    file = checked.file
    return {"groups": len(file.groups), "rules": len(file.rules) + len(file.ranges), "streams": len(file.streams)}


def _object(checked: Checked, watches: Sequence[Watch], *, proofs: bool) -> dict[str, Any]:
    proved = [
        {
            "alert": rule.alert,
            "labels": dict(rule.labels),
            "proofs": {name: verdict.to_dict() for name, verdict in rule.proofs},
        }
        for watch in watches
        for rule in watch.rules
    ]
    return {
        "file": checked.path,
        "ok": checked.file is not None,
        **_counts(checked),
        "errors": [error_object(error) for error in checked.errors],
        "warnings": [error_object(warning) for warning in checked.warnings],
        "notes": [error_object(note) for note in checked.notes],
        **({"rules_proved": proved} if proofs else {}),
    }


def error_object(error: Diagnostic) -> dict[str, Any]:
    """Return an error, warning or note as a JSON object."""
    return {
        "file": error.file,
        "line": error.line,
        "column": error.column,
        "where": error.where,
        "code": error.code,
        "path": [one if isinstance(one, str | int) else str(one) for one in error.path],
        "message": error.sentence,
        "found": error.found,
        "hint": error.hint,
    }
