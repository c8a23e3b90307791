"""Ranges as the user states them: each request on a stream of requests registers a range, or ends one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from tocsin.errors import RuleError
from tocsin.rules.durations import Duration, microseconds
from tocsin.rules.field_error import FieldError
from tocsin.rules.labels import check_annotations, check_label, check_label_name

# The label that tells the requests of a rule apart: their ids, and the columns of a request beside its ends.
QUERY = "query"
ID, ACTION, THRESHOLD = "id", "action", "threshold"
REGISTER, TERMINATE = "register", "terminate"
# A rule's requests can be spread over at most so many parts.
MOST_PARTS = 1024


@dataclass(frozen=True)
class Ranges:
    """Raise `alert` for each request once enough weight has fallen into its range.

    A row of the stream `requests` has an `id` (text or a whole number), an `action` (`register`, the default, or
    `terminate`), the ends `low` and `high` of its range (of several values `low_price`, `high_price`, ...; both belong
    to it; an end that is missing is open), and a `threshold`. All its other columns come back with the alert.

    Parameters
    ----------
    alert
        Name of the alert; each has the label `query`, the id of the request.
    values
        What ranges are over: one column of a stream, such as `trades.price`, or several of the same stream.
    requests
        The stream of requests.
    weight
        The column that says how much a row counts, whole numbers from 1 to 2^40; without it each row counts 1.
    on
        Key columns: a request counts rows of its own key only.
    within
        Count rows until the newest time of the key is so long past what it was when they came; without it all since
        the request was registered.
    rearm
        Let a request begin anew when the newest time of the key is so long past what it was when the request was
        reached; without it it is then gone.
    spread
        Into how many parts the requests of one key are divided: each part sees every row of the key, and holds its
        share of the requests. For keys with more requests than one bucket should hold.
    labels
        Labels of the alert besides the key columns and `query`.
    annotations
        Texts for people, as in a Rule.
    """

    alert: str
    values: str | Sequence[str]
    requests: str
    weight: str | None = None
    on: Sequence[str] = ()
    within: Duration | None = None
    rearm: Duration | None = None
    spread: int = 1
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
    def place(self) -> str:
        """How messages name this rule."""
        return f'rule "{self.alert}"'

    @property
    def within_us(self) -> int | None:
        """The length of the window in microseconds."""
        return None if self.within is None else microseconds(self.within, "`within`")

    @property
    def rearm_us(self) -> int | None:
        """How long a request rests after it was reached, in microseconds."""
        return None if self.rearm is None else microseconds(self.rearm, "`rearm`")

    def _refuse(self, sentence: str, *path: object) -> NoReturn:
        raise FieldError(sentence, path, place=self.place) from None

    def _check_names(self) -> None:
        for name in ("values", "on"):
            given = getattr(self, name)
            if not isinstance(given, Sequence) or not all(isinstance(one, str) and one.strip() for one in given):
                self._refuse(f"`{name}` must list names; got {given!r}", name)
        if not self.values or len(set(self.values)) < len(self.values):
            self._refuse(f"`values` must name one column or several, each once; got {list(self.values)!r}", "values")
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
        whole = isinstance(self.spread, int) and not isinstance(self.spread, bool)
        if not whole or not 1 <= self.spread <= MOST_PARTS:
            self._refuse(f"`spread` must be a whole number from 1 to {MOST_PARTS}; got {self.spread!r}", "spread")

    def _check_labels(self) -> None:
        for name in ("labels", "annotations"):
            if not isinstance(getattr(self, name), Mapping):
                self._refuse(f"`{name}` must map names to settings; got {getattr(self, name)!r}", name)
        for name in self.on:
            check_label_name(name, self.place, "on", name)
            if name == QUERY:
                self._refuse(f"`on` must leave the label `{QUERY}` to the id of the request", "on", name)
            if name in {ID, ACTION}:
                self._refuse(f"`on` must leave the column `{name}` to what a request says", "on", name)
        for name, value in self.labels.items():
            check_label(name, value, self.place)
            if name == QUERY or name in self.on:
                sentence = f"`labels` must repeat neither key columns nor `{QUERY}`; got {name!r}"
                self._refuse(sentence, "labels", name, "name")
        check_annotations(self.annotations, [*self.on, *self.labels, QUERY], self.place)


def ends_of(column: str, dims: int) -> tuple[str, str]:
    """Name the columns of a request that have the ends of the range over a value column.

    >>> ends_of("price", 1), ends_of("price", 2)
    (('low', 'high'), ('low_price', 'high_price'))
    """
    return ("low", "high") if dims == 1 else (f"low_{column}", f"high_{column}")
