"""Range rule of the user: each request on a stream of requests registers a range, or ends one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tocsin.errors import NAME, Diagnostics, value_text
from tocsin.rules.durations import Duration, microseconds
from tocsin.rules.labels import check_annotations, check_label, check_label_name
from tocsin.rules.suggestions import reject_renamed_parameters

# The label that tells the requests of a rule apart: their ids, and the columns of a request beside its ends.
QUERY = "query"
ID, ACTION, THRESHOLD = "id", "action", "threshold"
REGISTER, TERMINATE = "register", "terminate"
# Largest number of shards of a rule.
MOST_SHARDS = 1024


@reject_renamed_parameters
@dataclass(frozen=True)
class RangeRule:
    """Range rule: raise `alert` for each request when the weight in its range reaches its threshold.

    A row of the stream `requests` has an `id` (text or an integer), an `action` (`register`, the default, or
    `terminate`), the inclusive ends `low` and `high` of its range (for several values `low_price`, `high_price`, ...;
    a missing end is open), and a `threshold`. The alert returns all other columns.

    Parameters
    ----------
    alert
        Name of the alert; each has the label `query`, the id of the request.
    values
        Columns of the ranges: one column of a stream, such as `trades.price`, or several columns of this stream.
    requests
        The stream of requests.
    weight
        Column with the weight of a row, an integer from 1 to 2^40; without it each row counts 1.
    on
        Key columns: a request counts the rows of its key.
    within
        Count a row until the newest time of the key has advanced by this duration since its arrival; without it, all
        rows since the registration count.
    rearm
        Register a matured request again when the newest time of the key has advanced by this duration; without it, a
        matured request ends.
    shards
        Number of shards over which the requests of one key are distributed. Each shard receives every row of the key
        and holds its share of the requests. Use shards for keys with very many requests.
    labels
        Labels of the alert besides the key columns and `query`.
    annotations
        Texts with templates, as in a Rule.
    """

    alert: str
    values: str | Sequence[str]
    requests: str
    weight: str | None = None
    on: Sequence[str] = ()
    within: Duration | None = None
    rearm: Duration | None = None
    shards: int = 1
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check what can be checked without the streams."""
        diagnostics = Diagnostics()
        self.check(diagnostics)
        diagnostics.raise_errors(self.location)

    def check(self, diagnostics: Diagnostics) -> None:
        """Add all errors that can be found without the streams."""
        if not isinstance(self.alert, str) or not self.alert.strip():
            diagnostics.add("wrong-type", ["alert"], "`alert` must be a name", value_text(self.alert))
        for name in ("values", "on"):
            if isinstance(getattr(self, name), str):
                object.__setattr__(self, name, (getattr(self, name),))
        self._check_names(diagnostics)
        self._check_numbers(diagnostics)
        self._check_labels(diagnostics)

    @property
    def location(self) -> str:
        """Name of the rule in messages."""
        return f'rule "{self.alert}"'

    @property
    def within_us(self) -> int | None:
        """Duration `within` in microseconds."""
        return None if self.within is None else microseconds(self.within, "`within`")

    @property
    def rearm_us(self) -> int | None:
        """Duration `rearm` in microseconds."""
        return None if self.rearm is None else microseconds(self.rearm, "`rearm`")

    def _check_names(self, diagnostics: Diagnostics) -> None:
        for name in ("values", "on"):
            given = getattr(self, name)
            if not isinstance(given, Sequence) or not all(isinstance(one, str) and one.strip() for one in given):
                diagnostics.add("wrong-type", [name], f"`{name}` must list names", value_text(given))
            elif name == "values" and (not given or len(set(given)) < len(given)):
                message = "`values` must list one or more columns, each once"
                diagnostics.add("duplicate-name", [name], message, value_text(list(given)))
        if not isinstance(self.requests, str) or not self.requests.strip():
            diagnostics.add("wrong-type", ["requests"], "`requests` must be a stream", value_text(self.requests))
        if self.weight is not None and not isinstance(self.weight, str):
            diagnostics.add("wrong-type", ["weight"], "`weight` must name a column", value_text(self.weight))

    def _check_numbers(self, diagnostics: Diagnostics) -> None:
        for name in ("within", "rearm"):
            value = getattr(self, name)
            if value is None:
                continue
            with diagnostics.at(name):
                if not microseconds(value, f"`{name}`") and name == "within":
                    diagnostics.add("out-of-range", [name], "`within` must be longer than 0", value_text(value))
        whole = isinstance(self.shards, int) and not isinstance(self.shards, bool)
        if not whole or not 1 <= self.shards <= MOST_SHARDS:
            message = f"`shards` must be an integer from 1 to {MOST_SHARDS}"
            diagnostics.add("out-of-range", ["shards"], message, value_text(self.shards))

    def _check_labels(self, diagnostics: Diagnostics) -> None:
        given: dict[str, Mapping[str, Any]] = {"labels": {}, "annotations": {}}
        for name in given:
            value = getattr(self, name)
            if isinstance(value, Mapping):
                given[name] = value
            else:
                diagnostics.add("wrong-type", [name], f"`{name}` must map names to settings", value_text(value))
        keys = self.on if isinstance(self.on, Sequence) else ()
        for name in keys:
            check_label_name(diagnostics, name, "on", name)
            if name in {QUERY, ID, ACTION}:
                what = "the label with the id of the request" if name == QUERY else "a column of requests"
                diagnostics.add("reserved-name", ["on", name], f"`on` must not contain `{name}`, {what}")
        for name, value in given["labels"].items():
            check_label(diagnostics, name, value)
            if name == QUERY or name in keys:
                message = f"`labels` must not contain key columns or `{QUERY}`"
                diagnostics.add("reserved-name", ["labels", name, NAME], message, repr(name))
        check_annotations(diagnostics, given["annotations"], [*keys, *given["labels"], QUERY])


def ends_of(column: str, dims: int) -> tuple[str, str]:
    """Name the columns of a request that have the ends of the range over a value column.

    >>> ends_of("price", 1), ends_of("price", 2)
    (('low', 'high'), ('low_price', 'high_price'))
    """
    return ("low", "high") if dims == 1 else (f"low_{column}", f"high_{column}")
