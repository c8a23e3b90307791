"""Query streams in SQL: joins, selections and aggregates, with summaries, a preference and a budget.

    tocsin query "SELECT a.ts, b.ts FROM a, b WHERE a.item = b.item WINDOW 1 MINUTE" a=north.parquet b=south.parquet
    tocsin query -f outliers.sql sales=sales/ --time sold_at --json | jq .rows
    tocsin query "SELECT ..." --rules factory.yaml --out answer.parquet

NAME=PATH declares a stream and its files: Parquet, CSV with a header, or JSON lines. --rules adds the streams of a rule
file. The result is printed as a table; --out writes it to files. Errors in the SQL are underlined.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC
from importlib.util import find_spec
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tocsin.cli.arguments import (
    CommandError,
    add_spark_options,
    add_time_range,
    os_error_message,
    read_file,
    require_spark,
    run_command,
    spark_settings,
    time_range,
    tocsin_errors_as_message,
)
from tocsin.cli.live import ProgressLine

if TYPE_CHECKING:
    from tocsin.query.read import Script
    from tocsin.rules.rulefile import RuleFile

SUMMARY = "query streams in SQL"
EPILOG = """\
exit codes:
  0  success
  1  errors in the SQL, a stream that cannot be read, or a failed query
  2  invalid arguments

