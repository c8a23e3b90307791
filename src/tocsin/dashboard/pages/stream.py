"""Page of a stream: its row outcomes, event time and lag, delays of rows, and invalid rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request

from tocsin.dashboard.alert_records import token_of
from tocsin.dashboard.charts.bars import bars
from tocsin.dashboard.charts.delays import classes_of, delays
from tocsin.dashboard.charts.trend import trend, trend_of
from tocsin.dashboard.fates import StoreNow
from tocsin.dashboard.pages.head import head
from tocsin.dashboard.pages.lists import stream_names
from tocsin.dashboard.render import render
from tocsin.dashboard.rundata import RunData
from tocsin.dashboard.store import Store, rules_of
from tocsin.formatting import format_lag, format_short

MOST_RULES = 50
# Counts of rows that have an outcome among the others.
MORE = {
    "behind": "were evaluated out of order (delayed longer than the reorder wait)",
    "out_of_domain": "are outside the domain of their stream",
    "without_limits": "belong to keys without a row in a limits table",
}


def stream_page(store: Store, run: RunData, request: Request) -> str:
    """Return the page of a stream."""
    top, stores = head(store, run, "streams"), store.stores(run)
    token = request.path_params["stream"]
    name = next((name for name in stream_names(run, stores) if token_of(name) == token), None)
    if name is None:
        raise HTTPException(404, "stream not found in this run")
    mine = [one for one in stores if one.name == name or one.name.startswith(f"{name}(")]
    last = run.last
    classes = classes_of(last.total.section("delays").get(name, {})) if last else []
    lag = run.history.get(f"lag {name}")
    rows = run.history.get(f"rows {name}")
    title = "Lag: processing time minus newest event time"
    charts = [trend(trend_of(title, [("lag", lag)], format_lag, 60))] if lag else []
    charts += [trend(trend_of("Rows received per micro-batch", [("rows", rows)], format_short))] if rows else []
    return render(
        "stream.html",
        **top,
        stream=name,
        told=run.manifest.streams.get(name) if run.manifest else None,
        stores=mine,
        bars=bars(mine) if mine else None,
        more=_more_counts(mine),
        classes=classes,
        delays=delays(classes) if classes else None,
        clock=_clock(run, name),
        charts=charts,
        dead=store.dead(run, name),
        dead_count=last.total.dead.get(name, 0) if last else 0,
        rules=[rule for rule in rules_of(run) if name in (rule.get("streams") or [])][:MOST_RULES],
    )


def _more_counts(stores: Sequence[StoreNow]) -> list[tuple[int, str]]:
    """Return the counts of rows beyond their outcomes: out of order, outside the domain, without limits."""
    sums = {name: sum(one.counts.get(name, 0) for one in stores) for name in MORE}
    return [(sums[name], text) for name, text in MORE.items() if sums[name]]


def _clock(run: RunData, name: str) -> dict[str, Any] | None:
    """Return the newest event time of a stream, its lag, and whether it is idle or ahead."""
    last = run.last
    if last is None or name not in last.newest_us:
        return None
    lag = last.lag_s.get(name, 0.0)
    ahead = last.total.section("delays").get(name, {}).get("-1", 0)
    received = sum(number for stream, number in last.gained.rows.items() if stream == name)
    text = f"{format_lag(abs(lag))} {'after' if lag < 0 else 'before'} the end of the last micro-batch"
    clock = {"newest_us": last.newest_us[name], "lag": text, "is_ahead": lag < 0, "ahead": ahead, "received": received}
    return clock | {"is_historic": name in last.historic}
