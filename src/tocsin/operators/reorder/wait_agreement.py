"""Wait agreement: the coordinator that finds one wait for all buckets.

    bucket → Out.reports → WaitAgreement (in the engine, between calls) → control rows → `Reorder.apply_control`

Algorithm: the keys of a join are divided into buckets; each bucket receives its own rows and results. A wait follows
from sums over rows and results, so several buckets have the same sums as one bucket with all keys. Alarms are rare:
sixteen buckets with three results each have little evidence, and together they have enough.

The coordinator stores the newest statistics of each bucket. If the wait of their sum differs from the last wait, every
bucket receives it with the first bucket time of its validity. This is the time of the most advanced bucket, so no
bucket has passed it.

- Nothing is sent before the statistics cover P of event time. After a start, buckets use their own waits until then.
  After a restart they use the last common wait.
- The statistics of a bucket expire after P without a new report, or after twice its previous pause if this is longer.

Guarantees: control rows depend only on the reports. With one bucket, the wait is exactly its own. The order of buckets
has no effect except for the rounding of sums of results.

Complexity: O(buckets * used bins), and one search of `observed_wait` for each pipeline with new reports.

References: Ji et al., ICDE 2016, section V: delays and K^sync from the input, results from the output of all instances.
M-cross is not necessary, because each result has its own delay.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median_low
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.errors import RunError
from tocsin.operators.reorder.observed_wait import choose_observed_wait, required_recall
from tocsin.operators.reorder.recall_model import WindowShape, new_shape
from tocsin.operators.reorder.wait_policy import DelayStatistics, RecallConfig
from tocsin.runtime.contract import Float, Int

if TYPE_CHECKING:
    from tocsin.plan.order import Order
    from tocsin.plan.steps import Watch

# A wait is sent if it is longer than the last one by more than this share, or shorter by more than this share and this
# number of steps. Each message costs a file and a call.
LONGER, SHORTER, STEPS = 1 / 16, 1 / 8, 5

# Positions of numbers that are not 0, and these numbers.
Sparse = Sequence[Sequence[float]]


def merge_statistics(known: Sequence[DelayStatistics]) -> DelayStatistics:
    """Add the statistics of several buckets."""
    observed, histogram, skews_us, true = zip(*known, strict=True)
    return DelayStatistics(np.sum(observed, axis=0), np.sum(histogram, axis=0), np.sum(skews_us, axis=0), sum(true))


def agreed_wait(quality: RecallConfig, shape: WindowShape, known: Sequence[DelayStatistics]) -> int:
    """Return the wait in microseconds that follows from the statistics of all buckets."""
    whole = merge_statistics(known)
    statistics, required = (whole.histogram, whole.skews_us, whole.observed), required_recall(quality, whole.true)
    return int(choose_observed_wait(shape, statistics, required, (0, quality.bins, -1))[0]) * quality.grain_us


def encode_statistics(known: DelayStatistics) -> dict[str, Any]:
    """Return statistics as JSON values. `decode_statistics` restores them exactly."""
    return {
        "observed": _sparse(known.observed),
        "delays": [_sparse(rows) for rows in known.histogram],
        "skews_us": known.skews_us.tolist(),
        "true": known.true,
    }


def decode_statistics(encoded: Mapping[str, Any], bins: int) -> DelayStatistics:
    """Read the values of `encode_statistics`."""
    observed = _dense(encoded["observed"], bins, np.float64)
    histogram = [_dense(rows, bins, np.int64) for rows in encoded["delays"]]
    return DelayStatistics(
        observed, np.array(histogram), np.array(encoded["skews_us"], np.int64), float(encoded["true"])
    )


def _sparse(numbers: Float | Int) -> Sparse:
    used = np.flatnonzero(numbers)
    return [used.tolist(), numbers[used].tolist()]


def _dense(encoded: Sparse, bins: int, kind: type) -> NDArray[Any]:
    numbers: NDArray[Any] = np.zeros(bins, kind)
    positions, found = encoded
    numbers[np.array(positions, np.int64)] = found
    return numbers


class NewWait(NamedTuple):
    """Common wait of the buckets of a pipeline, and the first bucket time of its validity."""

    watch: str
    wait_us: int
    from_us: int


def read_new_wait(row: Mapping[str, Any]) -> NewWait:
    """Parse a control row, or raise a RunError."""
    numbers = [row.get(name) for name in ("wait_us", "from_us")]
    are_integers = all(isinstance(number, int) and not isinstance(number, bool) for number in numbers)
    is_valid = row.keys() == set(NewWait._fields) and are_integers and isinstance(row["watch"], str)
    if not is_valid or row["wait_us"] < 0:
        message = f"control rows must address a pipeline of the plan; no pipeline accepts {row!r}"
        raise RunError(message)
    return NewWait(**row)


class WaitAgreement:
    """Reports and common waits of all pipelines of a plan that share a wait."""

    def __init__(self, watches: Iterable[Watch]) -> None:
        orders = {watch.name: watch.order for watch in watches}
        self.pipelines = {
            name: PipelineAgreement(order) for name, order in orders.items() if order is not None and order.shared
        }

    def receive(self, bucket: int, report: Mapping[str, Any]) -> None:
        """Store the report of a bucket."""
        if report["watch"] in self.pipelines:
            self.pipelines[report["watch"]].receive(bucket, report)

    def decide(self) -> list[dict[str, Any]]:
        """Return control rows for every bucket: the waits that changed since the last call."""
        found = ((name, pipeline.decide()) for name, pipeline in self.pipelines.items())
        return [NewWait(name, *decision)._asdict() for name, decision in found if decision is not None]


class BucketReport(NamedTuple):
    """Coordinator time of the last report of a bucket, and the pause before this report."""

    at_us: int
    pause_us: int


class PipelineAgreement:
    """Statistics of the buckets of one pipeline.

    Attributes
    ----------
        known: Bucket time and newest statistics of each bucket.
        reports: Time of the last report of each bucket.
        advanced: Buckets with reports since the last decision, and the progress of their time.
        clock_us: Sum of the median progress of the buckets with reports, at most P per decision.
        first_us, last_us: Bucket time of the first decision, and the last common wait; None before.
    """

    def __init__(self, order: Order) -> None:
        self.quality = order.quality
        self.shape = new_shape(np.array(order.windows_us), self.quality.basic_us, self.quality.grain_us)
        self.known: dict[int, tuple[int, DelayStatistics]] = {}
        self.reports: dict[int, BucketReport] = {}
        self.advanced: dict[int, int] = {}
        self.clock_us = 0
        self.first_us: int | None = None
        self.last_us: int | None = None

    def receive(self, bucket: int, report: Mapping[str, Any]) -> None:
        """Store the report of a bucket."""
        before_us, _ = self.known.get(bucket, (report["time_us"], None))
        self.known[bucket] = report["time_us"], decode_statistics(report, self.quality.bins)
        self.advanced[bucket] = max(report["time_us"] - before_us, 0)

    def decide(self) -> tuple[int, int] | None:
        """Return a common wait and the first bucket time of its validity, or None if it hardly differs."""
        if not self.advanced:
            return None
        self._expire_reports()
        from_us = self._valid_from_us()
        self.first_us = from_us if self.first_us is None else self.first_us
        if len(self.known) < 2 or from_us < self.first_us + self.quality.over_us:
            return None
        wait_us = agreed_wait(self.quality, self.shape, [self.known[bucket][1] for bucket in sorted(self.known)])
        if self.last_us is not None and not self._is_significant_change(wait_us - self.last_us, self.last_us):
            return None
        self.last_us = wait_us
        return wait_us, from_us

    def _expire_reports(self) -> None:
        """Remove the statistics of buckets that have paused for too long."""
        over_us = self.quality.over_us
        self.clock_us += min(median_low(self.advanced.values()), over_us)
        for bucket in self.advanced:
            before = self.reports.get(bucket, BucketReport(self.clock_us, 0))
            self.reports[bucket] = BucketReport(self.clock_us, self.clock_us - before.at_us)
        self.advanced.clear()
        for bucket, (at_us, pause_us) in self.reports.items():
            if self.clock_us - at_us > max(over_us, 2 * pause_us):
                self.known.pop(bucket, None)

    def _is_significant_change(self, longer_us: int, last_us: int) -> bool:
        least_us = max(SHORTER * last_us, STEPS * self.quality.grain_us)
        return longer_us > LONGER * last_us or longer_us < -least_us

    def _valid_from_us(self) -> int:
        """Return the largest bucket time, without buckets more than P ahead of the median: their clocks are wrong."""
        times = [time_us for time_us, _ in self.known.values()]
        most_us = median_low(times) + self.quality.over_us
        return max(time_us for time_us in times if time_us <= most_us)
