"""NoData as the user states it: which stream must be heard, how often, and by which key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from tocsin.errors import RuleError
from tocsin.rules.durations import Duration, microseconds
from tocsin.rules.field_error import FieldError
from tocsin.rules.labels import check_label, check_label_name
from tocsin.rules.model import Rule
from tocsin.rules.ranges import RangeRule


@dataclass(frozen=True)
class NoData:
    """No-data rule: raise `alert` for each key of a stream without rows.

    Parameters
    ----------
    stream
        Name of the stream. A row with a time and a key counts, even if its values are invalid.
    for_
        Distance of event time from the newest row of a key at which the alert fires. Rows of the key in all streams
        with the same key columns advance event time; without rows, processing time advances it.
    on
        Key columns; without key columns, the stream as a whole.
    labels
        Labels of the alert in addition to the key columns and `stream`.
    alert
        Name of the alert.
    """

    stream: str
    for_: Duration
    on: Sequence[str] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    alert: str = "NoData"

    def __post_init__(self) -> None:
        """Check what can be checked without knowing the streams."""
        for name in ("alert", "stream"):
            if not isinstance(getattr(self, name), str) or not getattr(self, name).strip():
                sentence = f"`{name}` must be a name; got {getattr(self, name)!r}"
                raise FieldError(sentence, [name])
        if isinstance(self.on, str):
            object.__setattr__(self, "on", (self.on,))
        if not isinstance(self.on, Sequence):
            self._refuse(f"`on` must list key columns; got {self.on!r}", "on")
        if not isinstance(self.labels, Mapping):
            self._refuse(f"`labels` must map names to settings; got {self.labels!r}", "labels")
        self._check_length()
        self._check_labels()

    @property
    def location(self) -> str:
        """Name of the rule in messages."""
        return f'rule "{self.alert}" of stream "{self.stream}"'

    @property
    def for_us(self) -> int:
        """Duration `for_` in microseconds."""
        return microseconds(self.for_, "`for`")

    @property
    def all_labels(self) -> dict[str, str]:
        """Labels of the rule, with the label `stream`."""
        return {**{str(name): str(value) for name, value in self.labels.items()}, "stream": self.stream}

    def _refuse(self, sentence: str, *path: object) -> NoReturn:
        raise FieldError(sentence, path, location=self.location) from None

    def _check_length(self) -> None:
        try:
            length = microseconds(self.for_, "`for`")
        except RuleError as error:
            self._refuse(str(error), "for")
        if length == 0:
            self._refuse(f"`for` must be longer than 0; got {self.for_!r}", "for")

    def _check_labels(self) -> None:
        for name in self.on:
            check_label_name(name, self.location, "on", name)
        for name, value in self.labels.items():
            check_label(name, value, self.location)
            if name in self.on:
                self._refuse(f"`labels` must not repeat key columns; both have {name!r}", "labels", name, "name")
        if "stream" in self.labels:
            self._refuse(
                "`labels` must not contain `stream`, the label with the name of the stream", "labels", "stream", "name"
            )
        if "stream" in self.on:
            self._refuse("`on` must not contain `stream`, the label with the name of the stream", "on", "stream")


# What a plan is made of.
AnyRule = Rule | NoData | RangeRule
