"""Head of all pages, pages without a run, and numbers in addresses."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

from starlette.requests import Request

from tocsin.dashboard.render import ago, render
from tocsin.dashboard.rundata import RunData
from tocsin.dashboard.store import AGAINST, Store, rules_of


def head(store: Store, run: RunData | None, here: str) -> dict[str, Any]:
    """Return the values that all pages need: the runs, the current page, the status of the run and its faults.

    Each page calls this first. Otherwise the version of the page could be newer than its content, and the script would
    miss an update.
    """
    told: dict[str, Any] = {"version": store.version, "runs": store.own_runs(), "run": run, "here": here}
    told |= {"faults": [] if run is None else run.faults, "problem": "" if run is None else run.problem}
    told["going"] = going(store.own_runs() if run is None else [run])
    has_ranges = run is not None and any(rule.get("kind") == "ranges" for rule in rules_of(run))
    return told | {"status": "" if run is None else status(run), "has_ranges": has_ranges, "against": AGAINST}


def going(runs: Sequence[RunData]) -> str:
    """Return whether the content of a page can change, as text for its live indicator."""
    if any(run.holder for run in runs):
        return "live"
    is_history = bool(runs) and all(run.is_backtest or run.whose for run in runs)
    return "finished backtest" if is_history else "not running"


def status(run: RunData) -> str:
    """Return the status of a run as text."""
    if not run.is_read:
        return f"reading the run directory: {run.index.count:,} alerts so far"
    if run.whose:
        return f"comparison version of backtest {run.whose}"
    if run.is_backtest:
        return "finished backtest" if run.summary else "unfinished backtest"
    if run.problem:
        return "not a run directory"
    if run.last is None:
        return "running; first micro-batch in progress" if run.holder else "no micro-batch yet"
    done = f"micro-batch {run.last.batch:,} completed {ago(run.last.seconds)}"
    return f"running; {done}" if run.holder else f"not running; {done}"


def whole_number(text: str) -> int | None:
    """Parse a number of an address. Return None for any other text, or more than 15 digits.

    >>> whole_number("0000012"), whole_number("-1"), whole_number("9" * 40)
    (12, None, None)
    """
    return int(text) if text.isdecimal() and len(text) < 16 else None


def page_number(request: Request) -> int:
    """Return the number of the requested page of a list; 0 by default."""
    return whole_number(request.query_params.get("page", "")) or 0


def login_page(request: Request) -> str:
    """Return the page with the form for the token."""
    told = {"back": request.query_params.get("back", "/")[:2000], "wrong": "wrong" in request.query_params}
    return render("login.html", **told)


def error_page(code: int, message: str) -> str:
    """Return a page with the name of an HTTP status and a message."""
    return render("error.html", title=f"{code} {HTTPStatus(code).phrase}", message=message[:1].upper() + message[1:])
