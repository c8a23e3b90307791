"""List, trace and submit the range requests of a run.

    tocsin ranges list runs/desk
    tocsin ranges list runs/desk --rule SharesSold --key symbol=ACME --most 50
    tocsin ranges progress runs/desk anna-17 bert-3
    tocsin ranges load desk.yaml SharesSold requests.csv

`list` and `progress` read the state of the last micro-batch from the checkpoint of a run, also while it runs. They do
not change it. `load` checks a file of requests (CSV with a header, or JSON lines) and writes all of them, or none, to
the source of the rule's request stream: a directory of JSON, CSV or Parquet files, or a Kafka topic. The run reads them
in its next micro-batch.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import io
import json
import math
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tocsin.cli.arguments import (
    CommandError,
    add_spark_options,
    os_error_message,
    read_file,
    require_spark,
    run_command,
    spark_errors_as_message,
    spark_settings,
    tocsin_errors_as_message,
    unknown_rule_error,
)
from tocsin.cli.live import ProgressLine, Status
from tocsin.files import replace_file
from tocsin.formatting import format_count

if TYPE_CHECKING:
    from tocsin.plan import Asked, RangeWatch
    from tocsin.rules.rulefile import RuleFile, Stream

SUMMARY = "list, trace and submit range requests"
# Lines with errors that one message lists.
_MOST_ERRORS = 20
EPILOG = """\
exit codes:
  0  success
  1  unknown run, rule or file, an invalid request, or a failure of Spark
  2  invalid arguments

`list` and `progress` need Java 17 or newer and tocsin[spark].
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the actions of this command."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = actions.add_parser("list", help="show active requests, the closest to their thresholds first")
    listing.add_argument(
        "--most",
        type=_positive_number,
        default=20,
        metavar="N",
        help="maximum number of requests (default: %(default)s)",
    )
    progress = actions.add_parser("progress", help="show the progress of requests by id")
    for reading in (listing, progress):
        reading.add_argument("run_dir", metavar="RUN", help="run directory")
        reading.add_argument("--rule", metavar="RULE", help="only requests of this rule")
        reading.add_argument(
            "--key", action="append", default=[], metavar="NAME=VALUE", help="only requests of this key; repeatable"
        )
        reading.add_argument("--json", action="store_true", help="write one JSON object instead of a table")
        add_spark_options(reading)
    progress.add_argument("ids", nargs="+", metavar="ID", help="ids of requests")
    loading = actions.add_parser("load", help="check a file of requests and submit it to a rule")
    loading.add_argument("rules", metavar="RULES.yaml", help="rule file")
    loading.add_argument("rule", metavar="RULE", help="name of the range rule")
    loading.add_argument(
        "file", metavar="FILE", help="requests: CSV with a header if the name ends in .csv, else JSON lines"
    )
    loading.add_argument("--json", action="store_true", help="write one JSON object instead of text")


def _positive_number(text: str) -> int:
    if not text.isdecimal() or not int(text):
        message = f"must be an integer from 1; got {text!r}"
        raise argparse.ArgumentTypeError(message)
    return int(text)


def run(arguments: argparse.Namespace) -> int:
    """Run an action; return 1 if it fails."""
    return run_command(f"ranges {arguments.action}", _load if arguments.action == "load" else _show, arguments)


def _load(arguments: argparse.Namespace, progress: ProgressLine) -> int:
    file = read_file(arguments.rules, progress, as_json=arguments.json)
    watch = _rule(file, arguments.rule)
    progress.start_phase("reading requests")
    lines, stream = read_request_file(Path(arguments.file)), file.streams[watch.requests]
    progress.start_phase(Status("checking requests", len(lines), unit="requests"))
    validate_requests(lines, watch, stream)
    progress.start_phase(Status("writing requests", len(lines), unit="requests"))
    target = submit_requests(lines, stream) if lines else None
    progress.stop()
    if arguments.json:
        print(json.dumps({"ok": True, "requests": len(lines), "written_to": target}, indent=2))
    else:
        print(f"{format_count(len(lines), 'request')} for {watch.alert}: {target or 'nothing to write'}")
    return 0


