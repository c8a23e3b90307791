"""Run a rule file on Spark: its streams in, alerts to the run directory and to its sinks.

    tocsin run cold-store.yaml --run-dir runs/cold-store
    tocsin run cold-store.yaml --run-dir runs/cold-store --once
    tocsin run cold-store.yaml --run-dir runs/cold-store --metrics-port 9464 --conf spark.driver.memory=4g
    tocsin run cold-store.yaml --run-dir runs/cold-store --repair
    tocsin run cold-store.yaml --run-dir runs/trial --once --json | jq .total.alerts

The run directory has everything that a run knows: the alert log, rows that could not be used, a line of progress per
micro-batch, how far each sink is, and the checkpoint. The same command with the same directory goes on where the last
one stopped, however it ended: each alert is in the log once.

Without --once it runs until a signal: SIGTERM or SIGINT (Ctrl-C) finishes the micro-batch that runs, stops, and gives
sinks --drain to deliver the rest. A second signal ends at once; nothing is lost by that either.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
from contextlib import nullcontext, redirect_stdout
from typing import TYPE_CHECKING, Any

from tocsin.cli.beside import dashboard_beside, needs_dashboard
from tocsin.cli.given import GivenUpError, add_spark, give_up, needs_spark, settings
from tocsin.cli.remarks import bought, found_with_memory, remarks, unreadable_lines, unusable_lines
from tocsin.dashboard import PORT

if TYPE_CHECKING:
    from pathlib import Path
    from types import FrameType

    from tocsin.rules.rulefile import RuleFile
    from tocsin.rundir import Tally
    from tocsin.spark.run import Ended, Options

# Dead rows that are looked at for the reason that the last line tells.
_MOST_DEAD = 10_000

SUMMARY = "run a rule file on Spark"
EPILOG = """\
what it says:
  On a terminal, a line that moves: rows per second, rows kept, alerts that fire, lag. Elsewhere a line of key=value
  per micro-batch that had rows. Both, and all messages, go to standard error; standard output is left to the sink
  `console`. With --json one object is written to standard output at the end (and `console` to standard error).

exit codes:
  0  the input was taken to its end (--once), or a signal asked to stop. That a sink has not been reached is said, and
     is no failure: the alerts are in the log, and the next run delivers them
  1  mistakes in the rule file, a run directory that is in use or whose state does not fit, a run directory with lost or
     damaged files (without --repair), or a run that failed; with --once also a stream of which rows were read but no
     row could be used
  2  wrong usage
  130, 143  a second signal came

It needs Java 17 or newer, and tocsin[spark]. docs/run.md says what the run directory holds and what is guaranteed.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.add_argument("rules", metavar="RULES.yaml", help="a rule file")
    parser.add_argument("--run-dir", required=True, metavar="DIR", help="the run directory; made if it is not there")
    parser.add_argument("--once", action="store_true", help="take the rows that are there, and end")
    parser.add_argument(
        "--interval", default="1s", metavar="DURATION", help="how often a micro-batch begins (default: %(default)s)"
    )
    parser.add_argument(
        "--repair",
        action="store_true",
        help="repair a run directory with lost or damaged files before the start; without faults, change nothing",
    )
    parser.add_argument("--json", action="store_true", help="write one JSON object to standard output at the end")
    parser.add_argument(
        "--dashboard",
        nargs="?",
        type=int,
        const=PORT,
        metavar="PORT",
        help="show the run in a browser while it runs, at this port of this machine (%(const)s; 0: a free one)",
    )
    _add_sinks(parser.add_argument_group("metrics and sinks"))
    add_spark(parser).add_argument(
        "--buckets",
        type=int,
        metavar="N",
        help="into how many parts keys are divided; state is bound to it (default: as many as shuffle partitions, that "
        "is, as many as cores)",
    )


