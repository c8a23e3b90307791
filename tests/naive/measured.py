"""The strategy Measured in exact fractions: what late rows lost, and the recall that is to be reached."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction


def lost(rows: Sequence[tuple[int, int, bool]], longest: int) -> int:
    """Return the results of late rows among rows (delay, results, in order), without delays above the longest wait."""
    return sum(found for delay, found, in_order in rows if not in_order and delay <= longest)


def required(wanted: Fraction, intervals: Sequence[tuple[int, int]], periods: int) -> Fraction:
    """By results (produced, true) of the intervals of a period but one, oldest first: what is to be reached."""
    ahead = max(round(2 / 3 * periods), 1)
    aim = wanted + (1 - wanted) * 3 / 5
    recent = [true for _, true in intervals][-max(round(periods / 6), 1) :]
    if sum(recent) == 0:
        recent = [true for _, true in intervals]
    if sum(recent) == 0:
        return aim
    expected = ahead * Fraction(sum(recent), len(recent))
    stay = intervals[len(intervals) - (periods - ahead) :] if periods > ahead else []
    produced, true = (sum(size[i] for size in stay) for i in (0, 1))
    # produced + reached * expected = aim * (true + expected)
    reached = (aim * (true + expected) - produced) / expected
    return min(max(reached, wanted + (1 - wanted) / 5), wanted + (1 - wanted) * 17 / 20)