def _rule(file: RuleFile, name: str) -> RangeWatch:
    from tocsin.plan import plan_file

    ranges = plan_file(file).ranges if file.ranges else ()
    found = [one for one in ranges if one.alert == name]
    if not found:
        raise unknown_rule_error(name, [one.alert for one in ranges])
    return found[0]


def _show(arguments: argparse.Namespace, progress: ProgressLine) -> int:
    require_spark()
    conf = spark_settings(arguments)
    key = _key(arguments)
    checkpoint = Path(arguments.run_dir) / "checkpoint"
    if not (checkpoint / "state").is_dir():
        message = f"{arguments.run_dir} must be the run directory of a run that processed rows; it has no state"
        raise CommandError(message)
    result = _find_requests(checkpoint, arguments, key, conf, progress)
    active = {one["query"] for one in result["requests"]}
    ended = [name for name in getattr(arguments, "ids", ()) if name not in active]
    if ended:
        progress.start_phase("reading the alert log")
        result["ended"] = find_last_alerts(Path(arguments.run_dir), ended, arguments.rule, key)
    progress.stop()
    if arguments.json:
        print(json.dumps({"ok": True, **result}, indent=2))
        return 0
    _write(result)
    return 0


def _key(arguments: argparse.Namespace) -> dict[str, str]:
    for text in arguments.key:
        if not text.partition("=")[1] or not text.partition("=")[0]:
            arguments.usage_error(f"`--key` must be NAME=VALUE; got {text!r}")
    return {name: value for name, _, value in (text.partition("=") for text in arguments.key)}


def _find_requests(
    checkpoint: Path,
    arguments: argparse.Namespace,
    key: dict[str, str],
    conf: dict[str, str],
    progress: ProgressLine,
) -> dict[str, Any]:
    """Read the requests from the checkpoint with Spark."""
    from tocsin.cli.history_runner import temporary_run_dir

    with tocsin_errors_as_message(), temporary_run_dir(None) as run, spark_errors_as_message([], conf):
        from tocsin.spark.quiet import bounded_session
        from tocsin.spark.standing import Wanted, find_requests

        progress.start_phase("starting Spark")
        with bounded_session(run, master=arguments.master, conf=conf, kafka=False) as session:
            ids = tuple(getattr(arguments, "ids", ()))
            wanted = Wanted(arguments.rule, key, ids, len(ids) * 1000 or arguments.most)
            progress.start_phase("reading the state of the run")
            return find_requests(session, checkpoint, wanted)


def find_last_alerts(run_dir: Path, ids: list[str], rule: str | None, key: dict[str, str]) -> dict[str, Any]:
    """Return the last alert of each id in the alert log of a run, or None without one."""
    from tocsin.delivery.alert_log import AlertLog
    from tocsin.delivery.delivery import ALERTS
    from tocsin.rules.ranges import QUERY

    found: dict[str, Any] = dict.fromkeys(ids)
    for _, alert in AlertLog(run_dir / ALERTS).read():
        labels = alert["labels"]
        if alert["state"] != "match" or labels.get(QUERY) not in found or (rule or alert["alert"]) != alert["alert"]:
            continue
        if all(labels.get(name) == value for name, value in key.items()):
            on = {name: value for name, value in labels.items() if name != QUERY}
            found[labels[QUERY]] = {
                "alert": alert["alert"], "labels": on, "reached": alert["startsAt"], "total": alert["value"]
            }  # fmt: skip
    return found


def _write(result: dict[str, Any]) -> None:
    from tocsin.cli.live import write_table
    from tocsin.errors import printable
    from tocsin.formatting import format_event_time, format_share

    requests = result["requests"]
    rows = [
        [
            one["alert"],
            ", ".join(f"{name}={value}" for name, value in one["key"].items()),
            one["query"],
            _range(one["ends"]),
            f"{one['total']:,}",
            f"{one['threshold']:,}",
            format_share(one["total"] / one["threshold"]),
            format_event_time(one["since_us"]),
        ]
        for one in requests
    ]
    if rows:
        head = ["rule", "key", "id", "range", "total", "threshold", "reached", "since"]
        write_table(head, rows, sys.stdout, 6, [""] * len(rows))
    ended = result.get("ended", {})
    for name, last in ended.items():
        if last is None:
            text = "not active and without an alert: terminated or never registered"
        else:
            labels = "".join(f", {label}={value}" for label, value in last["labels"].items())
            text = f"matured at {last['reached']} with {last['total']:,.0f} ({last['alert']}{labels})"
        print(printable(f"{name}: {text}"))
    if not ended:
        count = format_count(result["active"], "active request")
        print(count + (f", {len(rows):,} shown" if len(rows) < result["active"] else ""))


