"""A file of requests for a rule with ranges: read, checked line by line, and written where its stream is read from."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tocsin.cli.given import GivenUpError
from tocsin.edge.times import reader
from tocsin.files import replace_file
from tocsin.plan import RangeWatch
from tocsin.plan.asked import Asked, read_requests
from tocsin.rules.nearest import nearest
from tocsin.rules.ranges import ACTION, ID
from tocsin.rules.rulefile import Stream

MOST_TOLD = 20


class Line(NamedTuple):
    """A request, the line of the file that it stands in, all columns that this names, and why it cannot be read."""

    number: int
    row: dict[str, Any]
    named: tuple[str, ...] = ()
    wrong: str = ""


def read_asked(path: Path) -> list[Line]:
    """Read a CSV file with a header, or lines of JSON objects; a cell of CSV that is empty is none."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            return list(_of_csv(file, path) if path.suffix.lower() == ".csv" else _of_json(file))
    except OSError as error:
        message = f"{path} must be readable; {(error.strerror or 'it is not').lower()}"
        raise GivenUpError(message) from None
    except csv.Error as error:
        message = f"{path} must be CSV; {error}"
        raise GivenUpError(message) from None
    except UnicodeDecodeError:
        message = f"{path} must be UTF-8; it is not"
        raise GivenUpError(message) from None


def _of_csv(lines: Iterator[str], path: Path) -> Iterator[Line]:
    reader = csv.reader(lines)
    header = tuple(next(reader, ()))
    twice = [name for name, count in Counter(header).items() if count > 1]
    if twice:
        message = f"{path}:1: the header must name each column once; got `{twice[0]}` {header.count(twice[0])} times"
        raise GivenUpError(message)
    for cells in reader:
        row = {name: cell for name, cell in zip(header, cells, strict=False) if cell != ""}
        wrong = f"it must have at most {len(header)} cells, as the header has; got {len(cells)}"
        if cells:
            yield Line(reader.line_num, row, header, wrong if len(cells) > len(header) else "")


def _of_json(lines: Iterator[str]) -> Iterator[Line]:
    for number, text in enumerate(lines, 1):
        if not text.strip():
            continue
        try:
            row = json.loads(text, object_pairs_hook=_once)
        except _TwiceError as error:
            yield Line(number, {}, wrong=str(error))
            continue
        except (ValueError, RecursionError):
            row = None
        if not isinstance(row, dict):
            yield Line(number, {}, wrong=f"it must be a JSON object; got {text.strip()[:80]!r}")
        else:
            given = {name: value for name, value in row.items() if value is not None}
            yield Line(number, given, tuple(row))


