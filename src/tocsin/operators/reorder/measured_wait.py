"""Measured wait: requirements and counts of the strategy `measured`, which uses the recall that was reached.

Algorithm: a rule joins late rows too, so lost results are counted: the results that late rows complete. Produced plus
lost are the true results. The other strategies of the paper estimate them. A shortfall of a period is compensated over
the next two thirds of a period. Recall is concave in K, so a wait that hardly moves costs least. Eq. 7 of the paper
requires the next interval L alone to compensate a whole period P, and K rises to the longest delay for a shortfall of
(1 - Gamma) L / P. The aim is above the target Gamma, because recall varies. The requirement stays away from Gamma and
from 1: the last share of recall costs the longest delay, and a shortfall must be compensated later.

Guarantees: with a target of 1 the wait is the largest delay. Otherwise the recall is an estimate, like Algorithm 3. If
no late result is counted, the requirement is Gamma + (1 - Gamma) / 5, and the recall model decides like EqSel.

Complexity: O(1) per row; O(P / L) per interval.

References: an addition to the model of Ji et al., ICDE 2016, Eq. 2 to 5. In the paper a late row counts as the most
productive row of the interval (section IV-B), so K becomes too long.
"""

from __future__ import annotations

from tocsin.runtime.contract import Bools, Float, Int

# Aim and bounds of the requirement, as shares of the distance from Gamma to 1.
AIM, LEAST, MOST = 0.6, 0.2, 0.85
# Share of P in which a shortfall is compensated, and share that determines the rate of true results.
AHEAD, RECENT = 2 / 3, 1 / 6


def lost_results(longest_us: int, delay_us: Int, results: Float, in_order: Bools) -> float:
    """Return the number of results of late rows. A row later than the longest wait cannot be saved, and is ignored."""
    return float(results[~in_order & (delay_us <= longest_us)].sum())


def spread_recall(wanted: float, produced: Float, true: Float) -> float:
    """Return the required recall of the next intervals from the results of the last P - L, oldest first."""
    intervals = len(true) + 1
    ahead = min(max(round(AHEAD * intervals), 1), intervals)
    recent = true[-max(round(RECENT * intervals), 1) :]
    rates = recent if recent.any() else true
    expected = ahead * float(rates.sum()) / max(len(rates), 1)
    lack = 1.0 - wanted
    aim = wanted + AIM * lack
    if expected <= 0.0:
        return aim
    # Intervals that are still in P after the intervals ahead.
    stays = slice(ahead - 1, None)
    required = (aim * (float(true[stays].sum()) + expected) - float(produced[stays].sum())) / expected
    return min(max(required, wanted + LEAST * lack), wanted + MOST * lack)
