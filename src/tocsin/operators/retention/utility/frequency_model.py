"""The frequency-based model: each value of the join attribute comes with a fixed share of the rows of each stream.

Idea: a row of S1 with value v gives r2 f2(v) results per unit of time as long as it is kept, whatever its age. So PROB
keeps the values that are most frequent in the other stream; of the first that does not fit whole, a fraction.
Guarantee: no strategy gives results at a higher rate, in expectation.
Cost: O(n log n) for n values.
Source: Srivastava, Widom, VLDB 2004, definition 2.1 and section 3.3, after Das, Gehrke, Riedewald; the fraction, which
is left out there, makes the rate a curve of straight pieces.
"""

from __future__ import annotations

import numpy as np

from tocsin.operators.retention.utility.memory_curves import RateCurve, concave
from tocsin.runtime.contract import Float


def expected_results(f_other: Float, r_other: float, window: float) -> Float:
    """E[n(s)], equation 1: how many results a row of each value gives while it is in its window."""
    return r_other * window * f_other


def rate_curve(f_own: Float, f_other: Float, r_own: float, r_other: float, window: float) -> RateCurve:
    """The best rate of results by memory for one window."""
    order = np.argsort(-f_other, kind="stable")
    rows = r_own * window * f_own[order]
    memory = np.concatenate([[0.0], np.cumsum(rows)])
    rate = np.concatenate([[0.0], np.cumsum(rows * r_other * f_other[order])])
    return concave(memory, rate)
