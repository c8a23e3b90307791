"""Run rules over historical rows: the plan of `tocsin run`, applied to all rows that the sources have now.

    tocsin backtest cold-store.yaml
    tocsin backtest cold-store.yaml --from 2026-01-01T00:00:00Z --to 2026-02-01T00:00:00Z --report report.html
    tocsin backtest cold-store.yaml --against stricter.yaml --report diff.html
    tocsin backtest cold-store.yaml --run-dir runs/january --json | jq .rules

The output has one table for the rules (alerts, keys, durations) and one for the streams: rows received, retained and
omitted, compared with a full join. It lists invalid rows. For rules with a reorder wait, it reports the in-order
recall: the share of results that were found in event-time order.

--report writes one HTML file with charts, without scripts and external resources. --against runs a second version of
the rules over the same rows, and lists the alerts that only one version raises or that changed in time.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tocsin.cli.arguments import (
    CommandError,
    add_spark_options,
    add_time_range,
    read_file,
    require_spark,
    run_command,
    spark_settings,
    time_range,
    tocsin_errors_as_message,
)
from tocsin.cli.live import ProgressLine

if TYPE_CHECKING:
    from tocsin.cli.history_runner import Version
    from tocsin.report import Difference, Result

SUMMARY = "run rules over historical rows"
EPILOG = """\
run directory (--run-dir):
  alerts/          alert events, in the format of `tocsin run`
  against/alerts/  alert events of --against
  dead/            the first 10,000 invalid rows, with the reason
  summary.json     the output of --json
  manifest.json    the rule file and its plan
  A second backtest with the same directory replaces these files.

exit codes:
  0  success
  1  errors in a rule file, a source that cannot be read, a stream without a valid row, or a failed run
  2  invalid arguments

Rows before --from are not read, so alerts that began earlier are missing or begin later. This command needs Java 17 or
newer, tocsin[spark], and tocsin[report] for --report.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.add_argument("rules", metavar="RULES.yaml", help="rule file")
    parser.add_argument("--against", metavar="OTHER.yaml", help="second version of the rules, for comparison")
    add_time_range(parser)
    parser.add_argument("--run-dir", metavar="DIR", help="directory for alerts and results (default: none)")
    parser.add_argument("--report", metavar="FILE.html", help="write an HTML report with charts")
    parser.add_argument("--json", action="store_true", help="write one JSON object instead of tables")
    add_spark_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the backtest; return 1 if it fails."""
    return run_command("backtest", _backtest, arguments)


def _backtest(arguments: argparse.Namespace, progress: ProgressLine) -> int:
    require_spark()
    from tocsin.cli.history_runner import (
        run_versions,
        session,
        source_time_range,
        temporary_run_dir,
        unusable_streams,
        warnings_of,
        write_manifests,
        write_summary,
    )
    from tocsin.cli.tables import lines_of, object_of
    from tocsin.errors import TocsinError
    from tocsin.report import compare
    from tocsin.spark.failure import secrets_of, sentence_of
    from tocsin.spark.unreadable import UnreadableFiles, skip_settings

    conf, span = spark_settings(arguments), time_range(arguments)
    if arguments.report:
        _check_report(arguments.report)
    versions = [
        _version(path, arguments, progress) for path in (arguments.rules, arguments.against) if path is not None
    ]
    files = [version.file for version in versions]
    streams = [stream for version in versions for stream in version.streams.values()]
    failed = ""
    with (
        tocsin_errors_as_message(),
        temporary_run_dir(arguments.run_dir) as run,
        session(
            run, files, streams, arguments.master, {**skip_settings(arguments.master, conf), **conf}, progress
        ) as started,
    ):
        # Written first, so that the directory of an interrupted backtest is recognized.
        write_manifests(run, versions)
        write_summary(run, {})
        results, seconds, warnings = run_versions(started, versions, span, run, progress)
        unreadable = UnreadableFiles(run.skipped, streams).take()
        unusable = unusable_streams(started, versions, results, span, unreadable)
        for text in [*unusable, *map(str, unreadable), *warnings, *warnings_of(versions, results)]:
            print(f"tocsin backtest: {text}", file=sys.stderr)
        # This reads all rows, so it is done only if the backtest found none.
        is_empty = results[0].oldest_us is None and span != (None, None)
        available = source_time_range(started, versions[0]) if is_empty else None
        difference = compare(*results) if len(results) > 1 else None
        summary = object_of(results, difference, seconds) | {"ok": not unusable, "unusable": unusable}
        summary["unreadable"] = [file._asdict() for file in unreadable]
        if available is not None:
            summary["available_range"] = {"oldest_us": available[0], "newest_us": available[1]}
        if arguments.report:
            progress.start_phase("writing the report")
            try:
                written = _report(arguments, started, versions[0], results, difference, seconds)
                summary["report"] = {"path": arguments.report, "bytes": written}
            except (TocsinError, OSError) as error:  # The results are complete without the report.
                failed = sentence_of(error, secrets_of(*files, conf=conf))
        if arguments.run_dir is not None:
            write_summary(run, summary)
            summary["run_dir"] = arguments.run_dir
    progress.stop()
    if arguments.json:
        print(json.dumps(summary, indent=2))
    else:
        for line in lines_of(results, difference, summary):
            print(line)
    if failed:
        print(f"tocsin backtest: --report: {failed}", file=sys.stderr)
    return 1 if failed or unusable else 0


def _version(path: str, arguments: argparse.Namespace, progress: ProgressLine) -> Version:
    from tocsin.cli.history_runner import Version
    from tocsin.errors import TocsinError
    from tocsin.plan import plan_file

    file = read_file(path, progress, as_json=arguments.json)
    try:
        return Version(file, plan_file(file))
    except TocsinError as error:
        raise CommandError(str(error)) from None


def _check_report(path: str) -> None:
    """Raise an error before the run if the report cannot be written."""
    try:
        import jinja2  # noqa: F401
    except ImportError:
        message = "--report needs Jinja; install tocsin[report]"
        raise CommandError(message) from None
    if not Path(path).absolute().parent.is_dir() or Path(path).is_dir():
        message = f"--report must be a file in an existing directory; got {path!r}"
        raise CommandError(message)


def _report(
    arguments: argparse.Namespace,
    started: Any,
    version: Version,
    results: list[Result],
    difference: Difference | None,
    seconds: float,
) -> int:
    from tocsin.cli.history_runner import trace_picks
    from tocsin.dashboard.backtest_report import About, page
    from tocsin.dashboard.charts.picture import column_units
    from tocsin.delivery.alert_json import format_time
    from tocsin.files import replace_file
    from tocsin.report import choose
    from tocsin.run_directory.manifest import package_version

    span = time_range(arguments)
    pictures = trace_picks(started, version, choose(results[0]), span)
    made = format_time(time.time()).partition(".")[0] + "Z"
    about = About(made, package_version(), seconds, *span, units=column_units(version.file))
    against = None if difference is None else (results[1], difference)
    data = page(results[0], about, pictures, against).encode("utf-8", "replace")
    replace_file(Path(arguments.report), data)
    return len(data)
