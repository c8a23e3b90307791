"""Command arguments: options that several commands share, rule files, and errors as one-line messages.

Modules that take long to import are imported by the functions that use them, so that every command starts fast.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from tocsin.cli.live import ProgressLine

if TYPE_CHECKING:
    from tocsin.errors import Diagnostic
    from tocsin.rules.load import Checked
    from tocsin.rules.rulefile import RuleFile


class CommandError(Exception):
    """A command failed. The text is a message for the user; it is empty if the command has printed the reason."""


def parse_time(text: str) -> int:
    """Return a time option in microseconds. argparse adds the name of the option to the error."""
    from tocsin.errors import RuleError
    from tocsin.rules.durations import time_us

    try:
        return time_us(text, "")
    except RuleError as error:
        raise argparse.ArgumentTypeError(str(error).strip()) from None


def add_time_range(parser: argparse._ActionsContainer) -> None:
    """Add --from and --to."""
    parser.add_argument(
        "--from", dest="from_us", type=parse_time, metavar="TIME", help="start of the rows to read, such as 2026-01-01"
    )
    parser.add_argument(
        "--to", dest="to_us", type=parse_time, metavar="TIME", help="end of the rows to read, inclusive"
    )


def time_range(arguments: argparse.Namespace) -> tuple[int | None, int | None]:
    """Return --from and --to in microseconds; a start after the end is a usage error."""
    first, last = arguments.from_us, arguments.to_us
    if first is not None and last is not None and first > last:
        arguments.usage_error("`--from` must not be after `--to`")
    return first, last


def add_spark_options(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """Add the Spark options, and return their group so that a command can add more."""
    group = parser.add_argument_group("Spark")
    group.add_argument("--master", default="local[*]", metavar="URL", help="Spark master (default: %(default)s)")
    group.add_argument(
        "--conf", action="append", default=[], metavar="KEY=VALUE", help="Spark configuration property; repeatable"
    )
    parser.set_defaults(usage_error=parser.error)
    return group


def spark_settings(arguments: argparse.Namespace) -> dict[str, str]:
    """Return the Spark properties of --conf."""
    for setting in arguments.conf:
        if not setting.partition("=")[0].strip() or "=" not in setting:
            # The value after "=" may be a secret.
            name, sign, _ = setting.partition("=")
            arguments.usage_error(f"`--conf` must be KEY=VALUE; got {name + (sign and '=***')!r}")
    return {key.strip(): value for key, _, value in (setting.partition("=") for setting in arguments.conf)}


def check_file(path: str | Path, environment: Mapping[str, str], progress: ProgressLine | None = None) -> Checked:
    """Return all errors of a rule file. Rules that share a budget are planned together."""
    from tocsin.delivery import make_sink
    from tocsin.errors import WARNING, Diagnostic
    from tocsin.plan import check_plan, plan_rules
    from tocsin.rules.load import check_rule_file
    from tocsin.rules.quality import NO_QUALITY

    report = None
    if progress is not None:
        progress.start_phase("checking rules")
        report = partial(progress.update, unit="rules")
    # Without `bounded`, because the budgets of the file apply to all its rules together.
    checked = check_rule_file(path, partial(plan_rules, bounded=False), environment, make_sink, report)
    file = checked.file
    if file is None or not file.rules or file.quality == NO_QUALITY:
        return checked
    planned = check_plan(file)
    if planned.plan is None:
        errors = tuple(_at_file(checked, one) for one in planned.diagnostics)
        return replace(checked, file=None, errors=errors)
    watches = planned.plan.watches
    unused, cpu = [], file.quality.cpu
    if cpu is not None and not any(watch.anytime for watch in watches):
        name = "deadline" if cpu.cores is None else "cpu"
        unused.append(f"`quality.{name}` has no effect: no rule has `emit: all`, at most two streams and no wait")
    if file.quality.memory is not None and not any(watch.budget for watch in watches):
        unused.append("`quality.memory` has no effect: no rule joins streams without a wait")
    warnings = [
        _at_file(checked, Diagnostic("no-effect", ("quality",), message, severity=WARNING)) for message in unused
    ]
    return replace(checked, warnings=(*checked.warnings, *warnings))


def _at_file(checked: Checked, one: Diagnostic) -> Diagnostic:
    """Return a diagnostic about all rules of a file with the position of the file."""
    from tocsin.rules.load import WHERE

    where = f"{WHERE}: {one.where}" if one.where else WHERE
    return replace(one, file=checked.path, line=1, column=1, where=where)


def read_file(path: str, progress: ProgressLine, *, as_json: bool) -> RuleFile:
    """Return a rule file. If it has errors, print them as `tocsin check` does and raise an empty CommandError."""
    from tocsin.cli.check import error_object, write_errors

    checked = check_file(path, os.environ, progress)
    if checked.file is not None:
        progress.start_phase("planning rules")
        return checked.file
    progress.stop()
    if as_json:
        print(json.dumps({"ok": False, "errors": [error_object(error) for error in checked.errors]}, indent=2))
    else:
        write_errors(checked)
    raise CommandError


def unknown_rule_error(name: str, names: Iterable[str]) -> CommandError:
    """Return the error for an alert that the rule file does not define."""
    from tocsin.rules.suggestions import nearest_clause

    known = list(dict.fromkeys(names))
    return CommandError(
        f"RULE must be an alert of the file ({', '.join(known)}); got {name!r}{nearest_clause(name, known)}"
    )


def require_spark() -> None:
    """Raise a CommandError if PySpark is not installed."""
    if find_spec("pyspark") is None:
        message = "this command needs PySpark; install tocsin[spark]"
        raise CommandError(message)


@contextmanager
def tocsin_errors_as_message() -> Iterator[None]:
    """Turn errors of Tocsin into a CommandError with their message."""
    from tocsin.errors import TocsinError

    try:
        yield
    except TocsinError as error:
        raise CommandError(str(error)) from None


@contextmanager
def spark_errors_as_message(files: Sequence[RuleFile], conf: Mapping[str, str]) -> Iterator[None]:
    """Turn errors of Spark and of files into a CommandError with a one-line message without secrets."""
    from tocsin.spark.failure import secrets_of, sentence_of
    from tocsin.spark.quiet import FAILURES

    try:
        yield
    except FAILURES as error:
        raise CommandError(sentence_of(error, secrets_of(*files, conf=conf))) from None
    except OSError as error:
        raise CommandError(os_error_message(error.filename or "a file", error)) from None


def os_error_message(path: object, error: OSError) -> str:
    """Return the message for a file that cannot be read or written.

    >>> os_error_message("rules.yaml", FileNotFoundError(2, "No such file or directory"))
    'rules.yaml: no such file or directory'
    """
    return f"{path}: {(error.strerror or 'cannot be read or written').lower()}"


def run_command(
    command: str, work: Callable[[argparse.Namespace, ProgressLine], int], arguments: argparse.Namespace
) -> int:
    """Run a command with its progress line, and return its exit code. Print a one-line message if it fails."""
    try:
        with ProgressLine(command) as progress:
            return work(arguments, progress)
    except CommandError as error:
        return report_failure(command, error, as_json=getattr(arguments, "json", False))
    except KeyboardInterrupt:
        print(f"tocsin {command}: interrupted", file=sys.stderr)
        # The exit code of shells for SIGINT.
        return 130


def report_failure(command: str, error: CommandError, *, as_json: bool) -> int:
    """Print why a command failed, and return its exit code."""
    if str(error):
        print(f"tocsin {command}: {error}", file=sys.stderr)
        if as_json:
            print(json.dumps({"ok": False, "error": str(error)}, indent=2))
    return 1
