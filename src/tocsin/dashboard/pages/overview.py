"""Page of all runs, and the overview of one run: open alerts, health, progress and rules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from markupsafe import Markup
from starlette.requests import Request

from tocsin.dashboard.charts.trend import trend, trend_of
from tocsin.dashboard.pages.head import head, status
from tocsin.dashboard.pages.tiles import some_tiles, tiles
from tocsin.dashboard.pages.words import is_number, objects_in
from tocsin.dashboard.render import render
from tocsin.dashboard.rundata import RunData
from tocsin.dashboard.store import Store, request_streams
from tocsin.formatting import format_duration, format_lag, format_seconds, format_short, format_size

MOST_RULES = 25


def runs_page(store: Store, request: Request) -> str:
    """Return the page of all runs."""
    top = head(store, None, "runs")
    cards = [(run, status(run), some_tiles(tiles(store, run)), rate_chart(run)) for run in store.own_runs()]
    return render("runs.html", **top, cards=cards, problems=store.problems())


def overview_page(store: Store, run: RunData, request: Request) -> str:
    """Return the overview of a run."""
    top = head(store, run, "overview")
    alerts = store.open_alerts(run, 20)
    rules = store.rules(run)
    return render(
        "overview.html",
        **top,
        tiles=tiles(store, run),
        alerts=alerts,
        open=sum(row.firing + row.pending for row in rules),
        rules=rules[:MOST_RULES],
        more_rules=len(rules) - MOST_RULES,
        charts=charts(run),
        summary=_numbers(run.summary),
    )


def charts(run: RunData) -> list[Markup]:
    """Return the charts of a run: rows, state, lag, firing alerts, duration of micro-batches."""
    history = run.history
    if not history:
        return []

    def of(prefix: str) -> list[tuple[str, Any]]:
        return [(name.removeprefix(prefix), one) for name, one in history.items() if name.startswith(prefix)]

    requests = request_streams(run)
    lags = [(name, one) for name, one in of("lag ") if name not in requests]
    plain = [("received", history["received"]), ("omitted", history["omitted"]), ("in state now", history["kept"])]
    took = [("duration", history["seconds"])]
    rates = [("rows/s", history["rows/s"])] if "rows/s" in history else []
    shown = [
        trend_of("Rows received per second", rates, format_short),
        trend_of("State size", [("state", history["state bytes"])], format_size, 1024),
        trend_of("Rows received, omitted, in state", plain, format_short),
        *([trend_of("Lag by stream", lags, format_lag, 60)] if lags else []),
        trend_of("Firing alerts", [("firing", history["firing"])], format_short),
        trend_of("Micro-batch duration, without Spark overhead", took, format_seconds, 60),
    ]
    return [trend(one) for one in shown]


def rate_chart(run: RunData) -> Markup | None:
    """Return the chart of a run on the page of all runs."""
    series = run.history.get("rows/s")
    return trend(trend_of("Rows received per second", [("rows/s", series)], format_short)) if series else None


def _numbers(summary: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return the valid values that the page shows from the summary of a backtest."""
    if not summary:
        return None
    seconds, rows = summary.get("seconds"), summary.get("rows")
    ends = [summary.get(name) for name in ("oldest_us", "newest_us")]
    return {
        "file": str(summary.get("file", "")),
        "took": format_duration(seconds * 1e6) if is_number(seconds) else "an unknown time",
        "rows": rows if isinstance(rows, int) else 0,
        "ends": ends if all(isinstance(end, int) for end in ends) else None,
        "recall": [
            {"requested": "", "recall": None, "lowest": None, **one}
            for one in objects_in(summary.get("recall"))
            if isinstance(one.get("alert"), str)
        ],
    }
