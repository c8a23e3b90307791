"""Order: the step in front of a watch whose rows wait to be taken in order; and which rules need one.

A threshold rule joins a row on its arrival, however late, so every alarm is raised without any wait. What a wait buys
is order: lives that are not cut in two by a row that came behind. So a recall alone asks for no wait, unless the rule
has `for`, which counts on order, or says that only results in order count.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tocsin.rules.durations import duration_text, microseconds
from tocsin.rules.model import Rule
from tocsin.rules.waiting import FIXED, GRAINS, NONE, OBSERVED, RECALL, Waiting
from tocsin.stages.order.wait import Quality


@dataclass(frozen=True)
class Order:
    """How long rows wait, at most `outage_us`, when a stream is not waited for, and the window of each lane.

    `shared`: a bucket tells what it knows of delays and results, and takes the wait that all buckets agree on.
    """

    waiting: Waiting
    idle_us: int
    windows_us: tuple[int, ...]
    outage_us: int
    shared: bool = False

    @property
    def shareable(self) -> bool:
        """Tell whether buckets can agree on the wait: statistics of the other kinds are not added up."""
        return self.waiting.kind == RECALL and self.waiting.strategy == OBSERVED

    @property
    def adapts(self) -> bool:
        """Tell whether the wait follows the data."""
        return self.waiting.kind != FIXED

    @property
    def quality(self) -> Quality:
        """What the wait is chosen by."""
        asked = self.waiting
        return Quality(
            recall=asked.recall,
            over_us=asked.over_us,
            every_us=asked.every_us,
            grain_us=asked.grain_us,
            basic_us=asked.grain_us,
            bins=GRAINS,
        )

    def __str__(self) -> str:
        """Say how long rows wait."""
        later = "one that comes later is joined too, its alert marked late"
        return f"rows wait {self.waiting}; {later}; a stream {duration_text(self.idle_us)} behind is not waited for"


def needed_wait(rule: Rule) -> tuple[Waiting, str]:
    """The wait that a rule needs, and why that is less than it asks for, where it is."""
    asked = rule.waiting
    if asked.kind != RECALL or asked.in_order or microseconds(rule.for_, "`for`"):
        return asked, ""
    why = f"no wait: rows are joined on arrival, so its recall of {asked.recall:g} is 1 without `for`"
    return replace(asked, kind=NONE), f"{why}; `in_order: true` waits for order"
