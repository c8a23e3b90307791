"""Sample policy: a random sample of the results if memory is short and `prefer: sample` is set.

Algorithm: the random number of a row is a hash of its key, time and values. A row is retained if its random number is
below its inclusion probability: p (EQ-CLUSTER), or p n for n expected results (PPS-CLUSTER). The frequencies at the
last judgement determine n. All results of a retained row are in the sample. If a row does not fit, p falls to the
random number of the row with the largest quotient of random number and n, and this row leaves (`shedding.py`). If the
models are judged again or much memory is free, new rows are retained until memory is short again. A row that is not
retained is joined once, and no later row finds it.

Guarantees: a result is in the sample with the inclusion probabilities of its rows except the last one, which the alert
shows. So the sum of 1 / probability over the sample is an unbiased count of the results. Rows that arrive again soon
are recognized by `DuplicateFilter`.

Complexity: 16 bytes for each key that the models count.

References: Srivastava, Widom, VLDB 2004, section 4.3; Ting, Adaptive Threshold Sampling, SIGMOD 2022. UNIFORM is not
used for rules: with the bytes of its counters it is less precise (`python -m benchmarks memory --only ways`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tocsin.operators.retention.cluster_sampling import EQ_CLUSTER, PPS_CLUSTER
from tocsin.operators.retention.duplicate_filter import DuplicateFilter
from tocsin.operators.retention.utility.memory_curves import told
from tocsin.operators.retention.utility.sampling_choice import Aggregate, Expectation, choose, error_curve, error_with
from tocsin.operators.retention.utility.space_saving import Shares, shares_of
from tocsin.operators.retention.utility.stream_monitor import Monitor
from tocsin.runtime.contract import Float, Int

_WAYS = (EQ_CLUSTER, PPS_CLUSTER)


class SamplePolicy:
    """Threshold p, kind of the sample, expected results of the rows by key, and fingerprints of rejected rows.

    The expected results follow from the models at the last judgement, so batch boundaries do not change them.
    """

    def __init__(self, monitor: Monitor | None, traces: int = 64) -> None:
        self.monitor, self.filter = monitor, DuplicateFilter(traces)
        self.p = np.inf
        self.kind = EQ_CLUSTER
        self.expected = [Expectation(1.0, 0.0, margin=False)] * 2
        self.shares = self._shares_now()
        # The error that was predicted when the way was chosen, and the one of the p that were in force before.
        self.errors: list[float | None] = [None, None]
        # Errors by memory, and the results of a window that they are of.
        self.points, self.results = np.zeros((0, 2)), 0.0

    def judge(self, memory: float, row_cost: Sequence[float]) -> None:
        """Choose the kind of the sample for this memory and these costs of a row of each lane, and reset p.

        Lanes share memory in proportion to their rows.
        """
        if self.monitor is None:
            return
        windows = self.monitor.windows
        half = [memory / 2 / each for each in row_cost]
        prospects = [self.monitor.prospect(i, half[i], Aggregate(float(windows[i] or 1))) for i in (0, 1)]
        whole = sum(of.room * each for of, each in zip(prospects, row_cost, strict=True))
        reached = error_with(prospects, self.kind, [self.p, self.p])
        rows = [memory / whole * of.room for of in prospects]
        found = choose(prospects, [dict.fromkeys(_WAYS, each) for each in rows])
        self.kind, self.expected, self.shares = found[0].kind, [one.expected for one in found], self._shares_now()
        self.errors = [found[0].error, reached]
        self.restart()
        curve = error_curve(prospects, dict.fromkeys(_WAYS, sum(of.room for of in prospects) / whole))
        self.results = sum(of.results for of in prospects)
        self.points = np.zeros((0, 2))
        if curve is not None:
            has_bound = np.isfinite(curve.error)
            self.points = told(curve.memory[has_bound], curve.error[has_bound])

    def _shares_now(self) -> list[Shares]:
        """Return the frequency of each key in each lane."""
        return [] if self.monitor is None else [self.monitor.shares_now(lane) for lane in (0, 1)]

    def sizes(self, lane: int, key: Int) -> Float:
        """Return the expected results of rows with these keys, or 1 if all rows have the same probability."""
        if self.kind == EQ_CLUSTER or self.monitor is None:
            return np.ones(len(key))
        return np.maximum(self.expected[lane].n(PPS_CLUSTER, shares_of(self.shares[1 - lane], key)), 1e-12)

    def restart(self) -> None:
        """Retain all new rows until memory is short again. The probabilities of the retained rows remain."""
        self.p = np.inf

    def state_arrays(self) -> dict[str, NDArray[Any]]:
        """State to be written."""
        parts = [self.kind, self.p, self.p, *(part for one in self.expected for part in (one.mean, one.by_share))]
        parts += [self.results, *(np.nan if error is None else error for error in self.errors)]
        named = {"sample": np.array(parts, np.float64), "sample.points": self.points}
        if self.shares:
            named |= {"sample.keys": np.stack([one.key for one in self.shares])}
            named |= {"sample.shares": np.stack([one.share for one in self.shares])}
        return named | {"sample.traces": self.filter.marks}

    def restore_state(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Restore the state after the state of the models."""
        kind, *rest = arrays["sample"].tolist()
        self.kind, self.p = int(kind), min(rest[:2])
        if "sample.traces" in arrays:
            self.filter.restore_state(arrays["sample.traces"])
        self.expected = [Expectation(rest[i], rest[i + 1], margin=False) for i in (2, 4)]
        self.shares = self._shares_now()
        if self.shares and arrays.get("sample.keys", np.zeros(0)).shape == (2, len(self.shares[0].key)):
            self.shares = [Shares(arrays["sample.keys"][lane], arrays["sample.shares"][lane]) for lane in (0, 1)]
        if "sample.points" in arrays:
            self.results, self.points = rest[6], arrays["sample.points"]
            self.errors = [None if np.isnan(error) else error for error in rest[7:]]
