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

from collections.abc import Callable, Collection, Container, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from tocsin.runtime.alert_batch import AlertBatch

Int = NDArray[np.int64]
Float = NDArray[np.float64]
Bools = NDArray[np.bool_]
Pages = Mapping[str, bytes]
# The share of rows that was worked on, and that of results that was found; None where nothing is known.
Shares = tuple[float | None, float | None]

# Times that a row may have: years 1 to 9999, which datetimes and Spark can both write.
FIRST_US, LAST_US = -62_135_596_800_000_000, 253_402_300_799_999_999
# The time of what was never there: below every time that a row can have, and far enough from the end for sums.
NEVER_SEEN = -(1 << 62)
# Serial number at which a row leaves the state that never leaves it.
NEVER = np.iinfo(np.int64).max

# Columns of an alert that hold times. The first one is always there.
ALERT_TIMES = ("startsAt", "firesAt", "endsAt")

# What may become of a row: these add up to `received`. The counts behind them tell more of the same rows.
FATES = ("held", "retained", "expired", "omitted", "duplicates", "shed", "late", "quarantined", "unprocessed")
COUNTS = ("received", *FATES, "behind", "out_of_domain", "without_limits", "freed_keys")


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


class Found(NamedTuple):
    """What limited memory finds: the share of results that is predicted and the one reached; of a sample, its errors.

    An error is the standard error of the number of results in a window, estimated from the sample, by that number.
    None: it is not known.
    """

    predicted: float | None = None
    reached: float | None = None
    error_predicted: float | None = None
    error_reached: float | None = None

    def worst(self, other: Found) -> Found:
        """What is known of two buckets together: what one cannot foretell, nobody can foretell of both."""
        return Found(
            _of_both(min, self.predicted, other.predicted),
            _of_known(min, self.reached, other.reached),
            _of_both(max, self.error_predicted, other.error_predicted),
            _of_known(max, self.error_reached, other.error_reached),
        )


def _of_both(worse: Callable[..., float], one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else worse(one, other)


def _of_known(worse: Callable[..., float], *given: float | None) -> float | None:
    known = [one for one in given if one is not None]
    return worse(known) if known else None


@dataclass
class Out:
    """Output of a call: alert batches, answers of queries, counts gained, newest times, waits.

    `answers` has the result rows of a selection or an aggregate query, as dicts that JSON can hold.
    Counts go by store, whose name is its stream's where a stream has one; `newest` has the newest event time of each
    stream that had rows; `waits` has, per alert whose rows wait, for how many microseconds, and the recall that this is
    estimated to give, or None: of several buckets the longest wait and the least recall. `late` has rows that came too
    late to be used, or to be used in order; `dead` rows that cannot be used, with stream, reason and text. `results`
    has, per alert whose rows wait and period of event time (by its first microsecond), how many results came in order,
    and how many in all. `memory` has, per alert whose memory is limited, what it finds: of several buckets the worst.
    `cpu` has, per alert whose processor time is limited, the share of rows that was worked on, and that of results that
    was found. `stats` has what a bucket knows that others may need, as dicts that JSON can hold: what a wait is chosen
    by, where buckets agree on it, and what memory buys.
    """

    alerts: list[AlertBatch] = field(default_factory=list)
    counts: dict[str, dict[str, int]] = field(default_factory=dict)
    newest: dict[str, int] = field(default_factory=dict)
    waits: dict[str, tuple[int, float | None]] = field(default_factory=dict)
    late: list[dict[str, Any]] = field(default_factory=list)
    dead: list[dict[str, Any]] = field(default_factory=list)
    results: dict[str, dict[int, tuple[int, int]]] = field(default_factory=dict)
    memory: dict[str, Found] = field(default_factory=dict)
    stats: list[dict[str, Any]] = field(default_factory=list)
    cpu: dict[str, Shares] = field(default_factory=dict)
    answers: list[dict[str, Any]] = field(default_factory=list)

    def alert_rows(self) -> list[dict[str, Any]]:
        """Return all alert rows as dicts with the public column names and times in microseconds."""
        return list(chain.from_iterable(batch.rows() for batch in self.alerts))

    def add(self, other: Out) -> None:
        """Take over what another call gave."""
        self.alerts += other.alerts
        self.answers += other.answers
        self.late += other.late
        self.dead += other.dead
        self.stats += other.stats
        for stream, counts in other.counts.items():
            self.count(stream, counts)
        for stream, time_us in other.newest.items():
            self.meet(stream, time_us)
        for alert, (wait_us, recall) in other.waits.items():
            self.wait(alert, wait_us, recall)
        for alert, periods in other.results.items():
            for start_us, (in_order, whole) in periods.items():
                self.find(alert, int(start_us), in_order, whole)
        for alert, found in other.memory.items():
            self.remember(alert, Found(*found))  # which came as a list, if it came as JSON
        for alert, shares in other.cpu.items():
            self.spend(alert, shares)

    def meet(self, stream: str, time_us: int) -> None:
        """Note the newest event time of some rows of a stream."""
        self.newest[stream] = max(time_us, self.newest.get(stream, time_us))

    def wait(self, alert: str, wait_us: int, recall: float | None) -> None:
        """Note how long the rows of an alert wait."""
        longest, least = self.waits.get(alert, (wait_us, recall))
        known = [number for number in (least, recall) if number is not None]
        self.waits[alert] = max(longest, wait_us), min(known, default=None)

    def remember(self, alert: str, found: Found) -> None:
        """Note what an alert finds with its memory."""
        self.memory[alert] = found if alert not in self.memory else self.memory[alert].worst(found)

    def spend(self, alert: str, shares: Shares) -> None:
        """Note which share of its rows an alert has worked on, and which of its results it has found."""
        both = zip(self.cpu.get(alert, shares), shares, strict=True)
        rows, results = (min((one for one in pair if one is not None), default=None) for pair in both)
        self.cpu[alert] = rows, results

    def find(self, alert: str, start_us: int, in_order: int, whole: int) -> None:
        """Add to the results of an alert in a period."""
        periods = self.results.setdefault(alert, {})
        before = periods.get(start_us, (0, 0))
        periods[start_us] = before[0] + in_order, before[1] + whole

    def drop_recalls(self, alerts: Container[str]) -> None:
        """Remove the recall of every alert that is not among `alerts`, which have results: no result has no recall.

        What the models estimate before the first result is about pairs of rows, not about results.
        """
        self.waits = {alert: (us, recall if alert in alerts else None) for alert, (us, recall) in self.waits.items()}
        self.memory = {alert: found if alert in alerts else Found() for alert, found in self.memory.items()}
        self.cpu = {alert: (rows, found if alert in alerts else None) for alert, (rows, found) in self.cpu.items()}

    def count(self, stream: str, counts: Mapping[str, int]) -> None:
        """Add to the counts of a stream."""
        total = self.counts.setdefault(stream, {})
        for name, number in counts.items():
            total[name] = total.get(name, 0) + number


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
