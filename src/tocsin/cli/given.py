"""What commands that look at history are given: rule files, times, settings of Spark; each mistake in a sentence."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tocsin.rules.rulefile import RuleFile


class GivenUpError(Exception):
    """A command cannot go on; the sentence says why."""


def moment(text: str) -> int:
    """Read a time as microseconds; argparse says which option it is of."""
    from tocsin.errors import RuleError
    from tocsin.rules.durations import time_us

    try:
        return time_us(text, "")
    except RuleError as error:
        raise argparse.ArgumentTypeError(str(error).strip()) from None


def add_span(parser: argparse._ActionsContainer) -> None:
    """Add --from and --to."""
    parser.add_argument("--from", dest="from_us", type=moment, metavar="TIME", help="read rows from this time on")
    parser.add_argument("--to", dest="to_us", type=moment, metavar="TIME", help="read rows up to this time")


def ends(arguments: argparse.Namespace) -> tuple[int | None, int | None]:
    """What --from and --to say; a span that can hold no row is refused."""
    first, last = arguments.from_us, arguments.to_us
    if first is not None and last is not None and first > last:
        arguments.refuse("`--from` must not lie after `--to`")
    return first, last


def add_spark(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """Add the settings of Spark; more may be added to their group."""
    group = parser.add_argument_group("Spark")
    group.add_argument("--master", default="local[*]", metavar="URL", help="where Spark runs (default: %(default)s)")
    group.add_argument(
        "--conf", action="append", default=[], metavar="KEY=VALUE", help="a setting of Spark; give it once per setting"
    )
    parser.set_defaults(refuse=parser.error)
    return group


def settings(arguments: argparse.Namespace) -> dict[str, str]:
    """The settings of Spark that were given."""
    for setting in arguments.conf:
        if not setting.partition("=")[0].strip() or "=" not in setting:
            # What stands behind the sign may be secret.
            name, sign, _ = setting.partition("=")
            arguments.refuse(f"`--conf` must be KEY=VALUE; got {name + (sign and '=***')!r}")
    return {key.strip(): value for key, _, value in (setting.partition("=") for setting in arguments.conf)}


def read_file(path: str, *, as_json: bool) -> RuleFile:
    """Read a rule file; its mistakes are written as `tocsin check` does."""
    from tocsin.cli.check import place, write_mistakes
    from tocsin.cli.files import check_file

    checked = check_file(path, os.environ)
    if checked.file is not None:
        return checked.file
    if as_json:
        print(json.dumps({"ok": False, "mistakes": [place(mistake) for mistake in checked.mistakes]}, indent=2))
    else:
        write_mistakes(checked)
    raise GivenUpError


def no_such_rule(name: str, names: Iterable[str]) -> GivenUpError:
    """What is said of an alert that a rule file does not have."""
    from tocsin.rules.nearest import nearest

    known = list(dict.fromkeys(names))
    return GivenUpError(f"RULE must be an alert of the file ({', '.join(known)}); got {name!r}{nearest(name, known)}")


def needs_spark() -> None:
    """Refuse to go on where PySpark is not installed."""
    if find_spec("pyspark") is None:
        message = "Spark must be installed; install tocsin[spark]"
        raise GivenUpError(message)


@contextmanager
def run_errors() -> Iterator[None]:
    """What is wrong with a run directory is a reason to give up."""
    from tocsin.errors import TocsinError

    try:
        yield
    except TocsinError as error:
        raise GivenUpError(str(error)) from None


@contextmanager
def in_a_sentence(files: Sequence[RuleFile], conf: Mapping[str, str]) -> Iterator[None]:
    """Say in one sentence what Spark says in a hundred lines; no secret of files and settings is in it."""
    from tocsin.spark.failure import secrets_of, sentence_of
    from tocsin.spark.quiet import FAILURES

    try:
        yield
    except FAILURES as error:
        raise GivenUpError(sentence_of(error, secrets_of(*files, conf=conf))) from None
    except OSError as error:
        message = (
            f"{error.filename or 'a file'} must be readable and writable; {(error.strerror or 'it is not').lower()}"
        )
        raise GivenUpError(message) from None


def attempt(command: str, work: Callable[[argparse.Namespace], int], arguments: argparse.Namespace) -> int:
    """Do what a command is for and give its exit code; what ends it early is told in a sentence."""
    try:
        return work(arguments)
    except GivenUpError as error:
        return give_up(command, error, as_json=getattr(arguments, "json", False))
    except KeyboardInterrupt:
        print(f"tocsin {command}: interrupted", file=sys.stderr)
        # As shells expect it.
        return 130


def give_up(command: str, error: GivenUpError, *, as_json: bool) -> int:
    """Write why a command cannot go on, and give its exit code."""
    if str(error):
        print(f"tocsin {command}: {error}", file=sys.stderr)
        if as_json:
            print(json.dumps({"ok": False, "error": str(error)}, indent=2))
    return 1
