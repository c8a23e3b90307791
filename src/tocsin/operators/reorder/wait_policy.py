"""Wait policy: the interface of the policies that choose K, and the policies for a fixed and a maximal wait.

Algorithm: a policy receives the rows that arrive and the rows that are released. At the end of intervals L of event
time, `adapt` sets the wait for the next interval. Nothing else changes `wait_us`, so batch boundaries have no effect.
`RecallWait` is the base of the policies for a recall target: delays (Statistics Manager) and results of the last P - L
(Result-Size Monitor). `ModelWait` follows the paper. `ObservedWait` uses the delays of the rows with results.

Guarantees: with `MaxWait`, no row is out of order whose delay is at most a delay of an earlier interval.

Complexity: O(1) per row for `MaxWait`; `FixedWait` uses nothing.

References: Ji et al., ICDE 2016, section III. No-K-slack is a fixed wait of 0. Max-K-slack follows Mutschler and
Philippsen, IPDPS 2013, but raises K at the end of an interval.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from tocsin.operators.reorder.adwin import new_adwin
from tocsin.operators.reorder.buffer_size import ResultMonitor, add_interval, new_monitor
from tocsin.operators.reorder.delay_statistics import DELTA, pack_delays, take_arrivals, unpack_delays
from tocsin.operators.reorder.recall_model import new_shape
from tocsin.runtime.contract import Bools, Float, Int


@dataclass(frozen=True)
class RecallConfig:
    """Recall target for the results of each period P, and the parameters of the search for the wait.

    Attributes
    ----------
    recall
        Target Gamma.
    over_us, every_us, grain_us, basic_us
        P, L, g and b of the paper.
    bins
        Number of steps g of the longest wait, plus 1.
    history
        Maximum number of rows in the delay statistics of a stream.
    enough
        Number of true results below which they are no evidence.
    max_change
        Largest change of the wait in one interval, as a share of L; at least one step.
    """

    recall: float
    over_us: int
    every_us: int
    grain_us: int
    basic_us: int
    bins: int
    history: int = 65_536
    enough: float = 30.0
    max_change: float = 0.2

    def __post_init__(self) -> None:
        assert 0.0 <= self.recall <= 1.0
        assert 0 < self.every_us <= self.over_us
        assert self.grain_us > 0
        assert self.basic_us > 0
        assert 0 < self.bins <= 1 << 16
        assert self.max_change > 0

    @property
    def steps(self) -> int:
        """Largest change of the wait in one interval, in steps g."""
        return max(int(self.max_change * self.every_us / self.grain_us), 1)


class DelayStatistics(NamedTuple):
    """Statistics that buckets add to agree on a common wait.

    Attributes
    ----------
    observed
        Number of results by the wait that they needed, in steps.
    histogram
        Number of rows by stream and delay, in steps.
    skews_us
        Sum of skews by stream.
    true
        True results of the last P - L.
    """

    observed: Float
    histogram: Int
    skews_us: Int
    true: float


class WaitPolicy(Protocol):
    """Policy that chooses the wait of rows."""

    wait_us: int
    estimated: float

    def note_arrivals(self, stream: Int, delay_us: Int, skew_us: Int) -> None:
        """Receive delay and skew of rows in arrival order."""

    def note_results(self, delay_us: Int, skew_us: Int, cross: Float, results: Float, in_order: Bools) -> None:
        """Receive released rows: delay and skew at their arrival, combinations, results, and whether in order."""

    def adapt(self, intervals: int = 1, agreed_us: int | None = None) -> None:
        """End an interval, or several intervals with few rows, and set the wait for the next interval.

        `agreed_us` is the common wait of all buckets, for a policy with `statistics`.
        """

    def statistics(self) -> DelayStatistics | None:
        """Return the statistics behind the wait right after an interval, or None if buckets cannot add them."""

    def state_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the state as arrays."""

    def restore_state(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Read the arrays of `state_arrays`."""


class FixedWait:
    """Constant wait. 0 is No-K-slack."""

    estimated = float("nan")

    def __init__(self, wait_us: int = 0) -> None:
        self.wait_us = wait_us

    def note_arrivals(self, stream: Int, delay_us: Int, skew_us: Int) -> None:
        """Ignore the rows."""

    def note_results(self, delay_us: Int, skew_us: Int, cross: Float, results: Float, in_order: Bools) -> None:
        """Ignore the rows."""

    def adapt(self, intervals: int = 1, agreed_us: int | None = None) -> None:
        """Keep the wait."""

    def statistics(self) -> DelayStatistics | None:
        """Return None."""
        return None

    def state_arrays(self) -> dict[str, NDArray[Any]]:
        """Return no arrays."""
        return {}

    def restore_state(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Ignore the arrays."""


class MaxWait(FixedWait):
    """Max-K-slack: the largest delay so far, at most `most_us`, so that a replay of old rows cannot stop the output."""

    def __init__(self, most_us: int) -> None:
        super().__init__()
        self.most_us = most_us
        self.largest_us = 0

    def note_arrivals(self, stream: Int, delay_us: Int, skew_us: Int) -> None:
        """Update the largest delay."""
        self.largest_us = int(np.max(delay_us, initial=self.largest_us, where=delay_us <= self.most_us))

    def adapt(self, intervals: int = 1, agreed_us: int | None = None) -> None:
        """Set the wait to the largest delay."""
        self.wait_us = self.largest_us

    def state_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the state as arrays."""
        return {"largest": np.array([self.wait_us, self.largest_us])}

    def restore_state(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Read the arrays of `state_arrays`."""
        self.wait_us, self.largest_us = (min(int(us), self.most_us) for us in arrays["largest"])


class RecallWait:
    """Base of the policies for a recall target of a join of streams with windows W_i.

    Attributes
    ----------
    wait_us
        Wait of the current interval.
    estimated, required
        Expected recall of this wait, and the recall that was aimed at; NaN before the first interval.
    shape, delays, monitor
        Constants of the recall model, delay statistics, and results of the last P - L.
    """

    def __init__(self, quality: RecallConfig, windows_us: Sequence[int]) -> None:
        self.quality = quality
        self.wait_us = 0
        self.estimated = float("nan")
        self.required = float("nan")
        self.shape = new_shape(np.array(windows_us, np.int64), quality.basic_us, quality.grain_us)
        self.delays = new_adwin(len(windows_us), quality.bins, quality.history)
        self.monitor = new_monitor(quality.over_us, quality.every_us)

    def note_arrivals(self, stream: Int, delay_us: Int, skew_us: Int) -> None:
        """Add rows in arrival order to the delay statistics."""
        take_arrivals(self.delays, self.quality.grain_us, DELTA, stream, delay_us, skew_us)

    def statistics(self) -> DelayStatistics | None:
        """Return None."""
        return None

    def note_sizes(self, intervals: int, produced: float, true: float) -> None:
        """Add the results of the last of some intervals. The intervals before it had no results."""
        for _ in range(min(intervals, len(self.monitor.true)) - 1):
            add_interval(self.monitor, 0.0, 0.0)
        add_interval(self.monitor, produced, true)

    def state_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the state as arrays."""
        return {
            "fits": self._format(),
            "wait": np.array([self.wait_us]),
            "thought": np.array([self.estimated, self.required]),
            "sizes": np.array(self.monitor),
            **{f"delays.{name}": array for name, array in pack_delays(self.delays).items()},
        }

    def restore_state(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Read the arrays of `state_arrays`. If streams or steps have changed, restore only the wait."""
        self.wait_us = min(int(arrays["wait"][0]) // self.quality.grain_us, self.quality.bins) * self.quality.grain_us
        self.estimated, self.required = (float(number) for number in arrays["thought"])
        if self.fits(arrays):
            self.monitor = ResultMonitor(*(sizes.copy() for sizes in arrays["sizes"]))
            self.delays = unpack_delays(without_prefix("delays.", arrays), self.quality.bins, self.quality.history)

    def fits(self, arrays: Mapping[str, NDArray[Any]]) -> bool:
        """Return whether a policy with the same streams and steps wrote the arrays."""
        return np.array_equal(arrays["fits"], self._format())

    def _format(self) -> Int:
        quality = self.quality
        streams, history = self.delays.ring.shape
        return np.array([streams, quality.bins, quality.grain_us, history, len(self.monitor.true), quality.every_us])


def without_prefix(prefix: str, arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Return the arrays whose names have a prefix, without the prefix."""
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
