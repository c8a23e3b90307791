"""Edge filter: input bytes to due lines. It contains all of the filter except files, signals and the system clock.

Guarantee: rows are sent unchanged, byte for byte. A malformed line is due at once, or is passed to `divert_malformed`;
it is counted in both cases. A row with a value outside its domain is due at once and covers no other row. A CSV header
is sent once; repetitions of it are dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import compress
from operator import attrgetter

from tocsin.edge.csv_reader import CsvReader
from tocsin.edge.json_reader import JsonReader
from tocsin.edge.keyed_reducer import KeyedReducer, KeyedRows
from tocsin.edge.line_buffer import DueLine
from tocsin.edge.line_splitter import LineSplitter
from tocsin.edge.row_parser import RowParser
from tocsin.edge.settings import UNBOUNDED, Settings

TOO_LONG = "line too long"


class EdgeFilter:
    """State of the filter between two reads.

    Attributes
    ----------
    settings
        Options that decide how lines are read and which rows may be omitted.
    divert_malformed
        Function that receives malformed lines; None if they are sent.
    splitter, parser, reducer, buffer
        The parts of the filter: bytes to lines, lines to rows, rows to due lines, and the lines themselves.
    """

    def __init__(self, settings: Settings, divert_malformed: Callable[[bytes], None] | None = None) -> None:
        self.settings = settings
        self.divert_malformed = divert_malformed
        self.splitter = LineSplitter(settings.max_line)
        self.parser: RowParser = CsvReader(settings) if settings.format == "csv" else JsonReader(settings)
        self.reducer = KeyedReducer(settings)
        self.buffer = self.reducer.buffer

    @property
    def header(self) -> bytes:
        """CSV header; empty before it is read, and for other formats."""
        return self.parser.header if isinstance(self.parser, CsvReader) else b""

    def process(self, data: bytes, now: float = 0.0, *, blocked: bool = False) -> list[DueLine]:
        """Process the bytes of a read at processing time `now`, and return the due lines.

        With `blocked`, due lines have to wait for the output, so more of them may be omitted.
        """
        self.buffer.bytes_in += len(data)
        tail, lines, head = self.splitter.split(data)
        out = self._pass_through(tail, self.buffer.serial) if tail else []
        if lines:
            out += self._process_lines(lines, now, blocked=blocked)
        if head:
            self.buffer.count_malformed(TOO_LONG)
            out += self._pass_through(head, self.buffer.assign_serials(1))
        return out

    def end(self, now: float = 0.0) -> list[DueLine]:
        """Process the end of the input, and return all delayed lines."""
        tail, lines, _ = self.splitter.end()
        out = self._pass_through(tail, self.buffer.serial) if tail else []
        if lines:
            out += self._process_lines(lines, now, blocked=False)
        return out + self.reducer.release()

    def _process_lines(self, lines: list[bytes], now: float, *, blocked: bool) -> list[DueLine]:
        out: list[DueLine] = []
        if isinstance(self.parser, CsvReader) and self.parser.needs_header:
            self.parser.read_header(lines[0])
            out.append(self.buffer.pass_through(lines[0], self.buffer.assign_serials(1)))
            lines = lines[1:]
        parsed = self.parser.parse(lines)
        first = self.buffer.assign_serials(len(lines))
        for index, reason in parsed.malformed:
            out += self._pass_malformed(lines[index], reason, first + index)
        has_only_rows = len(parsed.line_indexes) == len(lines)
        row_lines = lines if has_only_rows else [lines[index] for index in parsed.line_indexes]
        serial = [first + index for index in parsed.line_indexes]
        rows = KeyedRows(parsed.keys, parsed.t, parsed.values, row_lines, serial)
        if any(domain != UNBOUNDED for domain in self.settings.domains):
            rows = self._filter_domain(rows, out)
        due = self.reducer.process(rows, now, blocked=blocked)
        return sorted(out + due, key=attrgetter("due_by")) if out else due

    def _filter_domain(self, rows: KeyedRows, out: list[DueLine]) -> KeyedRows:
        """Return the rows with all values inside their domains; append the other rows to `out`."""
        inside = [True] * len(rows.t)
        for (low, high), column in zip(self.settings.domains, rows.values, strict=True):
            inside = [so_far and low <= value <= high for so_far, value in zip(inside, column, strict=True)]
        outside = [index for index, is_inside in enumerate(inside) if not is_inside]
        out += [DueLine(rows.serial[index], rows.serial[index], rows.lines[index]) for index in outside]
        self.buffer.received += len(outside)
        self.buffer.out_of_domain += len(outside)
        return KeyedRows(
            list(compress(rows.keys, inside)),
            list(compress(rows.t, inside)),
            [list(compress(column, inside)) for column in rows.values],
            list(compress(rows.lines, inside)),
            list(compress(rows.serial, inside)),
        )

    def _pass_malformed(self, line: bytes, reason: str, serial: int) -> list[DueLine]:
        if line == self.header:
            return []
        self.buffer.count_malformed(reason)
        return self._pass_through(line, serial)

    def _pass_through(self, line: bytes, serial: int) -> list[DueLine]:
        """Return a line, or a chunk of one, as a due line, or divert it."""
        if self.divert_malformed is not None:
            self.divert_malformed(line)
            return []
        return [self.buffer.pass_through(line, serial)]
