"""NoData as the user states it: which stream must be heard, how often, and by which key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tocsin.errors import NAME, Diagnostics, value_text
from tocsin.rules.durations import Duration, microseconds
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
        """Check what can be checked without the streams."""
        diagnostics = Diagnostics()
        self.check(diagnostics)
        diagnostics.raise_errors(self.location)

    def check(self, diagnostics: Diagnostics) -> None:
        """Add all errors that can be found without the streams."""
        for name in ("alert", "stream"):
            value = getattr(self, name)
            if not isinstance(value, str) or not value.strip():
                diagnostics.add("wrong-type", [name], f"`{name}` must be a name", value_text(value))
        if isinstance(self.on, str):
            object.__setattr__(self, "on", (self.on,))
        with diagnostics.at("for"):
            if not microseconds(self.for_, "`for`"):
                diagnostics.add("out-of-range", ["for"], "`for` must be longer than 0", value_text(self.for_))
        keys, labels = self.on, self.labels
        if not isinstance(keys, Sequence):
            diagnostics.add("wrong-type", ["on"], "`on` must list key columns", value_text(keys))
            keys = ()
        if not isinstance(labels, Mapping):
            diagnostics.add("wrong-type", ["labels"], "`labels` must map names to settings", value_text(labels))
            labels = {}
        for name in keys:
            check_label_name(diagnostics, name, "on", name)
        for name, value in labels.items():
            check_label(diagnostics, name, value)
            if name in keys:
                message = f"`labels` must not repeat key columns; both have {name!r}"
                diagnostics.add("duplicate-name", ["labels", name, NAME], message)
        for field_name, path in (("labels", ("labels", "stream", NAME)), ("on", ("on", "stream"))):
            if "stream" in (labels if field_name == "labels" else keys):
                message = f"`{field_name}` must not contain `stream`, the label with the name of the stream"
                diagnostics.add("reserved-name", path, message)

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


# What a plan is made of.
AnyRule = Rule | NoData | RangeRule
