"""Measured: a wait by the recall that was measured, where the paper's strategies go by a cautious estimate of it.

Idea: a row that comes late to the join is counted through its windows all the same, and nothing is emitted: what it
finds there is what was lost. Produced plus lost are the true results, nearly exactly, however delays and values hang
together. What a period P lacks is made up over the next two thirds of one. Recall is concave in K, so a wait that
hardly moves costs least; Eq. 7 asks the next interval L alone to make up for all of P, and sends K to the longest delay
for a lack of (1 - Gamma) L / P.
The aim lies above Gamma, for chance, and what is required keeps off Gamma and 1: the last bit of recall costs the
longest delay, and what is saved below Gamma has to be bought again above it.

Guarantee: with Gamma = 1 the largest delay seen. Otherwise an estimate, as Alg. 3 is. Should the join count nothing for
late rows, what is required is Gamma + (1 - Gamma) / 5, and the model decides as EqSel does.
Cost: O(1) per row, and a count through the windows for a late one; O(P / L) per interval.
Source: ours, on the model of Ji et al., ICDE 2016, Eq. 2 to 5. There a late row is credited what the best row of the
interval had (section IV-B): each late row looks like many, the recall of the past worse than it is, and K goes up.
"""

from __future__ import annotations

from tocsin.jit import kernel
from tocsin.runtime.contract import Bools, Float, Int

# The aim, and the bounds of what is required, as shares of the way from Gamma to 1.
AIM, LEAST, MOST = 0.6, 0.2, 0.85
# The share of P over which a lack is made up, and the share over which the rate of true results is taken.
AHEAD, RECENT = 2 / 3, 1 / 6


@kernel
def note_lost(
    lost: Float,
    windows_us: Int,
    waits_us: tuple[int, int],
    stream: Int,
    delay_us: Int,
    results: Float,
    in_order: Bools,
) -> None:
    """Add to `lost[0]` what rows that came late to the join would have produced, by what they found in its windows.

    A row that comes d behind has missed also the results whose newest row came in these d: for each other stream a
    share d / W of what it finds, up to all of it. `waits_us` are the wait and the longest one there may be; no wait
    could save a row that comes later than that, such as one of a replay, and it counts for nothing.
    """
    others = windows_us.shape[0] - 1
    wait_us, longest_us = waits_us
    for row in range(stream.shape[0]):
        if not in_order[row] and delay_us[row] <= longest_us:
            window = max(windows_us[stream[row]], 1)
            behind = min(max(delay_us[row] - wait_us, 0), window)
            lost[0] += results[row] * (1.0 + others * behind / window)


def spread_recall(wanted: float, produced: Float, true: Float) -> float:
    """The recall that the next intervals must reach, by the results of those in the last P - L, oldest first."""
    intervals = len(true) + 1
    ahead = min(max(round(AHEAD * intervals), 1), intervals)
    recent = true[-max(round(RECENT * intervals), 1) :]
    rates = recent if recent.any() else true
    expected = ahead * float(rates.sum()) / max(len(rates), 1)
    lack = 1.0 - wanted
    aim = wanted + AIM * lack
    if expected <= 0.0:
        return aim
    # What will still be in P when all that lies ahead is over.
    stays = slice(ahead - 1, None)
    required = (aim * (float(true[stays].sum()) + expected) - float(produced[stays].sum())) / expected
    return min(max(required, wanted + LEAST * lack), wanted + MOST * lack)
