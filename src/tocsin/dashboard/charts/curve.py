"""Chart of the in-order recall of a rule: one step per period, and a line at the requested recall."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from tocsin.dashboard.charts.drawing import Drawing, Scale, number_ticks
from tocsin.formatting import format_event_time
from tocsin.report.recall import Recall, Stretch, recall_text

WIDTH, LEFT, RIGHT, TOP, PANEL, BOTTOM = 960, 70, 24, 12, 130, 24
# With more periods, each step shows the lowest recall of several periods.
MOST_STEPS = 600


def curve(recall: Recall) -> Markup:
    """Draw the in-order recall of each period of a rule. There must be at least one period."""
    steps = list(recall.stretches(MOST_STEPS))
    drawing = Drawing(WIDTH, TOP + PANEL + BOTTOM, f"in-order recall of {recall.alert} by period of event time")
    low, high = steps[0].start_us, steps[-1].end_us
    x = Scale(low, high, LEFT, WIDTH - RIGHT)
    y = Scale(_least(recall), 1.0, TOP + PANEL, TOP)
    drawing.time_axis(x, TOP, TOP + PANEL)
    drawing.value_axis(y, LEFT, WIDTH - RIGHT, number_ticks(y.low, 1.0))
    for step in steps:
        _area(drawing, step, recall.asked, x, y)
    for run in _runs(steps):
        ends = ((time, step.lowest.recall) for step in run for time in (step.start_us, step.end_us))
        drawing.path(((x(time), y(value)) for time, value in ends), "reached")
    if recall.asked is not None:
        drawing.line(LEFT, y(recall.asked), WIDTH - RIGHT, y(recall.asked), "asked")
    return drawing.markup()


def _least(recall: Recall) -> float:
    """Return the lower end of the scale: below all values, or 0 if they are far below 1."""
    seen = [period.recall for period in recall.periods] + [1.0 if recall.asked is None else recall.asked]
    missing = max(1.25 * (1.0 - min(seen)), 0.02)
    return 0.0 if missing > 0.8 else 1.0 - missing


def _area(drawing: Drawing, step: Stretch, asked: float | None, x: Scale, y: Scale) -> None:
    """Fill the area below a step, in another colour if its recall is below the requested recall, and add a hint."""
    period, top = step.lowest, y(step.lowest.recall)
    kind = "short" if asked is not None and period.recall < asked else "enough"
    start, recall = format_event_time(period.start_us), recall_text(period)
    hint = f"{start}: {period.in_order:,} of {period.true:,} results in order, recall {recall}"
    hint += f"; the lowest recall of {step.count:,} periods" if step.count > 1 else ""
    drawing.box(x(step.start_us), top, x(step.end_us) - x(step.start_us), y.begin - top, kind, hint)


def _runs(steps: Sequence[Stretch]) -> list[list[Stretch]]:
    """Split the steps at gaps: periods without results."""
    runs: list[list[Stretch]] = []
    for step in steps:
        if runs and runs[-1][-1].end_us == step.start_us:
            runs[-1].append(step)
        else:
            runs.append([step])
    return runs
