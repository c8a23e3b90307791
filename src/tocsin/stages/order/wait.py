"""Waits: how long rows are held back for those that come behind them. Fixed, as long as was ever needed, or by recall.

All are used alike: rows are noted when they arrive and when the join has taken them, and at the end of intervals L of
stream time `adapt` sets the wait of the next one. Nothing else changes `wait_us`, so no cut into batches shows.
`RecallWait` has what waits by recall share: delays (Statistics Manager) and results of the last P - L (Result-Size
Monitor). `AdaptiveWait` chooses as the paper does, `ObservedWait` by the delays of the rows that gave results.

Source: Ji et al., ICDE 2016, section III; No-K-slack is a fixed wait of 0, Max-K-slack is after Mutschler and
Philippsen, IPDPS 2013, with K raised at the end of an interval.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from tocsin.runtime.contract import Bools, Float, Int
from tocsin.stages.order.adwin import new_adwin
from tocsin.stages.order.buffer_size import Monitor, new_monitor, note_interval
from tocsin.stages.order.delays import DELTA, pack_delays, take_arrivals, unpack_delays
from tocsin.stages.order.recall import new_shape


@dataclass(frozen=True)
class RecallConfig:
    """The recall that results must have over each P (`over_us`), and how the wait for it is found.

    L is `every_us`, g `grain_us`, b `basic_us`; delays of `bins` grains and more are not waited for; `history` bounds
    the rows remembered per stream; fewer true results than `enough` in an interval are no evidence;
    in one interval the wait moves by at most the share `pace` of L, or a grain.
    """

    recall: float
    over_us: int
    every_us: int
    grain_us: int
    basic_us: int
    bins: int
    history: int = 65_536
    enough: float = 30.0
    pace: float = 0.2

    def __post_init__(self) -> None:
        assert 0.0 <= self.recall <= 1.0
        assert 0 < self.every_us <= self.over_us
        assert self.grain_us > 0
        assert self.basic_us > 0
        assert 0 < self.bins <= 1 << 16
        assert self.pace > 0

    @property
    def steps(self) -> int:
        """By how many grains K may move in an interval."""
        return max(int(self.pace * self.every_us / self.grain_us), 1)


class Statistics(NamedTuple):
    """What buckets add up to agree on a wait: results by the wait they need, by stream rows by delay and sums of skews.

    Needs and delays are in grains; `true` are the true results of the last P - L.
    """

    observed: Float
    histogram: Int
    skews_us: Int
    true: float


class Wait(Protocol):
    """What decides how long rows are held back."""

    wait_us: int
    estimated: float

    def note_arrivals(self, stream: Int, delay_us: Int, skew_us: Int) -> None:
        """Learn of raw rows in order of arrival: delay behind their stream's clock, and its lead over the slowest."""

    def note_results(self, stream: Int, delay_us: Int, cross: Float, results: Float, in_order: Bools) -> None:
        """Learn of rows that the join took: the delay they arrived with, and what they met."""

    def adapt(self, intervals: int = 1, agreed_us: int | None = None) -> None:
        """End an interval, or several in which few rows came: set the wait of the next.

        `agreed_us` is the wait that buckets agreed on, of those that have `statistics`.
        """

    def statistics(self) -> Statistics | None:
        """What the wait was chosen by, right after an interval has ended; None: it cannot be added up."""

    def arrays(self) -> dict[str, NDArray[Any]]:
        """State for pages."""

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Read what `arrays` wrote."""


class FixedWait:
    """Always the same wait; 0 is No-K-slack."""

    estimated = float("nan")

    def __init__(self, wait_us: int = 0) -> None:
        self.wait_us = wait_us

    def note_arrivals(self, stream: Int, delay_us: Int, skew_us: Int) -> None:
        """Nothing is learnt."""

    def note_results(self, stream: Int, delay_us: Int, cross: Float, results: Float, in_order: Bools) -> None:
        """Nothing is learnt."""

    def adapt(self, intervals: int = 1, agreed_us: int | None = None) -> None:
        """Nothing changes."""

    def statistics(self) -> Statistics | None:
        """There is nothing to agree on."""
        return None

    def arrays(self) -> dict[str, NDArray[Any]]:
        """There is no state."""
        return {}

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """There is no state."""


class MaxWait(FixedWait):
    """Max-K-slack: the largest delay seen so far, up to `most_us`: a replay of old rows must not stop all output."""

    def __init__(self, most_us: int) -> None:
        super().__init__()
        self.most_us = most_us
        self.largest_us = 0

    def note_arrivals(self, stream: Int, delay_us: Int, skew_us: Int) -> None:
        """Note the largest delay."""
        self.largest_us = int(np.max(delay_us, initial=self.largest_us, where=delay_us <= self.most_us))

    def adapt(self, intervals: int = 1, agreed_us: int | None = None) -> None:
        """Wait so long."""
        self.wait_us = self.largest_us

    def arrays(self) -> dict[str, NDArray[Any]]:
        """State for pages."""
        return {"largest": np.array([self.wait_us, self.largest_us])}

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Read what `arrays` wrote."""
        self.wait_us, self.largest_us = (min(int(us), self.most_us) for us in arrays["largest"])


