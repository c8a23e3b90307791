"""Emission times: for the arrivals of a call, how far each row moves the watermark of its key for one rule.

A backtest takes many rows in one call, and alerts come out at its end. The emission time of an alert is the newest
event time of its key at the row that moves the watermark to the evaluation. Batch boundaries do not change it. It
is a lower bound if an evaluation has the time of an earlier row, or if the rule has `for`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tocsin.jit import kernel
from tocsin.operators.join.operator import Join, advance_watermark
from tocsin.runtime.alert_batch import NO_TIME
from tocsin.runtime.contract import NEVER_SEEN, Int
from tocsin.runtime.row_batch import RowBatch
from tocsin.runtime.state_registry import Shard


@kernel
def track_watermarks(
    stream: Int, key: Int, time: Int, newest: Int, key_watermark: Int, idle_timeout_us: int, lag_us: int
) -> tuple[Int, Int]:
    """Return the watermark and the newest event time of the key after each row. `stream` is -1 for unused rows."""
    watermark, newest_time = np.empty(key.shape[0], np.int64), np.empty(key.shape[0], np.int64)
    for i in range(key.shape[0]):
        k = key[i]
        if stream[i] >= 0:
            newest[k, stream[i]] = max(newest[k, stream[i]], time[i])
        newest_time[i] = newest[k].max()
        if stream[i] >= 0 and lag_us > 0:
            key_watermark[k] = max(key_watermark[k], newest_time[i] - lag_us)
        elif stream[i] >= 0:
            advance_watermark(k, newest, key_watermark, idle_timeout_us)
        watermark[i] = key_watermark[k]
    return watermark, newest_time


class EmissionTimes(NamedTuple):
    """Watermark and newest event time after each arrival of a call; arrivals are ordered by key and arrival."""

    key: Int
    watermark: Int
    newest_time: Int

    @classmethod
    def of(cls, join: Join, shard: Shard, arrivals: RowBatch) -> EmissionTimes:
        """Compute the emission times of a rule. Call it before the rule evaluates the arrivals."""
        state, rule = join.state(shard), join.rule
        newest, key_watermark = state.newest.copy(), state.watermark.copy()
        stream = join.stream_of[arrivals.view]
        times = track_watermarks(
            stream, arrivals.key, arrivals.time, newest, key_watermark, rule.idle_timeout_us, rule.lag_us
        )
        return cls(arrivals.key, *times)

    def find(self, key: Int, time: Int) -> Int:
        """Return when evaluations at these times are emitted, or NO_TIME if no arrival of the call emits one."""
        emitted = np.full(len(key), NO_TIME)
        for i, (k, time_us) in enumerate(zip(key.tolist(), time.tolist(), strict=True)):
            begin, end = np.searchsorted(self.key, [k, k + 1]).tolist()
            at = begin + int(np.searchsorted(self.watermark[begin:end], time_us))
            if at < end and self.newest_time[at] != NEVER_SEEN:
                emitted[i] = self.newest_time[at]
        return emitted
