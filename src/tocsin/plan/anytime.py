"""Anytime: how much work a watch may do, on what it is spent first, and by when; and which rules have one.

The joins of rules with `quality.cpu` or `quality.deadline` are anytime joins (`stages/promising`): one for all keys of
a bucket, shared by rules that read the same columns of the same two streams under the same keys. Work is counted in
units that accrue with the time of the streams, so many per second as a core does in that time (`UNIT_NS`, or what was
measured).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tocsin.plan.order import needed_wait
from tocsin.rules.durations import duration_text, microseconds
from tocsin.rules.model import Rule
from tocsin.rules.quality import NONE, Cpu
from tocsin.stages.promising.anytime_join import COSTS, UNLIMITED
from tocsin.stages.promising.books import Costs, Pace
from tocsin.stages.promising.count_sketch import CountSketch
from tocsin.stages.promising.layout import FOREVER, Layout
from tocsin.stages.promising.preference import Preference

if TYPE_CHECKING:
    from tocsin.plan.guided import Guided

# Nanoseconds that a unit takes, a tuple scanned, where nothing was measured (`calibrate.py`).
UNIT_NS = 8.0
# Where only a deadline is given.
DEFAULT_CORES = 1.0
# What a part of is found, pairs of rows or rows, of at most so many streams.
MOST_STREAMS = 2
# In units, besides what the join itself does: to take a row in, to hand over a pair, to evaluate one rule on it, and to
# write down a result; to let old rows go, however many, and for each row that was there (`python -m benchmarks cpu
# --only costs`).
ROW, PAIR, EVALUATE, WRITE, RENEW, RENEW_EACH = 150.0, 3.0, 3.0, 1_100.0, 65_000.0, 8.0
# For how many windows rows of a key stay that has fallen silent. Each costs as much as taking them in.
STAY = 32
# Value buckets: a key shares one with few others. Zones cover the window, whatever the rate.
BUCKETS, ZONES, SKETCH = 256, 4, CountSketch(5, 512)


@dataclass(frozen=True)
class Anytime:
    """What the join of a watch may spend over all `buckets`.

    `units` are those that accrue with each row, instead of `cores`; neither: no limit. Rows are kept for `window_us`:
    as far apart as two rows of a result may be, and `allowed_lateness_us` more, which a row may come behind. `pooled`:
    the cores are a part of what the run may use. Rules of one stream are `guided` to its rows, and keep them until the
    deadline.
    """

    window_us: int
    allowed_lateness_us: int
    cores: float | None = None
    deadline_us: int | None = None
    preference: Preference | None = None
    summary: Layout | None = None
    pooled: bool = False
    units: float | None = None
    buckets: int = 1
    unit_ns: float = UNIT_NS
    guided: Guided | None = None

    @property
    def is_limited(self) -> bool:
        """Whether something may be left out for want of units."""
        return self.cores is not None or self.units is not None

    @property
    def layout(self) -> Layout:
        """How streams are summarised: as declared, or by zones of one length; without a limit not at all.

        Where memory is not limited, tuples go when they are told to (`row_log.py`).
        """
        if self.summary is not None:
            limited = self.summary.memory is not None
            return replace(self.summary, window_us=self.window_us if limited else FOREVER)
        variant = "T3" if self.is_limited else "SHJ"
        grain = max(self.window_us, ZONES)
        return Layout(variant, grain, 1, 1, FOREVER, None, BUCKETS, ZONES, scheme=SKETCH)

    def pace(self, unit_ns: float) -> Pace:
        """The units that accrue in one bucket."""
        return pace_of(None if self.cores is None else self.cores / self.buckets, self.units, unit_ns)

    @property
    def span_us(self) -> int:
        """How far apart two rows of a result may be."""
        return self.window_us - self.allowed_lateness_us

    def costs(self, rules: int, near: float, results: float) -> Costs:
        """What work costs, where a share of pairs is evaluated by so many rules, and a pair gives so many results."""
        emit = COSTS.emit + PAIR + judging(rules, near, results)
        return COSTS._replace(insert=COSTS.insert + ROW, emit=emit)

    @property
    def leap_us(self) -> int:
        """How far one row may move the time of a bucket."""
        return self.allowed_lateness_us or self.window_us or 1_000_000

    @property
    def stay_us(self) -> int:
        """How long rows of a key that has fallen silent stay, where nobody says: a row is taken anew `STAY` times."""
        return STAY * max(self.window_us, self.leap_us)

    @property
    def step_us(self) -> int | None:
        """How often what is past the deadline is let go."""
        return None if self.deadline_us is None else max(1, self.deadline_us // 8)

    def __str__(self) -> str:
        """Return the budget, its owner and the handling of an exceeded budget as text."""
        if self.cores is None:
            return "unlimited" if self.units is None else f"{self.units:g} units per row"
        whose = "a share of the budget of the run" if self.pooled else "own budget"
        each = (
            f"; {100 * self.cores / self.buckets:.3g}% for each of {self.buckets} buckets" if self.buckets > 1 else ""
        )
        until = duration_text(self.window_us)
        if self.deadline_us is not None:
            until = f"{duration_text(self.deadline_us)} (deadline)"
        what = "pairs" if self.guided is None else "rows"
        return (
            f"{100 * self.cores:.3g}% of a core, {whose}{each}; if the budget is exceeded, process {what} by priority; "
            f"{what} that wait longer than {until} count as unprocessed"
        )


def judging(rules: int, near: float, results: float) -> float:
    """What it costs to evaluate so many rules on so many pairs, and to write down so many results."""
    return near * rules * EVALUATE + results * WRITE


def pace_of(cores: float | None, units: float | None, unit_ns: float) -> Pace:
    """Units as they accrue: with each row, or with the time of the streams, as many as cores do in it; or no limit."""
    if units is not None:
        return Pace(units, 0.0)
    return UNLIMITED if cores is None else Pace(0.0, cores * 1_000 / unit_ns)


def spending_of(rule: Rule, streams: int, run: Cpu | None) -> Cpu | None:
    """What a rule that reads so many streams may spend: its own, or that of the run, if it may have a part in it."""
    own = rule.quality_options.cpu
    if own is not None or run is None:
        return own
    free = rule.quality_options.memory is None and needed_wait(rule)[0].kind == NONE
    return run if rule.emit == "all" and streams <= MOST_STREAMS and free else None


def spent_together(rule: Rule, run: Cpu | None, read: Hashable) -> tuple[object, ...]:
    """By what rules share work: those of the run whose `read` is the same; a rule with its own has it alone."""
    if rule.quality_options.cpu is None:
        return ("cpu", run, read)
    return ("own cpu", rule.alert, tuple(sorted(rule.labels.items())))


def anytime_of(rules: Sequence[Rule], spans_us: Sequence[int], spending: Cpu) -> Anytime:
    """What the join of rules with these spans may spend; that of the run is divided later (`divide.share_cores`)."""
    allowed_lateness_us = max(
        span_us if rule.allowed_lateness is None else microseconds(rule.allowed_lateness, "`allowed_lateness`")
        for rule, span_us in zip(rules, spans_us, strict=True)
    )
    cores = DEFAULT_CORES if spending.cores is None else spending.cores
    pooled = rules[0].quality_options.cpu is None
    return Anytime(max(spans_us) + allowed_lateness_us, allowed_lateness_us, cores, spending.deadline_us, pooled=pooled)
