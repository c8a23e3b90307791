"""Pages about a run as a whole: the runs side by side, Overview, lists of alerts, rules and streams, the plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup
from starlette.requests import Request

from tocsin.dashboard.charts.trend import trend, trend_of
from tocsin.dashboard.render import address, ago, number_text, render
from tocsin.dashboard.rundata import RunData, StoreNow
from tocsin.dashboard.store import AGAINST, Asked, RuleRow, Store, rules_of
from tocsin.report.bars import bars
from tocsin.rules.durations import duration_text
from tocsin.trace.words import rounded, size_text

MOST_RULES, MOST_STREAMS = 25, 200
STATES = ("firing", "pending", "resolved", "inactive", "match", "late")


@dataclass(frozen=True)
class Tile:
    """One number of a run, with what it is, and what it would be good to know beside it."""

    number: str
    words: str
    beside: str = ""
    kind: str = ""
    link: str = ""


def head(store: Store, run: RunData | None, here: str) -> dict[str, Any]:
    """What every page has: the runs to choose from, where one is, how a run goes and what of it cannot be read.

    A page asks for it first: its version must not be newer than what the page shows, or news would be missed.
    """
    told: dict[str, Any] = {"version": store.version, "runs": store.own_runs(), "run": run, "here": here}
    told["faults"] = [] if run is None else run.faults
    has_ranges = run is not None and any(rule.get("kind") == "ranges" for rule in rules_of(run))
    return told | {"status": "" if run is None else status(run), "has_ranges": has_ranges, "against": AGAINST}


def status(run: RunData) -> str:
    """How a run goes, in one sentence."""
    if not run.is_read:
        return f"reading the run directory: {len(run.index.all):,} alerts so far"
    if run.whose:
        return f"the other version of the backtest {run.whose}"
    if run.is_backtest:
        return "a backtest; it does not go on" if run.summary else "a backtest that has not ended"
    if run.last is None:
        return "running; the first micro-batch is not done yet" if run.holder else "no micro-batch yet"
    done = f"micro-batch {run.last.batch:,} was done {ago(run.last.seconds)}"
    return f"running; {done}" if run.holder else f"not running; {done}"


def runs_page(store: Store, request: Request) -> str:
    """All runs side by side."""
    top = head(store, None, "runs")
    cards = [(run, status(run), tiles(store, run)[:6], rate_chart(run)) for run in store.own_runs()]
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


def tiles(store: Store, run: RunData) -> list[Tile]:
    """The numbers that decide whether one may go back to sleep."""
    rows = store.rules(run)
    firing, pending = sum(row.firing for row in rows), sum(row.pending for row in rows)
    rules = sum(row.firing > 0 for row in rows)
    beside = f"of {rules:,} {'rule' if rules == 1 else 'rules'}" if firing else "all is quiet"
    found = [
        Tile(f"{firing:,}", "firing now", beside, "fire" if firing else "", address(run, "alerts", state="firing")),
        Tile(f"{pending:,}", "pending", "not long enough yet", "", address(run, "alerts", state="pending")),
        Tile(f"{sum(row.fired for row in rows):,}", "fired so far", f"by {sum(row.fired > 0 for row in rows):,} rules"),
    ]
    stores, last = store.stores(run), run.last
    received, now = sum(one.received for one in stores), sum(one.now for one in stores)
    if last is not None:
        rate = run.history.get("rows/s")
        found.append(Tile(f"{(rate.last if rate else None) or 0:,.0f}", "rows per second", f"{received:,} in all"))
        worst = max(last.lag_s.items(), key=lambda pair: pair[1], default=None)
        if worst is not None:
            found.append(Tile(_lag(worst[1]), "largest lag", f"stream {worst[0][:60]}, when it was done"))
        found.append(Tile(size_text(last.total.state_bytes), "of state", f"{now:,} rows remembered"))
    if received:
        plain = sum(one.plain for one in stores)
        share = f"{100 * sum(one.kept for one in stores) / plain:.1f} %" if plain else "-"
        found.append(Tile(share, "of a plain join", "rows ever remembered, of those that it would"))
    sinks = run.sinks()
    if sinks:
        bad = [name for name, told in sinks.items() if told.get("failing")]
        beside = f"{', '.join(bad)[:80]} cannot be reached" if bad else f"{len(sinks)} in all"
        found.append(Tile("failing" if bad else "fine", "sinks", beside, "fire" if bad else ""))
    return found


def _lag(seconds: float) -> str:
    """A lag for people; one that is below nought is a clock that runs ahead."""
    if seconds < 0:
        return f"{rounded(round(-seconds * 1e6))} ahead"
    return rounded(round(seconds * 1e6)) if seconds < 1e9 else "very long"


def charts(run: RunData) -> list[Markup]:
    """How the run went: rows, state, what is kept, lag, time per micro-batch."""
    history = run.history
    if not history:
        return []

    def of(prefix: str) -> list[tuple[str, Any]]:
        return [(name.removeprefix(prefix), one) for name, one in history.items() if name.startswith(prefix)]

    plain = [("kept now", history["kept"]), ("left out so far", history["omitted"]), ("received", history["received"])]
    shown = [
        trend_of("rows per second", [("rows/s", history["rows/s"])] if "rows/s" in history else [], short_number),
        trend_of("bytes of state", [("bytes", history["state bytes"])], size_text, 1024),
        trend_of("rows: kept, left out, received", plain, short_number),
        trend_of("lag behind the clock, by stream", of("lag "), _lag),
        trend_of("alerts that fire", [("firing", history["firing"])], short_number),
        trend_of("seconds per micro-batch", [("seconds", history["seconds"])], lambda s: f"{s:.3g} s"),
    ]
    return [trend(one) for one in shown]


def rate_chart(run: RunData) -> Markup | None:
    """The one chart of a run beside others."""
    series = run.history.get("rows/s")
    return trend(trend_of("rows per second", [("rows/s", series)], short_number)) if series else None


def short_number(value: float) -> str:
    """A number beside an axis.

    >>> short_number(1500), short_number(2_500_000), short_number(0.5)
    ('1.5k', '2.5M', '0.5')
    """
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"


def alerts_page(store: Store, run: RunData, request: Request) -> str:
    """Alerts, some at a time, by state, rule and text."""
    top, asked = head(store, run, "alerts"), asked_of(store, run, request)
    part = store.alerts(run, asked)
    text = request.query_params
    given = {"state": asked.state, "rule": text.get("rule", "")[:64], "q": asked.text}
    more = address(run, "alerts", **given, before=part.before) if part.before is not None else ""
    first = address(run, "alerts", **given) if asked.before is not None else ""
    known = {"asked": asked, "given": given, "states": STATES, "forgotten": run.index.forgotten}
    return render("alerts.html", **top, alerts=part.alerts, more=more, first=first, **known)


def asked_of(store: Store, run: RunData, request: Request) -> Asked:
    """What an address asks for; what it cannot ask is left out."""
    given = request.query_params
    state = given.get("state", "")
    alert = store.rule(run, given["rule"][:64]) if given.get("rule") else None
    before = whole_number(given.get("before", ""))
    return Asked(state if state in STATES else "", alert, given.get("q", "")[:200], before)


def whole_number(text: str) -> int | None:
    """A number as an address has it; None if it is none, or longer than any that we give.

    >>> whole_number("0000012"), whole_number("-1"), whole_number("9" * 40)
    (12, None, None)
    """
    return int(text) if text.isdecimal() and len(text) < 16 else None


def page_number(request: Request) -> int:
    """Which page of a list is asked for; the first, if none is."""
    return whole_number(request.query_params.get("page", "")) or 0


def rules_page(store: Store, run: RunData, request: Request) -> str:
    """All rules, some at a time."""
    top = head(store, run, "rules")
    text = request.query_params.get("q", "")[:200].casefold().strip()
    number = page_number(request)
    rows: Sequence[RuleRow] = [row for row in store.rules(run) if text in row.alert.casefold()]
    conditions = {str(rule["alert"]): str(rule.get("condition") or rule.get("does", "")) for rule in rules_of(run)}
    begin = number * MOST_RULES * 2
    shown = rows[begin : begin + MOST_RULES * 2]
    more = address(run, "rules", q=text, page=number + 1) if begin + len(shown) < len(rows) else ""
    before = address(run, "rules", q=text, page=number - 1) if number else ""
    told = {"rows": shown, "of": len(rows), "q": text, "more": more, "before": before, "conditions": conditions}
    return render("rules.html", **top, **told)


def streams_page(store: Store, run: RunData, request: Request) -> str:
    """What became of the rows of every stream."""
    top, stores = head(store, run, "streams"), store.stores(run)[:MOST_STREAMS]
    told = {"streams": stream_names(run, stores), "stores": stores, "bars": bars(stores) if stores else None}
    return render("streams.html", **top, **told, last=run.last, lag=_lag, dead=store.dead(run))


def stream_names(run: RunData, stores: Sequence[StoreNow]) -> list[str]:
    """The streams of a run: those of its manifest, and those that were counted."""
    named = list(run.manifest.streams) if run.manifest else []
    counted = list(run.last.total.rows) if run.last else [store.name.partition("(")[0] for store in stores]
    return list(dict.fromkeys(str(name) for name in [*named, *counted]))


def plan_page(store: Store, run: RunData, request: Request) -> str:
    """What runs: the rule file, the plan, streams, sinks, starts."""
    return render("plan.html", **head(store, run, "plan"), manifest=run.manifest, sinks=run.sinks())


def _numbers(summary: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """What a backtest says of itself, as far as it is there."""
    if not summary:
        return None
    seconds, rows = summary.get("seconds"), summary.get("rows")
    ends = [summary.get(name) for name in ("oldest_us", "newest_us")]
    return {
        "file": str(summary.get("file", "")),
        "seconds": number_text(seconds) if isinstance(seconds, int | float) else "-",
        "rows": rows if isinstance(rows, int) else 0,
        "ends": ends if all(isinstance(end, int) for end in ends) else None,
        "recall": [one for one in _list(summary.get("recall")) if isinstance(one.get("alert"), str)],
    }


def _list(given: Any) -> list[dict[str, Any]]:
    return [one for one in given if isinstance(one, dict)] if isinstance(given, list) else []


def login_page(request: Request) -> str:
    """The page that asks for the token."""
    told = {"back": request.query_params.get("back", "/")[:2000], "wrong": "wrong" in request.query_params}
    return render("login.html", **told)


def error_page(code: int, sentence: str) -> str:
    """A page that says what is wrong."""
    return render("error.html", code=code, sentence=sentence)


def wait_text(wait_us: int) -> str:
    """How long rows wait."""
    return duration_text(wait_us) if wait_us < 1_000 else rounded(wait_us)
