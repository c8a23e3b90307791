"""Contract: the interfaces between engines and algorithms.

An *engine* reads sources, calls a session and stores state pages. It contains no algorithm. The engines are the Spark
operator, the local API and the test runner. A *step* is a frozen description of the work, which the engine sends to its
workers. The main step is `Plan`. A *session* (`runtime/session.py`) executes one step over rows and processing time for
one bucket, which is a set of keys that moves between workers as a unit. A *pipeline* executes one part of the step, for
example all rules with the same key columns. It has state.

A call follows this path:

1. The engine passes `Batch` objects, control rows or processing time to the session. There is one call per bucket and
   batch, not per key.
2. The session checks them and calls each pipeline of the step.
3. A keyed pipeline (`runtime/keyed_pipeline.py`) divides its rows by shard, and calls the operators with the shard, the
   rows and a `Context` (`runtime/context.py`). An operator is code. Its state is in the shard.
4. Alerts, metrics and reports are added to `Out`.
5. The engine writes `Out` and stores the state pages that changed.

Laws for every pipeline (tests/laws):

- Any division of the input into batches produces the same output rows.
- State pages can be stored and restored between any two calls without effect on the output.
- A pipeline does not write to input arrays and keeps no reference to them.
- A batch without rows is valid.
- For every input state (counter name), received = held + retained + expired + omitted + duplicates + shed + late +
  quarantined + unprocessed.
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
    from tocsin.runtime.context import Context
    from tocsin.runtime.row_batch import RowBatch
    from tocsin.runtime.state_registry import SectionSpec

Int = NDArray[np.int64]
Float = NDArray[np.float64]
Bools = NDArray[np.bool_]
Pages = Mapping[str, bytes]

# First and last valid event time: years 1 to 9999, the range of datetime and of Spark.
FIRST_US, LAST_US = -62_135_596_800_000_000, 253_402_300_799_999_999
# Time before every valid event time. Sums with valid times fit into 64 bits.
NEVER_SEEN = -(1 << 62)
# End of a row that remains in the state. Each serial number is smaller.
NEVER = np.iinfo(np.int64).max

# Time columns of an alert. The first column is never null.
ALERT_TIMES = ("startsAt", "firesAt", "endsAt")


class Payload(Protocol):
    """Lazily encoded unread columns of the rows of a batch: one JSON text per row, or None.

    A text is encoded only when `take` requests it.
    """

    def take(self, positions: Int, /) -> Sequence[str | None] | NDArray[Any]:
        """Return the texts of the rows at these positions."""


@dataclass(frozen=True)
class Batch:
    """Rows of one stream and one key set in columns of equal length. The arrays belong to the engine and are read-only.

    Attributes
    ----------
        key_set: Number of the key set in the plan.
        stream: Name of the stream.
        keys: Distinct keys of this batch. A key is a tuple of strings.
        key: Position in `keys` of the key of each row.
        time: Event time in microseconds.
        arrival: Arrival number. It orders the rows of all batches of one call, but not of different calls.
        values: Value columns by name. Missing values are not finite.
        payload: Texts of the rows, or None if no row has a text.
        quarantined: Number of invalid rows that the engine removed from the batch.
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
        self.late += other.late
        self.dead += other.dead
        self.reports += other.reports


class EvaluatedRows(NamedTuple):
    """Evaluations of one rule in processing order: the best combination of each row with a combination.

    Attributes
    ----------
        stream: Number of the row's stream in the order of the rule.
        row: Row that was evaluated.
        partners: Rows of the combination, one column per stream of the rule.
        margin: Margin of the condition.
        value: Value of the condition: the left side of a single comparison, otherwise the margin.
        is_true, is_holding: State of the condition. A holding condition is not true, but has not reached its recovery.
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

    A row number is the position of a row in its stream. A store number is a position in `Watch.stores`. A rule
    number is a position in `Watch.rules`. A rank is the serial number of a row.
    """

    def on_entered(self, store: int, rows: Int, ranks: Int, silent: Bools, repeated: Bools) -> None:
        """Receive rows that entered an input state. A silent row is not evaluated; a repeated row is a duplicate."""

    def on_reduced(self, store: int, rows: Int, left: Int, retained: Int) -> None:
        """Receive the omission rank of each row (`NEVER` for a retained row), and the retained rows."""

    def on_evaluated(self, rule: int, evaluations: EvaluatedRows) -> None:
        """Receive evaluations of a rule."""


class Operator(Protocol):
    """Code of one step of a keyed pipeline. Its state per key is in the shard that each call receives.

    An operator has a method `process(shard, rows, context)`, whose types depend on the operator. It must not keep
    references to shards, rows or contexts after a call.
    """

    @property
    def sections(self) -> Sequence[SectionSpec]:
        """Sections that the operator needs in each shard. A section is named by the id of the operator."""


class Adaptive(Protocol):
    """Part of a keyed pipeline that changes its parameters between rows, at positions that depend on the rows alone."""

    def rows_before_decision(self, rows: RowBatch, begin: int) -> int | None:
        """Return the number of rows from `begin` on before the next decision, or None if none is due in this batch.

        `rows` are the rows of the call in arrival order. The result depends on rows and state, not on where a call
        ends.
        """

    def decide(self, context: Context) -> None:
        """Choose new parameters. The next call of `rows_before_decision` has to return another position."""

    def observe(self, results: Any, context: Context) -> None:
        """Learn from the results of a slice of the batch."""

    def report(self, context: Context) -> None:
        """Set the metrics of a call."""

    def apply_control(self, message: Any, context: Context) -> None:
        """Apply a decision of the coordinator. Ignore decisions for other pipelines."""

    def state_page(self) -> tuple[str, bytes | None]:
        """Return the name of the page without keys that has the state of the bucket, and its bytes if it changed."""


class Pipeline(Protocol):
    """Execution of one part of a plan, with its state.

    The session calls the methods. A pipeline must not keep references to batches after a call.
    """

    @property
    def inputs(self) -> Mapping[tuple[int, str], Collection[str]]:
        """Inputs of this pipeline: columns by key set number and stream."""

    def on_data(self, batches: Sequence[Batch], now_us: int | None, out: Out) -> None:
        """Process the batches of one call for `inputs`. The sequence can be empty."""

    def on_control(self, message: Any, out: Out) -> None:
        """Apply a control message of `Step.read_control`. Ignore messages for other pipelines."""

    def on_time(self, now_us: int, out: Out) -> None:
        """Process the passage of processing time without rows."""

    def on_end(self, out: Out) -> None:
        """Process all buffered rows and waiting evaluations, because a bounded input has ended."""

    def next_timer(self) -> int | None:
        """Return the processing time of the next necessary call of `on_time`, or None."""

    def changed_pages(self) -> dict[str, bytes | None]:
        """Return the pages that changed since the last call of this method. None marks a removed page."""


class Step(Protocol):
    """Description of the work as a frozen dataclass. Workers build pipelines from it. `Plan` is the main step."""

    def build_pipelines(self, pages: Pages, listener: Listener | None = None) -> Sequence[Pipeline]:
        """Build the pipelines in processing order. `pages` is empty if there is no state."""

    def read_control(self, row: Mapping[str, Any]) -> Any:
        """Return the control message for `Pipeline.on_control`, or raise an error for an invalid row."""
