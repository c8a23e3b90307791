"""The page of requests of ranges: how many are alive and were reached, some that are, and how far one has come."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request

from tocsin.dashboard.fates import StoreNow
from tocsin.dashboard.known import Known
from tocsin.dashboard.pages.head import head
from tocsin.dashboard.pages.tracing import TRACER, whose, why_not_traced
from tocsin.dashboard.render import render
from tocsin.dashboard.rundata import RunData
from tocsin.dashboard.store import Asked, Store, rules_of
from tocsin.rules.ranges import QUERY

MOST_LISTED, MOST_TYPED = 50, 200
# Rules, each of which takes some seconds.
MOST_ASKED = 5


def ranges_page(store: Store, run: RunData, request: Request) -> str:
    """Rules with ranges: requests alive and reached, and how far one has come."""
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
    """What is told of a rule; requests are counted by their stream, which several rules may share."""
    alert, stream = str(rule["alert"]), str(rule.get("requests"))
    return {
        "rule": rule,
        "alive": counts[stream].now if stream in counts else 0,
        "sharing": streams[stream],
        "reached": store.rule_row(run, alert).matched,
        "some": store.alerts(run, Asked(alert=alert), 15),
        # Of a name that nobody would type, all rules are listed.
        "command": _command(run, "list", *([f"--rule={alert}"] if len(alert) <= MOST_TYPED else [])),
    }


def _rules(run: RunData) -> list[Mapping[str, Any]]:
    return [rule for rule in rules_of(run) if rule.get("kind") == "ranges"]


def _command(run: RunData, action: str, *more: str) -> str:
    """How the state of a run is asked; a backtest leaves none. It is copied into a shell, and names may be anything."""
    kept = not (run.is_backtest or run.whose)
    return shlex.join(["tocsin", "ranges", action, str(run.folder), *more]) if kept else ""


def request_part(store: Store, run: RunData, request: Request) -> str:
    """How far a request has come, by the rows of the archive: a part of a page that takes some seconds to make."""
    name = request.query_params.get("id", "")[:200]
    answers, more = _answers(run, "request", id=name) if name else ([], 0)
    if not answers:
        raise HTTPException(404, "no such request")
    return render("request.html", answers=answers, more=more)


def alive_part(store: Store, run: RunData, request: Request) -> str:
    """Some requests that are alive, by the rows of the archive: a part that takes some seconds, too."""
    answers, more = _answers(run, "alive")
    if not answers:
        raise HTTPException(404, "no rule with ranges whose rows are archived")
    return render("alive.html", run=run, answers=answers, more=more)


def _answers(run: RunData, kind: str, **asked: str) -> tuple[list[tuple[str, Mapping[str, Any]]], int]:
    """Ask the archive about each rule, and say how many are not asked; nothing where it has no rows."""
    alerts = [] if why_not_traced(run) else [str(rule["alert"]) for rule in _rules(run)]
    some = alerts[:MOST_ASKED]
    more = len(alerts) - len(some)
    return [(alert, TRACER.ask({**whose(run, kind), "alert": alert, **asked})) for alert in some], more


def _request(store: Store, run: RunData, rules: Sequence[Mapping[str, Any]], name: str) -> list[Known]:
    """The alerts of one request, by its id."""
    names = [str(rule["alert"]) for rule in rules]
    lives = [one for alert in names for one in store.lives(run, alert)]
    return [one for one in lives if (QUERY, name) in one.labels][-MOST_LISTED:]
