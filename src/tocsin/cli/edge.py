"""Leave out, where readings are made, what no alarm can need: a filter from standard input to standard output.

    tocsin edge --interval 10s --key machine --time ts --value temp --shape increasing < sensor.jsonl > uplink
    tocsin edge --interval 1h --format csv --time date --value light --hold 15m < light.csv | gzip > light.csv.gz
    mosquitto_sub ... | tocsin edge --interval 10s --time ts --value temp --state /var/lib/edge.state | uplink

A row is left out when rows of its key that are sent stand on both sides of it, at most the interval apart, with values
at least as extreme. So every window of the interval keeps its largest value (increasing), its smallest (decreasing), or
both (quasiconvex), and no rule over such windows misses an alarm. Rows go out as they came, byte for byte.

A row must be held back to learn what comes after it: --hold says how long, and buys bytes with delay. With 0 nearly
every row is sent at once; with the whole interval, in order, the fewest possible.

The interval is the one that the plan shows for the stream: for two streams joined within 5m it is 10m, for three 5m.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tocsin.edge.loop import Options
    from tocsin.edge.settings import Settings

SUMMARY = "leave out what no alarm can need, before it is sent"
EPILOG = """\
output goes away or stands still:
  While the output takes nothing, reading goes on, and what waits is reduced further. When it goes away (broken pipe),
  what was not sent is saved in the --state file; the next run with that file goes on there. No line is lost, and at
  most the line that was being written is sent twice. After a power cut or kill -9 the file is as of the last
  --save-every: what was sent since is sent again, and of what was read since from a pipe, the rows still held are lost
  (a file as input is read again from there).

counts:
  At the end, and on SIGUSR1, one line goes to standard error: received = sent + held + omitted + malformed.

exit codes:
  0  the input ended and everything was written; or a signal asked to stop (TERM, INT, HUP), and what was left was
     written or is in the --state file
  1  the state file belongs to other settings or is damaged, the header lacks a column, the input cannot be read
  2  wrong usage
  3  the output went away; what was left is in the --state file
  4  the output went away or a signal came, and rows that were not sent are lost, for want of --state

docs/edge.md says what is guaranteed, and shows what holding saves on recordings.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    _add_reading(parser.add_argument_group("what is read"))
    _add_reducing(parser.add_argument_group("what may be left out"))
    _add_running(parser.add_argument_group("how it runs"))


