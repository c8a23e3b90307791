"""The time of a bucket, row by row, from its definition."""

from __future__ import annotations

from collections.abc import Sequence

BLOCK = 33


def elapsed(times: Sequence[int], allowed_lateness: int, leap: int) -> tuple[list[int], list[bool]]:
    """Give the elapsed time at each row, and whether it came further behind the newest than `allowed_lateness`."""
    given: list[int] = []
    behind: list[bool] = []
    clock = front = times[0] if times else 0
    for number, time in enumerate(times):
        clock += min(max(time - front, 0), leap)
        front = max(front, time)
        given.append(clock)
        behind.append(time < front - allowed_lateness)
        if number % BLOCK == BLOCK - 1:
            block = slice(number - BLOCK + 1, number + 1)
            if sum(behind[block]) > BLOCK / 2:
                front = sorted(times[block])[BLOCK // 2]
    return given, behind
