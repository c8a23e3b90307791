"""The report of a backtest: one HTML file that needs no network and no script, for screen, dark screen and paper.

Everything that came from outside (labels, payloads, texts of rows) is escaped by the template, and by `svg.py` inside
drawings: it cannot become markup.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from tocsin.report.bars import bars
from tocsin.report.choose import Pick
from tocsin.report.compare import Difference
from tocsin.report.curve import MOST_STEPS, curve
from tocsin.report.picture import picture
from tocsin.report.recall import Recall, alike, recall_text, share_text
from tocsin.report.result import RARE, Result
from tocsin.report.svg import visible
from tocsin.report.timeline import timeline
from tocsin.trace import Traced
from tocsin.trace.words import date, rounded, size_text

MOST_LISTED = 200
# Time lines of more rules would make a file that nobody opens.
MOST_RULES = 20
MOST_NAMED = 5


@dataclass(frozen=True)
class About:
    """What was run: when, with which version, how long it took."""

    made: str
    version: str
    seconds: float
    from_us: int | None = None
    to_us: int | None = None


def page(
    result: Result,
    about: About,
    pictures: Sequence[tuple[Pick, Traced | str]] = (),
    against: tuple[Result, Difference] | None = None,
) -> str:
    """Write the report; what stands in the place of a trace says why there is no picture."""
    results = [result] if against is None else [result, against[0]]
    counts = [store.counts for one in results for store in one.stores]
    return _template().render(
        title=" against ".join(one.path for one in results),
        whose="" if against is None else f" ({result.path})",
        results=results,
        result=result,
        about=about,
        lines=_lines(result),
        curves=_curves(result),
        recall=recall_text,
        share=share_text,
        bars=[(one, bars(one.stores)) for one in results],
        pictures=[_picture(result, pick, traced) for pick, traced in pictures],
        other=against[0] if against else None,
        difference=against[1] if against else None,
        kept=sum(store.kept for store in result.stores),
        plain=sum(store.plain for store in result.stores),
        most=MOST_LISTED,
        rare={name: words for name, words in RARE.items() if any(one.get(name) for one in counts)},
        date=date,
        duration=rounded,
        labels=labels_text,
        size=size_text,
    )


@cache
def _template() -> Template:
    loader = PackageLoader("tocsin.report", "templates")
    environment = Environment(
        loader=loader,
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_visible,
    )
    return environment.get_template("backtest.html")


def _visible(value: Any) -> Any:
    """Text without characters that no page may hold; drawings and numbers as they are."""
    return visible(value) if type(value) is str else value


@dataclass(frozen=True)
class Line:
    """The time line of one rule, and how many keys it leaves out."""

    alert: str
    drawing: Markup
    more: int


def _lines(result: Result) -> list[Line]:
    """Draw the rules with most alerts, in the order of the file."""
    rules = [(watch, rule, [life for life in lives if life.has_fired]) for watch, rule, lives in result.by_rule]
    most = sorted(range(len(rules)), key=lambda place: (-len(rules[place][2]), place))[:MOST_RULES]
    lines = []
    for watch, rule, lives in (rules[place] for place in sorted(most)):
        drawing, more = timeline(result, lives, watch.on) if lives else (Markup(""), 0)
        lines.append(Line(rule.alert, drawing, more))
    return lines


@dataclass(frozen=True)
class Curve:
    """The recall of rules that wait together, drawn."""

    names: str
    recall: Recall
    drawing: Markup

    @property
    def is_thinned(self) -> bool:
        """Tell whether not every period has its step."""
        return len(self.recall.periods) > MOST_STEPS


def _curves(result: Result) -> list[Curve]:
    """Draw the recall of rules, in the order of the file."""
    shown = alike(result.recalls)[:MOST_RULES]
    return [Curve(_named(names), one, curve(one) if one.periods else Markup("")) for names, one in shown]


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMED:,} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more


def _picture(result: Result, pick: Pick, traced: Traced | str) -> dict[str, Any]:
    end = result.end_of(pick.life)
    told = {"pick": pick, "life": pick.life, "end": end}
    if isinstance(traced, str):
        return {**told, "drawing": None, "why_not": traced}
    return {**told, "drawing": picture(traced, pick, end)}


def labels_text(labels: dict[str, str]) -> str:
    """Write labels as people do: `machine press-7, team hvac`."""
    return ", ".join(f"{name} {value}" for name, value in sorted(labels.items()))