def _add_sinks(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--metrics-port",
        type=int,
        default=0,
        metavar="PORT",
        help="serve metrics for Prometheus at this port, such as 9464 (default: 0, which is not at all)",
    )
    group.add_argument(
        "--metrics-address",
        default="127.0.0.1",
        metavar="ADDRESS",
        help="where to listen for that (default: %(default)s, this machine alone)",
    )
    group.add_argument(
        "--metrics-name",
        action="append",
        default=[],
        metavar="HOST",
        help="a host name that Prometheus may use for it, besides localhost and addresses; repeatable",
    )
    group.add_argument(
        "--drain",
        default="30s",
        metavar="DURATION",
        help="how long the end waits for sinks that are behind (default: %(default)s)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the rule file; give 1 if it cannot be run."""
    from tocsin.cli.check import place, write_mistakes
    from tocsin.cli.files import check_file

    checked = check_file(arguments.rules, os.environ)
    if checked.file is None and arguments.json:
        print(json.dumps({"ok": False, "mistakes": [place(mistake) for mistake in checked.mistakes]}, indent=2))
        return 1
    write_mistakes(checked)
    if checked.file is None:
        return 1
    try:
        needs_spark()
        if arguments.dashboard is not None:
            needs_dashboard()
    except GivenUpError as error:
        return give_up("run", error, as_json=arguments.json)
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
        arguments.refuse(str(error))
    if interval_us < 1000:
        arguments.refuse(f"`--interval` must be at least 1ms; got {arguments.interval}")
    if not 0 <= arguments.metrics_port < 1 << 16:
        arguments.refuse(f"`--metrics-port` must be from 0 to 65535; got {arguments.metrics_port}")
    if arguments.dashboard is not None and not 0 <= arguments.dashboard < 1 << 16:
        arguments.refuse(f"`--dashboard` must be from 0 to 65535; got {arguments.dashboard}")
    if arguments.master.startswith("sc:"):
        arguments.refuse("`--master` must name Spark itself; Spark Connect does not run what a run needs")
    return Options(
        run_dir=Path(arguments.run_dir),
        once=arguments.once,
        interval_s=interval_us / 1e6,
        master=arguments.master,
        conf=settings(arguments),
        buckets=arguments.buckets,
        metrics_address=arguments.metrics_address,
        metrics_port=arguments.metrics_port,
        metrics_names=tuple(arguments.metrics_name),
        drain_s=drain_us / 1e6,
        repair=arguments.repair,
    )


def _run(file: RuleFile, options: Options, arguments: argparse.Namespace) -> int:
    from tocsin.cli.live import Live, log_to_stderr
    from tocsin.errors import TocsinError
    from tocsin.spark.run import run as run_rules

    # Standard output belongs to the JSON object; the sink `console` takes what stands there when it is opened.
    output = redirect_stdout(sys.stderr) if arguments.json else nullcontext()
    shown = dashboard_beside(options.run_dir, arguments.dashboard)
    with Stop() as stop, shown, Live() as live, log_to_stderr(), output:
        try:
            ended = run_rules(file, options, stop.asked, live.show)
        except TocsinError as error:
            failure = str(error)
        else:
            failure = ""
    if failure:
        return give_up("run", GivenUpError(failure), as_json=arguments.json)
    unusable = _unusable(ended, options)
    for line in [*unusable, _told(ended, stop, options)]:
        print(f"tocsin run: {line}", file=sys.stderr)
    if arguments.json:
        print(json.dumps(_object(ended, options) | {"ok": not unusable, "unusable": unusable}, indent=2))
    return 1 if unusable else 0


def _unusable(ended: Ended, options: Options) -> list[str]:
    """Return a line for each stream without a usable row, if the run took its input to the end."""
    if not options.once or ended.stopped or not ended.unusable:
        return []
    return list(unusable_lines(ended.unusable, _reasons(options.run_dir)))


class Stop:
    """Notes that a signal asks to stop, while it is entered; the second one ends the process at once."""

    def __init__(self) -> None:
        self.asked, self.name = threading.Event(), ""
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Stop:
        for number in (signal.SIGTERM, signal.SIGINT):
            self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.asked.is_set():
            # The JVM ends when this process does; what it was doing is done again by the next run.
            os._exit(128 + number)
        self.name = signal.Signals(number).name
        self.asked.set()
        os.write(2, f"tocsin run: {self.name}: the micro-batch that runs is finished, then it stops\n".encode())


def _told(ended: Ended, stop: Stop, options: Options) -> str:
    """Say how it ended, in one sentence."""
    from tocsin.rundir import Tally
    from tocsin.trace.words import counted

    whole = ended.progress.total if ended.progress else Tally()
    waits = any(parts.get("held") for parts in whole.counts.values())
    why = f"stopped by {stop.name}" if ended.stopped else f"the input was {'read' if waits else 'taken'} to its end"
    dead = sum(whole.dead.values())
    said = [
        why,
        f"{counted(sum(whole.rows.values()), 'row')} in all, {_alerts(whole)}",
        *remarks(dead, _reasons(options.run_dir) if dead else [], whole.counts),
        *unreadable_lines(ended.progress.unreadable if ended.progress else {}),
        *bought(ended.progress.cpu if ended.progress else {}),
        *found_with_memory(ended.progress.memory if ended.progress else {}),
    ]
    text = "; ".join([*said, f"{options.run_dir} has them"])
    if not ended.delivered:
        behind = [f"{name} ({status['pending']:,})" for name, status in ended.sinks.items() if status["pending"]]
        waiting = ", ".join(behind) or "some sinks"
        text += f"; not delivered within {options.drain_s:g} s, and left to the next run: {waiting}"
    return text


def _alerts(whole: Tally) -> str:
    """Say how many alerts began, ended and go on; matches of `emit: all` are no alerts that last."""
    from tocsin.trace.words import counted

    number = {
        state: sum(one.get(state, 0) for one in whole.alerts.values()) for state in ("firing", "resolved", "match")
    }
    left = number["firing"] - number["resolved"]
    text = f"{counted(number['firing'], 'alert')} fired, {number['resolved']:,} resolved, {left:,} still "
    text += "fires" if left == 1 else "fire"
    return f"{text}, {number['match']:,} matched" if number["match"] else text


def _reasons(run_dir: Path) -> list[tuple[str, str]]:
    """Why rows could not be used, the most frequent reason first; a look at the first ones is enough."""
    from collections import Counter
    from itertools import islice

    from tocsin.rundir import read_dead

    found = Counter((row.stream, row.reason) for row in islice(read_dead(run_dir), _MOST_DEAD))
    return [why for why, _ in found.most_common()]


def _object(ended: Ended, options: Options) -> dict[str, Any]:
    progress = ended.progress
    return {
        "run_dir": str(options.run_dir),
        "stopped": ended.stopped,
        "batch": None if progress is None else progress.batch,
        "total": {} if progress is None else vars(progress.total),
        "firing": {} if progress is None else progress.total.firing(),
        "delivered": ended.delivered,
        "sinks": ended.sinks,
    }