def _add_reading(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--format", default="jsonl", metavar="FORMAT", help="jsonl (JSON lines, the default) or csv")
    group.add_argument(
        "--time",
        required=True,
        metavar="FIELD",
        help="the event time: a number, or a text in ISO 8601 (UTC if it has no offset)",
    )
    group.add_argument(
        "--time-unit", default="s", metavar="UNIT", help="of times that are numbers: s (the default), ms, us or ns"
    )
    group.add_argument(
        "--value",
        required=True,
        action="append",
        metavar="FIELD",
        help="a number that rules read; give it once per field",
    )
    group.add_argument(
        "--key", action="append", default=[], metavar="FIELD", help="what tells streams apart; give it once per field"
    )
    group.add_argument("--columns", default="", metavar="A,B,...", help="the columns of CSV that has no header")
    group.add_argument(
        "--delimiter", default=",", metavar="C", help=r"between the fields of CSV (default: a comma; \t is a tab)"
    )
    group.add_argument(
        "--malformed",
        default="pass",
        metavar="WHAT",
        help="lines that are no rows: pass (send them as they are, the default), drop, or a file to append them to",
    )
    group.add_argument(
        "--max-line",
        type=int,
        default=1 << 20,
        metavar="BYTES",
        help="a longer line is malformed (default: %(default)s)",
    )


def _add_reducing(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--interval", required=True, metavar="DURATION", help="length of the windows: 500ms, 10s, 1h30m")
    group.add_argument(
        "--shape",
        action="append",
        metavar="SHAPE",
        help="how conditions move with the value: increasing, decreasing, or quasiconvex (falls, then rises; the "
        "default, right for the others too); once for all values, or once per value",
    )
    group.add_argument(
        "--domain",
        action="append",
        metavar="LOW,HIGH",
        help="where the shape holds, as in the rule: a value outside is sent at once and excuses no other row; once "
        "for all values, or once per value (--domain=-40,60)",
    )
    group.add_argument(
        "--hold", metavar="DURATION", help="how long a row may be held, in event time: 0 to the interval (the default)"
    )
    group.add_argument(
        "--flush-after",
        metavar="DURATION",
        help="send what is held of a key that has been silent for so long by the clock (default: as --hold)",
    )


def _add_running(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--state", metavar="FILE", help="where to keep what was not sent, for the next run")
    group.add_argument(
        "--save-every",
        default="1m",
        metavar="DURATION",
        help="how often the state file is written (default: %(default)s)",
    )
    group.add_argument(
        "--max-backlog",
        type=int,
        default=100_000,
        metavar="LINES",
        help="at most so many lines are kept; then reading waits for writing (default: %(default)s)",
    )
    group.add_argument(
        "--max-keys",
        type=int,
        default=10_000,
        metavar="KEYS",
        help="at most so many keys are remembered; the one silent longest is forgotten first (default: %(default)s)",
    )
    group.add_argument("--json", action="store_true", help="write counts and messages as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Filter standard input to standard output."""
    from tocsin.errors import RuleError, TocsinError

    try:
        settings, options = _settings(arguments), _options(arguments)
    except RuleError as error:
        print(f"tocsin edge: {error}", file=sys.stderr)
        return 2
    from tocsin.edge.loop import run as run_loop

    try:
        return run_loop(settings, options)
    except (TocsinError, OSError) as error:
        print(f"tocsin edge: {error}", file=sys.stderr)
        return 1


def _settings(arguments: argparse.Namespace) -> Settings:
    from tocsin.edge.settings import Settings
    from tocsin.rules.durations import microseconds

    interval_us = microseconds(arguments.interval, "`--interval`")
    return Settings(
        time=arguments.time,
        values=tuple(arguments.value),
        interval_us=interval_us,
        hold_us=interval_us if arguments.hold is None else microseconds(arguments.hold, "`--hold`"),
        shapes=tuple(arguments.shape or ["quasiconvex"]),
        domains=tuple(_domain(text) for text in arguments.domain or [","]),
        keys=tuple(arguments.key),
        format=arguments.format,
        time_unit=arguments.time_unit,
        columns=tuple(arguments.columns.split(",")) if arguments.columns else (),
        delimiter=arguments.delimiter.replace("\\t", "\t"),
        max_line=arguments.max_line,
        max_keys=arguments.max_keys,
    )


def _domain(text: str) -> tuple[float, float]:
    """Read two numbers; a missing one leaves that side open."""
    from tocsin.errors import RuleError

    low, comma, high = text.partition(",")
    try:
        ends = float(low or "-inf"), float(high or "inf")
    except ValueError:
        ends, comma = (0.0, 0.0), ""
    if not comma:
        message = f"`--domain` must be two numbers with a comma between; got {text!r}"
        raise RuleError(message)
    return ends


def _options(arguments: argparse.Namespace) -> Options:
    from pathlib import Path

    from tocsin.edge.loop import Options
    from tocsin.rules.durations import microseconds

    flush_after = next(x for x in (arguments.flush_after, arguments.hold, arguments.interval) if x is not None)
    return Options(
        flush_after_s=microseconds(flush_after, "`--flush-after`") / 1e6,
        max_backlog=arguments.max_backlog,
        malformed=arguments.malformed,
        state=Path(arguments.state) if arguments.state else None,
        save_every_s=microseconds(arguments.save_every, "`--save-every`") / 1e6,
        json=arguments.json,
    )
