"""Name check: the alerts, labels and streams that the rule files of a test declare, and errors for unknown names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from tocsin.expr import Variable, find_variables, parse_condition
from tocsin.rules.model import Rule
from tocsin.rules.no_data import NoData
from tocsin.rules.rulefile import RuleFile, Stream
from tocsin.rules.suggestions import nearest_clause

_SHOWN = 20


@dataclass
class Names:
    """Names that tests can use. If a rule file has errors (`is_whole` is false), unknown names are not reported."""

    files: Sequence[RuleFile]
    is_whole: bool
    rules: dict[str, list[tuple[RuleFile, Rule]]] = field(default_factory=dict)
    streams: dict[str, list[Stream]] = field(default_factory=dict)
    silences: dict[str, list[NoData]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Index rules and streams of all files by name."""
        for file in self.files:
            for rule in file.rules:
                self.rules.setdefault(rule.alert, []).append((file, rule))
            for silence in file.no_data:
                self.silences.setdefault(silence.alert, []).append(silence)
            for name, stream in file.streams.items():
                self.streams.setdefault(name, []).append(stream)

    def alert_error(self, name: str) -> str:
        """Return the error for an unknown alert, or an empty text."""
        if self.has(name) or not self.is_whole:
            return ""
        known = _unique([*self.rules, *self.silences])
        wanted = f"`alertname` must be an alert of the rule files{_known(known)}"
        return f"{wanted}; got {name[:60]!r}{nearest_clause(name, known)}"

    def has(self, alert: str) -> bool:
        """Return whether an alert of this name exists."""
        return alert in self.rules or alert in self.silences

    def stream_error(self, name: str, column: str | None) -> str:
        """Return the error in the stream or the column of a series, or an empty text."""
        if name not in self.streams:
            wanted = f"`series` must name a stream of the rule files{_known(self.streams)}"
            return f"{wanted}; got {name[:60]!r}{nearest_clause(name, self.streams)}" if self.is_whole else ""
        for stream in self.streams[name]:
            if stream.column(column) is None:
                columns = list(stream.values)
                if column is None:
                    return f"`series` must name a column of {name!r}, as in `{name}.{columns[0]}`{_known(columns)}"
                wanted = f"`series` must name a column of {name!r}{_known(columns)}"
                return f"{wanted}; got {column[:60]!r}{nearest_clause(column, columns)}"
        return ""

    def label_error(self, name: str, labels: Iterable[str]) -> str:
        """Return the error in the labels of a series, or an empty text. The labels must be all key columns."""
        for stream in self.streams.get(name, []):
            wanted = f"`series` must have the key columns of {name!r} as labels{_known(stream.keys)}"
            for label in labels:
                if label not in stream.keys:
                    return f"{wanted}; got {label[:60]!r}{nearest_clause(label, stream.keys)}"
            missing = [key for key in stream.keys if key not in labels]
            if missing:
                return f"{wanted}; {missing[0]!r} is missing"
        return ""

    def labels(self, alert: str) -> list[str]:
        """Return the labels that an alert can have."""
        rules = [(*rule.on, *rule.labels) for _, rule in self.rules.get(alert, ())]
        silences = [(*silence.on, *silence.all_labels) for silence in self.silences.get(alert, ())]
        return _unique(name for names in (*rules, *silences) for name in names)

    def annotations(self, alert: str) -> list[str]:
        """Return the annotations that an alert can have."""
        return _unique(name for _, rule in self.rules.get(alert, ()) for name in rule.annotations)

    def variables(self, alert: str) -> list[str]:
        """Return the variables of streams in the conditions of an alert, as written there."""
        found = (
            str(variable)
            for file, rule in self.rules.get(alert, ())
            for variable in _read(rule.expr)
            if variable.stream in file.streams
        )
        return _unique(found)

    def columns(self, alerts: Iterable[str]) -> dict[str, list[str]]:
        """Return the columns that the conditions of some alerts read, by stream."""
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
    return find_variables(parse_condition(expr))


def unknown(word: str, known: Sequence[str], message: str) -> str:
    """Return the error for a word that is not known, or an empty text."""
    return "" if word in known else f"{message}{_known(known)}; got {word[:60]!r}{nearest_clause(word, known)}"


def _unique(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))


def _known(names: Iterable[str] | Mapping[str, object]) -> str:
    """Return names as a list for a message."""
    listed = list(names)
    return f" ({', '.join(listed[:_SHOWN]) or 'none'}{', ...' if len(listed) > _SHOWN else ''})"
