"""Run a rule file on Spark: read its streams, and write alerts to the run directory and to its sinks.

    tocsin run cold-store.yaml --run-dir runs/cold-store
    tocsin run cold-store.yaml --run-dir runs/cold-store --once
    tocsin run cold-store.yaml --run-dir runs/cold-store --metrics-port 9464 --conf spark.driver.memory=4g
    tocsin run cold-store.yaml --run-dir runs/cold-store --repair
    tocsin run cold-store.yaml --run-dir runs/trial --once --json | jq .total.alerts

The run directory contains the alert log, invalid rows, a line of progress per micro-batch, the cursor of each sink and
the checkpoint. The same command with the same directory resumes the run, even after a crash. The log contains each
alert event exactly once.

Without --once, the command runs until SIGTERM or SIGINT (Ctrl-C). It then finishes the current micro-batch and waits at
most --drain for the sinks. A second signal stops it immediately; the next run repeats the unfinished work.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext, redirect_stdout
from typing import TYPE_CHECKING, Any

from tocsin.cli.arguments import (
    CommandError,
    add_spark_options,
    check_file,
    report_failure,
    require_spark,
    spark_settings,
)
from tocsin.cli.dashboard import require_dashboard, serve_dashboard
from tocsin.cli.live import ERASE, ProgressLine, batch_text
from tocsin.dashboard import PORT

if TYPE_CHECKING:
    from pathlib import Path
    from types import FrameType

    from tocsin.rules.rulefile import RuleFile
    from tocsin.run_directory import Progress, Tally
    from tocsin.spark.run import Ended, Options

# Number of invalid rows that are read to count their reasons for the last line.
_MOST_DEAD = 10_000

SUMMARY = "run a rule file on Spark"
EPILOG = """\
output:
  Progress and messages go to standard error. On a terminal, the progress line shows the phase before the first
  micro-batch, then rows per second, retained rows, firing alerts and lag. Otherwise, the log has a line of key=value
  pairs for each micro-batch with rows. TOCSIN_PROGRESS=off turns progress off. Standard output has the alerts of the
  sink `console`; with --json it has one object at the end, and `console` writes to standard error.

exit codes:
  0  all input was processed (--once), or a signal stopped the run. An unreachable sink is reported and is not a
     failure: the next run delivers the remaining alerts from the log
  1  errors in the rule file, a failed run, or a run directory that is in use, has incompatible state, or has lost or
     damaged files (without --repair); with --once also a stream with rows but without a valid row
  2  invalid arguments
  130, 143  stopped by a second signal

This command needs Java 17 or newer and tocsin[spark].
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.add_argument("rules", metavar="RULES.yaml", help="rule file")
    parser.add_argument("--run-dir", required=True, metavar="DIR", help="run directory; created if it does not exist")
    parser.add_argument("--once", action="store_true", help="process the available rows and exit")
    parser.add_argument(
        "--interval",
        default="1s",
        metavar="DURATION",
        help="interval between the starts of micro-batches (default: %(default)s)",
    )
    parser.add_argument(
        "--repair",
        action="store_true",
        help="repair lost or damaged files of the run directory before the start",
    )
    parser.add_argument("--json", action="store_true", help="write one JSON object to standard output at the end")
    parser.add_argument(
        "--dashboard",
        nargs="?",
        type=int,
        const=PORT,
        metavar="PORT",
        help="serve a dashboard of the run at this port of this machine (default port: %(const)s; 0: a free one)",
    )
    _add_sinks(parser.add_argument_group("metrics and sinks"))
    add_spark_options(parser).add_argument(
        "--buckets",
        type=int,
        metavar="N",
        help="number of buckets that keys are divided into; fixed for a run directory (default: the number of shuffle "
        "partitions, which is the number of cores, or 8 on a cluster)",
    )