This command needs Java 17 or newer and tocsin[spark].
"""
MOST_ROWS = 100
# SQL has no `allowed_lateness`, which the default text names.
_LATE = "dropped as late"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.add_argument("query", nargs="?", metavar="SQL", help="the query; omit it with -f")
    parser.add_argument("sources", nargs="*", metavar="NAME=PATH", help="stream and the path of its files")
    parser.add_argument("-f", "--file", metavar="FILE.sql", help="file with the SQL")
    parser.add_argument("--rules", metavar="RULES.yaml", help="rule file that declares streams")
    parser.add_argument(
        "--time", default="ts", metavar="COLUMN", help="column of the event time (default: %(default)s)"
    )
    add_time_range(parser)
    parser.add_argument(
        "--limit",
        type=_limit,
        default=MOST_ROWS,
        metavar="ROWS",
        help="maximum number of rows to print (default: %(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="write one JSON object instead of a table")
    parser.add_argument(
        "--out", metavar="PATH", help="write the result to a new directory that ends in .parquet, .csv or .json"
    )
    add_spark_options(parser)


def _limit(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or not 0 < int(text) <= 1_000_000:
        message = f"must be an integer from 1 to 1,000,000; got {text!r}"
        raise argparse.ArgumentTypeError(message)
    return int(text)


def run(arguments: argparse.Namespace) -> int:
    """Run the query; return 1 if it fails."""
    return run_command("query", _query, arguments)


def _query(arguments: argparse.Namespace, progress: ProgressLine) -> int:
    from tocsin.cli.history_runner import session, shown_rows, temporary_run_dir

    conf, span = spark_settings(arguments), time_range(arguments)
    if span != (None, None) and arguments.rules is None:
        arguments.usage_error("`--from` and `--to` need --rules; restrict the time of other streams in WHERE")
    text, paths = _text(arguments), _paths(arguments)
    require_spark()
    if find_spec("sqlglot") is None:
        message = "this command needs sqlglot; install tocsin[spark]"
        raise CommandError(message)
    with _sql_errors():
        from tocsin.query import check_script, parse_sql

        script = parse_sql(text)
    file = read_file(arguments.rules, progress, as_json=arguments.json) if arguments.rules else None
    streams = {} if file is None else _streams(file, script)
    for name in streams.keys() & paths.keys():
        arguments.usage_error(
            f"a stream must have one source; `{name}` is both NAME=PATH and a stream of {arguments.rules}"
        )
    _check_out(arguments.out)
    with _sql_errors():
        # Checked before Spark starts, because its start takes seconds.
        check_script(script, [*paths, *(file.streams if file else ())], arguments.time)
    files = [] if file is None else [file]
    with (
        tocsin_errors_as_message(),
        temporary_run_dir(None) as run,
        session(run, files, streams.values(), arguments.master, conf, progress) as started,
        _sql_errors(),
    ):
        from tocsin.spark.history import Span
        from tocsin.spark.tables import open_path, open_rules

        frames = {name: open_path(started, path) for name, path in paths.items()}
        frames |= open_rules(started, streams, arguments.time, Span(*span))
        with shown_rows(started, progress, "the query"):
            summary = _answer(arguments, script, frames)
    progress.stop()
    _write(arguments, summary)
    return 0


@contextmanager
def _sql_errors() -> Iterator[None]:
    """Turn an SqlError into a CommandError with all its lines, which underline the position."""
    from tocsin.errors import SqlError

    try:
        yield
    except SqlError as error:
        raise CommandError(str(error)) from None


def _text(arguments: argparse.Namespace) -> str:
    """Return the SQL. With -f, the first positional argument is a stream."""
    if arguments.file is None:
        if arguments.query is None:
            arguments.usage_error("SQL is required: an argument or -f FILE.sql")
        return str(arguments.query)
    if arguments.query is not None:
        arguments.sources.insert(0, arguments.query)
    try:
        return Path(arguments.file).read_text("utf-8")
    except OSError as error:
        raise CommandError(os_error_message(f"-f {arguments.file}", error)) from None
    except UnicodeDecodeError:
        message = f"-f {arguments.file}: must be UTF-8 text"
        raise CommandError(message) from None


def _paths(arguments: argparse.Namespace) -> dict[str, str]:
    paths: dict[str, str] = {}
    for source in arguments.sources:
        name, sign, path = source.partition("=")
        if not (name.strip() and sign and path):
            arguments.usage_error(f"a stream must be NAME=PATH; got {source!r}")
        if name in paths:
            arguments.usage_error(f"a stream must be declared once; got `{name}` twice")
        local = "://" not in path and not any(sign in path for sign in "*?[{")
        if local and not Path(path).exists():
            message = f"stream `{name}`: path `{path}` does not exist"
            raise CommandError(message)
        paths[name] = path
    if not paths and arguments.rules is None:
        arguments.usage_error("a stream is required: NAME=PATH or --rules")
    return paths


def _streams(file: RuleFile, script: Script) -> dict[str, Any]:
    """Return the streams of a rule file that the query reads."""
    wanted = {name.lower() for name in script.stream_names()}
    return {name: stream for name, stream in file.streams.items() if name.lower() in wanted}


def _check_out(path: str | None) -> None:
    """Raise an error before the query runs if its result cannot be written."""
    if path is None:
        return
    if Path(path).suffix not in (".parquet", ".csv", ".json"):
        message = f"--out must end in .parquet, .csv or .json; got {path!r}"
        raise CommandError(message)
    if Path(path).exists():
        message = f"--out must not exist; {path!r} exists"
        raise CommandError(message)


def _answer(arguments: argparse.Namespace, script: Script, frames: Mapping[str, Any]) -> dict[str, Any]:
    """Run the query. Return its rows up to the limit, and the row outcomes of its streams."""
    from tocsin.spark.query import ask, counts_seen, new_observation

    seen = new_observation()
    query, frame = ask(script, frames, arguments.time, seen=seen)
    summary: dict[str, Any] = {"ok": True, "exact": query.is_exact, "plan": str(query).splitlines()}
    summary |= _shown(frame, arguments.limit) if arguments.out is None else _written(frame, arguments.out)
    counts, reasons = counts_seen(seen)
    # The result is exact if the budget omitted no rows.
    summary["exact"] = query.is_exact or (query.layout.exact and not _has_omissions(counts))
    if not summary["exact"]:
        summary["shortage"] = query.shortage
    for source, needed in zip(query.streams, query.needed, strict=True):
        if counts.get(source.alias, {}).get("quarantined"):
            listed = " or ".join(f"`{name}`" for name in (arguments.time, *needed))
            reasons.setdefault(source.alias, [f"{listed} is missing or not finite"])
    return summary | {"streams": counts, "reasons": reasons}


def _has_omissions(counts: Mapping[str, Mapping[str, int]]) -> bool:
    """Return whether a budget omitted rows, or no counts are known."""
    return not counts or any(one.get("unprocessed", 0) or one.get("shed", 0) for one in counts.values())


def _shown(frame: Any, limit: int) -> dict[str, Any]:
    """Return the first rows of the result, and the number of further rows."""
    # Reading only the first rows would skip a part of the work, and its counts.
    kept = frame.persist()
    number = kept.count()
    kinds = [kind for _, kind in frame.dtypes]
    rows = [[_cell(*cell) for cell in zip(row, kinds, strict=True)] for row in kept.take(limit)]
    return {"columns": frame.columns, "rows": rows, "more": number - len(rows)}


def _written(frame: Any, path: str) -> dict[str, Any]:
    """Write the result to files and return the path."""
    names = [name.lower() for name in frame.columns]
    repeated = [name for name in frame.columns if names.count(name.lower()) > 1]
    if repeated:
        message = f"--out needs unique column names; got `{repeated[0]}` twice: rename one with AS"
        raise CommandError(message)
    # The default format of Spark has milliseconds only.
    timestamp = "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"
    options = {"header": True, "timestampFormat": f"{timestamp}xxx", "timestampNTZFormat": timestamp}
    frame.write.mode("error").options(**options).format(Path(path).suffix[1:]).save(path)
    return {"out": path}


def _cell(value: Any, kind: str) -> Any:
    """Return a value that JSON can represent; times with a zone are in UTC."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if isfinite(value) else str(value)
    if kind == "timestamp":
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _write(arguments: argparse.Namespace, summary: Mapping[str, Any]) -> None:
    for line in _notes(summary):
        print(f"tocsin query: {line}", file=sys.stderr)
    if arguments.json:
        print(json.dumps(summary, indent=2))
    elif arguments.out is None:
        from tocsin.cli.tables import table

        rows: Sequence[Sequence[Any]] = summary["rows"]
        shown = [["" if cell is None else str(cell) for cell in row] for row in rows]
        for line in table(summary["columns"], shown, words=0):
            print(line)
        if not rows:
            print("0 rows")
        if summary["more"]:
            print(f"and {summary['more']:,} more rows (use --limit or --out)")


def _notes(summary: Mapping[str, Any]) -> Iterator[str]:
    """Yield notes on missing results and on rows that were not used."""
    from tocsin.cli.tables import summary_notes

    if not summary["exact"]:
        yield f"the result may be incomplete: {summary['shortage']}"
    for name, counts in summary["streams"].items():
        reasons = [(name, reason) for reason in summary["reasons"].get(name, [])]
        yield from summary_notes(counts.get("quarantined", 0), reasons, {name: counts}, _LATE)
