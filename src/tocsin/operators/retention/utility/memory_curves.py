"""How many results memory buys: concave curves of pieces of straight line.

Idea: whatever the model, the best use of M rows of memory gives results at a rate that is a concave, piecewise linear
function of M: rows, or stretches of their lives, that give most per cell and time come first. So memory is divided
between windows and between joins by taking the steepest pieces first. Of samples the variance saved rises so.
Guarantee: exact for the curves given; a sum of curves is the best of all divisions.
Cost: O(n log n) for n pieces; a reading is O(log n).
Source: Srivastava, Widom, "Memory-Limited Execution of Windowed Stream Joins", VLDB 2004, equations 2 and 3 and section
3.3; there M1 and M2 are searched for, here the pieces are sorted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tocsin.jit import kernel
from tocsin.runtime.contract import Float, Int

# Points of a curve that are told to others.
_TOLD = 17


class RateCurve(NamedTuple):
    """Corners of a concave curve from (0, 0): memory in rows, and results per unit of time; flat behind the last."""

    memory: Float
    rate: Float

    @property
    def most(self) -> float:
        """The rate with memory for everything."""
        return float(self.rate[-1])

    @property
    def needed(self) -> float:
        """The least memory that gives all results."""
        return float(self.memory[-1])

    def rate_at(self, memory: float) -> float:
        """The best rate with so much memory."""
        return float(np.interp(memory, self.memory, self.rate))

    def recall_at(self, memory: float) -> float:
        """The share of all results with so much memory; of none at all, all are found."""
        return self.rate_at(memory) / self.most if self.most > 0 else 1.0

    def memory_for(self, rate: float) -> float:
        """The least memory that gives a rate; more than is possible is not given."""
        return float(np.interp(rate, self.rate, self.memory)) if self.most > 0 else 0.0


class ErrorCurve(NamedTuple):
    """Errors that some amounts of memory in rows allow, the least amount first; with less than that there is no bound.

    More memory is never worse: what is not used does no harm. Between two amounts the error is that of the lower one.
    """

    memory: Float
    error: Float

    def error_at(self, memory: float) -> float:
        """The error with so much memory."""
        at = int(np.searchsorted(self.memory, memory, "right"))
        return float(np.minimum.accumulate(self.error)[at - 1]) if at else np.inf

    def memory_for(self, error: float) -> float:
        """The least memory for an error that is no larger; where there is none, that for the least error."""
        lowest = np.minimum.accumulate(self.error)
        enough = np.flatnonzero(lowest <= max(error, lowest[-1]))
        return float(self.memory[enough[0]]) if error < np.inf else 0.0


@kernel
def envelope(memory: Float, rate: Float) -> Int:
    """Give the corners of the smallest concave curve above some points, which are sorted by memory."""
    corners, count = np.empty(memory.shape[0], np.int64), 0
    for at in range(memory.shape[0]):
        while count > 1:
            left, middle = corners[count - 2], corners[count - 1]
            rise = (rate[middle] - rate[left]) * (memory[at] - memory[left])
            if rise > (rate[at] - rate[left]) * (memory[middle] - memory[left]):
                break
            # The corner is on or below the line between the one before it and this point.
            count -= 1
        corners[count] = at
        count += 1
    return corners[:count].copy()


def concave(memory: Float, rate: Float) -> RateCurve:
    """Make a curve of points that are sorted by memory and begin at (0, 0); what no longer rises is cut off."""
    corners = envelope(memory, rate)
    top = int(np.argmax(rate[corners]))
    return RateCurve(memory[corners[: top + 1]], rate[corners[: top + 1]])


def told(memory: Float, value: Float) -> Float:
    """Some points of a curve, evenly by their number, with the first and the last: what others are told of it."""
    at = np.unique(np.linspace(0, len(memory) - 1, _TOLD if len(memory) else 0).astype(np.int64))
    return np.stack([memory[at], value[at]], axis=1)


def together(curves: Sequence[RateCurve]) -> RateCurve:
    """The best rate of several windows that share their memory."""
    width = np.concatenate([np.diff(curve.memory) for curve in curves])
    rise = np.concatenate([np.diff(curve.rate) for curve in curves])
    # A piece that costs nothing comes first.
    slope = np.divide(rise, width, out=np.full(len(width), np.inf), where=width > 0)
    order = np.argsort(-slope, kind="stable")
    memory, rate = (np.concatenate([[0.0], np.cumsum(part[order])]) for part in (width, rise))
    return RateCurve(memory, rate)


def divide(curves: Sequence[RateCurve], memory: float) -> list[float]:
    """Divide memory between windows so that the sum of their rates is largest; what none can use is left over."""
    pieces = [
        (-(rise / width), number, width)
        for number, curve in enumerate(curves)
        for width, rise in zip(np.diff(curve.memory).tolist(), np.diff(curve.rate).tolist(), strict=True)
        if width > 0
    ]
    shares, left = [0.0] * len(curves), float(memory)
    for _, number, width in sorted(pieces, key=lambda piece: piece[0]):
        given = min(width, left)
        shares[number] += given
        left -= given
    return shares


def divide_errors(curves: Sequence[ErrorCurve], results: Sequence[float], memory: float) -> list[float]:
    """Divide memory between samples so that the sum of their estimates, of so many results each, is closest.

    Each has what its least error bound needs; with less than that for all of them, they share in proportion.
    """
    least = [float(curve.memory[0]) for curve in curves]
    if memory <= sum(least):
        return [memory * need / sum(least) for need in least]
    more = divide([_variance_saved(*one) for one in zip(curves, results, strict=True)], memory - sum(least))
    return [need + share for need, share in zip(least, more, strict=True)]


def errors_together(curves: Sequence[ErrorCurve], results: Sequence[float]) -> ErrorCurve:
    """The least error of the sum of several samples that share their memory (`divide_errors`); errors are finite."""
    least = sum(float(curve.memory[0]) for curve in curves)
    most = sum((n * float(curve.error[0])) ** 2 for curve, n in zip(curves, results, strict=True))
    saved = together([_variance_saved(*one) for one in zip(curves, results, strict=True)])
    return ErrorCurve(least + saved.memory, np.sqrt(np.maximum(most - saved.rate, 0.0)) / sum(results))


def _variance_saved(curve: ErrorCurve, results: float) -> RateCurve:
    """How much memory beyond the least takes off the variance; samples are independent, so that adds up."""
    variance = (results * np.minimum.accumulate(curve.error)) ** 2
    return concave(curve.memory - curve.memory[0], variance[0] - variance)
