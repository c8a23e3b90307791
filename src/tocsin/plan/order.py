"""Order: the planned reorder wait of a keyed pipeline, and the rules that need one.

A rule joins a row on its arrival, so it raises every alarm without a wait. A wait adds order: alerts that are not
divided by an out-of-order row. So a recall target needs a wait only if the rule has `for`, which depends on order, or
if only results in order count.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tocsin.operators.reorder.wait_policy import RecallConfig
from tocsin.rules.durations import duration_text, microseconds
from tocsin.rules.model import Rule
from tocsin.rules.quality import FIXED, MAX_STEPS, NONE, OBSERVED, RECALL, ReorderWait


@dataclass(frozen=True)
class Order:
    """Planned reorder wait.

    Attributes
    ----------
        waiting: Configured wait.
        idle_timeout_us: Idle timeout of a stream.
        windows_us: Window of each lane.
        allowed_lateness_us: Longest wait of `max`.
        shared: Whether buckets report their statistics and use a common wait.
    """

    waiting: ReorderWait
    idle_timeout_us: int
    windows_us: tuple[int, ...]
    allowed_lateness_us: int
    shared: bool = False

    @property
    def shareable(self) -> bool:
        """Whether buckets can use a common wait: only the statistics of `observed` can be added."""
        return self.waiting.kind == RECALL and self.waiting.strategy == OBSERVED

    @property
    def adapts(self) -> bool:
        """Whether the wait depends on the rows."""
        return self.waiting.kind != FIXED

    @property
    def quality(self) -> RecallConfig:
        """Parameters of the search for the wait."""
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
    """Return the wait that a rule needs, and the reason if this is less than the configured wait."""
    asked = rule.quality_options.wait
    if asked.kind != RECALL or asked.in_order or microseconds(rule.for_, "`for`"):
        return asked, ""
    why = f"no wait: without `for`, rows are joined on arrival and the recall is 1 (configured: {asked.recall:g})"
    return replace(asked, kind=NONE), f"{why}; set `quality.in_order: true` to wait for order"
