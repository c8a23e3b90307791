"""Drawing of one alert: its inputs over time with used and omitted rows, the margin, and the alert as a bar."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from markupsafe import Markup

from tocsin.dashboard.charts.drawing import Drawing, Scale, days_text, number_ticks
from tocsin.formatting import format_duration, format_event_time, format_number
from tocsin.report.choose import Pick
from tocsin.rules.rulefile import RuleFile
from tocsin.runtime.contract import Bools, Float, Int
from tocsin.trace import words
from tocsin.trace.model import (
    DUPLICATES,
    EXPIRED,
    FATES,
    KEPT,
    LATE,
    OMITTED,
    PASSED,
    Evaluation,
    Life,
    StoreTrace,
    Traced,
)

WIDTH, LEFT, RIGHT, PANEL, GAP, TOP, BOTTOM, BAR = 960, 70, 12, 96, 26, 18, 24, 18
# Points per panel. More points would overlap.
_MOST_POINTS = 1_200
# A panel with more points has no hints, because hints would be most of the file.
_MOST_HINTS = 150
_KINDS = {
    KEPT: "kept", EXPIRED: "kept", PASSED: "kept", OMITTED: "omitted", DUPLICATES: "omitted", LATE: "late-row",
}  # fmt: skip

_LARGEST = sys.float_info.max
# Kinds of points in the order of captions, with their names.
_TITLES = {"kept": "used", "omitted": "omitted", "late-row": "late", "true": "above 0", "false": "not above 0"}


@dataclass(frozen=True)
class Series:
    """Points of one panel."""

    name: str
    time: Int
    value: Float
    kind: list[str]
    counts: Mapping[str, int]
    witness: int | None = None


def picture(traced: Traced, pick: Pick, end_us: int, units: Mapping[str, str] | None = None) -> Markup:
    """Draw an alert with the rows around it. `units` has the units of inputs by name, such as `air` or `air.temp`."""
    panels = [part for store in traced.stores_of(pick.rule) for part in _inputs(store, pick, units or {})]
    margin = _margins(traced, pick)
    height = TOP + (PANEL + GAP) * (len(panels) + 1) + BAR + BOTTOM
    drawing = Drawing(
        WIDTH, height, f"{pick.rule.alert} at {format_event_time(pick.life.start_us)}: inputs, margin and alert"
    )
    x = Scale(pick.from_us, pick.to_us, LEFT, WIDTH - RIGHT)
    base = height - BOTTOM
    begin, stop = x(pick.life.start_us), x(end_us)
    drawing.box(begin, TOP, max(stop - begin, 1.5), base - TOP, "span")
    drawing.time_axis(x, TOP, base)
    drawing.text(0, base + 16, days_text(pick.life.start_us, end_us)[:10], "tick")
    for place, series in enumerate([*panels, margin]):
        top = TOP + (PANEL + GAP) * place
        _panel(drawing, series, x, top, is_margin=series is margin)
    y = base - BAR
    state = "late" if pick.life.is_late else "firing"
    drawing.text(LEFT - 8, y + 12, "alert", "label", "end")
    drawing.box(
        begin,
        y,
        max(stop - begin, 2),
        BAR - 6,
        state,
        f"alert from {format_event_time(pick.life.start_us)} to {format_event_time(end_us)}"
        f" ({format_duration(end_us - pick.life.start_us)})",
    )
    return drawing.markup()


def column_units(file: RuleFile) -> dict[str, str]:
    """Return the units of values that a rule file declares, by input, such as `air` or `air.temp`."""
    values = [(stream.name, value) for stream in file.streams.values() for value in stream.values.values()]
    return {words.named(stream, value.name): value.unit for stream, value in values if value.unit}


def _inputs(store: StoreTrace, pick: Pick, units: Mapping[str, str]) -> list[Series]:
    """Return one series per column of a store that the rule reads."""
    time = store.rows.time
    near = np.flatnonzero((time >= pick.from_us) & (time <= pick.to_us) & (store.fate > 0))
    near = near[np.argsort(time[near], kind="stable")]
    shown = {part["stream"]: part for part in pick.life.witness}.get(store.store.stream)
    series = []
    for column in store.store.columns:
        value = store.rows.values[column]
        decisive = np.zeros(len(near), np.bool_)
        if shown is not None:
            decisive = (time[near] == shown["time"]) & (value[near] == shown["values"][column])
        places = _thinned(value[near], decisive)
        at = near[places]
        kinds = [_KINDS.get(int(fate), FATES[fate]) for fate in store.fate[at]]
        name = words.named(store.store.stream, column)
        name = f"{name} ({units[name]})" if name in units else name
        counts = Counter(_KINDS.get(int(fate), FATES[fate]) for fate in store.fate[near])
        series.append(Series(name, time[at], value[at], kinds, counts, _first(decisive[places])))
    return series


def _margins(traced: Traced, pick: Pick) -> Series:
    found = [one for one in traced.evaluations_of(pick.rule) if pick.from_us <= one.time_us <= pick.to_us]
    found = sorted((one for one in found if np.isfinite(one.margin)), key=lambda one: one.time_us)
    time = np.array([one.time_us for one in found], np.int64)
    margin = np.array([one.margin for one in found])
    decisive = np.array([_has_decided(traced, pick.life, one) for one in found], np.bool_)
    at = _thinned(margin, decisive)
    kinds = ["true" if found[i].is_true else "false" for i in at.tolist()]
    counts = Counter("true" if one.is_true else "false" for one in found)
    return Series("margin", time[at], margin[at], kinds, counts, _first(decisive[at]))


def _has_decided(traced: Traced, life: Life, one: Evaluation) -> bool:
    """Return whether an evaluation is the source of the margin and the witness of an alert."""
    if one.margin != life.margin or one.is_late != life.is_late or not life.covers(one.time_us):
        return False
    times = {stream: int(traced.rows[stream].time[row]) for stream, row in one.partners}
    return times == {part["stream"]: part["time"] for part in life.witness}


def _first(chosen: Bools) -> int | None:
    """Return the position of the first chosen point, or None if no point is chosen."""
    return int(np.argmax(chosen)) if chosen.any() else None


def _thinned(value: Float, decisive: Bools) -> Int:
    """Return the positions of the points to draw: the extremes of each stretch and the first decisive point."""
    if len(value) <= _MOST_POINTS:
        return np.arange(len(value))
    cuts = np.linspace(0, len(value), _MOST_POINTS // 2 + 1).astype(np.int64)
    pairs = [(a + int(np.argmin(value[a:b])), a + int(np.argmax(value[a:b]))) for a, b in pairwise(cuts)]
    first = _first(decisive)
    return np.unique([*np.array(pairs).ravel(), *([] if first is None else [first])])


def _panel(drawing: Drawing, series: Series, x: Scale, top: float, *, is_margin: bool) -> None:
    """Draw one panel: marks, the line, the points, and a ring around the witness."""
    low, high = _bounds(series.value, with_zero=is_margin)
    y = Scale(low, high, top + PANEL, top)
    drawing.text(LEFT, top - 5, "margin: left side minus right side" if is_margin else series.name, "name")
    order = sorted(series.counts, key=list(_TITLES).index)
    counts = ", ".join(f"{series.counts[kind]:,} {_TITLES[kind]}" for kind in order)
    drawing.text(WIDTH - RIGHT, top - 5, counts or ("no evaluations" if is_margin else "no rows"), "tick", "end")
    drawing.value_axis(y, LEFT, WIDTH - RIGHT, number_ticks(low, high))
    if is_margin:
        drawing.line(LEFT, y(0.0), WIDTH - RIGHT, y(0.0), "zero")
    points = [(x(int(time)), y(float(value))) for time, value in zip(series.time, series.value, strict=True)]
    drawing.path(points, "trend")
    if len(points) > _MOST_HINTS:
        for kind in dict.fromkeys(series.kind):
            drawing.dots((place for place, mine in zip(points, series.kind, strict=True) if mine == kind), kind)
    else:
        for i, (place, kind) in enumerate(zip(points, series.kind, strict=True)):
            shown, time = format_number(float(series.value[i])), format_event_time(int(series.time[i]))
            drawing.dot(*place, 2.5, kind, f"{series.name}: {shown} at {time} ({_TITLES[kind]})")
    if series.witness is not None:
        drawing.dot(*points[series.witness], 6, "witness", "row of the witness")


def _bounds(value: Float, *, with_zero: bool) -> tuple[float, float]:
    seen = [float(value.min()), float(value.max())] if len(value) else [0.0, 1.0]
    seen += [0.0] * with_zero
    low, high = min(seen), max(seen)
    pad = (0.06 * high - 0.06 * low) or max(abs(high), 1.0) * 0.06
    return max(low - pad, -_LARGEST), min(high + pad, _LARGEST)