def _range(ends: dict[str, float]) -> str:
    """Return a range as text; an open end has no number."""
    columns = dict.fromkeys(name.removeprefix("low").removeprefix("high") for name in ends)
    parts = []
    for column in columns:
        low, high = (f"{ends[name + column]:g}" if name + column in ends else "" for name in ("low", "high"))
        parts.append(f"{column.removeprefix('_')} {low}..{high}".strip())
    return ", ".join(parts) or "unbounded"


class RequestLine(NamedTuple):
    """One line of a request file.

    Attributes
    ----------
    number
        Line number in the file.
    row
        Columns with a value.
    columns
        All columns of the line, with or without a value.
    error
        Reason why the line cannot be parsed, or empty.
    """

    number: int
    row: dict[str, Any]
    columns: tuple[str, ...] = ()
    error: str = ""


def read_request_file(path: Path) -> list[RequestLine]:
    """Read requests from a CSV file with a header, or from JSON lines. Empty CSV cells have no value."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            return list(_read_csv(file, path) if path.suffix.lower() == ".csv" else _read_json(file))
    except OSError as error:
        raise CommandError(os_error_message(path, error)) from None
    except csv.Error as error:
        message = f"{path}: invalid CSV: {error}"
        raise CommandError(message) from None
    except UnicodeDecodeError:
        message = f"{path}: must be UTF-8 text"
        raise CommandError(message) from None


def _read_csv(lines: Iterator[str], path: Path) -> Iterator[RequestLine]:
    reader = csv.reader(lines)
    header = tuple(next(reader, ()))
    repeated = [name for name, count in Counter(header).items() if count > 1]
    if repeated:
        message = (
            f"{path}:1: the header must have each column once; got `{repeated[0]}` {header.count(repeated[0])} times"
        )
        raise CommandError(message)
    for cells in reader:
        row = {name: cell for name, cell in zip(header, cells, strict=False) if cell != ""}
        error = f"a line must have at most the {len(header)} cells of the header; got {len(cells)}"
        if cells:
            yield RequestLine(reader.line_num, row, header, error if len(cells) > len(header) else "")


def _read_json(lines: Iterator[str]) -> Iterator[RequestLine]:
    for number, text in enumerate(lines, 1):
        if not text.strip():
            continue
        try:
            row = json.loads(text, object_pairs_hook=_unique_columns)
        except DuplicateColumnError as error:
            yield RequestLine(number, {}, error=str(error))
            continue
        except (ValueError, RecursionError):
            row = None
        if not isinstance(row, dict):
            yield RequestLine(number, {}, error=f"a line must be a JSON object; got {text.strip()[:80]!r}")
        else:
            values = {name: value for name, value in row.items() if value is not None}
            yield RequestLine(number, values, tuple(row))


class DuplicateColumnError(Exception):
    """A JSON object has two members of one name."""


def _unique_columns(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) < len(pairs):
        repeated = next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        message = f"a line must have each column once; got {repeated!r:.80} twice"
        raise DuplicateColumnError(message)
    return row


def validate_requests(lines: Sequence[RequestLine], watch: RangeWatch, stream: Stream) -> None:
    """Parse the numbers of requests in place. Raise a CommandError with all lines that the rule would reject."""
    import numpy as np

    from tocsin.plan import read_requests
    from tocsin.times import build_time_parser

    columns, errors = watch.columns(watch.requests), dict[int, str]()
    values = {column: np.full(len(lines), np.nan) for column in columns}
    typos, read_time = ColumnTypos(watch, stream), build_time_parser(stream.time_unit)
    for index, line in enumerate(lines):
        error = line.error or typos.error_of(line.columns) or _key_or_time_error(line.row, stream, read_time)
        for column in columns:
            if error or column not in line.row:
                continue
            try:
                number = values[column][index] = _parse_number(line.row[column])
            except (TypeError, ValueError, OverflowError):
                kind = "a number, or absent for an open end" if column in watch.ends else "a number"
                error = f"`{column}` must be {kind}; got {line.row[column]!r:.80}"
                continue
            line.row[column] = int(number) if number.is_integer() else number
        if error:
            errors[index] = error
    asked = read_requests(watch, values, [json.dumps(line.row, default=str) for line in lines])
    duplicates, rejected = find_duplicate_ids(lines, stream, asked), asked.reasons
    invalid = sorted({*duplicates, *errors, *np.flatnonzero(rejected.wrong).tolist()})
    if invalid:
        shown = invalid[:_MOST_ERRORS]
        messages = duplicates | {index: rejected.say(index) for index in shown if rejected.wrong[index]} | errors
        listed = [f"line {lines[index].number}: {messages[index]}" for index in shown]
        more = [f"and {len(invalid) - _MOST_ERRORS:,} more lines"] if len(invalid) > _MOST_ERRORS else []
        raise CommandError("\n".join(["invalid requests; nothing was written:", *listed, *more]))


def _parse_number(value: Any) -> float:
    """Return a finite number, or raise an error."""
    if isinstance(value, bool) or not math.isfinite(number := float(value)):
        raise ValueError
    return number


def _key_or_time_error(row: Mapping[str, Any], stream: Stream, read_time: Callable[[Any], int]) -> str:
    """Return the error in the keys or the time of a request, or an empty text."""
    absent = [key for key in stream.keys if key not in row]
    if absent:
        return f"key `{absent[0]}` is missing"
    if stream.time in row:
        try:
            read_time(row[stream.time])
        except (ValueError, OverflowError):
            form = "a number or ISO 8601, such as 2015-02-02T14:19:59Z"
            return f"`{stream.time}` must be {form}; got {row[stream.time]!r:.80}"
    return ""


class ColumnTypos:
    """Check for misspelled columns. Without the check, a misspelled column would silently become payload."""

    def __init__(self, watch: RangeWatch, stream: Stream) -> None:
        from tocsin.rules.ranges import ACTION, ID

        self._known = [ID, ACTION, stream.time, *stream.keys, *watch.columns(watch.requests)]
        self._errors: dict[tuple[str, ...], str] = {}

    def error_of(self, columns: tuple[str, ...]) -> str:
        """Return the error for the first misspelled column, or an empty text."""
        if columns not in self._errors:
            missing = [name for name in self._known if name not in columns]
            others = (
                (name, suggest_column(name.strip().lower(), missing)) for name in columns if name not in self._known
            )
            self._errors[columns] = next((f"unknown column `{name}`{hint}" for name, hint in others if hint), "")
        return self._errors[columns]


def suggest_column(name: str, known: Sequence[str]) -> str:
    """Return a question for the most similar known column, or an empty text.

    Names are short, so permuted letters and prefixes also count as similar.
    """
    from tocsin.rules.suggestions import nearest_clause

    for one in known:
        if sorted(one) == sorted(name) or (len(name) > 1 and one.startswith(name)):
            return f"; did you mean `{one}`?"
    return nearest_clause(name, known)


def find_duplicate_ids(lines: Sequence[RequestLine], stream: Stream, asked: Asked) -> dict[int, str]:
    """Return an error per line that registers an id again before the file terminates it."""
    active: dict[tuple[str, ...], int] = {}
    errors = {}
    for index, (name, registers) in enumerate(zip(asked.id, asked.registers.tolist(), strict=True)):
        key = (name, *(str(lines[index].row.get(key)) for key in stream.keys))
        if not registers:
            active.pop(key, None)
        elif name and key in active:
            errors[index] = f"`id` must be unique among active requests; line {active[key]} also registers {name!r}"
        else:
            active[key] = lines[index].number
    return errors


def submit_requests(lines: Sequence[RequestLine], stream: Stream) -> str:
    """Write requests to the source of the stream, and return its name. Requests without a time get the current time."""
    kinds: Mapping[str, Callable[[Sequence[Mapping[str, Any]], Stream], str]] = {
        "json": _to_json,
        "csv": _to_csv,
        "parquet": _to_parquet,
        "kafka": _to_kafka,
    }
    kind = stream.source.kind
    if kind not in kinds:
        message = f"stream `{stream.name}` must have a source of kind {', '.join(kinds)}; got {kind}"
        raise CommandError(message)
    now_us = round(time.time() * 1_000_000)
    now = {"s": now_us / 1_000_000, "ms": now_us / 1000, "us": now_us, "ns": now_us * 1000}[stream.time_unit]
    return kinds[kind]([{stream.time: now, **line.row} for line in lines], stream)


def _folder(stream: Stream) -> Path:
    folder = Path(str(stream.source.options["path"]))
    if not folder.is_dir():
        message = f"stream `{stream.name}` must have a local directory as its source; got {folder}"
        raise CommandError(message)
    return folder


def _file_name(data: bytes) -> str:
    """Return a name that depends on the content, so that repeating a command writes the file once."""
    return f"requests-{hashlib.sha256(data).hexdigest()[:16]}"


def _to_json(rows: Sequence[Mapping[str, Any]], stream: Stream) -> str:
    data = "".join(json.dumps(row) + "\n" for row in rows).encode()
    path = _folder(stream) / f"{_file_name(data)}.json"
    replace_file(path, data)
    return str(path)


def _to_csv(rows: Sequence[Mapping[str, Any]], stream: Stream) -> str:
    """Write a CSV file with the header of the first file. All files of a stream have the same header."""
    folder = _folder(stream)
    first = next(iter(sorted(folder.glob("*.csv"))), None)
    if first is None:
        message = f"{folder} must contain a CSV file, whose header the new file gets; it contains none"
        raise CommandError(message)
    with first.open(encoding="utf-8-sig", newline="") as file:
        header = next(csv.reader(file), [])
    unknown = sorted({name for row in rows for name in row} - set(header))
    if unknown:
        message = f"`{unknown[0]}` must be a column of {first} ({', '.join(header)})"
        raise CommandError(message)
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, header, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    data = text.getvalue().encode()
    path = folder / f"{_file_name(data)}.csv"
    replace_file(path, data)
    return str(path)


def _to_parquet(rows: Sequence[Mapping[str, Any]], stream: Stream) -> str:
    """Write a Parquet file with the schema of the first file."""
    import pyarrow as pa
    from pyarrow import parquet

    folder = _folder(stream)
    first = next(iter(sorted(folder.glob("*.parquet"))), None)
    if first is None:
        message = f"{folder} must contain a Parquet file, whose schema the new file gets; it contains none"
        raise CommandError(message)
    schema = parquet.read_schema(first)
    try:
        table = pa.Table.from_pylist([dict(row) for row in rows], schema=schema)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        message = f"requests must match the schema of {first}; {error}"
        raise CommandError(message) from None
    sink = pa.BufferOutputStream()
    parquet.write_table(table, sink)
    data = sink.getvalue().to_pybytes()
    path = folder / f"{_file_name(data)}.parquet"
    replace_file(path, data)
    return str(path)


def _to_kafka(rows: Sequence[Mapping[str, Any]], stream: Stream) -> str:
    from tocsin.delivery.kafka import produce_messages
    from tocsin.delivery.sinks import KafkaSink
    from tocsin.errors import TocsinError

    options = stream.source.options
    if options.get("format", "json") != "json":
        message = f"stream `{stream.name}` must have the format json; got {options['format']}"
        raise CommandError(message)
    messages = [("/".join(str(row[key]) for key in stream.keys), json.dumps(row)) for row in rows]
    try:
        login = {name: options[name] for name in ("username", "password") if name in options}
        produce_messages(KafkaSink(options["servers"], options["topic"], **login), messages)
    except TocsinError as error:
        raise CommandError(str(error)) from None
    return f"topic {options['topic']}"
