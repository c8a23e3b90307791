"""The age-based model: how many results a row gives depends on its age alone.

Idea: a row that was dropped never comes back, so what a row gives is C(k), with k the age at which it is dropped. Over
many rows any strategy mixes such ages; the best mixture that fits into memory lies on the concave envelope of C. Up to
k_opt, where C(k)/k is largest, that is: rows are kept for k_opt or not at all. Where the age curve has minima the
envelope bridges them: some rows are dropped before, others behind, none within.
Guarantee: no strategy gives results at a higher rate (rows at a constant rate). Strategies 1 and 2 of the paper, and
its Example 3.4, reach it.
Cost: O(n) for n granules of age.
Source: Srivastava, Widom, VLDB 2004, definition 2.2 and section 3.2. Equations 2 and 3 are this envelope where the
curve has no minima; with minima the paper has a greedy heuristic (`priority`) and no rate, which the envelope gives.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tocsin.operators.retention.utility.memory_curves import RateCurve, concave
from tocsin.runtime.contract import Float


@dataclass(frozen=True)
class AgeCurve:
    """p(k): the results that a row gives between ages k - 1 and k, in granules of `granule` units of time."""

    p: Float
    granule: float = 1.0

    @property
    def cumulative(self) -> Float:
        """C(k) for k = 0 to the last."""
        return np.concatenate([[0.0], np.cumsum(self.p)])

    @property
    def n(self) -> float:
        """All results that a row gives."""
        return float(np.sum(self.p))

    @property
    def k_opt(self) -> int:
        """The age, in granules, at which C(k)/k is largest; the least such."""
        ages = np.arange(1, len(self.p) + 1)
        return int(ages[np.argmax(np.cumsum(self.p) / ages)]) if len(self.p) else 0

    @property
    def has_minima(self) -> bool:
        """Tell whether p falls somewhere and rises again behind."""
        fell = np.flatnonzero(np.diff(self.p) < 0)
        return bool(len(fell) and (np.diff(self.p)[fell[0] :] > 0).any())

    def priorities(self) -> Float:
        """Priority(i) for each age i: the fastest rate at which a row of that age can still give results.

        The steepest line from (i, C(i)) to a later point touches the upper hull of these.
        """
        total = self.cumulative
        priority, hull = np.zeros(len(self.p)), [len(self.p)]
        for i in range(len(self.p) - 1, -1, -1):
            while len(hull) > 1 and _slope(total, i, hull[-1]) <= _slope(total, i, hull[-2]):
                hull.pop()
            priority[i] = _slope(total, i, hull[-1])
            hull.append(i)
        return priority

    def rate_curve(self, r: float) -> RateCurve:
        """The best rate of results by memory, for rows that come at r per unit of time."""
        ages = np.arange(len(self.p) + 1, dtype=np.float64) * self.granule
        return concave(r * ages, r * self.cumulative)


def _slope(total: Float, i: int, j: int) -> float:
    return float((total[j] - total[i]) / (j - i))
