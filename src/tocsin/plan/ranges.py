"""The step of a `RangeRule`: which columns are read, and how its requests are kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tocsin.errors import Diagnostics
from tocsin.expr.syntax_tree import Key
from tocsin.hashing import stable_hash
from tocsin.rules.durations import duration_text
from tocsin.rules.ranges import ID, THRESHOLD, RangeRule, ends_of
from tocsin.rules.scope import Scope
from tocsin.rules.suggestions import nearest


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
    shards: int = 1

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
        return stable_hash("ranges", self.alert, self.labels, read, self.within_us, self.is_plain, self.shards)

    def __str__(self) -> str:
        """Return the counted rows, the condition of an alert and the shards as text."""
        keys = f"keyed by {', '.join(self.on)}" if self.on else "without a key"
        what = "the number of rows" if self.weight is None else f"the sum of {self.weight}"
        since = (
            "since the registration of the request"
            if self.within_us is None
            else f"of the last {duration_text(self.within_us)}"
        )
        lines = [f"Range pipeline {keys}; requests from stream {self.requests}"]
        ranges = ", ".join(self.values)
        lines.append(
            f'  Rule "{self.alert}" if {what} of {self.data} in the requested range of {ranges} reaches its threshold'
        )
        lines.append(f"  counts rows {since}; {self._rearming()}")
        lines += [f"  {self.shards} shards; each shard reads every row and holds a share of the requests"] * (
            self.shards > 1
        )
        return "\n".join(lines)

    def _rearming(self) -> str:
        if self.rearm_us is None:
            return "a request ends when it has matured"
        when = f"{duration_text(self.rearm_us)} after it has matured" if self.rearm_us else "when it has matured"
        return f"a request starts again {when}"


def resolve_ranges(rule: RangeRule, scope: Scope, diagnostics: Diagnostics) -> list[RangeWatch]:
    """Return the range pipeline of a rule, or nothing and all errors of its columns."""
    before = len(diagnostics)
    streams = list(dict.fromkeys(_key(name)[0] for name in rule.values))
    data = streams[0] if len(streams) == 1 else None
    values = _find_values(rule, data, scope, diagnostics)
    weight = _find_weight(rule, data, scope, diagnostics)
    scope.check_keys(diagnostics, rule.on, [*streams, rule.requests], "both streams")
    if rule.requests == data and not scope.is_doubtful(data):
        message = "`requests` must differ from the stream whose rows are counted"
        diagnostics.add("not-combinable", ["requests"], message, f"`{data}` for both")
    elif scope.check_stream(diagnostics, rule.requests, rule.on, path=["requests"]):
        _check_requests(rule, values if data is not None else [], scope, diagnostics)
    if len(diagnostics) > before or data is None or {data, rule.requests} & scope.doubtful:
        return []
    pipeline = RangeWatch(
        alert=rule.alert,
        labels=tuple(sorted((str(name), str(value)) for name, value in rule.labels.items())),
        on=tuple(rule.on),
        streams=tuple(name for name in scope.columns if name in {data, rule.requests}),
        data=data,
        values=tuple(values),
        weight=weight,
        requests=rule.requests,
        within_us=rule.within_us,
        rearm_us=rule.rearm_us,
        shards=rule.shards,
    )
    return [pipeline]


def _find_values(rule: RangeRule, data: str | None, scope: Scope, diagnostics: Diagnostics) -> list[str]:
    """Return the existing columns of the ranges."""
    found, reported = list[str](), set[str]()
    for name in rule.values:
        stream = _key(name)[0]
        if stream in reported:
            continue
        column = scope.read_column(diagnostics, _key(name), rule.on, path=["values", name])
        if column is not None:
            found.append(column)
        elif stream not in scope.columns:
            reported.add(stream)
    if data is None:
        streams = sorted({_key(name)[0] for name in rule.values})
        if not any(map(scope.is_doubtful, streams)):
            message = f"`{scope.ranges_name}` must be columns of one stream"
            diagnostics.add("not-combinable", ["values"], message, ", ".join(streams))
    elif len(set(found)) < len(found):
        message = f"`{scope.ranges_name}` must list each column once"
        diagnostics.add("duplicate-name", ["values"], message, ", ".join(rule.values))
    return found


def _find_weight(rule: RangeRule, data: str | None, scope: Scope, diagnostics: Diagnostics) -> str | None:
    """Return the column of weights, if there is one. If the stream of the values is unknown, any stream is possible."""
    if rule.weight is None:
        return None
    stream, _ = key = _key(rule.weight)
    if data is not None and stream != data and data in scope.columns:
        message = f"`weight` must be a column of `{data}` like `{scope.ranges_name}`"
        diagnostics.add("not-combinable", ["weight"], message, f"`{rule.weight}`", nearest(stream, [data]))
    elif stream != data or data in scope.columns:
        return scope.read_column(diagnostics, key, rule.on, path=["weight"])
    return None


def _check_requests(rule: RangeRule, values: Sequence[str], scope: Scope, diagnostics: Diagnostics) -> None:
    """Report columns that the stream of requests lacks. Ends of several values need the columns of one stream."""
    dims = len(rule.values)
    named = [""] if dims == 1 else values
    ends = {end for value in named for end in ends_of(value, dims)}
    have = scope.columns[rule.requests]
    # A rule file declares only the values of its streams.
    wanted = [*([ID] if scope.keys is None else []), *sorted({*ends, THRESHOLD})]
    missing = [name for name in wanted if name not in have]
    if missing:
        listed, there = ", ".join(map(repr, missing)), ", ".join([*(scope.keys or {}).get(rule.requests, ()), *have])
        message = f"stream `{rule.requests}` must have the columns {listed}; its columns are {there}"
        diagnostics.add("unknown-column", ["requests"], message)


def _key(name: str) -> Key:
    stream, _, column = name.partition(".")
    return stream, column or None
