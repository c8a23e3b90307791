"""Model of a test file: frozen objects with expanded series and checked names. Times count from time 0."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tocsin.formatting import format_labels
from tocsin.rules.rulefile import RuleFile
from tocsin.runtime.contract import Int
from tocsin.testing.series_notation import Samples


@dataclass(frozen=True)
class Series:
    """Samples of one column of a stream for one key; `column` is None if the series names the stream only."""

    stream: str
    column: str | None
    labels: Mapping[str, str]
    samples: Samples
    delays_us: Int

    def __str__(self) -> str:
        """Return the name in the notation of test files."""
        return f"{self.stream}{'' if self.column is None else f'.{self.column}'}{format_labels(self.labels)}"


@dataclass(frozen=True)
class Expected:
    """An expected alert. A test does not compare the attributes with the value None."""

    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    state: str | None = None
    value: float | None = None
    margin: float | None = None
    starts_at_us: int | None = None
    witness: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """Expected alerts of one name at one time."""

    eval_time_us: int
    alertname: str
    expected: tuple[Expected, ...]
    line: int


@dataclass(frozen=True)
class Scenario:
    """One test: input series and test cases."""

    name: str
    line: int
    interval_us: int
    start_us: int
    series: tuple[Series, ...]
    cases: tuple[Case, ...]

    @property
    def samples(self) -> int:
        """Number of samples up to the last evaluation time."""
        last = max((case.eval_time_us for case in self.cases), default=0) // self.interval_us
        return sum(min(len(series.samples), last + 1) for series in self.series)


@dataclass(frozen=True)
class Suite:
    """Content of a test file."""

    path: str
    files: tuple[RuleFile, ...]
    scenarios: tuple[Scenario, ...]
    fuzzy: bool = False
