"""The step of a `RangeRule`: which columns are read, and how its requests are kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from tocsin.errors import RuleError
from tocsin.expr.syntax_tree import Key
from tocsin.hashing import stable_hash
from tocsin.plan.columns import Columns, Special, are_all, check_stream, column_of
from tocsin.rules.durations import duration_text
from tocsin.rules.field_error import FieldError, FieldErrors
from tocsin.rules.nearest import nearest
from tocsin.rules.ranges import ID, THRESHOLD, RangeRule, ends_of


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


def resolve_ranges(rule: RangeRule, columns: Columns, special: Special) -> RangeWatch:
    """Find the columns of a rule, or say all that is wrong with them."""
    wrong = _Wrong(rule)
    values = _find_values(wrong, columns, special)
    data = wrong.data
    weight = _find_weight(wrong, columns, special)
    with wrong.told_at("requests"):
        check_stream(rule, rule.requests, columns, special)
        if rule.requests == data:
            wrong.tell(
                f"`requests` must differ from the stream whose rows are counted; got `{data}` for both", "requests"
            )
        else:
            _check_requests(wrong, values, columns, special)
    if wrong.errors:
        raise FieldErrors(list({str(error): error for error in wrong.errors}.values()))
    assert data is not None
    return RangeWatch(
        alert=rule.alert,
        labels=tuple(sorted((str(name), str(value)) for name, value in rule.labels.items())),
        on=tuple(rule.on),
        streams=tuple(name for name in columns if name in {data, rule.requests}),
        data=data,
        values=tuple(values),
        weight=weight,
        requests=rule.requests,
        within_us=rule.within_us,
        rearm_us=rule.rearm_us,
        shards=rule.shards,
    )


class _Wrong:
    """What is wrong with a rule, each mistake with the field that it is in."""

    def __init__(self, rule: RangeRule) -> None:
        self.rule, self.errors = rule, list[FieldError]()

    @property
    def data(self) -> str | None:
        """The stream whose rows are counted, if it is one."""
        streams = {_key(name)[0] for name in self.rule.values}
        return streams.pop() if len(streams) == 1 else None

    def tell(self, sentence: str, *path: object) -> None:
        """Note a mistake."""
        self.errors.append(FieldError(sentence, path, location=self.rule.location))

    @contextmanager
    def told_at(self, *path: object) -> Iterator[None]:
        """Note a mistake that is raised, and go on behind."""
        try:
            yield
        except RuleError as error:
            self.tell(str(error).removeprefix(f"{self.rule.location}: "), *path)


def _find_values(wrong: _Wrong, columns: Columns, special: Special) -> list[str]:
    """The columns that ranges are over, as far as they are there."""
    rule, found = wrong.rule, list[str]()
    for name in rule.values:
        with wrong.told_at("values", name):
            found.append(column_of(rule, _key(name), columns, special))
    if wrong.data is None:
        streams = sorted({_key(name)[0] for name in rule.values})
        wrong.tell(f"`values` must be columns of one stream; got {', '.join(streams)}", "values")
    elif len(set(found)) < len(found):
        wrong.tell(f"`values` must list each column once; got {', '.join(rule.values)}", "values")
    return found


def _find_weight(wrong: _Wrong, columns: Columns, special: Special) -> str | None:
    """The column of weights, if there is one; where the stream of the values is none, it may be of any."""
    rule, data = wrong.rule, wrong.data
    if rule.weight is None:
        return None
    stream, _ = key = _key(rule.weight)
    if data is not None and stream != data and data in columns:
        got = f"got `{rule.weight}`{nearest(stream, [data])}"
        wrong.tell(f"`weight` must be a column of `{data}` like `values`; {got}", "weight")
    elif stream != data or data in columns:
        with wrong.told_at("weight"):
            return column_of(rule, key, columns, special)
    return None


def _check_requests(wrong: _Wrong, values: Sequence[str], columns: Columns, special: Special) -> None:
    """Refuse a stream of requests that lacks columns; ends of several values are known by those of one stream alone."""
    rule, dims = wrong.rule, len(wrong.rule.values)
    named = [""] if dims == 1 else values if wrong.data is not None else []
    ends = {end for value in named for end in ends_of(value, dims)}
    have = columns[rule.requests]
    # Of the streams of a rule file only values are known here.
    wanted = [*([ID] if are_all(special) else []), *sorted({*ends, THRESHOLD})]
    missing = [name for name in wanted if name not in have]
    if missing:
        listed, there = ", ".join(map(repr, missing)), ", ".join(name for name in have if not name.startswith(" "))
        message = f"stream `{rule.requests}` must have the columns {listed}; its columns are {there}"
        wrong.tell(message, "requests")


def _key(name: str) -> Key:
    stream, _, column = name.partition(".")
    return stream, column or None
