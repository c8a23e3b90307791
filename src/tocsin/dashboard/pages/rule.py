"""Page of a rule: its condition and proofs, its margins and alerts over time, and its quality."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from markupsafe import Markup
from starlette.exceptions import HTTPException
from starlette.requests import Request

from tocsin.dashboard.alert_index import AlertFilter
from tocsin.dashboard.alert_records import AlertRecord
from tocsin.dashboard.charts.margins import bars_of, margins
from tocsin.dashboard.charts.timeline import timeline
from tocsin.dashboard.pages.head import head
from tocsin.dashboard.pages.margin import SPANS, key_of, on_of
from tocsin.dashboard.pages.quality import quality_of
from tocsin.dashboard.pages.tracing import why_not_traced
from tocsin.dashboard.render import render
from tocsin.dashboard.rundata import RunData
from tocsin.dashboard.store import MOST_OF_RULE, RuleRow, Store, rules_of
from tocsin.plan import Plan
from tocsin.report import Result


class Cut(NamedTuple):
    """Limit of a drawing: number of alerts drawn, number of all alerts, and start of the oldest alert drawn."""

    drawn: int
    of: int
    since_us: int


class Drawings(NamedTuple):
    """Drawings of a rule: margins and alerts, alerts by key, the number of keys not drawn, and the limit, if any."""

    margins: Markup | None = None
    by_key: Markup | None = None
    left_out: int = 0
    cut: Cut | None = None


def rule_page(store: Store, run: RunData, request: Request) -> str:
    """Return the page of a rule."""
    top = head(store, run, "rules")
    alert = store.rule(run, request.path_params["rule"])
    if alert is None:
        raise HTTPException(404, "rule not found in this run")
    rules = [rule for rule in rules_of(run) if rule["alert"] == alert]
    lives, row = store.lives(run, alert), store.rule_row(run, alert)
    span = request.query_params.get("last", "")
    drawn, lines, left_out, cut = _drawings(run, row, lives, rules, SPANS.get(span))
    part = store.alerts(run, AlertFilter(alert=alert), 15)
    on = on_of(rules)
    key = [] if on is None else key_of(on, [one for one in lives if one.has_fired], request)
    asked = {f"on{place}": text for place, text in enumerate(key)}
    return render(
        "rule.html",
        **top,
        alert=alert,
        rules=rules,
        row=row,
        drawing=drawn,
        lines=lines,
        left_out=left_out,
        cut=cut,
        spans=SPANS,
        span=span if span in SPANS else "",
        alerts=part.alerts,
        more=part.before is not None,
        quality=quality_of(run, alert, rules),
        on=on,
        key=key,
        asked=asked,
        chosen={name: text for name, text in request.query_params.items() if name in asked},
        why_not=why_not_traced(run),
        kept_for=kept_for,
    )


def kept_for(read: str, keeps: Mapping[str, Any]) -> str:
    """Return the retention of the stream of a variable of a condition, such as `ln(humidity.value / 100)`."""
    words = set(re.findall(r"\w+", read))
    return "; ".join(str(text) for store, text in keeps.items() if store.partition("(")[0] in words)


def _drawings(
    run: RunData, row: RuleRow, lives: Sequence[AlertRecord], rules: Sequence[Mapping[str, Any]], last_s: int | None
) -> Drawings:
    """Return the drawings of a rule: margins and alerts, and alerts by key on the same time axis."""
    fired = [one for one in lives if one.has_fired]
    if not fired:
        return Drawings()
    ends = [one.start_us if one.end_us is None else one.end_us for one in fired]
    newest = max([*ends, *(run.last.newest_us.values() if run.last else ())])
    newest = min(newest, max(ends) + 7 * 86_400_000_000)
    begin = min(one.start_us for one in fired) if last_s is None else newest - last_s * 1_000_000
    found = bars_of(fired, newest, begin)
    axis = (begin, max(newest, begin + 1_000_000))
    drawing = margins(found, *axis)
    inside = sorted((one for one in fired if one.end_us is None or one.end_us >= begin), key=lambda one: one.start_us)
    shown = [one.as_life() for one in inside]
    is_cut = len(lives) == MOST_OF_RULE
    cut = Cut(len(fired), row.fired + row.matched, fired[0].start_us) if is_cut else None
    whole = Result(run.name, Plan(()), (), (), (), oldest_us=begin, newest_us=newest)
    on = next((rule["on"] for rule in rules if isinstance(rule.get("on"), list)), None)
    keys = (
        [str(name) for name in on]
        if on is not None
        else sorted({name for one in fired[:100] for name, _ in one.labels})
    )
    by_key, left_out = timeline(whole, shown, keys, axis) if shown else (None, 0)
    return Drawings(drawing, by_key, left_out, cut)
