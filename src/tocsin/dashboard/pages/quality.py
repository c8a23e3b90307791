"""Quality of a rule: the requested and the measured wait, recall, memory and CPU time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from markupsafe import Markup

from tocsin.dashboard.charts.trend import trend, trend_of
from tocsin.dashboard.pages.words import is_number, objects_in
from tocsin.dashboard.rundata import RunData
from tocsin.formatting import format_duration, format_seconds, format_share, format_short
from tocsin.plan import found_text


class _Chart(NamedTuple):
    """A chart of a rule: its title, the lines with their series (`microbatch.OF_ALERT`), and the text of a value."""

    title: str
    series: Mapping[str, str]
    write: Callable[[float], str] = format_short
    base: int = 10


_CHARTS = (
    _Chart("Reorder wait (K)", {"wait_us": "wait"}, format_seconds, 60),
    _Chart("Estimated in-order recall", {"wait_recall": "recall"}),
    _Chart("Recall within the memory budget", {"memory_predicted": "predicted", "memory_reached": "measured"}),
    _Chart(
        "Relative standard error of samples",
        {"memory_error_predicted": "predicted", "memory_error_reached": "measured"},
    ),
    _Chart("CPU budget: shares processed and found", {"cpu_rows": "rows processed", "cpu_results": "results found"}),
)


def quality_of(run: RunData, alert: str, rules: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the requested and the measured quality of a rule, and its use of memory and CPU time."""
    asked = [str(rule.get("waits") or rule.get("no_wait") or "") for rule in rules]
    waits, memory, cpu = (run.last.waits, run.last.memory, run.last.cpu) if run.last else ({}, {}, {})
    wait, processed = waits.get(alert, {}), cpu.get(alert, {})
    wait_us = wait.get("wait_us")
    detect = run.last.milliseconds.get("detect") if run.last else None
    return {
        "cpu": next((str(rule["cpu"]) for rule in rules if rule.get("cpu")), ""),
        "bought": _cpu_text(processed.get("rows"), processed.get("results")),
        "memory": next((str(rule["memory"]) for rule in rules if rule.get("memory")), ""),
        "found": found_text(memory.get(alert, {})),
        "asked": next((text for text in asked if text), ""),
        "wait": None if wait_us is None else format_duration(wait_us),
        "recall": wait.get("recall"),
        "tested": _tested(run, alert),
        "ends": run.is_backtest,
        "state_bytes": run.last.total.state_bytes if run.last else None,
        "detect": None if detect is None else format_duration(detect * 1_000),
        "drawn": _charts(run, alert),
    }


def _charts(run: RunData, alert: str) -> list[Markup]:
    """Return the charts of a rule that have data."""
    drawn = []
    for chart in _CHARTS:
        known = ((title, run.history.get(f"{name} {alert}")) for name, title in chart.series.items())
        lines = [(title, one) for title, one in known if one is not None]
        if lines:
            drawn.append(trend(trend_of(chart.title, lines, chart.write, chart.base)))
    return drawn


def _cpu_text(rows: float | None, results: float | None) -> str:
    """Return the text for the shares of rows processed and of results found within a CPU budget."""
    processed = "an unknown share" if rows is None else format_share(rows)
    found = "an unknown share" if results is None else format_share(results, "about ")
    return f"{processed} of the rows processed, {found} of the results found recently"


def _tested(run: RunData, alert: str) -> Mapping[str, Any] | None:
    """Return the recall of a rule that a backtest measured, or None."""
    told = objects_in((run.summary or {}).get("recall"))
    mine = next((one for one in told if one.get("alert") == alert), None)
    if mine is None or not is_number(mine.get("recall")):
        return None
    wait_us = mine.get("wait_us")
    return {"lowest": None, **mine, "wait": format_duration(wait_us) if is_number(wait_us) else None}