def _add_sinks(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--metrics-port",
        type=int,
        default=0,
        metavar="PORT",
        help="port of the Prometheus metrics endpoint, such as 9464 (default: 0, no endpoint)",
    )
    group.add_argument(
        "--metrics-address",
        default="127.0.0.1",
        metavar="ADDRESS",
        help="address of the metrics endpoint (default: %(default)s)",
    )
    group.add_argument(
        "--metrics-name",
        action="append",
        default=[],
        metavar="HOST",
        help="host name that Prometheus may use for the endpoint, in addition to localhost and addresses; repeatable",
    )
    group.add_argument(
        "--drain",
        default="30s",
        metavar="DURATION",
        help="maximum time that the end of a run waits for slow sinks (default: %(default)s)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the rule file; return 1 if it has errors or the run fails."""
    from tocsin.cli.check import error_object, write_errors

    with ProgressLine("run") as progress:
        checked = check_file(arguments.rules, os.environ, progress)
    if checked.file is None and arguments.json:
        print(json.dumps({"ok": False, "errors": [error_object(error) for error in checked.errors]}, indent=2))
        return 1
    write_errors(checked)
    if checked.file is None:
        return 1
    try:
        require_spark()
        if arguments.dashboard is not None:
            require_dashboard()
    except CommandError as error:
        return report_failure("run", error, as_json=arguments.json)
    return _run(checked.file, _options(arguments), arguments)


def _options(arguments: argparse.Namespace) -> Options:
    from pathlib import Path

    from tocsin.errors import RuleError
    from tocsin.rules.durations import microseconds
    from tocsin.spark.run import Options

    try:
        interval_us = microseconds(arguments.interval, "`--interval`")
        drain_us = microseconds(arguments.drain, "`--drain`")
    except RuleError as error:
        arguments.usage_error(str(error))
    if interval_us < 1000:
        arguments.usage_error(f"`--interval` must be at least 1ms; got {arguments.interval}")
    if not 0 <= arguments.metrics_port < 1 << 16:
        arguments.usage_error(f"`--metrics-port` must be from 0 to 65535; got {arguments.metrics_port}")
    if arguments.dashboard is not None and not 0 <= arguments.dashboard < 1 << 16:
        arguments.usage_error(f"`--dashboard` must be from 0 to 65535; got {arguments.dashboard}")
    if arguments.master.startswith("sc:"):
        arguments.usage_error("`--master` must be a Spark master; Spark Connect is not supported")
    return Options(
        run_dir=Path(arguments.run_dir),
        once=arguments.once,
        interval_s=interval_us / 1e6,
        master=arguments.master,
        conf=spark_settings(arguments),
        buckets=arguments.buckets,
        metrics_address=arguments.metrics_address,
        metrics_port=arguments.metrics_port,
        metrics_names=tuple(arguments.metrics_name),
        drain_s=drain_us / 1e6,
        repair=arguments.repair,
    )


def _run(file: RuleFile, options: Options, arguments: argparse.Namespace) -> int:
    from tocsin.cli.live import log_to_stderr
    from tocsin.errors import TocsinError
    from tocsin.spark.run import run as run_rules

    # Standard output is for the JSON object. The sink `console` writes to the stream that is current when it opens.
    output = redirect_stdout(sys.stderr) if arguments.json else nullcontext()
    dashboard = serve_dashboard(options.run_dir, arguments.dashboard)
    with SignalHandler() as signals, dashboard, ProgressLine("run") as progress, log_to_stderr(), output:
        try:
            ended = run_rules(
                file,
                options,
                signals.received,
                _show_batches(progress, once=options.once),
                show_phase=progress.start_phase,
            )
        except TocsinError as error:
            failure = str(error)
        else:
            failure = ""
    if failure:
        return report_failure("run", CommandError(failure), as_json=arguments.json)
    unusable = _unusable(ended, options)
    for line in [*unusable, format_summary(ended, signals, options)]:
        print(f"tocsin run: {line}", file=sys.stderr)
    if arguments.json:
        print(json.dumps(_object(ended, options) | {"ok": not unusable, "unusable": unusable}, indent=2))
    return 1 if unusable else 0


def _show_batches(progress: ProgressLine, *, once: bool) -> Callable[[Progress], None]:
    """Return a function that shows each micro-batch. Without a terminal, a run without end shows them in its log."""
    last = time.monotonic()

    def show(batch: Progress) -> None:
        nonlocal last
        now = time.monotonic()
        progress.start_phase(batch_text(batch, now - last), is_plain=once)
        last = now

    return show


def _unusable(ended: Ended, options: Options) -> list[str]:
    """Return a line for each stream without a valid row, if the run processed all input."""
    from tocsin.cli.tables import unusable_lines

    if not options.once or ended.stopped or not ended.unusable:
        return []
    return list(unusable_lines(ended.unusable, _reasons(options.run_dir)))


class SignalHandler:
    """Record SIGTERM and SIGINT while entered. The second signal ends the process."""

    def __init__(self) -> None:
        self.received, self.name = threading.Event(), ""
        # The handler writes to the descriptor, so it must erase the progress line itself.
        self._erase = ERASE.encode() if sys.stderr.isatty() else b""
        self._before: dict[int, Any] = {}

    def __enter__(self) -> SignalHandler:
        for number in (signal.SIGTERM, signal.SIGINT):
            self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.received.is_set():
            # The JVM ends with this process. The next run repeats the current micro-batch.
            os.write(2, self._erase)
            os._exit(128 + number)
        self.name = signal.Signals(number).name
        self.received.set()
        message = f"tocsin run: {self.name} received; stopping after the current micro-batch\n"
        os.write(2, self._erase + message.encode())


def format_summary(ended: Ended, signals: SignalHandler, options: Options) -> str:
    """Return the last line of a run: how it ended, its counts, and notes on rows."""
    from tocsin.cli.tables import cpu_notes, memory_notes, summary_notes, unreadable_lines
    from tocsin.formatting import format_count, format_duration
    from tocsin.run_directory import Tally

    total = ended.progress.total if ended.progress else Tally()
    # Rows that are still in a reorder buffer are read but not processed.
    buffers_rows = any(outcomes.get("held") for outcomes in total.counts.values())
    end = f"stopped by {signals.name}" if ended.stopped else f"all input {'read' if buffers_rows else 'processed'}"
    invalid = sum(total.dead.values())
    parts = [
        end,
        f"{format_count(sum(total.rows.values()), 'row')} in total, {_alerts(total)}",
        *summary_notes(invalid, _reasons(options.run_dir) if invalid else [], total.counts),
        *unreadable_lines(ended.progress.total.section("unreadable") if ended.progress else {}),
        *cpu_notes(ended.progress.cpu if ended.progress else {}),
        *memory_notes(ended.progress.memory if ended.progress else {}),
        f"run directory {options.run_dir}",
    ]
    if not ended.delivered:
        pending = [f"{name} ({status['pending']:,})" for name, status in ended.sinks.items() if status["pending"]]
        sinks = ", ".join(pending) or "some sinks"
        limit = format_duration(options.drain_s * 1e6)
        parts.append(f"not delivered within {limit}, left to the next run: {sinks}")
    return "; ".join(parts)


def _alerts(total: Tally) -> str:
    """Return the numbers of alerts by state. Matches of `emit: all` are counted separately, because they do not end."""
    from tocsin.formatting import format_count

    number = {
        state: sum(one.get(state, 0) for one in total.alerts.values()) for state in ("firing", "resolved", "match")
    }
    firing = number["firing"] - number["resolved"]
    text = f"{format_count(number['firing'], 'alert')} fired, {number['resolved']:,} resolved, {firing:,} still firing"
    return f"{text}, {number['match']:,} matched" if number["match"] else text


def _reasons(run_dir: Path) -> list[tuple[str, str]]:
    """Return the reasons of the first invalid rows, the most frequent first."""
    from collections import Counter
    from itertools import islice

    from tocsin.run_directory import read_dead

    found = Counter((row.stream, row.reason) for row in islice(read_dead(run_dir), _MOST_DEAD))
    return [why for why, _ in found.most_common()]


def _object(ended: Ended, options: Options) -> dict[str, Any]:
    progress = ended.progress
    return {
        "run_dir": str(options.run_dir),
        "stopped": ended.stopped,
        "batch": None if progress is None else progress.batch,
        "total": {} if progress is None else progress.total.to_json(),
        "firing": {} if progress is None else progress.total.firing(),
        "delivered": ended.delivered,
        "sinks": ended.sinks,
    }
