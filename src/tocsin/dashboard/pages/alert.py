"""Page of an alert: its witness, its state changes, their delivery, and the rows around it."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from markupsafe import Markup
from starlette.exceptions import HTTPException
from starlette.requests import Request

from tocsin.dashboard.alert_records import AlertRecord, StateChange
from tocsin.dashboard.charts.chosen import chosen, chosen_of
from tocsin.dashboard.delivery import Delivery
from tocsin.dashboard.pages.head import head, whole_number
from tocsin.dashboard.pages.tracing import TRACER, whose, why_not_traced
from tocsin.dashboard.render import render
from tocsin.dashboard.rundata import RunData
from tocsin.dashboard.store import Store, rules_of
from tocsin.delivery.alert_json import Alert, parse_microseconds
from tocsin.formatting import format_event_time

MOST_CHANGES = 50


def alert_page(store: Store, run: RunData, request: Request) -> str:
    """Return the page of an alert: witness, state changes, delivery, and the archived rows around it."""
    top = head(store, run, "alerts")
    lives = store.by_id(run, request.path_params["alert"])
    if not lives:
        raise HTTPException(404, "alert not found in this run")
    delivery = store.delivery(run)
    told = [_life(store, run, one, delivery) for one in lives[-5:]]
    rule = next((rule for rule in rules_of(run) if rule["alert"] == lives[-1].alert), None)
    command = explain_command(run, lives[-1], rule)
    links = alertmanager_links(run, lives[-1])
    return render("alert.html", **top, lives=told, rule=rule, why_not=why_not_traced(run), command=command, links=links)


def alertmanager_links(run: RunData, one: AlertRecord) -> list[str]:
    """Return the address of an alert in each Alertmanager of a run: the page that filters by its name and labels."""
    labels = [("alertname", one.alert), *one.labels]
    # JSON quotes a text as a matcher of Alertmanager does.
    matchers = ",".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in labels)
    addresses = run.manifest.alertmanagers if run.manifest else ()
    plain = [text for text in addresses[:5] if re.fullmatch(r"https?://[^\s<>\"']{1,500}", text)]
    return [f"{text.rstrip('/')}/#/alerts?filter={quote(f'{{{matchers}}}', errors='replace')}" for text in plain]


def explain_command(run: RunData, one: AlertRecord, rule: Mapping[str, Any] | None) -> str:
    """Return the command that explains an alert of a backtest from the source rows; empty for a run."""
    on, labels = (rule or {}).get("on"), dict(one.labels)
    if run.manifest is None or not (run.is_backtest or run.whose) or on is None or not all(map(labels.get, on)):
        return ""
    keys = [word for name in on for word in ("--key", f"{name}={labels[name]}")]
    return shlex.join(
        ["tocsin", "explain", str(run.manifest.rule_file), one.alert, *keys, "--at", format_event_time(one.start_us)]
    )


def _life(store: Store, run: RunData, one: AlertRecord, delivery: Delivery) -> dict[str, Any]:
    changes: list[dict[str, Any]] = []
    for place in store.changes(run, one)[-MOST_CHANGES:]:
        change = store.change(run, place.position)
        if change is not None:
            known = {"state": place.state, "position": place.position, "change": change}
            changes.append({**known, "delivered": delivery.of(place.position, place.state, one.id)})
    last: Alert | None = changes[-1]["change"] if changes else None
    witness = last["witness"] if last else []
    times = [parse_microseconds(part["time"]) for part in witness]
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


def picture_part(store: Store, run: RunData, request: Request) -> str:
    """Return the rows around an alert and the reasons for omitted rows. This part takes seconds, so it is loaded later.

    If several alerts have one id, `life` selects one by its place in the log; the default is the latest.
    """
    lives = store.by_id(run, request.path_params["alert"])
    life = request.query_params.get("life")
    mine = lives if life is None else [one for one in lives if one.place == whole_number(life)]
    if not mine:
        raise HTTPException(404, "alert not found")
    why_not = why_not_traced(run)
    if why_not:
        return render("picture.html", answer={"error": why_not}, drawing=None)
    answer = TRACER.ask(_question(store, run, mine[-1]))
    # A drawing of this package: its texts are escaped.
    drawing = Markup(answer["svg"]) if answer.get("svg") else None
    return render("picture.html", answer=answer, drawing=drawing)


def _question(store: Store, run: RunData, one: AlertRecord) -> dict[str, Any]:
    steps = store.changes(run, one)
    change = store.change(run, steps[-1].position)
    witness = [{**part, "time": parse_microseconds(part["time"])} for part in (change["witness"] if change else [])]
    newest = max(run.last.newest_us.values(), default=None) if run.last else None
    return {
        **whose(run, "alert"),
        "batches": _batches(run, one, steps),
        "alert": one.alert,
        "id": one.id,
        # The labels of the alert log. The index can have shortened labels.
        "labels": change["labels"] if change else dict(one.labels),
        "start_us": one.start_us,
        "fires_us": one.fires_us,
        "end_us": one.end_us,
        "late": one.is_late,
        "value": one.value,
        "margin": one.margin,
        "witness": witness,
        "newest_us": newest,
    }


def _batches(run: RunData, one: AlertRecord, steps: Sequence[StateChange]) -> list[int]:
    """Return the first and the last micro-batch of an alert."""
    first, last = steps[0].position.batch, steps[-1].position.batch
    return [first, max(last, run.last.batch) if one.is_open and run.last else last]
