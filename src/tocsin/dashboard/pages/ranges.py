"""Page of range requests: numbers of active and matured requests, a list, and the progress of one request."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request

from tocsin.dashboard.alert_index import AlertFilter
from tocsin.dashboard.alert_records import AlertRecord
from tocsin.dashboard.fates import StoreNow
from tocsin.dashboard.pages.head import head
from tocsin.dashboard.pages.tracing import TRACER, whose, why_not_traced
from tocsin.dashboard.render import render
from tocsin.dashboard.rundata import RunData
from tocsin.dashboard.store import Store, rules_of
from tocsin.rules.ranges import QUERY

MOST_LISTED, MOST_TYPED = 50, 200
# Rules per query of the archive: each takes seconds.
MOST_ASKED = 5


def ranges_page(store: Store, run: RunData, request: Request) -> str:
    """Return the page of range requests, with the progress of one request if its id is in the address."""
    top, name = head(store, run, "ranges"), request.query_params.get("id", "")[:200]
    rules = _rules(run)
    counts = {one.name: one for one in store.stores(run)}
    streams = Counter(str(rule.get("requests")) for rule in rules)
    shown = [_shown(store, run, rule, counts, streams) for rule in rules]
    found = _request(store, run, rules, name) if name else []
    refused = [reason for stream in streams for reason in store.refusals(run, stream, name)] if name else []
    told = {"shown": shown, "id": name, "found": found, "refused": refused}
    return render("ranges.html", **top, **told, command=_command(run, "progress", name), why_not=why_not_traced(run))


def _shown(
    store: Store, run: RunData, rule: Mapping[str, Any], counts: Mapping[str, StoreNow], streams: Mapping[str, int]
) -> dict[str, Any]:
    """Return the values of one rule. Requests are counted by their stream, which several rules can share."""
    alert, stream = str(rule["alert"]), str(rule.get("requests"))
    return {
        "rule": rule,
        "alive": counts[stream].now if stream in counts else 0,
        "sharing": streams[stream],
        "reached": store.rule_row(run, alert).matched,
        "some": store.alerts(run, AlertFilter(alert=alert), 15),
        # Without a name, the command lists the requests of all rules.
        "command": _command(run, "list", *([f"--rule={alert}"] if len(alert) <= MOST_TYPED else [])),
    }


def _rules(run: RunData) -> list[Mapping[str, Any]]:
    return [rule for rule in rules_of(run) if rule.get("kind") == "ranges"]


def _command(run: RunData, action: str, *more: str) -> str:
    """Return the command that queries the state of a run, quoted for a shell; empty for a backtest."""
    kept = not (run.is_backtest or run.whose)
    return shlex.join(["tocsin", "ranges", action, str(run.folder), *more]) if kept else ""


def request_part(store: Store, run: RunData, request: Request) -> str:
    """Return the progress of a request, from archived rows. This part takes seconds, so it is loaded later."""
    name = request.query_params.get("id", "")[:200]
    answers, more = _answers(run, "request", id=name) if name else ([], 0)
    if not answers:
        raise HTTPException(404, "request not found")
    return render("request.html", answers=answers, more=more)


def alive_part(store: Store, run: RunData, request: Request) -> str:
    """Return a list of active requests, from archived rows. This part takes seconds, so it is loaded later."""
    answers, more = _answers(run, "alive")
    if not answers:
        raise HTTPException(404, "no rule with ranges and archived rows")
    return render("alive.html", run=run, answers=answers, more=more)


def _answers(run: RunData, kind: str, **asked: str) -> tuple[list[tuple[str, Mapping[str, Any]]], int]:
    """Query the archive for each rule. Return the answers and the number of rules beyond the limit."""
    alerts = [] if why_not_traced(run) else [str(rule["alert"]) for rule in _rules(run)]
    some = alerts[:MOST_ASKED]
    more = len(alerts) - len(some)
    return [(alert, TRACER.ask({**whose(run, kind), "alert": alert, **asked})) for alert in some], more


def _request(store: Store, run: RunData, rules: Sequence[Mapping[str, Any]], name: str) -> list[AlertRecord]:
    """Return the alerts of one request."""
    names = [str(rule["alert"]) for rule in rules]
    asked = [AlertFilter(alert=alert, label=(QUERY, name)) for alert in names]
    found = [one for each in asked for one in store.alerts(run, each, MOST_LISTED).alerts]
    return sorted(found, key=lambda one: one.place)[-MOST_LISTED:]
