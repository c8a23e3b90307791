"""Lists of a run, in pages: alerts, rules, streams. Also the page of its plan."""

from __future__ import annotations

import re
from collections.abc import Sequence

from starlette.requests import Request

from tocsin.dashboard.alert_index import SORTS, AlertFilter
from tocsin.dashboard.alert_records import Rank, storable
from tocsin.dashboard.charts.bars import bars
from tocsin.dashboard.delivery import owed_by
from tocsin.dashboard.fates import StoreNow
from tocsin.dashboard.pages.head import head, page_number
from tocsin.dashboard.render import address, render
from tocsin.dashboard.rundata import RunData
from tocsin.dashboard.store import PAGE, RuleRow, Store, rules_of
from tocsin.formatting import format_lag
from tocsin.times import parse_iso_time

MOST_LISTED, MOST_STREAMS = 50, 200
# Rules in the selection of a form, and pages of a list that is not ordered by time.
MOST_OPTIONS, MOST_PAGES = 500, 10_000
STATES = ("open", "firing", "pending", "resolved", "inactive", "match", "late")


def alerts_page(store: Store, run: RunData, request: Request) -> str:
    """Return a page of alerts, filtered by text, state, rule, label and time, in the requested order."""
    top = head(store, run, "alerts")
    asked, wrong = filter_of(store, run, request)
    part = store.alerts(run, asked)
    names = ("state", "rule", "q", "label", "from", "to", "sort")
    given = {name: request.query_params.get(name, "")[:400] for name in names} | {"state": asked.state}
    later: dict[str, object] = {"page": page_number(request) + 1} if asked.sort else {"before": part.before}
    if part.before is not None and not asked.sort:
        later = {"before": _rank_text(part.before)}
    more = address(run, "alerts", **given, **later) if part.before is not None else ""
    first = address(run, "alerts", **given) if asked.before is not None or asked.skip else ""
    rules = store.rules(run)
    counts = {row.alert: row for row in rules} if asked.sort == "rule" else None
    shown = sorted(rules[:MOST_OPTIONS], key=lambda row: row.alert)
    known = {"asked": asked, "given": given, "states": STATES, "rules": shown, "counts": counts, "wrong": wrong}
    return render("alerts.html", **top, alerts=part.alerts, more=more, first=first, **known)


def filter_of(store: Store, run: RunData, request: Request) -> tuple[AlertFilter, list[str]]:
    """Parse the filter of an address. Return it without its invalid parts, and a message for each of them."""
    given, wrong = request.query_params, list[str]()
    state, sort = given.get("state", ""), given.get("sort", "")
    alert = store.rule(run, given["rule"][:64]) if given.get("rule") else None
    name, equals, value = given.get("label", "")[:400].strip().partition("=")
    if name and not equals:
        wrong.append(f"a label must be `name=value`; got `{name[:80]}`")
    times: dict[str, int | None] = {}
    for end in ("from", "to"):
        text = given.get(end, "")[:40]
        try:
            times[end] = parse_iso_time(text) if text else None
        except (ValueError, OverflowError):
            wrong.append(f"a time must be as `2026-01-31T12:00`; got `{text}`")
    found = AlertFilter(
        state if state in STATES else "",
        alert,
        given.get("q", "")[:200],
        (storable(name), storable(value.strip('"'))) if equals else None,
        times.get("from"),
        times.get("to"),
        sort if sort in SORTS else "",
    )
    if found.sort:
        return found._replace(skip=min(page_number(request), MOST_PAGES) * PAGE), wrong
    return found._replace(before=_rank(given.get("before", ""))), wrong


def _rank_text(rank: Rank) -> str:
    """Format a position in a list for an address."""
    return "_".join(str(int(part)) for part in rank)


def _rank(text: str) -> Rank | None:
    """Parse a position in a list; return None if the text is not a position.

    >>> _rank("1_-5_7"), _rank("12"), _rank("1_" + "9" * 40 + "_0")
    ((True, -5, 7), None, None)
    """
    found = re.fullmatch(r"([01])_(-?[0-9]{1,19})_([0-9]{1,15})", text)
    return (found[1] == "1", int(found[2]), int(found[3])) if found else None


def rules_page(store: Store, run: RunData, request: Request) -> str:
    """Return a page of rules, filtered by name."""
    top = head(store, run, "rules")
    text = request.query_params.get("q", "")[:200].casefold().strip()
    number = page_number(request)
    rows: Sequence[RuleRow] = [row for row in store.rules(run) if text in row.alert.casefold()]
    conditions = {
        str(rule["alert"]): str(rule.get("condition") or rule.get("description", "")) for rule in rules_of(run)
    }
    begin = number * MOST_LISTED
    shown = rows[begin : begin + MOST_LISTED]
    more = address(run, "rules", q=text, page=number + 1) if begin + len(shown) < len(rows) else ""
    before = address(run, "rules", q=text, page=number - 1) if number else ""
    told = {"rows": shown, "of": len(rows), "q": text, "more": more, "before": before, "conditions": conditions}
    return render("rules.html", **top, **told)


def streams_page(store: Store, run: RunData, request: Request) -> str:
    """Return the page of all streams: row outcomes, lag and invalid rows."""
    top, stores = head(store, run, "streams"), store.stores(run)[:MOST_STREAMS]
    told = {"streams": stream_names(run, stores), "stores": stores, "bars": bars(stores) if stores else None}
    return render("streams.html", **top, **told, last=run.last, lag=format_lag, dead=store.dead(run))


def stream_names(run: RunData, stores: Sequence[StoreNow]) -> list[str]:
    """Return the streams of the manifest of a run, and the streams of its counts."""
    named = list(run.manifest.streams) if run.manifest else []
    counted = list(run.last.total.rows) if run.last else [store.name.partition("(")[0] for store in stores]
    return list(dict.fromkeys(str(name) for name in [*named, *counted]))


def plan_page(store: Store, run: RunData, request: Request) -> str:
    """Return the page of the plan: rule file, starts, sinks and plan."""
    top, sinks = head(store, run, "plan"), run.sinks()
    owed = {name: owed_by(told) for name, told in sinks.items()}
    return render("plan.html", **top, manifest=run.manifest, sinks=sinks, owed=owed, runs_now=bool(run.holder))
