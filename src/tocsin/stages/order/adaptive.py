"""Waits: how long rows are held back for those that come behind them. Fixed, as long as was ever needed, or by recall.

All three are used alike: rows are noted when they arrive and when the join has taken them, and at the end of each
interval L of stream time `adapt` sets the wait of the next one. Nothing else changes `wait_us`, so no cut into batches
shows. `AdaptiveWait` ties the parts together: delays (Statistics Manager), productivity (Tuple-Productivity Profiler),
monitor and manager (Result-Size Monitor, Buffer-Size Manager).

Source: Ji et al., ICDE 2016, section III; No-K-slack is a fixed wait of 0, Max-K-slack is after Mutschler and
Philippsen, IPDPS 2013, with K raised at the end of an interval.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tocsin.jit import kernel
from tocsin.logic import Bools, Float, Int
from tocsin.stages.order.delays import (
    DELTA,
    Delays,
    largest_delays,
    new_delays,
    pack_delays,
    sync_estimates,
    take_arrivals,
    unpack_delays,
)
from tocsin.stages.order.manager import STRATEGIES, Monitor, new_monitor, next_wait, note_interval
from tocsin.stages.order.measured import note_lost
from tocsin.stages.order.productivity import (
    Profile,
    beyond,
    close_interval,
    new_profile,
    pack_profile,
    take_results,
    unpack_profile,
)
from tocsin.stages.order.recall import Model, Shape, build_model, new_shape

# The longest delay that Max-K-slack follows if nothing else is said: as far as the bins of a `Quality` reach. A replay
# of old rows must not stop all output.
MOST_US = 81_920_000


@dataclass(frozen=True)
class Quality:
    """The recall that results must have over each P (`over_us`), and how the wait for it is found.

    L is `every_us`, g `grain_us`, b `basic_us`; delays of `bins` grains and more are not waited for; `history` bounds
    the rows remembered per stream; fewer true results than `enough` in an interval are no evidence;
    in one interval the wait moves by at most the share `pace` of L, or a grain.
    """

    recall: float
    over_us: int = 60_000_000
    every_us: int = 1_000_000
    grain_us: int = 10_000
    basic_us: int = 10_000
    strategy: str = "NonEqSel"
    bins: int = 8192
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
        assert self.strategy in STRATEGIES

    @property
    def steps(self) -> int:
        """By how many grains K may move in an interval."""
        return max(int(self.pace * self.every_us / self.grain_us), 1)


class Wait(Protocol):
    """What decides how long rows are held back."""

    wait_us: int
    estimated: float

    def note_arrivals(self, stream: Int, delay_us: Int, skew_us: Int) -> None:
        """Learn of raw rows in order of arrival."""

    def note_results(self, stream: Int, delay_us: Int, cross: Float, results: Float, in_order: Bools) -> None:
        """Learn of rows that the join took."""

    def adapt(self) -> None:
        """End an interval: set the wait of the next."""

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

    def adapt(self) -> None:
        """Nothing changes."""

    def arrays(self) -> dict[str, NDArray[Any]]:
        """There is no state."""
        return {}

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """There is no state."""


class MaxWait(FixedWait):
    """Max-K-slack: the largest delay seen so far, up to `most_us`."""

    def __init__(self, most_us: int = MOST_US) -> None:
        super().__init__()
        self.most_us = most_us
        self.largest_us = 0

    def note_arrivals(self, stream: Int, delay_us: Int, skew_us: Int) -> None:
        """Note the largest delay."""
        self.largest_us = int(np.max(delay_us, initial=self.largest_us, where=delay_us <= self.most_us))

    def adapt(self) -> None:
        """Wait so long."""
        self.wait_us = self.largest_us

    def arrays(self) -> dict[str, NDArray[Any]]:
        """State for pages."""
        return {"largest": np.array([self.wait_us, self.largest_us])}

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Read what `arrays` wrote."""
        self.wait_us, self.largest_us = (min(int(us), self.most_us) for us in arrays["largest"])


