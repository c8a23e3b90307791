"""Ask streams in SQL: joins, selections and aggregates, with summaries, a preference and a budget.

    tocsin query "SELECT a.ts, b.ts FROM a, b WHERE a.item = b.item WINDOW 1 MINUTE" a=north.parquet b=south.parquet
    tocsin query -f outliers.sql sales=sales/ --time sold_at --json | jq .rows
    tocsin query "SELECT ..." --rules factory.yaml --out answer.parquet

Streams are files (Parquet, CSV with a header, JSON lines) by the name that the query gives them, or those of a rule
file. The answer is printed as a table; --out writes all of it to files. A mistake in the SQL is underlined.
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

from tocsin.cli.given import (
    GivenUpError,
    add_span,
    add_spark,
    attempt,
    ends,
    needs_spark,
    read_file,
    run_errors,
    settings,
)
from tocsin.cli.remarks import remarks

if TYPE_CHECKING:
    from tocsin.query.read import Script
    from tocsin.rules.rulefile import RuleFile

SUMMARY = "ask streams in SQL"
EPILOG = """\
exit codes:
  0  done, whatever was found
  1  mistakes in the SQL, streams that cannot be read, or a query that failed
  2  wrong usage

docs/sql.md has the syntax. It needs Java 17 or newer and tocsin[spark].
"""
MOST_ROWS = 100
# SQL has no word for how far behind a row may be.
_LATE = "too far behind those before, not used"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.add_argument("query", nargs="?", metavar="SQL", help="what is asked, unless -f names a file that has it")
    parser.add_argument("sources", nargs="*", metavar="NAME=PATH", help="a stream and its files")
    parser.add_argument("-f", "--file", metavar="FILE.sql", help="a file with the SQL")
    parser.add_argument("--rules", metavar="RULES.yaml", help="a rule file whose streams are asked")
    parser.add_argument(
        "--time", default="ts", metavar="COLUMN", help="the column of event time (default: %(default)s)"
    )
    add_span(parser)
    parser.add_argument(
        "--limit", type=_limit, default=MOST_ROWS, metavar="ROWS", help="print at most so many (default: %(default)s)"
    )
    parser.add_argument("--json", action="store_true", help="write one JSON object instead of a table")
    parser.add_argument("--out", metavar="PATH", help="write the whole answer to a new folder: .parquet, .csv or .json")
    add_spark(parser)


def _limit(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or not 0 < int(text) <= 1_000_000:
        message = f"must be a whole number from 1 to 1,000,000; got {text!r}"
        raise argparse.ArgumentTypeError(message)
    return int(text)


def run(arguments: argparse.Namespace) -> int:
    """Ask; give 1 if that cannot be done."""
    return attempt("query", _query, arguments)


def _query(arguments: argparse.Namespace) -> int:
    from tocsin.cli.history import scratch, session

    conf, span = settings(arguments), ends(arguments)
    if span != (None, None) and arguments.rules is None:
        arguments.refuse("`--from` and `--to` are for the streams of a rule file; of others WHERE bounds the time")
    text, paths = _text(arguments), _paths(arguments)
    needs_spark()
    if find_spec("sqlglot") is None:
        message = "sqlglot must be installed; install tocsin[spark]"
        raise GivenUpError(message)
    with _mistakes():
        from tocsin.query import check_script, parse_sql

        script = parse_sql(text)
    file = read_file(arguments.rules, as_json=arguments.json) if arguments.rules else None
    streams = {} if file is None else _streams(file, script)
    for name in streams.keys() & paths.keys():
        arguments.refuse(f"a stream must be named once; got `{name}` as a path and in {arguments.rules}")
    _check_out(arguments.out)
    with _mistakes():
        # All that can be known before Spark is started, which takes seconds.
        check_script(script, [*paths, *(file.streams if file else ())], arguments.time)
    files = [] if file is None else [file]
    with (
        run_errors(),
        scratch(None) as run,
        session(run, files, streams.values(), arguments.master, conf) as started,
        _mistakes(),
    ):
        from tocsin.spark.history import Span
        from tocsin.spark.tables import open_path, open_rules

        frames = {name: open_path(started, path) for name, path in paths.items()}
        frames |= open_rules(started, streams, arguments.time, Span(*span))
        summary = _answer(arguments, script, frames)
    _write(arguments, summary)
    return 0


@contextmanager
def _mistakes() -> Iterator[None]:
    """Keep the lines of a mistake in the SQL, which mark its place."""
    from tocsin.errors import SqlError

    try:
        yield
    except SqlError as error:
        raise GivenUpError(str(error)) from None


def _text(arguments: argparse.Namespace) -> str:
    """The SQL; where a file has it, what stands in its place is a stream."""
    if arguments.file is None:
        if arguments.query is None:
            arguments.refuse("give the SQL, or a file that has it with -f")
        return str(arguments.query)
    if arguments.query is not None:
        arguments.sources.insert(0, arguments.query)
    try:
        return Path(arguments.file).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else "it is not text in UTF-8"
        message = f"-f {arguments.file} must be a file that can be read; {why.lower()}"
        raise GivenUpError(message) from None


def _paths(arguments: argparse.Namespace) -> dict[str, str]:
    paths: dict[str, str] = {}
    for source in arguments.sources:
        name, sign, path = source.partition("=")
        if not (name.strip() and sign and path):
            arguments.refuse(f"a stream must be NAME=PATH; got {source!r}")
        if name in paths:
            arguments.refuse(f"a stream must be named once; got `{name}` again")
        local = "://" not in path and not any(sign in path for sign in "*?[{")
        if local and not Path(path).exists():
            message = f"stream `{name}`: path `{path}` must be there; it is not"
            raise GivenUpError(message)
        paths[name] = path
    if not paths and arguments.rules is None:
        arguments.refuse("name the streams as NAME=PATH, or a rule file with --rules")
    return paths


def _streams(file: RuleFile, script: Script) -> dict[str, Any]:
    """The streams of a rule file that the query names; others are not opened."""
    wanted = {name.lower() for name in script.stream_names()}
    return {name: stream for name, stream in file.streams.items() if name.lower() in wanted}


def _check_out(path: str | None) -> None:
    """Find out before the work that the answer cannot be written."""
    if path is None:
        return
    if Path(path).suffix not in (".parquet", ".csv", ".json"):
        message = f"--out must end in .parquet, .csv or .json; got {path!r}"
        raise GivenUpError(message)
    if Path(path).exists():
        message = f"--out must be new; {path!r} is there already"
        raise GivenUpError(message)


def _answer(arguments: argparse.Namespace, script: Script, frames: Mapping[str, Any]) -> dict[str, Any]:
    """Run the query; gives its rows up to the limit, and what became of the rows of streams."""
    from tocsin.spark.query import ask, counts_seen, new_observation

    seen = new_observation()
    asked, frame = ask(script, frames, arguments.time, seen=seen)
    summary: dict[str, Any] = {"ok": True, "exact": asked.is_exact, "plan": str(asked).splitlines()}
    summary |= _shown(frame, arguments.limit) if arguments.out is None else _written(frame, arguments.out)
    counts, reasons = counts_seen(seen)
    # A budget that left nothing out gave all that there is.
    summary["exact"] = asked.is_exact or (asked.layout.exact and not _is_short(counts))
    if not summary["exact"]:
        summary["shortage"] = asked.shortage
    for source, needed in zip(asked.streams, asked.needed, strict=True):
        if counts.get(source.alias, {}).get("quarantined"):
            listed = " or ".join(f"`{name}`" for name in (arguments.time, *needed))
            reasons.setdefault(source.alias, [f"{listed} is missing or not finite"])
    return summary | {"streams": counts, "reasons": reasons}


def _is_short(counts: Mapping[str, Mapping[str, int]]) -> bool:
    """Whether some rows went before all work on them was done, or nothing is known of them."""
    return not counts or any(one.get("unprocessed", 0) or one.get("shed", 0) for one in counts.values())


def _shown(frame: Any, limit: int) -> dict[str, Any]:
    """The first rows of an answer, and how many more there are."""
    # To take the first rows alone would leave some of the work undone, and counts unknown.
    kept = frame.persist()
    number = kept.count()
    kinds = [kind for _, kind in frame.dtypes]
    rows = [[_cell(*cell) for cell in zip(row, kinds, strict=True)] for row in kept.take(limit)]
    return {"columns": frame.columns, "rows": rows, "more": number - len(rows)}


def _written(frame: Any, path: str) -> dict[str, Any]:
    """Where the whole answer was written to."""
    names = [name.lower() for name in frame.columns]
    twice = [name for name in frame.columns if names.count(name.lower()) > 1]
    if twice:
        message = f"--out must be given columns of different names; `{twice[0]}` stands twice: name one with AS"
        raise GivenUpError(message)
    # Spark's own form has milliseconds.
    whole = "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"
    options = {"header": True, "timestampFormat": f"{whole}xxx", "timestampNTZFormat": whole}
    frame.write.mode("error").options(**options).format(Path(path).suffix[1:]).save(path)
    return {"out": path}


def _cell(value: Any, kind: str) -> Any:
    """A value as JSON can hold it; times with a zone are shown in UTC."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if isfinite(value) else str(value)
    if kind == "timestamp":
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _write(arguments: argparse.Namespace, summary: Mapping[str, Any]) -> None:
    for line in _remarks(summary):
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
            print(f"and {summary['more']:,} more rows: --limit prints more, --out writes all")


def _remarks(summary: Mapping[str, Any]) -> Iterator[str]:
    """Tell of what the answer lacks, and of rows that were no part of it."""
    if not summary["exact"]:
        yield f"the answer may not be exact: {summary['shortage']}"
    for name, counts in summary["streams"].items():
        reasons = [(name, reason) for reason in summary["reasons"].get(name, [])]
        yield from remarks(counts.get("quarantined", 0), reasons, {name: counts}, _LATE)
