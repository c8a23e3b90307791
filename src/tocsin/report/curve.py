"""The recall of a rule over time, as steps; what was asked is a line across."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from tocsin.report.axis import Scale, number_ticks, time_ticks
from tocsin.report.recall import Recall, Stretch, recall_text
from tocsin.report.svg import Drawing
from tocsin.trace.words import date

WIDTH, LEFT, RIGHT, TOP, PANEL, BOTTOM = 960, 70, 24, 12, 130, 24
# More steps than pixels cannot be told apart: of each stretch the lowest period is drawn.
MOST_STEPS = 600


def curve(recall: Recall) -> Markup:
    """Draw the periods of a rule; there must be some."""
    steps = list(recall.stretches(MOST_STEPS))
    drawing = Drawing(WIDTH, TOP + PANEL + BOTTOM, f"recall of {recall.alert}, period by period")
    low, high = steps[0].start_us, steps[-1].end_us
    x = Scale(low, high, LEFT, WIDTH - RIGHT)
    y = Scale(_least(recall), 1.0, TOP + PANEL, TOP)
    for time, text in time_ticks(low, high):
        drawing.line(x(time), TOP, x(time), TOP + PANEL, "grid")
        drawing.text(x(time), TOP + PANEL + 16, text, "tick", "middle")
    for value, text in number_ticks(y.low, 1.0):
        drawing.line(LEFT, y(value), WIDTH - RIGHT, y(value), "grid")
        drawing.text(LEFT - 8, y(value) + 4, text, "tick", "end")
    for step in steps:
        _area(drawing, step, recall.asked, x, y)
    for run in _runs(steps):
        ends = ((time, step.lowest.recall) for step in run for time in (step.start_us, step.end_us))
        drawing.path(((x(time), y(value)) for time, value in ends), "reached")
    if recall.asked is not None:
        drawing.line(LEFT, y(recall.asked), WIDTH - RIGHT, y(recall.asked), "asked")
    return drawing.markup()


def _least(recall: Recall) -> float:
    """Where the scale begins: below all that is drawn, at 0 if that is far down."""
    seen = [period.recall for period in recall.periods] + [1.0 if recall.asked is None else recall.asked]
    missing = max(1.25 * (1.0 - min(seen)), 0.02)
    return 0.0 if missing > 0.8 else 1.0 - missing


def _area(drawing: Drawing, step: Stretch, asked: float | None, x: Scale, y: Scale) -> None:
    """Fill below a step, in another colour where it falls short; a pointer that rests there is told the numbers."""
    period, top = step.lowest, y(step.lowest.recall)
    kind = "short" if asked is not None and period.recall < asked else "enough"
    hint = f"{date(period.start_us)}: {period.in_order:,} of {period.true:,} results in order, {recall_text(period)}"
    hint += f"; the lowest of {step.count} periods" if step.count > 1 else ""
    drawing.box(x(step.start_us), top, x(step.end_us) - x(step.start_us), y.begin - top, kind, hint)


def _runs(steps: Sequence[Stretch]) -> list[list[Stretch]]:
    """Cut where periods without results lie between."""
    runs: list[list[Stretch]] = []
    for step in steps:
        if runs and runs[-1][-1].end_us == step.start_us:
            runs[-1].append(step)
        else:
            runs.append([step])
    return runs
