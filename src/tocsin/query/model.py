"""What a query asks, in frozen values: which streams, which columns, how they are summarised, and what it may cost."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from math import inf

from tocsin.rules.durations import duration_text
from tocsin.stages.promising.layout import Layout
from tocsin.stages.promising.preference import Preference
from tocsin.stages.promising.selection import Query

# How expressions name the column that is joined. The other columns that a stream of a join has beside those that are
# read: the time, a number that is always 1, and the columns of the answer as one text.
KEY, TIME, ONE, ROW = "tocsin_key", "tocsin_time", "tocsin_one", "tocsin_row"
# Of several SELECTs, which one a row is of: the first is 1.
NUMBER = "query"
# Behind the name of an aggregate: its standard error. Before all of them: when its window begins and ends.
ERROR, ENDS = "_error", ("window_start", "window_end")
# What a column holds, as far as queries tell it apart; only those of one group can be joined or compared.
WHOLE, FRACTION, TEXT, BOOLEAN, MOMENT, OTHER = "whole", "fraction", "text", "boolean", "moment", "other"
# So many digits of a number survive as a double.
MOST_DIGITS = 15

Value = float | int | Decimal | str | bool


@dataclass(frozen=True)
class Kind:
    """What a column holds: the name of its type, its group, and whether each of its numbers is a double.

    What is not `shown` cannot be a column of the answer.
    """

    name: str
    group: str = OTHER
    is_double: bool = True
    is_shown: bool = True

    @property
    def is_number(self) -> bool:
        """Whether it holds numbers."""
        return self.group in (WHOLE, FRACTION)

    def fits(self, value: Value) -> bool:
        """Whether it can be compared with a value: another kind would never be equal, or end the query."""
        if isinstance(value, bool):
            return self.group == BOOLEAN
        return self.group == TEXT if isinstance(value, str) else self.is_number

    def is_exact_at(self, value: Value) -> bool:
        """Whether its numbers, made doubles, compare with a value that is made one as they do themselves."""
        if isinstance(value, str):
            return True
        if isinstance(value, Decimal) and len(value.as_tuple().digits) > MOST_DIGITS:
            return False
        return self.is_double or (self.group == WHOLE and -(1 << 53) < value < 1 << 53)


@dataclass(frozen=True)
class Filter:
    """A column compared with values that the query names; decided row by row, before anything is summarised."""

    column: str
    op: str
    values: tuple[Value, ...] = ()


@dataclass(frozen=True)
class Source:
    """A stream as FROM names it: which one, what the query calls it, and which of its rows count."""

    name: str
    alias: str
    filters: tuple[Filter, ...] = ()


@dataclass(frozen=True)
class Column:
    """A column of the answer: that of a stream, by the number of the stream in FROM."""

    name: str
    stream: int
    column: str


@dataclass(frozen=True)
class Aggregate:
    """A column of the answer: count, sum, avg or median."""

    name: str
    kind: str


@dataclass(frozen=True)
class Budget:
    """What may be spent: cores of processor time, or units of work per tuple; neither: all that is needed."""

    cores: float | None = None
    units: float | None = None

    @property
    def is_unlimited(self) -> bool:
        """Whether nothing is left out for want of units."""
        return self.cores is None and self.units is None

    def __str__(self) -> str:
        """Return the budget as a query states it."""
        if self.units is not None:
            return f"{self.units:g} unit{'s' * (self.units != 1)} per tuple"
        return "unlimited" if self.cores is None else f"{100 * self.cores:g} % of a core"


@dataclass(frozen=True)
class Asked:
    """What all queries have: streams, how they are summarised, what is preferred, what it may cost."""

    streams: tuple[Source, ...]
    layout: Layout
    preference: Preference | None
    budget: Budget

    @property
    def is_exact(self) -> bool:
        """Whether the answer is known to be the exact one before it is there."""
        return self.shortage is None

    @property
    def shortage(self) -> str | None:
        """Why the answer may not be the exact one."""
        if not self.layout.exact:
            return "only the newest rows of the stream are retained, because the query has no window"
        return None if self.budget.is_unlimited else f"the CPU budget is {self.budget}"

    @property
    def is_summarised(self) -> bool:
        """Whether the query says how streams are summarised; one of one stream then prefers something."""
        return self.preference is not None

    def _terms(self, slide_us: int | None = None) -> list[str]:
        window = self.layout.window_us
        summary = (
            f"{self.layout.variant}, {type(self.layout.scheme).__name__}" if self.is_summarised else "none declared"
        )
        prefer = self.preference
        fade = f", fade {prefer.fade:g}" if prefer is not None and prefer.fade < 1 else ""
        slide = "" if slide_us is None else f", one result every {duration_text(slide_us)}"
        return [
            f"  window {duration_text(window) if window is not None else 'the whole stream'}{slide}; summary {summary}",
            f"  preference {prefer.order} {prefer.expr}{fade}" if prefer is not None else "  no preference",
            f"  budget {self.budget}: {'exact' if self.is_exact else 'approximate'}",
        ]


@dataclass(frozen=True)
class JoinQuery(Asked):
    """Rows of two streams with equal keys, within the window of each other's times.

    `condition` is what else must hold of a pair, as in rules; `read` has the columns of either stream that it reads,
    `preferred` those that the preference alone reads. In expressions the joined columns are called `KEY`. Where no
    summary `is_declared`, the plan chooses one.
    """

    outputs: tuple[Column, ...]
    keys: tuple[str, str]
    condition: str | None
    read: tuple[tuple[str, ...], tuple[str, ...]]
    preferred: tuple[tuple[str, ...], tuple[str, ...]]
    is_declared: bool

    @property
    def is_summarised(self) -> bool:
        """Whether a summary was declared."""
        return self.is_declared

    @property
    def needed(self) -> tuple[tuple[str, ...], ...]:
        """The columns, besides the time, without which a row of each stream cannot be used.

        They are the key, and what a comparison of both streams reads.
        """
        return tuple(
            (key, *(name for name in read if name != key)) for key, read in zip(self.keys, self.read, strict=True)
        )

    def __str__(self) -> str:
        """Return the query plan as text."""
        one, two = self.streams
        on = f"{one.alias}.{self.keys[0]} = {two.alias}.{self.keys[1]}"
        more = f" and {self.condition}" if self.condition else ""
        text = "\n".join([f"Join {_source(one)} with {_source(two)} where {on}{more}", *self._terms()])
        names = {
            f"{source.alias}.{KEY}": f"{source.alias}.{key}"
            for source, key in zip(self.streams, self.keys, strict=True)
        }
        return re.sub(rf"\w+\.{KEY}\b", lambda found: names[found[0]], text)


@dataclass(frozen=True)
class Selection(Asked):
    """Rows of one stream whose summarised column lies in a range; of several ranges, with the number of the range.

    Without a column nothing is summarised, and all rows are meant that pass the filters.
    """

    outputs: tuple[Column, ...]
    column: str | None
    queries: tuple[Query, ...]

    @property
    def needed(self) -> tuple[tuple[str, ...], ...]:
        """What a row cannot do without: the summarised column."""
        return (() if self.column is None else (self.column,),)

    def __str__(self) -> str:
        """Return the query plan as text."""
        ranges = f"by {len(self.queries)} ranges of {self.column}"
        if len(self.queries) == 1:
            ranges = _range(self.column, self.queries[0])
        terms = self._terms() if self.is_summarised else ["  exact: each row is evaluated separately"]
        return "\n".join([f"Select from {_source(self.streams[0])} {ranges}", *terms])


@dataclass(frozen=True)
class Aggregates(Asked):
    """Aggregates of one column over the rows of one stream whose summarised column, if there is one, is in a range."""

    outputs: tuple[Aggregate, ...]
    column: str | None
    query: Query
    of: str | None
    slide_us: int | None = None

    @property
    def needed(self) -> tuple[tuple[str, ...], ...]:
        """What a row cannot do without: the summarised column, and what is aggregated."""
        return (tuple(dict.fromkeys(name for name in (self.column, self.of) if name is not None)),)

    def __str__(self) -> str:
        """Return the query plan as text."""
        kinds = ", ".join(f"{one.kind}({self.of or '*'})" for one in self.outputs)
        place = f"{_source(self.streams[0])} {_range(self.column, self.query)}"
        return "\n".join([f"Aggregate {kinds} of {place}", *self._terms(self.slide_us)])


def _source(source: Source) -> str:
    filters = f" ({len(source.filters)} filter{'s' * (len(source.filters) > 1)})" if source.filters else ""
    return (source.name if source.name == source.alias else f"{source.name} {source.alias}") + filters


def _range(column: str | None, query: Query) -> str:
    if column is None:
        return "by filters"
    if query.low == -inf and query.high == inf:
        return f"by {column}"
    return f"by {column} from {query.low:g} to {query.high:g}"
