"""A test file as it was meant: frozen objects, series expanded, every name known; times count from time 0."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tocsin.logic import Int
from tocsin.rules.rulefile import RuleFile
from tocsin.testing.series import Samples


@dataclass(frozen=True)
class Series:
    """Samples of one column of a stream for one key; `column` is None where the stream alone is named."""

    stream: str
    column: str | None
    labels: Mapping[str, str]
    samples: Samples
    delays_us: Int

    def __str__(self) -> str:
        """Write the name as a test file does."""
        return f"{self.stream}{'' if self.column is None else f'.{self.column}'}{labels_text(self.labels)}"


@dataclass(frozen=True)
class Expected:
    """An alert that should be there; what is None is not compared."""

    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    state: str | None = None
    value: float | None = None
    margin: float | None = None
    starts_at_us: int | None = None
    witness: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """The alerts of one name at one time."""

    eval_time_us: int
    alertname: str
    expected: tuple[Expected, ...]
    line: int


@dataclass(frozen=True)
class Scenario:
    """One test: series, and what is expected of them."""

    name: str
    line: int
    interval_us: int
    start_us: int
    series: tuple[Series, ...]
    cases: tuple[Case, ...]

    @property
    def samples(self) -> int:
        """How many samples there are up to the last time asked for."""
        last = max((case.eval_time_us for case in self.cases), default=0) // self.interval_us
        return sum(min(len(series.samples), last + 1) for series in self.series)


@dataclass(frozen=True)
class Suite:
    """All that a test file says."""

    path: str
    files: tuple[RuleFile, ...]
    scenarios: tuple[Scenario, ...]
    fuzzy: bool = False


def labels_text(labels: Mapping[str, str]) -> str:
    """Write labels as Prometheus does.

    >>> labels_text({"severity": "critical", "machine": "m1"})
    '{machine="m1", severity="critical"}'
    """
    quoted = (f'{name}="{_escaped(value)}"' for name, value in sorted(labels.items()))
    return f"{{{', '.join(quoted)}}}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
