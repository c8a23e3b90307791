"""Run rules over history: the same plan as a running query, over the rows that the sources have now.

    tocsin backtest cold-store.yaml
    tocsin backtest cold-store.yaml --from 2026-01-01T00:00:00Z --to 2026-02-01T00:00:00Z --report report.html
    tocsin backtest cold-store.yaml --against stricter.yaml --report diff.html
    tocsin backtest cold-store.yaml --run-dir runs/january --json | jq .rules

It says how often each rule fired, for how many keys and how long; what became of the rows of each stream, beside what a
join without reduction would remember; which rows could not be used; and, of rules whose rows wait, the recall reached:
which share of the results came in order. --report writes one HTML file with pictures, which needs neither network nor
scripts. --against runs another version of the rules over the same rows, and says which alerts only one of them has,
which both, and what moved.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tocsin.cli.given import (
    GivenUpError,
    add_span,
    add_spark,
    attempt,
    ends,
    read_file,
    run_errors,
    settings,
)

if TYPE_CHECKING:
    from tocsin.cli.history import Version
    from tocsin.report import Difference, Result

SUMMARY = "run rules over history, with a report"
EPILOG = """\
the run directory (--run-dir):
  alerts/        all changes of state, as `tocsin run` writes them; those of --against in against/alerts/
  dead/          the first 10,000 rows that could not be used, with the reason
  summary.json   what --json writes
  manifest.json  the rule file and its plan
  A second backtest with the same directory replaces them.

exit codes:
  0  done, whatever was found
  1  mistakes in a rule file, sources that cannot be read, a stream without a usable row, or a run that failed
  2  wrong usage

Rows before --from are not read, so alerts and partners that began earlier are not known. It needs Java 17 or newer,
tocsin[spark], and tocsin[report] for --report. docs/backtest.md says how much memory it takes.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.add_argument("rules", metavar="RULES.yaml", help="a rule file")
    parser.add_argument("--against", metavar="OTHER.yaml", help="another version of the rules, to compare with")
    add_span(parser)
    parser.add_argument("--run-dir", metavar="DIR", help="where alerts and numbers are written (default: nowhere)")
    parser.add_argument("--report", metavar="FILE.html", help="write a report with pictures")
    parser.add_argument("--json", action="store_true", help="write one JSON object instead of tables")
    add_spark(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run; give 1 if that cannot be done."""
    return attempt("backtest", _backtest, arguments)


def _backtest(arguments: argparse.Namespace) -> int:
    from tocsin.cli.history import (
        reach_of,
        run_versions,
        scratch,
        session,
        unusable_streams,
        warnings_of,
        write_manifests,
        write_summary,
    )
    from tocsin.cli.progress import Bar
    from tocsin.cli.tables import lines_of, object_of
    from tocsin.errors import TocsinError
    from tocsin.report import compare
    from tocsin.spark.failure import secrets_of, sentence_of
    from tocsin.spark.unreadable import UnreadableFiles, skip_settings

    conf, span = settings(arguments), ends(arguments)
    if arguments.report:
        _check_report(arguments.report)
    versions = [_version(path, arguments) for path in (arguments.rules, arguments.against) if path is not None]
    files = [version.file for version in versions]
    streams = [stream for version in versions for stream in version.streams.values()]
    failed = ""
    with (
        run_errors(),
        scratch(arguments.run_dir) as run,
        session(run, files, streams, arguments.master, {**skip_settings(arguments.master, conf), **conf}) as started,
    ):
        # Before the work, so that what an interrupted one leaves is known for what it is.
        write_manifests(run, versions)
        write_summary(run, {})
        with Bar("backtest", quiet=arguments.json) as bar:
            results, seconds, warnings = run_versions(started, versions, span, run, bar.told)
        unreadable = UnreadableFiles(run.skipped, streams).take()
        unusable = unusable_streams(started, versions, results, span, unreadable)
        for text in [*unusable, *map(str, unreadable), *warnings, *warnings_of(versions, results)]:
            print(f"tocsin backtest: {text}", file=sys.stderr)
        # A look at all rows, but only where there is nothing else to tell.
        is_empty = results[0].oldest_us is None and span != (None, None)
        reach = reach_of(started, versions[0]) if is_empty else None
        difference = compare(*results) if len(results) > 1 else None
        summary = object_of(results, difference, seconds) | {"ok": not unusable, "unusable": unusable}
        summary["unreadable"] = [file._asdict() for file in unreadable]
        if reach is not None:
            summary["elsewhere"] = {"oldest_us": reach[0], "newest_us": reach[1]}
        if arguments.report:
            try:
                written = _report(arguments, started, versions[0], results, difference, seconds)
                summary["report"] = {"path": arguments.report, "bytes": written}
            except (TocsinError, OSError) as error:  # The results are there all the same.
                failed = sentence_of(error, secrets_of(*files, conf=conf))
        if arguments.run_dir is not None:
            write_summary(run, summary)
            summary["run_dir"] = arguments.run_dir
    if arguments.json:
        print(json.dumps(summary, indent=2))
    else:
        for line in lines_of(results, difference, summary):
            print(line)
    if failed:
        print(f"tocsin backtest: --report: {failed}", file=sys.stderr)
    return 1 if failed or unusable else 0


def _version(path: str, arguments: argparse.Namespace) -> Version:
    from tocsin.cli.history import Version
    from tocsin.errors import TocsinError
    from tocsin.plan.file import plan_file

    file = read_file(path, as_json=arguments.json)
    try:
        return Version(file, plan_file(file))
    except TocsinError as error:
        raise GivenUpError(str(error)) from None


def _check_report(path: str) -> None:
    """Find out before the work, not after it, that a report cannot be made."""
    try:
        import jinja2  # noqa: F401
    except ImportError:
        message = "--report needs Jinja; install tocsin[report]"
        raise GivenUpError(message) from None
    if not Path(path).absolute().parent.is_dir() or Path(path).is_dir():
        message = f"--report must name a file in a folder that is there; got {path!r}"
        raise GivenUpError(message)


def _report(
    arguments: argparse.Namespace,
    started: Any,
    version: Version,
    results: list[Result],
    difference: Difference | None,
    seconds: float,
) -> int:
    from tocsin.cli.history import trace_picks
    from tocsin.deliver.encode import time_text
    from tocsin.files import replace_file
    from tocsin.report import choose
    from tocsin.report.page import About, page
    from tocsin.rundir.manifest import package_version

    span = ends(arguments)
    pictures = trace_picks(started, version, choose(results[0]), span)
    about = About(time_text(time.time()).partition(".")[0] + "Z", package_version(), seconds, *span)
    against = None if difference is None else (results[1], difference)
    data = page(results[0], about, pictures, against).encode("utf-8", "replace")
    replace_file(Path(arguments.report), data)
    return len(data)
