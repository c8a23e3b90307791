"""Sample: a random sample of the results of two streams, where memory is short and `prefer` asks for it.

Idea: a row stays if a number drawn for it, by its key, time and values, is below its chance: p (EQ-CLUSTER), or p n
with n the results that it is expected to give (PPS-CLUSTER), by how frequent its key was in the other stream when the
way was chosen. All results of a row that stays are in the sample. Where room is made, p falls to the number of the
first row of either stream that does not fit, by its n; where much is free, p rises for the rows that come. A row that
does not stay is joined with those that are there, and seen by none after it. Which way is the closest, `approach.py`
says; UNIFORM is not among them: with what its counters take it would hardly ever be (`python -m benchmarks memory
--only ways`).
Guarantee: a result is in the sample with the chance of the row of it that came first, which stands with it; so the sum
of 1 / chance over the sample is an unbiased number of results, also where p fell (the number of the first row that does
not fit is where the threshold would be if a chosen row had been certain), and where rows come again soon
(`sampled_row_log.py`). Cuts into calls do not show.
Cost: 8 bytes per row, 16 for each value that the models count, and the traces; O(M log M) to make room.
Source: Srivastava, Widom, VLDB 2004, section 4.3; Ting, "Adaptive Threshold Sampling", SIGMOD 2022.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tocsin.interim.memory.sampled_row_log import Traces
from tocsin.operators.retention.cluster_sampling import EQ_CLUSTER, PPS_CLUSTER
from tocsin.operators.retention.utility.memory_curves import told
from tocsin.operators.retention.utility.sampling_choice import Aggregate, Expectation, choose, error_curve, error_with
from tocsin.operators.retention.utility.space_saving import Shares, shares_of
from tocsin.operators.retention.utility.stream_monitor import Monitor
from tocsin.runtime.contract import Float, Int

_WAYS = (EQ_CLUSTER, PPS_CLUSTER)
# p rises by this factor where at least half of the memory is free.
_RISE = 2.0


class Sampler:
    """p, the way to sample, how many results rows are expected to give, and traces of rows that went.

    What is expected follows from the models as they were when the way was chosen: they go on with each call, and
    chances must not depend on where calls end.
    """

    def __init__(self, monitor: Monitor | None, traces: int = 64) -> None:
        self.monitor, self.traces = monitor, Traces(traces)
        self.p = 1.0
        self.kind = EQ_CLUSTER
        self.expected = [Expectation(1.0, 0.0, margin=False)] * 2
        self.shares = self._shares_now()
        # The error that was predicted when the way was chosen, and the one of the p that were in force before.
        self.errors: list[float | None] = [None, None]
        # Errors by memory, and the results of a window that they are of.
        self.points, self.results = np.zeros((0, 2)), 0.0

    def judge(self, memory: float, row_cost: Sequence[float]) -> None:
        """Choose the way anew, with so much memory, of which rows of each lane take so much each.

        Lanes have memory in proportion to their rows. Where the way changes, p is found anew too.
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
        curve = error_curve(prospects, dict.fromkeys(_WAYS, sum(of.room for of in prospects) / whole))
        self.results = sum(of.results for of in prospects)
        self.points = np.zeros((0, 2))
        if curve is not None:
            has_bound = np.isfinite(curve.error)
            self.points = told(curve.memory[has_bound], curve.error[has_bound])

    def _shares_now(self) -> list[Shares]:
        """The shares that values have in each lane, as far as they are known."""
        return [] if self.monitor is None else [self.monitor.shares_now(lane) for lane in (0, 1)]

    def sizes(self, lane: int, key: Int) -> Float:
        """How many results rows with these keys are expected to give; 1 where all rows count alike."""
        if self.kind == EQ_CLUSTER or self.monitor is None:
            return np.ones(len(key))
        return np.maximum(self.expected[lane].n(PPS_CLUSTER, shares_of(self.shares[1 - lane], key)), 1e-12)

    def chances(self, lane: int, key: Int) -> Float:
        """With which chance new rows stay."""
        return np.minimum(1.0, self.p * self.sizes(lane, key))

    def thin(self, lane: Int, drawn: Float, key: Int, cost: Float, room: float) -> tuple[NDArray[np.bool_], Float]:
        """Let p fall until rows fit into so much room; say which stay, and the most that their chance is."""
        n = np.ones(len(key))
        for of in (0, 1):
            n[lane == of] = self.sizes(of, key[lane == of])
        at = drawn / n
        order = np.argsort(at, kind="stable")
        fits = int(np.searchsorted(np.cumsum(cost[order]), room, side="right"))
        if fits < len(order):
            self.p = float(at[order[fits]])
        return at < self.p, np.minimum(1.0, self.p * n)

    def rise(self) -> None:
        """Take more of the rows that come: much of the memory is free."""
        self.p = min(self.p * _RISE, 1e12) if self.p > 0 else 1e-9

    def arrays(self) -> dict[str, NDArray[Any]]:
        """State to be written."""
        parts = [self.kind, self.p, self.p, *(part for one in self.expected for part in (one.mean, one.by_share))]
        parts += [self.results, *(np.nan if error is None else error for error in self.errors)]
        named = {"sample": np.array(parts, np.float64), "sample.points": self.points}
        if self.shares:
            named |= {"sample.keys": np.stack([one.key for one in self.shares])}
            named |= {"sample.shares": np.stack([one.share for one in self.shares])}
        return named | {"sample.traces": self.traces.marks}

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """State that was written, when that of the models has been read."""
        kind, *rest = arrays["sample"].tolist()
        self.kind, self.p = int(kind), min(rest[:2])  # Earlier versions had a p for each lane, and no traces.
        if "sample.traces" in arrays:
            self.traces.load(arrays["sample.traces"])
        self.expected = [Expectation(rest[i], rest[i + 1], margin=False) for i in (2, 4)]
        self.shares = self._shares_now()  # As in earlier versions, and where models of other sizes begin anew.
        if self.shares and arrays.get("sample.keys", np.zeros(0)).shape == (2, len(self.shares[0].key)):
            self.shares = [Shares(arrays["sample.keys"][lane], arrays["sample.shares"][lane]) for lane in (0, 1)]
        if "sample.points" in arrays:  # Earlier versions knew no errors; they are found when the way is chosen anew.
            self.results, self.points = rest[6], arrays["sample.points"]
            self.errors = [None if np.isnan(error) else error for error in rest[7:]]