class _TwiceError(Exception):
    """An object that names a column twice."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) < len(pairs):
        twice = next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        message = f"it must name each column once; got {twice!r:.80} twice"
        raise _TwiceError(message)
    return row


def check_asked(lines: Sequence[Line], watch: RangeWatch, stream: Stream) -> None:
    """Make numbers of texts; refuse requests that the rule would not use, some at once, each with its line."""
    columns, wrong = watch.columns(watch.requests), dict[int, str]()
    values = {column: np.full(len(lines), np.nan) for column in columns}
    slips, read_time = _Slips(watch, stream), reader(stream.time_unit)
    for at, line in enumerate(lines):
        reason = line.wrong or slips.of(line.named) or _misses(line.row, stream, read_time)
        for column in columns:
            if reason or column not in line.row:
                continue
            try:
                number = values[column][at] = _number(line.row[column])
            except (TypeError, ValueError, OverflowError):
                reason = f"`{column}` must be a number, which is left out where it is open"
                reason = f"{reason if column in watch.ends else f'`{column}` must be a number'}; got "
                reason += f"{line.row[column]!r:.80}"
                continue
            line.row[column] = int(number) if number.is_integer() else number
        if reason:
            wrong[at] = reason
    asked = read_requests(watch, values, [json.dumps(line.row, default=str) for line in lines])
    twice = _twice(lines, stream, asked)
    refused = sorted({*twice, *wrong, *np.flatnonzero(asked.reasons.wrong).tolist()})
    if refused:
        said = twice | {at: asked.reasons.say(at) for at in refused[:MOST_TOLD] if asked.reasons.wrong[at]} | wrong
        told = [f"line {lines[at].number}: {said[at]}" for at in refused[:MOST_TOLD]]
        more = [f"and {len(refused) - MOST_TOLD:,} more lines"] if len(refused) > MOST_TOLD else []
        raise GivenUpError("\n".join(["requests must be usable; nothing was written:", *told, *more]))


def _number(given: Any) -> float:
    """Read a finite number; what is none is an error."""
    if isinstance(given, bool) or not math.isfinite(number := float(given)):
        raise ValueError
    return number


def _misses(row: Mapping[str, Any], stream: Stream, read_time: Callable[[Any], int]) -> str:
    """Say what is wrong with the keys or the time of a request; nothing if they are fine."""
    absent = [key for key in stream.keys if key not in row]
    if absent:
        return f"key `{absent[0]}` must be given; it is missing"
    if stream.time in row:
        try:
            read_time(row[stream.time])
        except (ValueError, OverflowError):
            rule = "must be a number or ISO 8601, such as 2015-02-02T14:19:59Z"
            return f"`{stream.time}` {rule}; got {row[stream.time]!r:.80}"
    return ""


class _Slips:
    """Columns that no rule reads but that are named much like one that is missing: they would only come back."""

    def __init__(self, watch: RangeWatch, stream: Stream) -> None:
        self._known = [ID, ACTION, stream.time, *stream.keys, *watch.columns(watch.requests)]
        self._found: dict[tuple[str, ...], str] = {}

    def of(self, named: tuple[str, ...]) -> str:
        """Say which of the columns that a line names is a slip; nothing if none is."""
        if named not in self._found:
            missing = [name for name in self._known if name not in named]
            slips = ((name, _meant(name.strip().lower(), missing)) for name in named if name not in self._known)
            self._found[named] = next(
                (f"`{name}` is no column of requests{meant}" for name, meant in slips if meant), ""
            )
        return self._found[named]


def _meant(name: str, known: Sequence[str]) -> str:
    """Ask whether a known column was meant: names are short, so letters in another order and beginnings count too."""
    for one in known:
        if sorted(one) == sorted(name) or (len(name) > 1 and one.startswith(name)):
            return f"; did you mean `{one}`?"
    return nearest(name, known)


def _twice(lines: Sequence[Line], stream: Stream, asked: Asked) -> dict[int, str]:
    """Find ids that are registered again though nothing in the file ends them before."""
    begun: dict[tuple[str, ...], int] = {}
    found = {}
    for at, (name, registers) in enumerate(zip(asked.id, asked.registers.tolist(), strict=True)):
        key = (name, *(str(lines[at].row.get(key)) for key in stream.keys))
        if not registers:
            begun.pop(key, None)
        elif name and key in begun:
            found[at] = f"`id` must not be of a request that is alive; {name!r} stands in line {begun[key]} too"
        else:
            begun[key] = lines[at].number
    return found


def write_asked(lines: Sequence[Line], stream: Stream) -> str:
    """Put requests where the stream is read from, with the time of now where they have none; say where that is."""
    kinds: Mapping[str, Callable[[Sequence[Mapping[str, Any]], Stream], str]] = {
        "json": _to_json,
        "csv": _to_csv,
        "parquet": _to_parquet,
        "kafka": _to_kafka,
    }
    kind = stream.source.kind
    if kind not in kinds:
        message = (
            f"stream `{stream.name}` must be read from {', '.join(kinds)} to be written to; it is read from {kind}"
        )
        raise GivenUpError(message)
    now_us = round(time.time() * 1_000_000)
    now = {"s": now_us / 1_000_000, "ms": now_us / 1000, "us": now_us, "ns": now_us * 1000}[stream.time_unit]
    return kinds[kind]([{stream.time: now, **line.row} for line in lines], stream)


def _folder(stream: Stream) -> Path:
    folder = Path(str(stream.source.options["path"]))
    if not folder.is_dir():
        message = f"stream `{stream.name}` must be read from a folder here to be written to; got {folder}"
        raise GivenUpError(message)
    return folder


def _name(data: bytes) -> str:
    return f"requests-{hashlib.sha256(data).hexdigest()[:16]}"


def _to_json(rows: Sequence[Mapping[str, Any]], stream: Stream) -> str:
    data = "".join(json.dumps(row) + "\n" for row in rows).encode()
    path = _folder(stream) / f"{_name(data)}.json"
    replace_file(path, data)
    return str(path)


def _to_csv(rows: Sequence[Mapping[str, Any]], stream: Stream) -> str:
    """All files of a stream have one header, so what it does not name cannot be written."""
    folder = _folder(stream)
    first = next(iter(sorted(folder.glob("*.csv"))), None)
    if first is None:
        message = f"{folder} must have a CSV file, whose header is that of all; it has none"
        raise GivenUpError(message)
    with first.open(encoding="utf-8-sig", newline="") as file:
        header = next(csv.reader(file), [])
    unknown = sorted({name for row in rows for name in row} - set(header))
    if unknown:
        message = f"`{unknown[0]}` must be in the header of {first}; it has {', '.join(header)}"
        raise GivenUpError(message)
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, header, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    data = text.getvalue().encode()
    path = folder / f"{_name(data)}.csv"
    replace_file(path, data)
    return str(path)


def _to_parquet(rows: Sequence[Mapping[str, Any]], stream: Stream) -> str:
    """Of the columns and types of the files that are there."""
    import pyarrow as pa
    from pyarrow import parquet

    folder = _folder(stream)
    first = next(iter(sorted(folder.glob("*.parquet"))), None)
    if first is None:
        message = f"{folder} must have a Parquet file, whose columns are those of all; it has none"
        raise GivenUpError(message)
    schema = parquet.read_schema(first)
    try:
        table = pa.Table.from_pylist([dict(row) for row in rows], schema=schema)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        message = f"requests must fit the columns of {first}; {error}"
        raise GivenUpError(message) from None
    sink = pa.BufferOutputStream()
    parquet.write_table(table, sink)
    data = sink.getvalue().to_pybytes()
    path = folder / f"{_name(data)}.parquet"
    replace_file(path, data)
    return str(path)


def _to_kafka(rows: Sequence[Mapping[str, Any]], stream: Stream) -> str:
    from tocsin.deliver.kafka import produce_all
    from tocsin.deliver.sinks import KafkaSink
    from tocsin.errors import TocsinError

    options = stream.source.options
    if options.get("format", "json") != "json":
        message = f"stream `{stream.name}` must hold JSON to be written to; it holds {options['format']}"
        raise GivenUpError(message)
    messages = [("/".join(str(row[key]) for key in stream.keys), json.dumps(row)) for row in rows]
    try:
        login = {name: options[name] for name in ("username", "password") if name in options}
        produce_all(KafkaSink(options["servers"], options["topic"], **login), messages)
    except TocsinError as error:
        raise GivenUpError(str(error)) from None
    return f"topic {options['topic']}"
