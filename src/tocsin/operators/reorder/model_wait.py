"""Model wait: the shortest wait for a recall by the model of the paper, or by the strategy `measured`.

Algorithm: at the end of each interval, `delay_statistics` (Statistics Manager) and `productivity` (Tuple-Productivity
Profiler) build a model of recall by wait, and `buffer_size` (Buffer-Size Manager) chooses the wait.

Guarantees and complexity: see `buffer_size`.

References: Ji et al., ICDE 2016, sections III and IV. The strategy `measured` is an addition.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tocsin.jit import kernel
from tocsin.operators.reorder.adwin import Adwin
from tocsin.operators.reorder.buffer_size import STRATEGIES, choose_wait
from tocsin.operators.reorder.delay_statistics import largest_delays, sync_estimates
from tocsin.operators.reorder.measured_wait import lost_results
from tocsin.operators.reorder.productivity import (
    ProductivityProfile,
    close_interval,
    new_profile,
    pack_profile,
    take_results,
    unpack_profile,
)
from tocsin.operators.reorder.recall_model import RecallModel, WindowShape, build_model
from tocsin.operators.reorder.wait_policy import RecallConfig, RecallWait, without_prefix
from tocsin.runtime.contract import Bools, Float, Int


@kernel
def build_interval_model(
    shape: WindowShape, delays: Adwin, profile: ProductivityProfile
) -> tuple[RecallModel, float, float]:
    """End the interval of the profile. Return the recall model, produced results and estimated true results."""
    cross, results, produced, true = close_interval(profile)
    model = build_model(shape, delays.histogram, largest_delays(delays), sync_estimates(delays), cross, results)
    return model, produced, true


class ModelWait(RecallWait):
    """Shortest wait for a recall by one of `STRATEGIES`."""

    def __init__(self, quality: RecallConfig, windows_us: Sequence[int], strategy: str) -> None:
        super().__init__(quality, windows_us)
        self.strategy = STRATEGIES[strategy]
        self.profile = new_profile(quality.bins)
        self.lost = np.zeros(1)

    def note_results(self, delay_us: Int, skew_us: Int, cross: Float, results: Float, in_order: Bools) -> None:
        """Add the results of released rows. `measured` counts lost results too."""
        take_results(self.profile, self.quality.grain_us, delay_us, cross, results, in_order)
        if self.strategy.counts_lost:
            longest_us = (self.quality.bins - 1) * self.quality.grain_us
            self.lost[0] += lost_results(longest_us, delay_us, results, in_order)

    def adapt(self, intervals: int = 1, agreed_us: int | None = None) -> None:
        """Choose the wait for the next interval."""
        quality = self.quality
        model, produced, true = build_interval_model(self.shape, self.delays, self.profile)
        if self.strategy.counts_lost:
            true = produced + float(self.lost[0])
            self.lost[0] = 0.0
        self.note_sizes(intervals, produced, true)
        wait, self.estimated, self.required = choose_wait(
            model,
            self.monitor,
            self.wait_us // quality.grain_us,
            true=true,
            wanted=quality.recall,
            strategy=self.strategy,
            enough=quality.enough,
            max_change=intervals * quality.steps,
        )
        # An interpreted kernel returns a NumPy number, which JSON does not write.
        self.wait_us = int(wait) * quality.grain_us

    def state_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the state as arrays."""
        profile = {f"profile.{name}": array for name, array in pack_profile(self.profile).items()}
        return super().state_arrays() | {"lost": self.lost.copy(), **profile}

    def restore_state(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Read the arrays of `state_arrays`."""
        super().restore_state(arrays)
        if self.fits(arrays):
            self.lost = arrays["lost"].copy()
            self.profile = unpack_profile(without_prefix("profile.", arrays), self.quality.bins)