@kernel
def learn(shape: Shape, delays: Delays, profile: Profile) -> tuple[Model, float, float]:
    """End the interval of the profile, and make a model of it and of the delays; results produced, true results."""
    cross, results, produced, true = close_interval(profile)
    model = build_model(shape, delays.adwin.histogram, largest_delays(delays), sync_estimates(delays), cross, results)
    return model, produced, true


class AdaptiveWait:
    """The smallest wait that keeps the recall of a join of streams with these windows (W_i)."""

    def __init__(self, quality: Quality, windows_us: Sequence[int]) -> None:
        self.quality = quality
        self.wait_us = 0
        self.estimated = float("nan")
        self.required = float("nan")
        self.shape = new_shape(np.array(windows_us, np.int64), quality.basic_us, quality.grain_us)
        self.delays = new_delays(len(windows_us), quality.bins, quality.history)
        self.profile = new_profile(quality.bins)
        self.monitor = new_monitor(quality.over_us, quality.every_us)
        self.windows_us = np.array(windows_us, np.int64)
        self.lost = np.zeros(1)

    @property
    def beyond(self) -> int:
        """How many rows that arrived, or that the join took, were too late to be waited for."""
        return int(self.delays.beyond.sum()) + beyond(self.profile)

    def note_arrivals(self, stream: Int, delay_us: Int, skew_us: Int) -> None:
        """Learn of raw rows in order of arrival: delay behind their stream's clock, and its lead over the slowest."""
        take_arrivals(self.delays, self.quality.grain_us, DELTA, stream, delay_us, skew_us)

    def note_results(self, stream: Int, delay_us: Int, cross: Float, results: Float, in_order: Bools) -> None:
        """Learn of rows that the join took: the delay they arrived with, and what they met.

        Of a row that was late for the join only Measured asks what it met: the results it finds and nobody gets.
        """
        take_results(self.profile, self.quality.grain_us, delay_us, cross, results, in_order)
        if STRATEGIES[self.quality.strategy].counts_lost:
            waits_us = (self.wait_us, (self.quality.bins - 1) * self.quality.grain_us)
            note_lost(self.lost, self.windows_us, waits_us, stream, delay_us, results, in_order)

    def adapt(self) -> None:
        """End an interval: choose the wait of the next one."""
        quality = self.quality
        model, produced, true = learn(self.shape, self.delays, self.profile)
        if STRATEGIES[quality.strategy].counts_lost:
            true = produced + float(self.lost[0])
            self.lost[0] = 0.0
        note_interval(self.monitor, produced, true)
        wait, self.estimated, self.required = next_wait(
            model, self.monitor, self.wait_us // quality.grain_us,
            true=true, wanted=quality.recall, strategy=quality.strategy, enough=quality.enough,
            pace=quality.steps,
        )  # fmt: skip
        self.wait_us = wait * quality.grain_us

    def arrays(self) -> dict[str, NDArray[Any]]:
        """State for pages."""
        return {
            "fits": self._fits(), "wait": np.array([self.wait_us]),
            "thought": np.array([self.estimated, self.required]),
            "sizes": np.array(self.monitor), "lost": self.lost.copy(),
            **{f"delays.{name}": array for name, array in pack_delays(self.delays).items()},
            **{f"profile.{name}": array for name, array in pack_profile(self.profile).items()},
        }  # fmt: skip

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Read what `arrays` wrote; of another number of streams or other bins only the wait is taken over."""
        self.wait_us = min(int(arrays["wait"][0]) // self.quality.grain_us, self.quality.bins) * self.quality.grain_us
        self.estimated, self.required = (float(number) for number in arrays["thought"])
        if not np.array_equal(arrays["fits"], self._fits()):
            return
        self.monitor = Monitor(*(sizes.copy() for sizes in arrays["sizes"]))
        self.lost = arrays["lost"].copy()
        self.delays = unpack_delays(_below("delays.", arrays), self.quality.bins, self.quality.history)
        self.profile = unpack_profile(_below("profile.", arrays), self.quality.bins)

    def _fits(self) -> Int:
        quality = self.quality
        streams, history = self.delays.adwin.ring.shape
        return np.array([streams, quality.bins, quality.grain_us, history, len(self.monitor.true), quality.every_us])


def _below(prefix: str, arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
