"""Page that compares two runs: alerts only in one run, in both, and in both at different times."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from starlette.requests import Request

from tocsin.dashboard.pages.head import head, page_number
from tocsin.dashboard.render import render
from tocsin.dashboard.rundata import RunData
from tocsin.dashboard.store import AGAINST, Store, rules_of
from tocsin.report.compare import moved_text

MOST_LISTED = 50
PARTS = ("only_first", "only_second", "moved", "both")


def diff_page(store: Store, request: Request) -> str:
    """Return the page that compares two runs over the same history."""
    top, names = head(store, None, "diff"), list(store.runs)
    first, second = (request.query_params.get(side, "") for side in ("a", "b"))
    one, two = store.runs.get(first), store.runs.get(second)
    part = request.query_params.get("part", "")
    number = page_number(request)
    files = {name: _file_of(store, run) for name, run in store.runs.items()}
    told: dict[str, Any] = {"names": names, "a": first, "b": second, "one": one, "two": two, "numbers": None}
    if one is not None and two is not None:
        difference = store.difference(one, two)
        told["numbers"] = {name: len(getattr(difference, name)) for name in PARTS}
        part = part if part in PARTS else next((name for name in PARTS if told["numbers"][name]), "both")
        listed = getattr(difference, part)
        begin = number * MOST_LISTED
        pairs = [item if isinstance(item, tuple) else (item, item) for item in listed[begin : begin + MOST_LISTED]]
        told |= {"pairs": pairs, "part": part, "page": number, "more": begin + MOST_LISTED < len(listed)}
        told["conditions"] = [_conditions(run, {pair[0].alert for pair in pairs}) for run in (one, two)]
    return render("diff.html", **top, **told, files=files, moved=moved_text)


def _file_of(store: Store, run: RunData) -> str:
    """Return the rule file of a run, or an empty text. For a backtest, return the path on the command line."""
    whole = store.runs[run.whose].summary if run.whose else run.summary
    told = (whole or {}).get(AGAINST) if run.whose else whole
    if run.whose or told:
        return str(told.get("file", "")) if isinstance(told, Mapping) else ""
    return Path(str(run.manifest.rule_file)).name if run.manifest else ""


def _conditions(run: RunData, alerts: set[str]) -> dict[str, str]:
    """Return the descriptions of some rules of a run, so that versions can be compared; empty without a manifest."""
    told = {str(rule["alert"]): str(rule.get("description") or rule.get("condition", "")) for rule in rules_of(run)}
    return {alert: told[alert] for alert in sorted(alerts) if alert in told}
