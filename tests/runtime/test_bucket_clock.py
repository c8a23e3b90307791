"""The clock of a bucket: near the time of the rows, moved by no odd one, whatever the cut."""

from __future__ import annotations

import numpy as np
import pytest

from tocsin.runtime.bucket_clock import BLOCK, BucketClock

MS = 1000


def test_the_clock_keeps_up_with_rows_in_order() -> None:
    clock, time = BucketClock(400 * MS), np.arange(1000) * MS
    steady = clock.advance(time)
    assert (np.abs(steady - time)[3 * BLOCK :] <= MS).all()
    assert clock.now_us == pytest.approx(time[-1], abs=MS)


def test_neither_a_row_from_the_future_nor_a_silence_moves_it_far() -> None:
    time = np.arange(1000) * MS
    time[25::50] += 10**12
    time[600:] += 10_000 * MS
    clock = BucketClock(400 * MS)
    clock.advance(time[:500])
    assert clock.now_us == pytest.approx(500 * MS, abs=3 * MS)
    steady = clock.advance(time[500:])
    assert clock.now_us == pytest.approx(11_000 * MS, abs=3 * MS)
    assert steady[-1] <= 1000 * MS + 400 * MS
    earlier = BucketClock(400 * MS)
    earlier.restore_state({"clock.times": np.array([5, 7]), "clock.recent": time[:3]})
    assert (earlier.now_us, earlier.steady_us) == (5, 7)
