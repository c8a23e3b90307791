"""Pages about one thing: an alert and why it fired, a rule, a stream, requests of ranges, two runs side by side."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup
from starlette.exceptions import HTTPException
from starlette.requests import Request

from tocsin.dashboard.alertindex import Known, token_of
from tocsin.dashboard.charts.chosen import chosen, chosen_of
from tocsin.dashboard.charts.delays import classes_of, delays
from tocsin.dashboard.charts.margins import bars_of, margins
from tocsin.dashboard.charts.trend import trend, trend_of
from tocsin.dashboard.delivery import Delivery
from tocsin.dashboard.pages import head, page_number, short_number, stream_names, wait_text, whole_number
from tocsin.dashboard.render import address, render
from tocsin.dashboard.rundata import RunData
from tocsin.dashboard.store import Asked, Store, rules_of
from tocsin.dashboard.tracer import Tracer
from tocsin.deliver.encode import Alert, micros_of
from tocsin.plan import Plan
from tocsin.report import Result
from tocsin.report.bars import bars
from tocsin.report.timeline import timeline
from tocsin.rules.ranges import QUERY
from tocsin.trace.words import rounded

MOST_CHANGES, MOST_LISTED, MOST_DRAWN = 50, 50, 20_000
SPANS = {"15m": 900, "1h": 3600, "6h": 21_600, "1d": 86_400, "7d": 604_800}
PARTS = ("only_first", "only_second", "moved", "both")
_TRACER = Tracer()


def alert_page(store: Store, run: RunData, request: Request) -> str:
    """An alert: its witness, its life, its delivery, and the rows around it where the run archived them."""
    top = head(store, run, "alerts")
    lives = store.by_id(run, request.path_params["alert"])
    if not lives:
        raise HTTPException(404, "no such alert in this run; it may be older than what is shown")
    delivery = store.delivery(run)
    told = [_life(store, run, one, delivery) for one in lives[-5:]]
    rule = next((rule for rule in rules_of(run) if rule["alert"] == lives[-1].alert), None)
    return render("alert.html", **top, lives=told, rule=rule, why_not=why_not_traced(run))


def _life(store: Store, run: RunData, one: Known, delivery: Delivery) -> dict[str, Any]:
    changes: list[dict[str, Any]] = []
    for place in one.changes[-MOST_CHANGES:]:
        change = store.change(run, place.position)
        if change is not None:
            known = {"state": place.state, "position": place.position, "change": change}
            changes.append({**known, "delivered": delivery.of(place.position)})
    last: Alert | None = changes[-1]["change"] if changes else None
    witness = last["witness"] if last else []
    times = [micros_of(part["time"]) for part in witness]
    # The last row is the anchor that others are measured by.
    anchor = max(times, default=0)
    rows = [
        {**part, "apart_us": time_us - anchor, "time_us": time_us} for part, time_us in zip(witness, times, strict=True)
    ]
    return {
        "one": one,
        "changes": changes,
        "last": last,
        "witness": rows,
        "span_us": max((anchor - row["time_us"] for row in rows), default=0),
        "drawing": chosen(chosen_of(witness)) if witness else None,
    }


def why_not_traced(run: RunData) -> str:
    """Why the rows around an alert cannot be shown; nothing if they can."""
    if run.manifest is None:
        return "the manifest cannot be read"
    if run.is_backtest or run.whose:
        return "a backtest keeps no rows; `tocsin backtest --report` draws the rows around alerts"
    if run.manifest.archive is None:
        return "this run keeps no rows; with `archive: {path: kept}` in its rule file it would"
    return ""


def picture_part(store: Store, run: RunData, request: Request) -> str:
    """The rows around an alert, what was left out and why: a part of its page that takes some seconds to make.

    Of several alerts with one id `life` names one by its place in the log; without it, it is the latest.
    """
    lives = store.by_id(run, request.path_params["alert"])
    life = request.query_params.get("life")
    mine = lives if life is None else [one for one in lives if one.place == whole_number(life)]
    if not mine:
        raise HTTPException(404, "no such alert")
    why_not = why_not_traced(run)
    if why_not:
        return render("picture.html", answer={"error": why_not}, drawing=None)
    answer = _TRACER.ask(_question(store, run, mine[-1]))
    # Our own drawing: what stands in it was escaped when it was drawn.
    drawing = Markup(answer["svg"]) if answer.get("svg") else None
    return render("picture.html", answer=answer, drawing=drawing)


def _question(store: Store, run: RunData, one: Known) -> dict[str, Any]:
    change = store.change(run, one.changes[-1].position)
    witness = [{**part, "time": micros_of(part["time"])} for part in (change["witness"] if change else [])]
    newest = max(run.last.newest_us.values(), default=None) if run.last else None
    return {
        **_whose(run, "alert"),
        "batches": _batches(run, one),
        "alert": one.alert,
        "id": one.id,
        "labels": dict(one.labels),
        "start_us": one.start_us,
        "end_us": one.end_us,
        "late": one.is_late,
        "value": one.value,
        "margin": one.margin,
        "witness": witness,
        "newest_us": newest,
    }


def _batches(run: RunData, one: Known) -> list[int]:
    """The first and the last micro-batch of an alert: all between may have rows of it."""
    first, last = (one.changes[at].position.batch for at in (0, -1))
    return [first, max(last, run.last.batch) if one.is_open and run.last else last]


def _whose(run: RunData, kind: str) -> dict[str, Any]:
    """What a question to the archive must say of its run."""
    manifest = run.manifest
    assert manifest is not None
    told = {"rule_file": manifest.rule_file, "rule_hash": manifest.rule_hash, "archive": manifest.archive}
    # Answers are kept by their question: with another micro-batch it is another one.
    return {"kind": kind, "run": manifest.run, **told, "last": run.last.batch if run.last else None}


def rule_page(store: Store, run: RunData, request: Request) -> str:
    """A rule: its condition and what was proved of it, its margins and alerts over time, quality asked and reached."""
    top = head(store, run, "rules")
    alert = store.rule(run, request.path_params["rule"])
    if alert is None:
        raise HTTPException(404, "no such rule in this run")
    rules = [rule for rule in rules_of(run) if rule["alert"] == alert]
    lives = store.lives(run, alert)
    span = request.query_params.get("last", "")
    drawn, lines = _drawings(run, lives, rules, SPANS.get(span))
    part = store.alerts(run, Asked(alert=alert), 15)
    traced = next((one for one in reversed(lives) if one.has_fired), None)
    return render(
        "rule.html",
        **top,
        alert=alert,
        rules=rules,
        row=store.rule_row(run, alert),
        drawing=drawn,
        lines=lines,
        spans=SPANS,
        span=span if span in SPANS else "",
        alerts=part.alerts,
        more=part.before is not None,
        quality=_quality(run, alert, rules),
        latest=None if why_not_traced(run) else traced,
        why_not=why_not_traced(run),
        kept_for=kept_for,
    )


def kept_for(read: str, keeps: Mapping[str, Any]) -> str:
    """What is kept of the stream of something that a condition reads, as `ln(humidity.value / 100)`."""
    words = set(re.findall(r"\w+", read))
    return "; ".join(str(text) for store, text in keeps.items() if store.partition("(")[0] in words)


def _drawings(
    run: RunData, lives: Sequence[Known], rules: Sequence[Mapping[str, Any]], last_s: int | None
) -> tuple[Markup | None, Markup | None]:
    """Margins with the threshold and alerts on one axis; and alerts key by key."""
    fired = [one for one in lives if one.has_fired]
    if not fired:
        return None, None
    ends = [one.start_us if one.end_us is None else one.end_us for one in fired]
    newest = max([*ends, *(run.last.newest_us.values() if run.last else ())])
    newest = min(newest, max(ends) + 7 * 86_400_000_000)
    begin = min(one.start_us for one in fired) if last_s is None else newest - last_s * 1_000_000
    found = bars_of(fired, newest, begin)
    drawing = margins(found, begin, max(newest, begin + 1_000_000))
    shown = [one.as_life() for one in fired[-MOST_DRAWN:] if (one.end_us or newest) >= begin]
    whole = Result(run.name, Plan(()), (), (), (), oldest_us=begin, newest_us=newest)
    on = next((rule["on"] for rule in rules if isinstance(rule.get("on"), list)), None)
    keys = (
        [str(name) for name in on]
        if on is not None
        else sorted({name for one in fired[:100] for name, _ in one.labels})
    )
    return drawing, timeline(whole, shown, keys)[0] if shown else None


def _quality(run: RunData, alert: str, rules: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What was asked of a rule, and what is reached: how long rows wait, the recall, and what it costs."""
    asked = [str(rule.get("waits") or rule.get("no_wait") or "") for rule in rules]
    wait_us, recall = run.last.waits.get(alert, (None, None)) if run.last else (None, None)
    waits, recalls = run.history.get(f"wait {alert}"), run.history.get(f"recall {alert}")
    drawn = []
    if waits is not None:
        drawn.append(trend(trend_of("wait K, in seconds", [("wait", waits)], short_number)))
    if recalls is not None:
        drawn.append(trend(trend_of("recall that is estimated", [("recall", recalls)], short_number)))
    known = ((name, run.history.get(f"{name} {alert}")) for name in ("predicted", "reached"))
    shares = [(name, one) for name, one in known if one is not None]
    if shares:
        drawn.append(trend(trend_of("share of results that memory finds", shares, short_number)))
    detect = run.last.milliseconds.get("detect") if run.last else None
    predicted, reached = run.last.memory.get(alert, (None, None)) if run.last else (None, None)
    return {
        "memory": next((str(rule["memory"]) for rule in rules if rule.get("memory")), ""),
        "predicted": predicted,
        "reached": reached,
        "asked": next((text for text in asked if text), ""),
        "wait": None if wait_us is None else wait_text(wait_us),
        "recall": recall,
        "state_bytes": run.last.total.state_bytes if run.last else None,
        "detect_ms": detect,
        "drawn": drawn,
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
    charts = [trend(trend_of("lag behind the clock, in seconds", [("lag", lag)], short_number))] if lag else []
    charts += [trend(trend_of("rows per micro-batch", [("rows", rows)], short_number))] if rows else []
    return render(
        "stream.html",
        **top,
        stream=name,
        told=run.manifest.streams.get(name) if run.manifest else None,
        stores=mine,
        bars=bars(mine) if mine else None,
        classes=classes,
        delays=delays(classes) if classes else None,
        clock=_clock(run, name),
        charts=charts,
        dead=store.dead(run, name),
        dead_count=last.total.dead.get(name, 0) if last else 0,
        rules=[rule for rule in rules_of(run) if name in (rule.get("streams") or [])][:MOST_LISTED],
    )


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
    return {"newest_us": last.newest_us[name], "lag": words, "is_ahead": lag < 0, "ahead": ahead, "received": received}


def ranges_page(store: Store, run: RunData, request: Request) -> str:
    """Rules with ranges: requests alive and reached, and how far one has come."""
    top, name = head(store, run, "ranges"), request.query_params.get("id", "")[:200]
    rules = [rule for rule in rules_of(run) if rule.get("kind") == "ranges"]
    counts = {one.name: one for one in store.stores(run)}
    shown = []
    for rule in rules:
        requests = counts.get(str(rule.get("requests")))
        reached = store.alerts(run, Asked(alert=str(rule["alert"])), 15)
        row = store.rule_row(run, str(rule["alert"]))
        shown.append({"rule": rule, "alive": requests.now if requests else 0, "reached": row.fired, "some": reached})
    found = _request(store, run, rules, name) if name else []
    # It is copied into a shell, and the id is whatever the address has.
    command = shlex.join(["tocsin", "ranges", "progress", str(run.folder), name])
    told = {"shown": shown, "id": name, "found": found, "why_not": why_not_traced(run), "command": command}
    return render("ranges.html", **top, **told)


def request_part(store: Store, run: RunData, request: Request) -> str:
    """How far a request has come, by the rows of the archive: a part of a page that takes some seconds to make."""
    name = request.query_params.get("id", "")[:200]
    alerts = [str(rule["alert"]) for rule in rules_of(run) if rule.get("kind") == "ranges"]
    if why_not_traced(run) or not name or not alerts:
        raise HTTPException(404, "no such request")
    asked = [{**_whose(run, "request"), "alert": alert, "id": name} for alert in alerts[:5]]
    answers = [(one["alert"], _TRACER.ask(one)) for one in asked]
    return render("request.html", answers=answers)


def _request(store: Store, run: RunData, rules: Sequence[Mapping[str, Any]], name: str) -> list[Known]:
    """The alerts of one request, by its id."""
    names = [str(rule["alert"]) for rule in rules]
    lives = [one for alert in names for one in store.lives(run, alert)]
    return [one for one in lives if (QUERY, name) in one.labels][-MOST_LISTED:]


def diff_page(store: Store, request: Request) -> str:
    """Two runs over the same history: alerts only in one, only in the other, in both."""
    top, names = head(store, None, "diff"), list(store.runs)
    first, second = (request.query_params.get(side, "") for side in ("a", "b"))
    one, two = store.runs.get(first), store.runs.get(second)
    part = request.query_params.get("part", "")
    number = page_number(request)
    told: dict[str, Any] = {"names": names, "a": first, "b": second, "one": one, "two": two, "numbers": None}
    if one is not None and two is not None:
        difference = store.difference(one, two)
        told["numbers"] = {name: len(getattr(difference, name)) for name in PARTS}
        part = part if part in PARTS else next((name for name in PARTS if told["numbers"][name]), "both")
        listed = getattr(difference, part)
        begin = number * MOST_LISTED
        pairs = [item if isinstance(item, tuple) else (item, item) for item in listed[begin : begin + MOST_LISTED]]
        told |= {"pairs": pairs, "part": part, "page": number, "more": begin + MOST_LISTED < len(listed)}
    return render("diff.html", **top, **told, moved=_moved)


def _moved(one: int | None, two: int | None) -> str:
    """By how much an end moved, in words."""
    if one is None or two is None:
        return "both open" if one == two else "one is open"
    if one == two:
        return "the same"
    return f"{rounded(abs(two - one))} {'later' if two > one else 'earlier'}"


def rule_address(run: RunData, alert: str) -> str:
    """Where a rule is shown."""
    return address(run, "rule", token_of(alert))
