"""Tables of limits: numbers that differ per key, read from CSV, for use in conditions as `table.column`."""

from __future__ import annotations

import csv
import io
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tocsin.errors import Diagnostics
from tocsin.expr.syntax_tree import Variable
from tocsin.files import open_file
from tocsin.rules.suggestions import nearest

MOST_BYTES = 16 * 1024 * 1024
MOST_MISTAKES = 20

# Line, column, message.
Report = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Limits:
    """Numbers by key: `rows[key]` has one number per column, a key one text per key column of `on`."""

    file: str
    on: tuple[str, ...]
    columns: tuple[str, ...]
    rows: Mapping[tuple[str, ...], tuple[float, ...]] = field(default_factory=dict, repr=False)

    def check_column(self, diagnostics: Diagnostics, variable: Variable, **at: Any) -> bool:
        """Return whether a variable of a condition names a column of this table. Report it if it does not."""
        name = variable.column
        if name in self.columns:
            return True
        message = f"`expr`: `{variable.stream}` must name a column of its table ({', '.join(self.columns)})"
        hint = nearest(name, self.columns) if name else ""
        diagnostics.add("unknown-column", message=message, found=name or "no column", hint=hint, **at)
        return False

    def column(self, name: str) -> list[float]:
        """Give one column, a number per key."""
        at = self.columns.index(name)
        return [row[at] for row in self.rows.values()]


def read_limits(path: Path, on: Sequence[str], report: Report) -> Limits:
    """Read a table; what is wrong with it is reported, up to a number of mistakes that says enough.

    Raises OSError if the file cannot be read.
    """
    with open_file(path) as file:
        raw = file.read(MOST_BYTES + 1)
    limits = Limits(str(path), tuple(on), (), {})
    if len(raw) > MOST_BYTES:
        report(1, 1, f"a table must have at most {MOST_BYTES // 2**20} MiB; this table is larger")
        return limits
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        report(raw.count(b"\n", 0, error.start) + 1, 1, "a table must be in UTF-8; a byte of this line is invalid")
        return limits
    try:
        return _Table(text, report).read(limits)
    except csv.Error as error:
        report(1, 1, f"invalid CSV: {error}")
    except _Enough:
        pass
    return limits


class _Enough(Exception):
    """So many mistakes that more would say nothing new."""


class _Table:
    def __init__(self, text: str, report: Report) -> None:
        self._lines = text.splitlines()
        self._reader = csv.reader(io.StringIO(text, newline=""))
        self._report = report
        self._mistakes = 0

    def read(self, limits: Limits) -> Limits:
        header = [name.strip() for name in next(self._reader, [])]
        if not self._check_header(header, limits.on):
            return limits
        keys = [header.index(name) for name in limits.on]
        numbers = [at for at in range(len(header)) if at not in keys]
        rows: dict[tuple[str, ...], tuple[float, ...]] = {}
        for cells in self._reader:
            if not cells:
                continue
            if len(cells) != len(header):
                self._note(0, cells, f"a row must have {len(header)} cells like the header; got {len(cells)}")
                continue
            key = tuple(cells[at] for at in keys)
            if key in rows:
                self._note(keys[0], cells, f"keys must be unique; {', '.join(map(repr, key))} is in an earlier row")
            rows[key] = tuple(self._number(at, cells, header[at]) for at in numbers)
        if not rows and not self._mistakes:
            self._note(0, [], "a table must have at least one row below its header; got no row")
        return Limits(limits.file, limits.on, tuple(header[at] for at in numbers), rows)

    def _check_header(self, header: list[str], on: Sequence[str]) -> bool:
        missing = [name for name in on if name not in header]
        counts = Counter(header)
        twice = [name for name in header if counts[name] > 1]
        if missing:
            self._note(
                0, [], f"a header must have the key columns {', '.join(on)}; got {', '.join(header) or 'nothing'}"
            )
        elif twice:
            self._note(header.index(twice[0]), header, f"columns must be unique; got {twice[0]!r} twice")
        elif len(header) == len(on):
            self._note(0, [], f"a table must have a column of numbers besides {', '.join(on)}; got no other column")
        return not self._mistakes

    def _number(self, at: int, cells: list[str], column: str) -> float:
        try:
            value = float(cells[at])
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            self._note(at, cells, f"column {column!r} must contain finite numbers; got {cells[at][:40]!r}")
        return value

    def _note(self, at: int, cells: list[str], message: str) -> None:
        """Report a mistake at a cell; its column is known where nothing is quoted."""
        self._mistakes += 1
        line = max(1, self._reader.line_num)
        if self._mistakes > MOST_MISTAKES:
            self._report(line, 1, f"this table has more than {MOST_MISTAKES} errors; the rest is not checked")
            raise _Enough
        plain = line <= len(self._lines) and '"' not in self._lines[line - 1]
        self._report(line, sum(len(cell) + 1 for cell in cells[:at]) + 1 if plain else 1, message)