class RecallWait:
    """What waits have that keep the recall of a join of streams with these windows (W_i), however they choose it."""

    def __init__(self, quality: RecallConfig, windows_us: Sequence[int]) -> None:
        self.quality = quality
        self.wait_us = 0
        self.estimated = float("nan")
        self.required = float("nan")
        self.shape = new_shape(np.array(windows_us, np.int64), quality.basic_us, quality.grain_us)
        self.delays = new_adwin(len(windows_us), quality.bins, quality.history)
        self.monitor = new_monitor(quality.over_us, quality.every_us)

    def note_arrivals(self, stream: Int, delay_us: Int, skew_us: Int) -> None:
        """Learn of raw rows in order of arrival: delay behind their stream's clock, and its lead over the slowest."""
        take_arrivals(self.delays, self.quality.grain_us, DELTA, stream, delay_us, skew_us)

    def statistics(self) -> Statistics | None:
        """There is nothing that adds up."""
        return None

    def note_sizes(self, intervals: int, produced: float, true: float) -> None:
        """Note the results of the last of some intervals; in those before it there were none."""
        for _ in range(min(intervals, len(self.monitor.true)) - 1):
            note_interval(self.monitor, 0.0, 0.0)
        note_interval(self.monitor, produced, true)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """State for pages."""
        return {
            "fits": self._fits(), "wait": np.array([self.wait_us]),
            "thought": np.array([self.estimated, self.required]), "sizes": np.array(self.monitor),
            **{f"delays.{name}": array for name, array in pack_delays(self.delays).items()},
        }  # fmt: skip

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Read what `arrays` wrote; of another number of streams or other bins only the wait is taken over."""
        self.wait_us = min(int(arrays["wait"][0]) // self.quality.grain_us, self.quality.bins) * self.quality.grain_us
        self.estimated, self.required = (float(number) for number in arrays["thought"])
        if self.fits(arrays):
            self.monitor = Monitor(*(sizes.copy() for sizes in arrays["sizes"]))
            self.delays = unpack_delays(below("delays.", arrays), self.quality.bins, self.quality.history)

    def fits(self, arrays: Mapping[str, NDArray[Any]]) -> bool:
        """Tell whether these were written by a wait of the same form."""
        return np.array_equal(arrays["fits"], self._fits())

    def _fits(self) -> Int:
        quality = self.quality
        streams, history = self.delays.ring.shape
        return np.array([streams, quality.bins, quality.grain_us, history, len(self.monitor.true), quality.every_us])


def below(prefix: str, arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """The arrays whose names begin so, without that."""
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
