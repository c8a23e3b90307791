"""The runs side by side, and the Overview of one: what fires now, how it goes, what is kept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from markupsafe import Markup
from starlette.requests import Request

from tocsin.dashboard.charts.trend import trend, trend_of
from tocsin.dashboard.pages.head import head, status
from tocsin.dashboard.pages.tiles import some_tiles, tiles
from tocsin.dashboard.pages.words import is_number, lag_tick, objects_in, short_number
from tocsin.dashboard.render import number_text, render
from tocsin.dashboard.rundata import RunData
from tocsin.dashboard.store import Store, request_streams
from tocsin.report.bars import bars
from tocsin.trace.words import size_text

MOST_RULES, MOST_STREAMS = 25, 200


def runs_page(store: Store, request: Request) -> str:
    """All runs side by side."""
    top = head(store, None, "runs")
    cards = [(run, status(run), some_tiles(tiles(store, run)), rate_chart(run)) for run in store.own_runs()]
    return render("runs.html", **top, cards=cards, problems=store.problems())


def overview_page(store: Store, run: RunData, request: Request) -> str:
    """What fires now, how the run goes, and what is kept."""
    top = head(store, run, "overview")
    alerts, numbers = store.open_alerts(run, 20)
    stores = store.stores(run)
    rules = store.rules(run)
    return render(
        "overview.html",
        **top,
        tiles=tiles(store, run),
        alerts=alerts,
        open=sum(numbers.values()),
        rules=rules[:MOST_RULES],
        more_rules=len(rules) - MOST_RULES,
        charts=charts(run),
        stores=stores[:MOST_STREAMS],
        bars=bars(stores[:MOST_STREAMS]) if stores else None,
        summary=_numbers(run.summary),
    )


def charts(run: RunData) -> list[Markup]:
    """How the run went: rows, state, what is kept, lag, time per micro-batch."""
    history = run.history
    if not history:
        return []

    def of(prefix: str) -> list[tuple[str, Any]]:
        return [(name.removeprefix(prefix), one) for name, one in history.items() if name.startswith(prefix)]

    requests = request_streams(run)
    lags = [(name, one) for name, one in of("lag ") if name not in requests]
    plain = [("kept now", history["kept"]), ("left out so far", history["omitted"]), ("received", history["received"])]
    # The line of the log has in `seconds` what Spark does around them as well.
    took = [("seconds", history["seconds"])]
    shown = [
        trend_of("rows per second", [("rows/s", history["rows/s"])] if "rows/s" in history else [], short_number),
        trend_of("bytes of state", [("bytes", history["state bytes"])], size_text, 1024),
        trend_of("rows, for each way: kept, left out, received", plain, short_number),
        *([trend_of("lag behind the clock, by stream", lags, lag_tick, 60)] if lags else []),
        trend_of("alerts that fire", [("firing", history["firing"])], short_number),
        trend_of("seconds to detect, archive and write, per micro-batch", took, lambda s: f"{s:.3g} s"),
    ]
    return [trend(one) for one in shown]


def rate_chart(run: RunData) -> Markup | None:
    """The one chart of a run beside others."""
    series = run.history.get("rows/s")
    return trend(trend_of("rows per second", [("rows/s", series)], short_number)) if series else None


def _numbers(summary: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """What a backtest says of itself, as far as it is there."""
    if not summary:
        return None
    seconds, rows = summary.get("seconds"), summary.get("rows")
    ends = [summary.get(name) for name in ("oldest_us", "newest_us")]
    return {
        "file": str(summary.get("file", "")),
        "seconds": number_text(seconds) if is_number(seconds) else "-",
        "rows": rows if isinstance(rows, int) else 0,
        "ends": ends if all(isinstance(end, int) for end in ends) else None,
        "recall": [
            {"asked": "", "recall": None, "lowest": None, **one}
            for one in objects_in(summary.get("recall"))
            if isinstance(one.get("alert"), str)
        ],
    }
