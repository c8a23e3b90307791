"""Filter rows at their source: omit rows that no alarm needs, from standard input to standard output.

    tocsin edge --interval 10s --key machine --time ts --value temp --shape increasing < sensor.jsonl > uplink
    tocsin edge --interval 1h --format csv --time date --value light --max-delay 15m < light.csv | gzip > light.csv.gz
    mosquitto_sub ... | tocsin edge --interval 10s --time ts --value temp --state /var/lib/edge.state | uplink

A row is omitted if two rows of its key that are sent cover it: one before it and one after it, at most the interval
apart, with values at least as extreme. Every window of the interval keeps its largest value (shape increasing), its
smallest value (decreasing) or both (quasiconvex), so rules over these windows miss no alarm. Rows are sent unchanged.

The filter must delay a row until it has received later rows. --max-delay limits this delay. A longer delay omits more
rows: with 0 nearly every row is sent at once; with the full interval the number of sent rows is minimal.

`tocsin explain` shows the interval of each stream. For two streams joined within 5m it is 10m, for three streams 5m.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tocsin.edge.event_loop import EventLoop, LoopOptions
    from tocsin.edge.settings import Settings

SUMMARY = "omit rows that no alarm needs, before they are sent"
EPILOG = """\
slow or closed output:
  If the output blocks, the filter continues to read, and omits more of the buffered rows. If the output is closed
  (broken pipe), the unsent rows are saved in the --state file, and the next run with that file continues there. No line
  is lost; at most one line is sent twice. After a power failure or kill -9, the next run continues from the last
  --save-every: rows sent since then are sent again. If the input is a pipe, buffered rows read since then are lost; an
  input file is read again from there.

counts:
  At the end, and on SIGUSR1, one line goes to standard error: received = sent + held + omitted + malformed.
  If the input is a file, a filter that takes longer than 2 s also shows its progress there (not with --json).

exit codes:
  0  the input ended and everything was written; or a signal (TERM, INT, HUP) stopped the filter and the remaining rows
     were written or saved in the --state file
  1  the state file is damaged or has other settings, the header lacks a column, or the input cannot be read
  2  invalid arguments
  3  the output was closed; the remaining rows are in the --state file
  4  the output was closed or a signal arrived, and unsent rows were lost because --state was not set
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    _add_input(parser.add_argument_group("input"))
    _add_reduction(parser.add_argument_group("reduction"))
    _add_operation(parser.add_argument_group("operation"))


def _add_input(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--format", default="jsonl", metavar="FORMAT", help="input format: jsonl (default) or csv")
    group.add_argument(
        "--time",
        required=True,
        metavar="FIELD",
        help="event time: a number, or ISO 8601 text (UTC if it has no offset)",
    )
    group.add_argument(
        "--time-unit", default="s", metavar="UNIT", help="unit of numeric event times: s (default), ms, us or ns"
    )
    group.add_argument(
        "--value",
        required=True,
        action="append",
        metavar="FIELD",
        help="numeric field that rules read; repeatable",
    )
    group.add_argument("--key", action="append", default=[], metavar="FIELD", help="key field; repeatable")
    group.add_argument("--columns", default="", metavar="A,B,...", help="column names of CSV input without a header")
    group.add_argument(
        "--delimiter", default=",", metavar="C", help=r"delimiter of CSV fields (default: a comma; \t for a tab)"
    )
    group.add_argument(
        "--malformed",
        default="pass",
        metavar="WHAT",
        help="treatment of invalid lines: pass (send unchanged, default), drop, or a file to append them to",
    )
    group.add_argument(
        "--max-line",
        type=int,
        default=1 << 20,
        metavar="BYTES",
        help="maximum line length; longer lines are malformed (default: %(default)s)",
    )


def _add_reduction(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--interval", required=True, metavar="DURATION", help="length of the windows, such as 500ms, 10s or 1h30m"
    )
    group.add_argument(
        "--shape",
        action="append",
        metavar="SHAPE",
        help="shape of the conditions in the value: increasing, decreasing, or quasiconvex (default; it includes the "
        "others); once for all values, or once per value",
    )
    group.add_argument(
        "--domain",
        action="append",
        metavar="LOW,HIGH",
        help="domain of the shape, as in the rule: rows outside it are sent at once and cover no other row; once for "
        "all values, or once per value, such as --domain=-40,60",
    )
    group.add_argument(
        "--max-delay", metavar="DURATION", help="maximum delay of a row in event time, from 0 to the interval (default)"
    )
    group.add_argument(
        "--flush-after",
        metavar="DURATION",
        help="processing time without rows after which the buffered rows of a key are sent (default: --max-delay)",
    )


def _add_operation(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--state", metavar="FILE", help="file for unsent rows, which the next run continues with")
    group.add_argument(
        "--save-every",
        default="1m",
        metavar="DURATION",
        help="interval between two writes of the state file (default: %(default)s)",
    )
    group.add_argument(
        "--max-backlog",
        type=int,
        default=100_000,
        metavar="LINES",
        help="maximum number of buffered lines; at the limit, reading waits for the output (default: %(default)s)",
    )
    group.add_argument(
        "--max-keys",
        type=int,
        default=10_000,
        metavar="KEYS",
        help="maximum number of keys; at the limit, the key without rows for the longest time is flushed and removed "
        "(default: %(default)s)",
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
    from tocsin.edge.event_loop import EventLoop

    sys.stdout.flush()
    try:
        loop = EventLoop(settings, options)
        with _progress(loop):
            return loop.run()
    except (TocsinError, OSError) as error:
        print(f"tocsin edge: {error}", file=sys.stderr)
        return 1


@contextmanager
def _progress(loop: EventLoop) -> Iterator[None]:
    """Show the progress of a filter that reads a file. A filter that reads a pipe can run for months."""
    if not loop.is_file or loop.options.json:
        yield
        return
    from tocsin.cli.live import ProgressLine, Status

    with ProgressLine("edge") as progress:
        progress.start_phase(lambda: Status("filtering", loop.edge.buffer.received))
        yield


def _settings(arguments: argparse.Namespace) -> Settings:
    from tocsin.edge.settings import Settings
    from tocsin.rules.durations import microseconds

    interval_us = microseconds(arguments.interval, "`--interval`")
    return Settings(
        time=arguments.time,
        values=tuple(arguments.value),
        interval_us=interval_us,
        max_delay_us=interval_us if arguments.max_delay is None else microseconds(arguments.max_delay, "`--max-delay`"),
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
    """Parse two numbers; a missing number leaves that side open."""
    from tocsin.errors import RuleError

    low, comma, high = text.partition(",")
    try:
        ends = float(low or "-inf"), float(high or "inf")
    except ValueError:
        ends, comma = (0.0, 0.0), ""
    if not comma:
        message = f"`--domain` must be LOW,HIGH; got {text!r}"
        raise RuleError(message)
    return ends


def _options(arguments: argparse.Namespace) -> LoopOptions:
    from pathlib import Path

    from tocsin.edge.event_loop import LoopOptions
    from tocsin.rules.durations import microseconds

    flush_after = next(x for x in (arguments.flush_after, arguments.max_delay, arguments.interval) if x is not None)
    return LoopOptions(
        flush_after_s=microseconds(flush_after, "`--flush-after`") / 1e6,
        max_backlog=arguments.max_backlog,
        malformed=arguments.malformed,
        state=Path(arguments.state) if arguments.state else None,
        save_every_s=microseconds(arguments.save_every, "`--save-every`") / 1e6,
        json=arguments.json,
    )
