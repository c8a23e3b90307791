"""Adaptive: the smallest wait that keeps a recall, chosen as the paper does, interval by interval.

It ties the parts together: delays (Statistics Manager, `delays`), productivity (Tuple-Productivity Profiler,
`productivity`), and from both a model of recall and the choice by it (Buffer-Size Manager, `buffer_size`).

Source: Ji et al., ICDE 2016, section III and IV; `Measured`, one of the strategies, is ours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tocsin.jit import kernel
from tocsin.runtime.contract import Bools, Float, Int
from tocsin.stages.order.adwin import Adwin
from tocsin.stages.order.buffer_size import STRATEGIES, next_wait
from tocsin.stages.order.delays import largest_delays, sync_estimates
from tocsin.stages.order.measured import note_lost
from tocsin.stages.order.productivity import (
    Profile,
    close_interval,
    new_profile,
    pack_profile,
    take_results,
    unpack_profile,
)
from tocsin.stages.order.recall import Model, Shape, build_model
from tocsin.stages.order.wait import RecallConfig, RecallWait, below


@kernel
def learn(shape: Shape, delays: Adwin, profile: Profile) -> tuple[Model, float, float]:
    """End the interval of the profile, and make a model of it and of the delays; results produced, true results."""
    cross, results, produced, true = close_interval(profile)
    model = build_model(shape, delays.histogram, largest_delays(delays), sync_estimates(delays), cross, results)
    return model, produced, true


class AdaptiveWait(RecallWait):
    """The smallest wait that keeps the recall, by one of the `STRATEGIES`."""

    def __init__(self, quality: RecallConfig, windows_us: Sequence[int], strategy: str) -> None:
        super().__init__(quality, windows_us)
        self.strategy = STRATEGIES[strategy]
        self.profile = new_profile(quality.bins)
        self.windows_us = np.array(windows_us, np.int64)
        self.lost = np.zeros(1)

    def note_results(self, stream: Int, delay_us: Int, cross: Float, results: Float, in_order: Bools) -> None:
        """Learn of rows that the join took: the delay they arrived with, and what they met.

        Of a row that was late for the join only Measured asks what it met: the results it finds and nobody gets.
        """
        take_results(self.profile, self.quality.grain_us, delay_us, cross, results, in_order)
        if self.strategy.counts_lost:
            waits_us = (self.wait_us, (self.quality.bins - 1) * self.quality.grain_us)
            note_lost(self.lost, self.windows_us, waits_us, stream, delay_us, results, in_order)

    def adapt(self, intervals: int = 1, agreed_us: int | None = None) -> None:
        """End an interval, or several in which few rows came: choose the wait of the next one."""
        quality = self.quality
        model, produced, true = learn(self.shape, self.delays, self.profile)
        if self.strategy.counts_lost:
            true = produced + float(self.lost[0])
            self.lost[0] = 0.0
        self.note_sizes(intervals, produced, true)
        wait, self.estimated, self.required = next_wait(
            model, self.monitor, self.wait_us // quality.grain_us,
            true=true, wanted=quality.recall, strategy=self.strategy, enough=quality.enough,
            pace=intervals * quality.steps,
        )  # fmt: skip
        # An interpreted kernel returns a number of NumPy, which JSON does not write.
        self.wait_us = int(wait) * quality.grain_us

    def arrays(self) -> dict[str, NDArray[Any]]:
        """State for pages."""
        profile = {f"profile.{name}": array for name, array in pack_profile(self.profile).items()}
        return super().arrays() | {"lost": self.lost.copy(), **profile}

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Read what `arrays` wrote."""
        super().load(arrays)
        if self.fits(arrays):
            self.lost = arrays["lost"].copy()
            self.profile = unpack_profile(below("profile.", arrays), self.quality.bins)
