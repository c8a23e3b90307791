"""Range rule of the user: each request on a stream of requests registers a range, or ends one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from tocsin.errors import RuleError
from tocsin.rules.durations import Duration, microseconds
from tocsin.rules.field_error import FieldError
from tocsin.rules.labels import check_annotations, check_label, check_label_name
from tocsin.rules.renamed import reject_renamed_parameters

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
        """Check what can be checked without knowing the streams."""
        if not isinstance(self.alert, str) or not self.alert.strip():
            sentence = f"`alert` must be a name; got {self.alert!r}"
            raise FieldError(sentence, ["alert"])
        for name in ("values", "on"):
            if isinstance(getattr(self, name), str):
                object.__setattr__(self, name, (getattr(self, name),))
        self._check_names()
        self._check_numbers()
        self._check_labels()

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

    def _refuse(self, sentence: str, *path: object) -> NoReturn:
        raise FieldError(sentence, path, location=self.location) from None

    def _check_names(self) -> None:
        for name in ("values", "on"):
            given = getattr(self, name)
            if not isinstance(given, Sequence) or not all(isinstance(one, str) and one.strip() for one in given):
                self._refuse(f"`{name}` must list names; got {given!r}", name)
        if not self.values or len(set(self.values)) < len(self.values):
            self._refuse(f"`values` must list one or more columns, each once; got {list(self.values)!r}", "values")
        if not isinstance(self.requests, str) or not self.requests.strip():
            self._refuse(f"`requests` must be a stream; got {self.requests!r}", "requests")
        if self.weight is not None and not isinstance(self.weight, str):
            self._refuse(f"`weight` must name a column; got {self.weight!r}", "weight")

    def _check_numbers(self) -> None:
        for name in ("within", "rearm"):
            if getattr(self, name) is None:
                continue
            try:
                length = microseconds(getattr(self, name), f"`{name}`")
            except RuleError as error:
                self._refuse(str(error), name)
            if name == "within" and length == 0:
                self._refuse(f"`within` must be longer than 0; got {self.within!r}", "within")
        whole = isinstance(self.shards, int) and not isinstance(self.shards, bool)
        if not whole or not 1 <= self.shards <= MOST_SHARDS:
            self._refuse(f"`shards` must be an integer from 1 to {MOST_SHARDS}; got {self.shards!r}", "shards")

    def _check_labels(self) -> None:
        for name in ("labels", "annotations"):
            if not isinstance(getattr(self, name), Mapping):
                self._refuse(f"`{name}` must map names to settings; got {getattr(self, name)!r}", name)
        for name in self.on:
            check_label_name(name, self.location, "on", name)
            if name == QUERY:
                self._refuse(f"`on` must not contain `{QUERY}`, the label with the id of the request", "on", name)
            if name in {ID, ACTION}:
                self._refuse(f"`on` must not contain `{name}`, a column of requests", "on", name)
        for name, value in self.labels.items():
            check_label(name, value, self.location)
            if name == QUERY or name in self.on:
                sentence = f"`labels` must not contain key columns or `{QUERY}`; got {name!r}"
                self._refuse(sentence, "labels", name, "name")
        check_annotations(self.annotations, [*self.on, *self.labels, QUERY], self.location)


def ends_of(column: str, dims: int) -> tuple[str, str]:
    """Name the columns of a request that have the ends of the range over a value column.

    >>> ends_of("price", 1), ends_of("price", 2)
    (('low', 'high'), ('low_price', 'high_price'))
    """
    return ("low", "high") if dims == 1 else (f"low_{column}", f"high_{column}")
