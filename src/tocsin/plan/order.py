"""Order: the step in front of a watch whose rows wait to be taken in order; and which rules need one.

A threshold rule joins a row on its arrival, however late, so every alarm is raised without any wait. What a wait buys
is order: lives that are not cut in two by a row that came behind. So a recall alone asks for no wait, unless the rule
has `for`, which counts on order, or says that only results in order count.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tocsin.operators.reorder.wait_policy import RecallConfig
from tocsin.rules.durations import duration_text, microseconds
from tocsin.rules.model import Rule
from tocsin.rules.quality import FIXED, MAX_STEPS, NONE, OBSERVED, RECALL, ReorderWait


@dataclass(frozen=True)
class Order:
    """How long rows wait, at most `allowed_lateness_us`, when a stream is not waited for, and the window of each lane.

    `shared`: a bucket tells what it knows of delays and results, and takes the wait that all buckets agree on.
    """

    waiting: ReorderWait
    idle_timeout_us: int
    windows_us: tuple[int, ...]
    allowed_lateness_us: int
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
    def quality(self) -> RecallConfig:
        """What the wait is chosen by."""
        asked = self.waiting
        return RecallConfig(
            recall=asked.recall,
            over_us=asked.period_us,
            every_us=asked.adapt_every_us,
            grain_us=asked.step_us,
            basic_us=asked.step_us,
            bins=MAX_STEPS,
        )

    def __str__(self) -> str:
        """Return the reorder wait and the idle timeout as text."""
        idle = duration_text(self.idle_timeout_us)
        return f"rows wait {self.waiting}; a later row can raise a late alert; a stream is idle after {idle}"


def needed_wait(rule: Rule) -> tuple[ReorderWait, str]:
    """The wait that a rule needs, and why that is less than it asks for, where it is."""
    asked = rule.quality_options.wait
    if asked.kind != RECALL or asked.in_order or microseconds(rule.for_, "`for`"):
        return asked, ""
    why = f"no wait: without `for`, rows are joined on arrival and the recall is 1 (configured: {asked.recall:g})"
    return replace(asked, kind=NONE), f"{why}; set `quality.in_order: true` to wait for order"
