"""What the rule files of a test file offer: alerts, their labels, streams; and what is wrong with a name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from tocsin.expr import Variable, parse_condition, variables
from tocsin.rules.model import Rule
from tocsin.rules.nearest import nearest
from tocsin.rules.no_data import NoData
from tocsin.rules.rulefile import RuleFile, Stream

_SHOWN = 20


@dataclass
class Names:
    """The names that tests may use; if a rule file could not be read, nothing is called unknown."""

    files: Sequence[RuleFile]
    is_whole: bool
    rules: dict[str, list[tuple[RuleFile, Rule]]] = field(default_factory=dict)
    streams: dict[str, list[Stream]] = field(default_factory=dict)
    silences: dict[str, list[NoData]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Gather rules and streams of all files by name."""
        for file in self.files:
            for rule in file.rules:
                self.rules.setdefault(rule.alert, []).append((file, rule))
            for silence in file.no_data:
                self.silences.setdefault(silence.alert, []).append(silence)
            for name, stream in file.streams.items():
                self.streams.setdefault(name, []).append(stream)

    def alert_mistake(self, name: str) -> str:
        """Say what is wrong with the name of an alert; nothing if it is known."""
        if self.has(name) or not self.is_whole:
            return ""
        known = _unique([*self.rules, *self.silences])
        wanted = f"`alertname` must be an alert of the rule files{_known(known)}"
        return f"{wanted}; got {name[:60]!r}{nearest(name, known)}"

    def has(self, alert: str) -> bool:
        """Whether the name is that of an alert."""
        return alert in self.rules or alert in self.silences

    def stream_mistake(self, name: str, column: str | None) -> str:
        """Say what is wrong with the stream and the column of a series."""
        if name not in self.streams:
            wanted = f"`series` must name a stream of the rule files{_known(self.streams)}"
            return f"{wanted}; got {name[:60]!r}{nearest(name, self.streams)}" if self.is_whole else ""
        for stream in self.streams[name]:
            if stream.column(column) is None:
                columns = list(stream.values)
                if column is None:
                    return f"`series` must name a column of {name!r}, as in `{name}.{columns[0]}`{_known(columns)}"
                wanted = f"`series` must name a column of {name!r}{_known(columns)}"
                return f"{wanted}; got {column[:60]!r}{nearest(column, columns)}"
        return ""

    def label_mistake(self, name: str, labels: Iterable[str]) -> str:
        """Say what is wrong with the labels of a series: they are the key columns, all of them."""
        for stream in self.streams.get(name, []):
            wanted = f"`series` must have the key columns of {name!r} as labels{_known(stream.keys)}"
            for label in labels:
                if label not in stream.keys:
                    return f"{wanted}; got {label[:60]!r}{nearest(label, stream.keys)}"
            missing = [key for key in stream.keys if key not in labels]
            if missing:
                return f"{wanted}; {missing[0]!r} is missing"
        return ""

    def labels(self, alert: str) -> list[str]:
        """The labels that an alert may have."""
        rules = [(*rule.on, *rule.labels) for _, rule in self.rules.get(alert, ())]
        silences = [(*silence.on, *silence.all_labels) for silence in self.silences.get(alert, ())]
        return _unique(name for names in (*rules, *silences) for name in names)

    def annotations(self, alert: str) -> list[str]:
        """The annotations that an alert may have."""
        return _unique(name for _, rule in self.rules.get(alert, ()) for name in rule.annotations)

    def variables(self, alert: str) -> list[str]:
        """The variables that the conditions of an alert read, as they write them; limits are none."""
        found = (
            str(variable)
            for file, rule in self.rules.get(alert, ())
            for variable in _read(rule.expr)
            if variable.stream in file.streams
        )
        return _unique(found)

    def columns(self, alerts: Iterable[str]) -> dict[str, list[str]]:
        """The columns that the conditions of some alerts read, by stream."""
        read: dict[str, list[str]] = {}
        for file, rule in (pair for alert in alerts for pair in self.rules.get(alert, [])):
            for variable in _read(rule.expr):
                stream = file.streams.get(variable.stream)
                column = stream.column(variable.column) if stream else None
                if column is not None and column not in read.setdefault(variable.stream, []):
                    read[variable.stream].append(column)
        return read


@lru_cache(maxsize=1024)
def _read(expr: str) -> tuple[Variable, ...]:
    return variables(parse_condition(expr))


def unknown(word: str, known: Sequence[str], what: str) -> str:
    """Say that a word is not among those that are known; nothing if it is."""
    return "" if word in known else f"{what}{_known(known)}; got {word[:60]!r}{nearest(word, known)}"


def _unique(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))


def _known(names: Iterable[str] | Mapping[str, object]) -> str:
    """List names for a message."""
    listed = list(names)
    return f" ({', '.join(listed[:_SHOWN]) or 'there are none'}{', ...' if len(listed) > _SHOWN else ''})"
