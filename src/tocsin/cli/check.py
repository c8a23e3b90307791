"""Check rule files: every mistake at once, each with its place.

    tocsin check cold-store.yaml
    tocsin check --strict rules/*.yaml
    tocsin check --proofs cold-store.yaml
    tocsin check --json rules/*.yaml | jq '.files[].mistakes[]'

A mistake is one line, as compilers write them:

    cold-store.yaml:12:9: group "cold-store": rule "Condensation": `for` must not be negative; got '-5s'

A warning says that something may be meant so and often is not: a stream that no rule reads, a password that stands in
the file, a rule that will flap. A note reports a property of a rule, such as a delay of its alerts. Nothing is run and
nothing is connected to. `${VAR}` is looked up in the environment, and never shown; tables of limits are read.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tocsin.plan.steps import Watch
    from tocsin.rules.load import Checked

SUMMARY = "say everything that is wrong with rule files"
EPILOG = """\
exit codes:
  0  no mistakes (warnings do not count, unless --strict)
  1  mistakes found, or a file that cannot be read
  2  wrong usage

Mistakes and warnings go to standard error. One line per file without mistakes, and notes on its rules, go to standard
output. With --json, standard output has everything. docs/reference/rule-file.md describes the file.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.add_argument("files", nargs="+", metavar="FILE", help="a rule file")
    parser.add_argument("--json", action="store_true", help="write one JSON object instead of lines")
    parser.add_argument("--strict", action="store_true", help="let warnings count as mistakes for the exit code")
    parser.add_argument(
        "--proofs", action="store_true", help="show, for each rule and stream, what is left out and how that is proved"
    )


def run(arguments: argparse.Namespace) -> int:
    """Check the files; give 1 if there are mistakes."""
    from tocsin.cli.files import check_file

    # Many small objects are made and all are kept: looking for garbage among them finds none and takes a tenth longer.
    gc.disable()
    try:
        checked = [check_file(path, os.environ) for path in arguments.files]
    finally:
        gc.enable()
    if arguments.json:
        found = [_object(one, proofs=arguments.proofs) for one in checked]
        print(json.dumps({"ok": _is_fine(checked, arguments), "files": found}, indent=2))
    else:
        for one in checked:
            _print(one, proofs=arguments.proofs)
    return 0 if _is_fine(checked, arguments) else 1


def _is_fine(checked: Sequence[Checked], arguments: argparse.Namespace) -> bool:
    return not any(one.mistakes or (arguments.strict and one.warnings) for one in checked)


def write_mistakes(checked: Checked) -> None:
    """Write the mistakes and warnings of a file to standard error, a line each."""
    from tocsin.cli.terminal import write_line
    from tocsin.rules.mistakes import ERROR

    # Tables of limits come after the file that names them.
    for mistake in sorted([*checked.mistakes, *checked.warnings], key=lambda one: (one.file != checked.path, one)):
        write_line(str(mistake), sys.stderr, "red" if mistake.kind == ERROR else "yellow")


def _print(checked: Checked, *, proofs: bool) -> None:
    from tocsin.cli.terminal import write_line
    from tocsin.rules.mistakes import printable

    write_mistakes(checked)
    if checked.file is not None:
        counts = _counts(checked)
        parts = ", ".join(f"{count} {name if count != 1 else name[:-1]}" for name, count in counts.items())
        write_line(f"{checked.path}: {parts}: ok", sys.stdout, "green")
        for note in checked.notes:
            print(note)
        for watch in _watches(checked) if proofs else ():
            used = sorted({store for rule in watch.rules for store in rule.stores})
            for line in [*watch.store_lines(used), *(line for rule in watch.rules for line in watch.rule_lines(rule))]:
                print("  " + printable(line))


def _watches(checked: Checked) -> Sequence[Watch]:
    """What is remembered for the rules of a file, and why."""
    from tocsin.plan.file import plan_file

    return plan_file(checked.file).watches if checked.file is not None and checked.file.rules else ()


def _counts(checked: Checked) -> dict[str, int]:
    if checked.file is None:
        return {}
    file = checked.file
    return {"groups": len(file.groups), "rules": len(file.rules) + len(file.ranges), "streams": len(file.streams)}


def _object(checked: Checked, *, proofs: bool) -> dict[str, Any]:
    watches = _watches(checked) if proofs else ()
    told = [
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
        "mistakes": [place(mistake) for mistake in checked.mistakes],
        "warnings": [place(mistake) for mistake in checked.warnings],
        "notes": [place(note) for note in checked.notes],
        **({"rules_proved": told} if proofs else {}),
    }


def place(mistake: Any) -> dict[str, Any]:
    """A mistake as a program reads it."""
    return {name: value for name, value in asdict(mistake).items() if name != "kind"}
