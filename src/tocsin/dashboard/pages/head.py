"""What every page has, pages without a run, and numbers as addresses have them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from starlette.requests import Request

from tocsin.dashboard.render import ago, render
from tocsin.dashboard.rundata import RunData
from tocsin.dashboard.store import AGAINST, Store, rules_of


def head(store: Store, run: RunData | None, here: str) -> dict[str, Any]:
    """What every page has: the runs to choose from, where one is, how a run goes and what of it cannot be read.

    A page asks for it first: its version must not be newer than what the page shows, or news would be missed.
    """
    told: dict[str, Any] = {"version": store.version, "runs": store.own_runs(), "run": run, "here": here}
    told |= {"faults": [] if run is None else run.faults, "problem": "" if run is None else run.problem}
    told["going"] = going(store.own_runs() if run is None else [run])
    has_ranges = run is not None and any(rule.get("kind") == "ranges" for rule in rules_of(run))
    return told | {"status": "" if run is None else status(run), "has_ranges": has_ranges, "against": AGAINST}


def going(runs: Sequence[RunData]) -> str:
    """What may change on a page, in a word: nothing does where no run goes on, though the server is there."""
    if any(run.holder for run in runs):
        return "live"
    is_history = bool(runs) and all(run.is_backtest or run.whose for run in runs)
    return "a backtest: nothing changes" if is_history else "not running"


def status(run: RunData) -> str:
    """How a run goes, in one sentence."""
    if not run.is_read:
        return f"reading the run directory: {len(run.index.all):,} alerts so far"
    if run.whose:
        return f"the other version of the backtest {run.whose}"
    if run.is_backtest:
        return "a backtest; it does not go on" if run.summary else "a backtest that has not ended"
    if run.problem:
        return "not a run"
    if run.last is None:
        return "running; the first micro-batch is not done yet" if run.holder else "no micro-batch yet"
    done = f"micro-batch {run.last.batch:,}, counted from 0, was done {ago(run.last.seconds)}"
    return f"running; {done}" if run.holder else f"not running; {done}"


def whole_number(text: str) -> int | None:
    """A number as an address has it; None if it is none, or longer than any that we give.

    >>> whole_number("0000012"), whole_number("-1"), whole_number("9" * 40)
    (12, None, None)
    """
    return int(text) if text.isdecimal() and len(text) < 16 else None


def page_number(request: Request) -> int:
    """Which page of a list is asked for; the first, if none is."""
    return whole_number(request.query_params.get("page", "")) or 0


def login_page(request: Request) -> str:
    """The page that asks for the token."""
    told = {"back": request.query_params.get("back", "/")[:2000], "wrong": "wrong" in request.query_params}
    return render("login.html", **told)


def error_page(code: int, sentence: str) -> str:
    """A page that says what is wrong."""
    return render("error.html", code=code, sentence=sentence)
