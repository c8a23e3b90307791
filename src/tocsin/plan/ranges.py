"""The step of a `Ranges` rule: which columns are read, and how its requests are kept."""

from __future__ import annotations

from dataclasses import dataclass

from tocsin.errors import RuleError
from tocsin.expr.nodes import Key
from tocsin.plan.columns import Columns, Special, are_all, check_stream, column_of
from tocsin.plan.identity import digest
from tocsin.rules.durations import duration_text
from tocsin.rules.ranges import ID, THRESHOLD, Ranges, ends_of


@dataclass(frozen=True)
class RangeWatch:
    """The requests of one rule over the rows of one stream, by key.

    `streams` are its two streams in the order in which they are declared, which is that of rows that arrive together.
    """

    alert: str
    labels: tuple[tuple[str, str], ...]
    on: tuple[str, ...]
    streams: tuple[str, ...]
    data: str
    values: tuple[str, ...]
    weight: str | None
    requests: str
    within_us: int | None = None
    rearm_us: int | None = None
    spread: int = 1

    @property
    def is_plain(self) -> bool:
        """Tell whether only the rows since its registration matter to a request, and it ends when it is reached."""
        return self.within_us is None and self.rearm_us is None

    @property
    def ends(self) -> list[str]:
        """The columns of a request that have the ends of its range, low and high of each value."""
        return [name for column in self.values for name in ends_of(column, len(self.values))]

    def columns(self, stream: str) -> list[str]:
        """The value columns that are read of a stream, each once."""
        if stream == self.requests:
            return sorted({*self.ends, THRESHOLD})
        return sorted({*self.values, *([] if self.weight is None else [self.weight])})

    def read_by_all(self, stream: str) -> set[str]:
        """The value columns of a stream that do not travel as payload."""
        return set(self.columns(stream))

    def is_only_heard(self, stream: str) -> bool:
        """Tell whether nothing but time and key of a stream matters: of neither."""
        return stream not in self.streams

    @property
    def counted(self) -> tuple[tuple[str, str], ...]:
        """The names under which rows are counted, each with its stream."""
        return tuple((name, name) for name in self.streams)

    @property
    def name(self) -> str:
        """By what its pages are found again: all that its requests mean, but for how long they rest."""
        read = [self.on, self.data, self.values, self.weight, self.requests]
        return digest("ranges", self.alert, self.labels, read, self.within_us, self.is_plain, self.spread)

    def __str__(self) -> str:
        """Say what is counted and when it alerts."""
        keys = f"on {', '.join(self.on)}" if self.on else "without a key"
        what = "rows" if self.weight is None else self.weight
        since = (
            "since each was registered" if self.within_us is None else f"of the last {duration_text(self.within_us)}"
        )
        lines = [f"Ranges {keys}; requests from {self.requests}"]
        ranges = ", ".join(self.values)
        lines.append(f'  alert "{self.alert}" when enough {what} of {self.data} fell into a range of {ranges}')
        lines.append(f"  counted {since}; {self._rearming()}")
        lines += [f"  spread over {self.spread} parts, each with every row and its share of the requests"] * (
            self.spread > 1
        )
        return "\n".join(lines)

    def _rearming(self) -> str:
        if self.rearm_us is None:
            return "a request that is reached is gone"
        when = f"after {duration_text(self.rearm_us)}" if self.rearm_us else "at once"
        return f"a request that is reached begins anew {when}"


def resolve_ranges(rule: Ranges, columns: Columns, special: Special) -> RangeWatch:
    """Find the columns of a rule, or say which is missing."""
    values = {_key(name): column_of(rule, _key(name), columns, special) for name in rule.values}
    streams = {stream for stream, _ in values}
    if len(streams) > 1:
        message = f"{rule.place}: `values` must be columns of one stream; got {', '.join(sorted(streams))}"
        raise RuleError(message)
    (data,) = streams
    if len(set(values.values())) < len(values):
        message = f"{rule.place}: `values` must name each column once; got {', '.join(rule.values)}"
        raise RuleError(message)
    weight = None if rule.weight is None else column_of(rule, _key(rule.weight), columns, special)
    if rule.weight is not None and _key(rule.weight)[0] != data:
        message = f"{rule.place}: `weight` must be a column of `{data}`, as `values` are; got `{rule.weight}`"
        raise RuleError(message)
    check_stream(rule, rule.requests, columns, special)
    if rule.requests == data:
        message = f"{rule.place}: `requests` must be a stream of its own; got `{data}`, whose rows are counted"
        raise RuleError(message)
    watch = RangeWatch(
        alert=rule.alert,
        labels=tuple(sorted((str(name), str(value)) for name, value in rule.labels.items())),
        on=tuple(rule.on),
        streams=tuple(name for name in columns if name in {data, rule.requests}),
        data=data,
        values=tuple(values.values()),
        weight=weight,
        requests=rule.requests,
        within_us=rule.within_us,
        rearm_us=rule.rearm_us,
        spread=rule.spread,
    )
    have = columns[rule.requests]
    # Of the streams of a rule file only values are known here.
    wanted = [*([ID] if are_all(special) else []), *watch.columns(rule.requests)]
    missing = [name for name in wanted if name not in have]
    if missing:
        listed, there = ", ".join(map(repr, missing)), ", ".join(name for name in have if not name.startswith(" "))
        message = f"{rule.place}: stream `{rule.requests}` must have the columns {listed} of requests; it has {there}"
        raise RuleError(message)
    return watch


def _key(name: str) -> Key:
    stream, _, column = name.partition(".")
    return stream, column or None
