"""Filter: bytes of lines in, the lines that are due out. The whole edge but for files, signals and the clock.

*Guarantee*: rows go out as they came, byte for byte. A malformed line is passed on at once, or handed to `set_aside`;
it is counted either way. A row with a value outside its domain is sent at once and excuses no other. The header of CSV
goes out once; where it is met again it is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import compress
from operator import itemgetter

from tocsin.edge.csvlines import Csv
from tocsin.edge.jsonlines import JsonLines
from tocsin.edge.ledger import Due
from tocsin.edge.lines import Lines
from tocsin.edge.reducer import Reducer, Rows
from tocsin.edge.rows import Format
from tocsin.edge.settings import EVERYTHING, Settings

TOO_LONG = "line too long"


class Filter:
    """Everything that is remembered between two reads."""

    def __init__(self, settings: Settings, set_aside: Callable[[bytes], None] | None = None) -> None:
        self.settings = settings
        self.set_aside = set_aside
        self.lines = Lines(settings.max_line)
        self.format: Format = Csv(settings) if settings.format == "csv" else JsonLines(settings)
        self.reducer = Reducer(settings)
        self.ledger = self.reducer.ledger

    @property
    def header(self) -> bytes:
        """The header of CSV, once it has been read."""
        return self.format.header if isinstance(self.format, Csv) else b""

    def take(self, data: bytes, now: float = 0.0, *, blocked: bool = False) -> list[Due]:
        """Take what was read at the wall time `now`; give what is due."""
        self.ledger.bytes_in += len(data)
        tail, lines, head = self.lines.take(data)
        out = self._pass(tail, self.ledger.serial) if tail else []
        if lines:
            out += self._rows(lines, now, blocked=blocked)
        if head:
            self.ledger.refuse(TOO_LONG)
            out += self._pass(head, self.ledger.number(1))
        return out

    def end(self, now: float = 0.0) -> list[Due]:
        """Take the end of the input; give all that is held."""
        tail, lines, _ = self.lines.end()
        out = self._pass(tail, self.ledger.serial) if tail else []
        if lines:
            out += self._rows(lines, now, blocked=False)
        return out + self.reducer.release()

    def _rows(self, lines: list[bytes], now: float, *, blocked: bool) -> list[Due]:
        out: list[Due] = []
        if isinstance(self.format, Csv) and self.format.needs_header:
            self.format.take_header(lines[0])
            out.append(self.ledger.passing(lines[0], self.ledger.number(1)))
            lines = lines[1:]
        read = self.format.read(lines)
        first = self.ledger.number(len(lines))
        for place, reason in read.malformed:
            out += self._refuse(lines[place], reason, first + place)
        kept = lines if len(read.places) == len(lines) else [lines[place] for place in read.places]
        serial = [first + place for place in read.places]
        rows = Rows(read.keys, read.t, read.values, kept, serial)
        if any(domain != EVERYTHING for domain in self.settings.domains):
            rows = self._inside(rows, out)
        due = self.reducer.take(rows, now, blocked=blocked)
        return sorted(out + due, key=itemgetter(0)) if out else due

    def _inside(self, rows: Rows, out: list[Due]) -> Rows:
        """Give the rows whose values are inside their domains; the others leave."""
        inside = [True] * len(rows.t)
        for (low, high), column in zip(self.settings.domains, rows.values, strict=True):
            inside = [so_far and low <= value <= high for so_far, value in zip(inside, column, strict=True)]
        outside = [place for place, is_inside in enumerate(inside) if not is_inside]
        out += [Due(rows.serial[place], rows.serial[place], rows.lines[place]) for place in outside]
        self.ledger.received += len(outside)
        self.ledger.out_of_domain += len(outside)
        return Rows(
            list(compress(rows.keys, inside)),
            list(compress(rows.t, inside)),
            [list(compress(column, inside)) for column in rows.values],
            list(compress(rows.lines, inside)),
            list(compress(rows.serial, inside)),
        )

    def _refuse(self, line: bytes, reason: str, number: int) -> list[Due]:
        if line == self.header:
            return []
        self.ledger.refuse(reason)
        return self._pass(line, number)

    def _pass(self, line: bytes, number: int) -> list[Due]:
        """Let a line, or a piece of one, through, or set it aside."""
        if self.set_aside is not None:
            self.set_aside(line)
            return []
        return [self.ledger.passing(line, number)]
