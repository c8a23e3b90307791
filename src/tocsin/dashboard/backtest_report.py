"""Backtest report: one HTML file for light and dark screens and paper, without network access or scripts.

The renderer, the styles and the charts of the dashboard write the file. They escape all texts from outside (labels,
payloads, rows).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from markupsafe import Markup

from tocsin.dashboard.charts.bars import bars
from tocsin.dashboard.charts.curve import MOST_STEPS, curve
from tocsin.dashboard.charts.picture import picture
from tocsin.dashboard.charts.timeline import timeline
from tocsin.dashboard.render import render, static_file
from tocsin.formatting import (
    format_duration,
    format_event_time,
    format_number,
    format_share,
    format_size,
)
from tocsin.report.choose import Pick
from tocsin.report.compare import Difference, moved_text
from tocsin.report.recall import Recall, alike, recall_text
from tocsin.report.result import OUTCOMES, RARE, Result
from tocsin.trace import Traced

MOST_LISTED = 200
# Limit for timelines, so that the file stays small.
MOST_RULES = 20
MOST_NAMED = 5
# Row outcomes with a column of their own, even without any row.
COLUMNS = ("retained", "expired", "passed", "omitted", "late", "quarantined")


@dataclass(frozen=True)
class About:
    """Facts of a backtest: time of the report, version, duration in seconds, limits of time, and units of inputs."""

    made: str
    version: str
    seconds: float
    from_us: int | None = None
    to_us: int | None = None
    units: Mapping[str, str] = field(default_factory=dict)


def page(
    result: Result,
    about: About,
    pictures: Sequence[tuple[Pick, Traced | str]] = (),
    against: tuple[Result, Difference] | None = None,
) -> str:
    """Return the report as HTML. A picture has a text instead of a trace if its rows cannot be drawn."""
    results = [result] if against is None else [result, against[0]]
    counts = [store.counts for one in results for store in one.stores]
    return render(
        "backtest.html",
        drawings_css=Markup(static_file("drawings.css").read_text("utf-8")),
        dashboard_css=Markup(static_file("dashboard.css").read_text("utf-8")),
        title=" against ".join(one.path for one in results),
        whose="" if against is None else f" ({result.path})",
        results=results,
        result=result,
        about=about,
        lines=_lines(result),
        curves=_curves(result),
        recall=recall_text,
        share=format_share,
        number=format_number,
        bars=[(one, bars(one.stores)) for one in results],
        pictures=[_picture(result, pick, traced, about.units) for pick, traced in pictures],
        other=against[0] if against else None,
        difference=against[1] if against else None,
        kept=sum(store.kept for store in result.stores),
        plain=sum(store.plain for store in result.stores),
        most=MOST_LISTED,
        outcomes=OUTCOMES,
        columns=COLUMNS,
        shown={name for one in results for store in one.stores for name in store.parts},
        moved=moved_text,
        rare={name: title for name, title in RARE.items() if any(one.get(name) for one in counts)},
        duration=format_duration,
        labels=labels_text,
        exact=format_event_time,
        size=format_size,
    )


@dataclass(frozen=True)
class Line:
    """Timeline of one rule, and the number of keys without a line."""

    alert: str
    drawing: Markup
    more: int


def _lines(result: Result) -> list[Line]:
    """Draw the timelines of the rules with the most alerts, in the order of the rule file."""
    rules = [(watch, rule, [life for life in lives if life.has_fired]) for watch, rule, lives in result.by_rule]
    most = sorted(range(len(rules)), key=lambda place: (-len(rules[place][2]), place))[:MOST_RULES]
    lines = []
    for watch, rule, lives in (rules[place] for place in sorted(most)):
        drawing, more = timeline(result, lives, watch.on) if lives else (Markup(""), 0)
        lines.append(Line(rule.alert, drawing, more))
    return lines


@dataclass(frozen=True)
class Curve:
    """Recall of rules with the same reorder wait, as a drawing."""

    names: str
    recall: Recall
    drawing: Markup

    @property
    def is_thinned(self) -> bool:
        """Whether one step shows several periods."""
        return len(self.recall.periods) > MOST_STEPS


def _curves(result: Result) -> list[Curve]:
    """Draw the recall of rules, in the order of the rule file."""
    shown = alike(result.recalls)[:MOST_RULES]
    return [Curve(_named(names), one, curve(one) if one.periods else Markup("")) for names, one in shown]


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMED:,} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more


def _picture(result: Result, pick: Pick, traced: Traced | str, units: Mapping[str, str]) -> dict[str, Any]:
    end = result.end_of(pick.life)
    told = {"pick": pick, "life": pick.life, "end": end}
    if isinstance(traced, str):
        return {**told, "drawing": None, "why_not": traced}
    return {**told, "drawing": picture(traced, pick, end, units)}


def labels_text(labels: dict[str, str]) -> str:
    """Return labels as one text: `machine=press-7, team=hvac`."""
    return ", ".join(f"{name}={value}" for name, value in sorted(labels.items()))
