"""Margin of one key of a rule over time, with the threshold and its alerts, computed from the archive."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request

from tocsin.dashboard.alert_records import AlertRecord
from tocsin.dashboard.charts.margins import PIXELS, bars_of, margins
from tocsin.dashboard.pages.tracing import TRACER, whose, why_not_traced
from tocsin.dashboard.render import render
from tocsin.dashboard.rundata import RunData
from tocsin.dashboard.series import Stretch
from tocsin.dashboard.store import Store, rules_of

SPANS = {"15m": 900, "1h": 3600, "6h": 21_600, "1d": 86_400, "7d": 604_800}
# Default period. The archive reader rejects a period with too many rows.
_USUAL = "1h"


def on_of(rules: Sequence[Mapping[str, Any]]) -> list[str] | None:
    """Return the key columns of a rule, or None for a rule without a condition."""
    told = (rule.get("on") for rule in rules if rule.get("kind") == "threshold")
    return next(([str(name) for name in on] for on in told if isinstance(on, list)), None)


def key_of(on: Sequence[str], fired: Sequence[AlertRecord], request: Request) -> list[str]:
    """Return the key in an address. The latest alert supplies missing values."""
    latest = max(fired, key=lambda one: one.rank, default=None)
    known = dict(latest.labels) if latest else {}
    given = request.query_params
    return [given.get(f"on{place}", known.get(name, ""))[:2000] for place, name in enumerate(on)]


def margin_part(store: Store, run: RunData, request: Request) -> str:
    """Return the margin of a key in the requested period. This part takes seconds, so it is loaded later."""
    alert = store.rule(run, request.path_params["rule"])
    rules = [rule for rule in rules_of(run) if rule["alert"] == alert]
    on = on_of(rules)
    if alert is None or on is None:
        raise HTTPException(404, "rule not found, or it has no condition")
    why_not = why_not_traced(run)
    newest = _newest_us(run, rules)
    if why_not or newest is None or run.last is None:
        return render("margin.html", answer={"error": why_not or "no rows received yet"}, drawn=[])
    fired = [one for one in store.lives(run, alert) if one.has_fired]
    key = key_of(on, fired, request)
    span = SPANS.get(request.query_params.get("last", ""), SPANS[_USUAL]) * 1_000_000
    ends = [newest - span, newest]
    asked = {"alert": alert, "on": on, "key": key, "span": ends, "pixels": PIXELS}
    batch = run.last.batch
    answer = TRACER.ask({**whose(run, "margin"), "batches": [batch, batch], **asked})
    mine = [one for one in fired if [dict(one.labels).get(name) for name in on] == key]
    bars = bars_of(mine, newest, ends[0])
    drawn = []
    for one in answer.get("lines", ()):
        line = [Stretch(*stretch) for stretch in one["stretches"]]
        begin = min([line[0].start, *(bar.start_us for bar in bars)]) if line else 0
        drawn.append((one, margins(bars, max(round(begin), ends[0]), newest, line) if line else None))
    return render("margin.html", answer=answer, drawn=drawn)


def _newest_us(run: RunData, rules: Sequence[Mapping[str, Any]]) -> int | None:
    """Return the oldest of the newest event times of the streams of a rule: a stream that is ahead has no effect."""
    names = {str(name) for rule in rules for name in rule.get("streams") or ()}
    return min(
        (time_us for name, time_us in (run.last.newest_us if run.last else {}).items() if name in names), default=None
    )
