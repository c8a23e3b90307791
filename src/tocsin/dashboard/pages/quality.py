"""What was asked of a rule, and what is reached: waits, recall, memory, processor time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from tocsin.dashboard.charts.trend import trend, trend_of
from tocsin.dashboard.pages.words import is_number, objects_in, short_number, wait_text
from tocsin.dashboard.rundata import RunData
from tocsin.logic import Found
from tocsin.plan.budget import found_text

# What is drawn of a rule over time, by title: the first words of series (`microbatch.OF_ALERT`).
_DRAWN = {
    "how long rows wait (K), in seconds": ["wait"],
    "recall that is estimated": ["recall"],
    "share of results that memory finds": ["predicted", "reached"],
    "error of what is sampled": ["error_predicted", "error_reached"],
    "shares of rows and of results that processor time buys": ["worked on", "found"],
}


def quality_of(run: RunData, alert: str, rules: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What was asked of a rule, and what is reached: how long rows wait, the recall, and what it costs."""
    asked = [str(rule.get("waits") or rule.get("no_wait") or "") for rule in rules]
    wait_us, recall = run.last.waits.get(alert, (None, None)) if run.last else (None, None)
    detect = run.last.milliseconds.get("detect") if run.last else None
    found = run.last.memory.get(alert, Found()) if run.last else Found()
    bought = run.last.cpu.get(alert, (None, None)) if run.last else (None, None)
    return {
        "cpu": next((str(rule["cpu"]) for rule in rules if rule.get("cpu")), ""),
        "bought": bought,
        "memory": next((str(rule["memory"]) for rule in rules if rule.get("memory")), ""),
        "found": found_text(found),
        "asked": next((text for text in asked if text), ""),
        "wait": None if wait_us is None else wait_text(wait_us),
        "recall": recall,
        "tested": _tested(run, alert),
        "ends": run.is_backtest,
        "state_bytes": run.last.total.state_bytes if run.last else None,
        "detect_ms": detect,
        "drawn": _charts(run, alert),
    }


def _charts(run: RunData, alert: str) -> list[Markup]:
    """How what is reached went, as far as it is known."""
    drawn = []
    for title, names in _DRAWN.items():
        known = ((name, run.history.get(f"{name} {alert}")) for name in names)
        lines = [(name.removeprefix("error_"), one) for name, one in known if one is not None]
        if lines:
            drawn.append(trend(trend_of(title, lines, short_number)))
    return drawn


def _tested(run: RunData, alert: str) -> Mapping[str, Any] | None:
    """What a backtest measured of the recall of a rule; None where it is none, or measured nothing."""
    told = objects_in((run.summary or {}).get("recall"))
    mine = next((one for one in told if one.get("alert") == alert), None)
    if mine is None or not is_number(mine.get("recall")):
        return None
    wait_us = mine.get("wait_us")
    return {"lowest": None, **mine, "wait": wait_text(round(wait_us)) if is_number(wait_us) else None}
