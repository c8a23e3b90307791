"""The contract between algorithms and engines: Step, Pipeline, Batch, Out.

An engine runs any plan and knows no algorithm. It creates a `Session` (`runtime/session.py`) from a step and its state
pages. The session builds the pipelines of the step and passes rows, time and the end of input to them. The engine
stores the pages that changed. There is one engine call per bucket and batch, not per key.

Laws that every pipeline obeys (tests/test_laws.py): any split of the input into batches gives the same output rows;
pages written and read back at any point change nothing; input arrays are not written to; an empty batch is fine; for
every stream and key set received = held + retained + expired + omitted + duplicates + shed + late + quarantined +
unprocessed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from tocsin.runtime.metrics import Metrics

if TYPE_CHECKING:
    from tocsin.runtime.alert_batch import AlertBatch

Int = NDArray[np.int64]
Float = NDArray[np.float64]
Bools = NDArray[np.bool_]
Pages = Mapping[str, bytes]

# Times that a row may have: years 1 to 9999, which datetimes and Spark can both write.
FIRST_US, LAST_US = -62_135_596_800_000_000, 253_402_300_799_999_999
# The time of what was never there: below every time that a row can have, and far enough from the end for sums.
NEVER_SEEN = -(1 << 62)
# Serial number at which a row leaves the state that never leaves it.
NEVER = np.iinfo(np.int64).max

# Columns of an alert that hold times. The first one is always there.
ALERT_TIMES = ("startsAt", "firesAt", "endsAt")


class Payload(Protocol):
    """What travels along with the rows of a batch: a JSON text per row, or None; made when it is asked for."""

    def take(self, positions: Int, /) -> Sequence[str | None] | NDArray[Any]:
        """Give the texts of the rows at some positions."""


@dataclass(frozen=True)
class Batch:
    """Rows of one stream and one key set, in columns of equal length; the arrays are the engine's: read, never write.

    `key` numbers the keys inside this batch and `keys[key]` is the key itself (a tuple of strings), `time` is event
    time in microseconds, `arrival` orders the rows of all batches of one call (and of no other), `values` has a column
    per value read (not finite where a row lacks it), `payload` gives the text of any of its rows, or is None where no
    row has one.
    """

    key_set: int
    stream: str
    keys: Sequence[tuple[str, ...]]
    key: Int
    time: Int
    arrival: Int
    values: Mapping[str, Float]
    payload: Payload | None = None
    quarantined: int = 0


@dataclass
class Out:
    """Output of one call, or of several calls.

    Attributes
    ----------
    alerts
        Alert batches.
    late
        Rows that arrived too late, and rows that were used out of order.
    dead
        Invalid rows with their stream, the reason and their text.
    metrics
        Values of `METRICS`.
    reports
        Reports of this bucket for the coordinator, as JSON objects: statistics for a common reorder wait, and the
        results that memory achieves.
    answers
        Result rows of a selection or an aggregate query, as JSON objects.
    """

    alerts: list[AlertBatch] = field(default_factory=list)
    late: list[dict[str, Any]] = field(default_factory=list)
    dead: list[dict[str, Any]] = field(default_factory=list)
    metrics: Metrics = field(default_factory=Metrics)
    reports: list[dict[str, Any]] = field(default_factory=list)
    answers: list[dict[str, Any]] = field(default_factory=list)

    def alert_rows(self) -> list[dict[str, Any]]:
        """Return all alert rows as dicts with the public column names and times in microseconds."""
        return list(chain.from_iterable(batch.rows() for batch in self.alerts))

    @property
    def counts(self) -> dict[str, dict[str, int]]:
        """Row counts by input view and name."""
        counts: dict[str, dict[str, int]] = self.metrics.section("counts")
        return counts

    def add(self, later: Out) -> None:
        """Add the output of a later call of the same bucket."""
        self._extend(later)
        self.metrics.advance(later.metrics)

    def add_bucket(self, other: Out) -> None:
        """Add the output of another bucket."""
        self._extend(other)
        self.metrics.merge(other.metrics)

    def _extend(self, other: Out) -> None:
        self.alerts += other.alerts
        self.answers += other.answers
        self.answers += other.answers
        self.late += other.late
        self.dead += other.dead
        self.reports += other.reports


class EvaluatedRows(NamedTuple):
    """Evaluations of one rule in processing order: the best combination of each row that completed one.

    Attributes
    ----------
        stream: Number of the row's stream in the order of the rule.
        row: Row that was evaluated.
        partners: Rows of the combination, one column per stream of the rule.
        is_true, is_holding: State of the condition. A holding condition is not true, but is not past recovery.
        is_late: The row was out of order.
    """

    stream: Int
    row: Int
    partners: Int
    margin: Float
    value: Float
    is_true: Bools
    is_holding: Bools
    is_late: Bools


class Listener(Protocol):
    """Receiver of row outcomes and evaluations, for traces. Its session processes one push.

    A row is its position in the rows of its stream. A store number is a position in `Watch.stores`, a rule number is a
    position in `Watch.rules`. Ranks are positions in the order of arrival of all rows.
    """

    def on_entered(self, store: int, rows: Int, ranks: Int, silent: Bools, repeated: Bools) -> None:
        """Receive rows that entered a store. A silent row is not evaluated; a repeated row is a duplicate."""

    def on_reduced(self, store: int, rows: Int, left: Int, retained: Int) -> None:
        """Receive the omission rank of each row (`NEVER` for a retained row), and the rows that remain."""

    def on_evaluated(self, rule: int, evaluations: EvaluatedRows) -> None:
        """Receive evaluations of a rule."""


class Pipeline(Protocol):
    """Execution of one part of a plan, with its state. `Session` calls it; it must not keep references to batches."""

    @property
    def inputs(self) -> Mapping[tuple[int, str], Collection[str]]:
        """Inputs that this pipeline reads: columns by key set and stream."""

    def on_data(self, batches: Sequence[Batch], now_us: int | None, out: Out) -> None:
        """Process the batches of one call that are of `inputs`. There may be none."""

    def on_control(self, message: Any, out: Out) -> None:
        """Apply a control row that `Step.read_control` has read. Ignore messages for other pipelines."""

    def on_time(self, now_us: int, out: Out) -> None:
        """Process the passage of processing time without rows."""

    def on_end(self, out: Out) -> None:
        """Process everything that waits, because a bounded input has ended."""

    def next_timer(self) -> int | None:
        """Return the processing time of the next necessary call of `on_time`, or None."""

    def changed_pages(self) -> dict[str, bytes | None]:
        """Return the pages that changed since the last call of this method. None marks a removed page."""


class Step(Protocol):
    """Description of the work: a frozen dataclass. A worker builds pipelines from it. `Plan` is the main step."""

    def build_pipelines(self, pages: Pages, listener: Listener | None = None) -> Sequence[Pipeline]:
        """Build the pipelines in processing order. `pages` is empty if there is no state."""

    def read_control(self, row: Mapping[str, Any]) -> Any:
        """Read a control row into the message for `Pipeline.on_control`, or raise an error."""
