"""The page of a stream: what became of its rows, its clock, how late they came, which could not be used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request

from tocsin.dashboard.charts.delays import classes_of, delays
from tocsin.dashboard.charts.trend import trend, trend_of
from tocsin.dashboard.fates import StoreNow
from tocsin.dashboard.known import token_of
from tocsin.dashboard.pages.head import head
from tocsin.dashboard.pages.lists import stream_names
from tocsin.dashboard.pages.words import lag_tick, short_number
from tocsin.dashboard.render import render
from tocsin.dashboard.rundata import RunData
from tocsin.dashboard.store import Store, rules_of
from tocsin.report.bars import bars
from tocsin.trace.words import rounded

MOST_RULES = 50
# Counts of rows that have their fate among the others.
MORE = {
    "behind": "came later than rows wait, and were used out of order",
    "out_of_domain": "lay outside the domain that a rule declares",
    "without_limits": "were of keys that a table of limits does not have",
}


def stream_page(store: Store, run: RunData, request: Request) -> str:
    """A stream: what became of its rows, how late they came, its clock, and rows that could not be used."""
    top, stores = head(store, run, "streams"), store.stores(run)
    token = request.path_params["stream"]
    name = next((name for name in stream_names(run, stores) if token_of(name) == token), None)
    if name is None:
        raise HTTPException(404, "no such stream in this run")
    mine = [one for one in stores if one.name == name or one.name.startswith(f"{name}(")]
    last = run.last
    classes = classes_of(last.delays.get(name, {})) if last else []
    lag = run.history.get(f"lag {name}")
    rows = run.history.get(f"rows {name}")
    charts = [trend(trend_of("lag behind the clock", [("lag", lag)], lag_tick, 60))] if lag else []
    charts += [trend(trend_of("rows per micro-batch", [("rows", rows)], short_number))] if rows else []
    return render(
        "stream.html",
        **top,
        stream=name,
        told=run.manifest.streams.get(name) if run.manifest else None,
        stores=mine,
        bars=bars(mine) if mine else None,
        more=_told_more(mine),
        classes=classes,
        delays=delays(classes) if classes else None,
        clock=_clock(run, name),
        charts=charts,
        dead=store.dead(run, name),
        dead_count=last.total.dead.get(name, 0) if last else 0,
        rules=[rule for rule in rules_of(run) if name in (rule.get("streams") or [])][:MOST_RULES],
    )


def _told_more(stores: Sequence[StoreNow]) -> list[tuple[str, str, int]]:
    """What counts tell beyond the fates of rows: those used out of order, outside their domain, without limits."""
    sums = {name: sum(one.counts.get(name, 0) for one in stores) for name in MORE}
    return [(name, words, sums[name]) for name, words in MORE.items() if sums[name]]


def _clock(run: RunData, name: str) -> dict[str, Any] | None:
    """How the clock of a stream stands: its newest time, and whether it is idle or ahead."""
    last = run.last
    if last is None or name not in last.newest_us:
        return None
    lag = last.lag_s.get(name, 0.0)
    ahead = last.delays.get(name, {}).get("-1", 0)
    received = sum(number for stream, number in last.gained.rows.items() if stream == name)
    words = (
        f"{rounded(round(abs(lag) * 1e6))} {'ahead of' if lag < 0 else 'behind'} the clock" if abs(lag) < 1e9 else "far"
    )
    clock = {"newest_us": last.newest_us[name], "lag": words, "is_ahead": lag < 0, "ahead": ahead, "received": received}
    return clock | {"is_historic": name in last.historic}
