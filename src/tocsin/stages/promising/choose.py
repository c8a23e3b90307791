"""Choose how a stream is summarised, by the results per tuple that are to be expected.

Idea: Eq. 1 gives the results per arriving tuple as (tau - t_ins) / t_hit: the units between two arrivals, less those to
take a tuple in, over those to find one result. What is dear to keep up finds results faster, and pays off where there
are units enough. No form finds more results than there are, so with units for all of them the simplest is best.
Guarantee: none but the model's: results spread evenly over zones, summaries that name the zones which hold them.
Cost: O(1).
Source: Ali, Aref, ElTabakh, section 2, Eq. 1, and Figures 9 and 10; the model of t_hit is ours.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from tocsin.stages.promising.anytime_join import COSTS
from tocsin.stages.promising.books import Costs
from tocsin.stages.promising.layout import PLAIN, Layout


class Load(NamedTuple):
    """What a join has to do: units between arrivals, tuples in a window, results of a tuple, which tuples have any.

    `spread` is how many times the mean the results of the most promising tuples are, 1 where all are alike.
    """

    tau: float
    window: float
    results: float
    matching: float = 1.0
    spread: float = 1.0


def insertion(layout: Layout, load: Load, costs: Costs = COSTS) -> float:
    """Units to take a tuple in, its regions to be probed included: t_ins."""
    if layout.variant in PLAIN:
        return costs.insert
    per_zone, rows = max(1.0, load.window / layout.zones), layout.scheme.rows
    units = costs.insert + rows * (costs.summarize + costs.estimate) + 6 * costs.table * layout.scheme.cells / per_zone
    # Only tuples that are expected to have results are compared by promise.
    probing = rows * costs.estimate + 2 * costs.queue
    return units + load.matching * probing + (1 - load.matching) * costs.queue / 2


def hit(layout: Layout, load: Load, costs: Costs = COSTS) -> float:
    """Units to find a result: t_hit."""
    scanned = costs.scan * load.window / layout.parts
    if layout.variant in PLAIN:
        return costs.emit + scanned / max(load.results, 1e-9)
    # Tuples without results are not probed, those with the most come first.
    promising = load.results / max(load.matching, 1e-9) * load.spread
    pieces = min(layout.zones, max(1.0, promising))
    by_zone = scanned * pieces / layout.zones + layout.zones * (layout.scheme.rows * costs.estimate + 2 * costs.queue)
    return costs.emit + min(scanned, by_zone) / max(promising, 1e-9)


def output(layout: Layout, load: Load, costs: Costs = COSTS) -> float:
    """Results per arriving tuple, by Eq. 1; more than there are is what could be found."""
    return max(0.0, load.tau - insertion(layout, load, costs)) / hit(layout, load, costs)


def choose(layout: Layout, load: Load, costs: Costs = COSTS) -> Layout:
    """Give the form of a layout that finds the most; one without summaries if that finds as many, or all there are.

    To the model T3 and T4 are alike, as they are while streams stay as they are; T4 is taken, whose zones end when not.
    """

    def rank(form: Layout) -> tuple[float, bool, float, bool]:
        found = output(form, load, costs)
        return round(min(found, load.results), 9), form.variant in PLAIN, round(found, 9), form.variant == "T4"

    return max((replace(layout, variant=variant) for variant in ("T1", "SHJ", "T2", "T3", "T4")), key=rank)
