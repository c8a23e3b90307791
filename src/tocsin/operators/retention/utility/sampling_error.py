"""How far off an estimate from a sample will be, before the sample is taken, and which way to sample is the closest.

Idea: the variance of a Horvitz-Thompson sum is (1 - probability) / probability times the square of what is chosen
together: a result for UNIFORM, all results of a row for clusters. So clusters lose where their sums differ: by their
sizes (less so where probabilities go by size), and by a value that all results of a row share. For AVG only what
differs from the average counts. UNIFORM holds rows for a shorter time, so its fraction is larger for the same memory,
but it misses what comes after the n(s) that it expects, which is a bias.
Guarantee: exact for SUM and COUNT of whole clusters, in the limit of many for AVG; rows that reach over the ends of the
window of the aggregate are not looked at apart.
Cost: O(values).
Source: Srivastava, Widom, VLDB 2004, section 4.3.2, which names what to compare; Cochran, "Sampling Techniques", 9A.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from tocsin.operators.retention.cluster_sampling import EQ_CLUSTER, PPS_CLUSTER, UNIFORM
from tocsin.runtime.contract import Float


class Population(NamedTuple):
    """Results in the window of an aggregate: per value of the key, rows held in turn and results of each.

    The aggregated numbers have a mean and a standard deviation, and are those of the held rows or of those they meet.
    `expected` is what was expected of the rows, by which PPS-CLUSTER takes them, where that is not n.
    """

    rows: Float
    n: Float
    mean: float = 1.0
    deviation: float = 0.0
    of_held: bool = True
    expected: Float | None = None


def relative_errors(kind: int, p: float | Float, of: Population) -> tuple[float, float]:
    """The standard errors of SUM and of AVG, by their true values; with a deviation of 0 the first is that of COUNT.

    p is that of all rows, or of each value: windows of a join may differ in it.
    """
    some = of.n > 0
    rows, n, p = of.rows[some], of.n[some], np.broadcast_to(p, some.shape)[some]
    size = n if of.expected is None else of.expected[some]
    results = float(rows @ n)
    chance = np.minimum(1.0, p * size if kind == PPS_CLUSTER else p)
    surplus = np.divide(1 - chance, chance, out=np.full(len(n), np.inf), where=chance > 0)
    if kind == UNIFORM:
        together, alone = n, n
    else:
        together, alone = n**2, n**2 if of.of_held else n
    # What the results of a cluster have in common adds up before it is squared.
    about_mean = float(np.sum(rows * surplus * alone)) * of.deviation**2
    of_sum = float(np.sum(rows * surplus * together)) * of.mean**2 + about_mean
    whole = results * abs(of.mean)
    return float(np.sqrt(of_sum)) / whole, float(np.sqrt(about_mean)) / whole


def closest(
    fractions: Mapping[int, float] | Mapping[int, Float], of: Population, missed: float, *, averages: bool = False
) -> int:
    """The way to sample with the least error, each with the fraction that memory allows.

    `missed` is the share of results beyond the n(s) that UNIFORM expects (`missed_shares`): a bias of SUM and COUNT.
    For averages it counts as well, as nobody knows whether what is missed is like the rest.
    """

    def error(kind: int) -> float:
        found = relative_errors(kind, fractions[kind], of)[averages]
        return float(np.hypot(found, missed if kind == UNIFORM else 0.0))

    # Of equals the one that needs to know least.
    order = [kind for kind in (EQ_CLUSTER, PPS_CLUSTER, UNIFORM) if kind in fractions]
    return min(order, key=lambda kind: round(error(kind), 12))
