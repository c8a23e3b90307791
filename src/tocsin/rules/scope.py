"""Scope: the streams and tables that a condition can read, and the column that each of its variables reads.

In a rule file, a stream with an error of its own is doubtful: rules that read it get no error for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from tocsin.errors import Diagnostics
from tocsin.expr.parser import parse_condition_with_errors
from tocsin.expr.syntax_tree import Key
from tocsin.rules.limits import Limits
from tocsin.rules.suggestions import nearest

# The loader of rule files and the planner read the same conditions.
read_condition = lru_cache(maxsize=256)(parse_condition_with_errors)


@dataclass(frozen=True)
class Scope:
    """Streams and tables by name.

    Attributes
    ----------
    columns
        Columns of each stream. Without `keys`, the key columns and the columns of event time and arrival are in it.
    time, arrival
        Names of the columns of event time and arrival.
    keys
        Key columns of each stream of a rule file. None if `columns` contains all columns.
    tables
        Tables of limits of a rule file.
    doubtful
        Streams and tables that have errors of their own.
    is_whole
        Whether all names are known. If not, an unknown name can be correct.
    """

    columns: Mapping[str, Sequence[str]]
    time: str = "ts"
    arrival: str | None = None
    keys: Mapping[str, Sequence[str]] | None = None
    tables: Mapping[str, Limits] = field(default_factory=dict)
    doubtful: frozenset[str] = frozenset()
    is_whole: bool = True

    @property
    def ranges_name(self) -> str:
        """Name of `RangeRule.values` for the user: `ranges` in a rule file."""
        return "values" if self.keys is None else "ranges"

    def is_doubtful(self, name: str) -> bool:
        """Return whether nothing is known about a name, although it can be correct."""
        known = name in self.columns or name in self.tables
        return name in self.doubtful or not (known or self.is_whole)

    def may_read(self, name: str) -> bool:
        """Return whether a condition can read a stream, or a column `stream.column`."""
        stream, _, column = name.partition(".")
        if stream not in self.columns:
            return self.is_doubtful(stream)
        return not column or column in self.columns[stream]

    def value_columns(self, stream: str, on: Sequence[str]) -> list[str]:
        """Return the columns of a stream that a condition can read."""
        if self.keys is not None:
            return list(self.columns[stream])
        return [name for name in self.columns[stream] if name not in {self.time, self.arrival, *on}]

    def find_column(self, key: Key, on: Sequence[str]) -> str | None:
        """Return the column that a variable reads: the named one, else `value` or the only one, else None.

        >>> Scope({"air": ["ts", "m", "temp"]}).find_column(("air", None), ["m"])
        'temp'
        """
        stream, column = key
        if stream not in self.columns:
            return None
        free = self.value_columns(stream, on)
        if column is not None:
            return column if column in free else None
        return "value" if "value" in free else free[0] if len(free) == 1 else None

    def check_stream(self, diagnostics: Diagnostics, stream: str, on: Sequence[str], **at: Any) -> bool:
        """Report a stream that does not exist, or lacks a column of time, arrival or key; return whether it is right.

        `at` has the prefix of the message and the path of the diagnostic.
        """
        place = dict(at)
        prefix, path = place.pop("prefix", ""), place.pop("path")
        if stream not in self.columns:
            if not self.is_doubtful(stream):
                # Substitutes of missing names begin with a space.
                names = [
                    name for name in {**self.tables, **self.columns, **dict.fromkeys(self.doubtful)} if name[:1] != " "
                ]
                message = f"{prefix}`{stream}` must be one of the streams {', '.join(names)}"
                diagnostics.add("unknown-stream", path, message, hint=nearest(stream, names), **place)
            return False
        if self.keys is not None:
            return True
        have = list(self.columns[stream])
        for needed in [self.time, *on, *([] if self.arrival is None else [self.arrival])]:
            if needed not in have:
                what = f"{needed!r} (`arrival`)" if needed == self.arrival else repr(needed)
                message = f"stream `{stream}` must have the column {what}; its columns are {', '.join(have)}"
                diagnostics.add("unknown-column", path, message, hint=nearest(needed, have))
                return False
        return True

    def check_keys(self, diagnostics: Diagnostics, on: Sequence[str], streams: Iterable[str], which: str) -> None:
        """Report columns of `on` that are no key column of some stream of a rule file."""
        keys = {name: self.keys[name] for name in streams if name in self.keys} if self.keys is not None else {}
        for column in on:
            without = [name for name in keys if column not in keys[name]]
            if without:
                has = ", ".join(keys[without[0]]) or "none"
                message = f"`on` must name key columns of {which}; the keys of {without[0]!r} are {has}"
                hint = nearest(column, keys[without[0]])
                diagnostics.add("unknown-column", ["on", column], message, repr(column), hint)

    def read_column(self, diagnostics: Diagnostics, key: Key, on: Sequence[str], **at: Any) -> str | None:
        """Return the column that a variable reads. Report a variable that reads none."""
        stream, column = key
        if not self.check_stream(diagnostics, stream, on, **at):
            return None
        found = self.find_column(key, on)
        if found is not None:
            return found
        prefix, path = at.pop("prefix", ""), at.pop("path")
        free = self.value_columns(stream, on)
        if column is not None:
            message = f"{prefix}stream `{stream}` must have the value column {column!r}; its value columns are "
            diagnostics.add("unknown-column", path, message + ", ".join(free), hint=nearest(column, free), **at)
            return None
        have = f"the value columns of the stream are {', '.join(free)}" if free else "the stream has no value column"
        example = f"{stream}.{free[0] if free else 'value'}"
        message = f"{prefix}`{stream}` must name its column, for example `{example}`; {have}"
        diagnostics.add("ambiguous-column", path, message, **at)
        return None
