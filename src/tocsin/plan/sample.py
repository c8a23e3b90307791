"""Sample: a random sample of the results of two streams, where memory is short and `prefer` asks for it.

Idea: a row stays if a number drawn for it, by its key, time and values, is below its chance: p of its lane
(EQ-CLUSTER), or p n with n the results that it is expected to give (PPS-CLUSTER). All results of a row that stays are
in the sample. Where room is made, p falls to the number of the first row that does not fit, by its n; where much is
free, p rises for the rows that come. A row that does not stay is joined with those that are there, and seen by none
after it. Which way is the closest, `approach.py` says; UNIFORM, which needs a counter per row in the join, is not among
them.
Guarantee: a result is in the sample with the chance of the row of it that came first, which stands with it; so the sum
of 1 / chance over the sample is an unbiased number of results, also where p fell (the number of the first row that does
not fit is where the threshold would be if a chosen row had been certain). Cuts into calls do not show.
Cost: 8 bytes per row; O(M log M) to make room.
Source: Srivastava, Widom, VLDB 2004, section 4.3; Ting, "Adaptive Threshold Sampling", SIGMOD 2022.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tocsin.logic import Float, Int
from tocsin.stages.memory.approach import Aggregate, Expectation, choose
from tocsin.stages.memory.monitor import Monitor
from tocsin.stages.memory.sampling import EQ_CLUSTER, PPS_CLUSTER

_GAMMA, _FIRST, _SECOND = (np.uint64(n) for n in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
# p rises by this factor where at least half of the memory is free.
_RISE = 2.0


def draws(lane: Int, key: Int, time: Int, values: Sequence[Float]) -> Float:
    """A number from [0, 1) for each row, by what it is: the same whenever and wherever it is asked for."""
    with np.errstate(over="ignore"):
        state = key.astype(np.uint64) + lane.astype(np.uint64) * _SECOND
        for column in (time.astype(np.uint64), *(value.view(np.uint64) for value in values)):
            state = _mixed(state * _GAMMA + column + _GAMMA)
    return np.asarray((_mixed(state) >> np.uint64(11)).astype(np.float64) * 2.0**-53, np.float64)


def _mixed(bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The mixing of splitmix64."""
    bits = (bits ^ (bits >> np.uint64(30))) * _FIRST
    bits = (bits ^ (bits >> np.uint64(27))) * _SECOND
    return bits ^ (bits >> np.uint64(31))


class Sampler:
    """p of each lane, the way to sample, and how many results rows are expected to give."""

    def __init__(self, monitor: Monitor | None) -> None:
        self.monitor = monitor
        self.p = [1.0, 1.0]
        self.kind = EQ_CLUSTER
        self.expected = [Expectation(1.0, 0.0, margin=False)] * 2

    def judge(self, rows: Sequence[float]) -> None:
        """Choose the way anew, with memory for so many rows of each lane. Where that changes, p is found anew too."""
        if self.monitor is None:
            return
        windows = self.monitor.windows
        prospects = [self.monitor.prospect(i, rows[i], Aggregate(float(windows[i] or 1))) for i in (0, 1)]
        found = choose(prospects, [{EQ_CLUSTER: each, PPS_CLUSTER: each} for each in rows])
        self.kind, self.expected = found[0].kind, [one.expected for one in found]

    def sizes(self, lane: int, key: Int) -> Float:
        """How many results rows with these keys are expected to give; 1 where all rows count alike."""
        if self.kind == EQ_CLUSTER or self.monitor is None:
            return np.ones(len(key))
        names, place = np.unique(key, return_inverse=True)
        n = self.expected[lane].n(PPS_CLUSTER, self.monitor.shares(1 - lane, names))
        return np.maximum(n, 1e-12)[place.reshape(-1)]

    def chances(self, lane: int, key: Int) -> Float:
        """With which chance new rows stay."""
        return np.minimum(1.0, self.p[lane] * self.sizes(lane, key))

    def thin(self, lane: int, drawn: Float, key: Int, cost: Float, room: float) -> tuple[NDArray[np.bool_], Float]:
        """Let p of a lane fall until rows fit into so much room; say which stay, and the most that their chance is."""
        n = self.sizes(lane, key)
        at = drawn / n
        order = np.argsort(at, kind="stable")
        fits = int(np.searchsorted(np.cumsum(cost[order]), room, side="right"))
        if fits < len(order):
            self.p[lane] = float(at[order[fits]])
        return at < self.p[lane], np.minimum(1.0, self.p[lane] * n)

    def rise(self) -> None:
        """Take more of the rows that come: much of the memory is free."""
        self.p = [min(p * _RISE, 1e12) if p > 0 else 1e-9 for p in self.p]

    def arrays(self) -> dict[str, NDArray[Any]]:
        """State to be written."""
        parts = [self.kind, *self.p, *(part for one in self.expected for part in (one.mean, one.by_share))]
        return {"sample": np.array(parts, np.float64)}

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """State that was written."""
        kind, *rest = arrays["sample"].tolist()
        self.kind, self.p = int(kind), rest[:2]
        self.expected = [Expectation(rest[i], rest[i + 1], margin=False) for i in (2, 4)]
