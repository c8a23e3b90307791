"""A rule file as it was meant: frozen objects, defaults filled in, every name known."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from tocsin.rules.limits import Limits
from tocsin.rules.model import Rule
from tocsin.rules.no_data import NoData
from tocsin.rules.quality import NO_QUALITY, Quality
from tocsin.rules.ranges import RangeRule
from tocsin.rules.scope import Scope


@dataclass(frozen=True)
class Domain:
    """The values that a column may take; an end may be open, or infinite."""

    low: float
    high: float
    low_open: bool = False
    high_open: bool = False

    @property
    def ends(self) -> tuple[float, float]:
        """The least and the largest double inside, both of which belong to it.

        >>> Domain(0, 1, high_open=True).ends
        (0.0, 0.9999999999999999)
        """
        low = math.nextafter(self.low, math.inf) if self.low_open and math.isfinite(self.low) else self.low
        high = math.nextafter(self.high, -math.inf) if self.high_open and math.isfinite(self.high) else self.high
        return float(low), float(high)


# Stands for a domain with a mistake of its own, until that is told.
DOUBTFUL = Domain(math.nan, math.nan)


@dataclass(frozen=True)
class Value:
    """A value column of a stream."""

    name: str
    domain: Domain | None = None
    unit: str | None = None


@dataclass(frozen=True)
class Source:
    """Where rows come from: a kind and its options; durations are timedeltas, passwords and URLs Secrets."""

    kind: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Sink:
    """Where alerts go: a kind and its options, as in a Source."""

    kind: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Stream:
    """A stream: its source, and what its columns are."""

    name: str
    source: Source
    keys: tuple[str, ...] = ()
    time: str = "ts"
    time_unit: str = "us"
    arrival: str | None = None
    values: Mapping[str, Value] = field(default_factory=dict)
    idle_timeout_us: int | None = None
    max_ahead_us: int | None = None
    no_data: NoData | None = None
    # Of a stream of requests a row may lack all values: one that terminates has none.
    is_requests: bool = False

    def column(self, name: str | None) -> str | None:
        """The column that a variable of this stream reads; None if that is not clear."""
        if name is not None:
            return name if name in self.values else None
        if "value" in self.values:
            return "value"
        return next(iter(self.values)) if len(self.values) == 1 else None


def scope_of(streams: Mapping[str, Stream], tables: Mapping[str, Limits]) -> Scope:
    """Return the scope of the conditions of a file."""
    columns = {name: tuple(stream.values) for name, stream in streams.items()}
    return Scope(columns, keys={name: stream.keys for name, stream in streams.items()}, tables=tables)


@dataclass(frozen=True)
class Group:
    """Rules that are told together; each has the labels of the group already."""

    name: str
    interval_us: int
    labels: Mapping[str, str] = field(default_factory=dict)
    rules: tuple[Rule, ...] = ()
    ranges: tuple[RangeRule, ...] = ()


@dataclass(frozen=True)
class RuleFile:
    """All that a rule file says."""

    path: str
    streams: Mapping[str, Stream]
    limits: Mapping[str, Limits]
    groups: tuple[Group, ...]
    sinks: tuple[Sink, ...] = ()
    archive: str | None = None
    quality: Quality = NO_QUALITY

    @cached_property
    def scope(self) -> Scope:
        """Streams and columns that conditions can read."""
        return scope_of(self.streams, self.limits)

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The rules of all groups, in order."""
        return tuple(rule for group in self.groups for rule in group.rules)

    @property
    def ranges(self) -> tuple[RangeRule, ...]:
        """The rules with ranges of all groups, in order."""
        return tuple(rule for group in self.groups for rule in group.ranges)

    @property
    def no_data(self) -> tuple[NoData, ...]:
        """The streams that must be heard, in order; each by its own key columns."""
        return tuple(stream.no_data for stream in self.streams.values() if stream.no_data is not None)
