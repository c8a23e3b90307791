"""Measure hundreds of rules of one stream with a budget of processor time: what they use, and what that finds.

Two sets of 300 rules: ranges of one column, and such with conditions on another column beside, which rows of the range
hardly ever meet. One stretch of a stream is made so long that the ordinary work on it, every rule on every row, would
take one core the whole time. What every rule on one row after the other finds with the same units, the oldest rows
first or the newest, is reckoned from what each row gives: it takes rows in, evaluates and writes by the same prices.
Results count of rows whose deadline has passed when the stretch ends.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from tocsin import Rule, local
from tocsin.interim.cpu.selection_pipeline import EVALUATE, ROW, WRITE
from tocsin.plan import Plan, make_plan, unit_nanoseconds
from tocsin.rules.quality import Cpu, Quality
from tocsin.runtime.contract import Batch
from tocsin.runtime.session import Session

Row = dict[str, Any]
PERCENTS = (10, 25, 50, 75, 100)
KINDS = ("ranges", "conditions")
RULES, KEYS, CALL = 300, 100, 2_000


def rules_of(kind: str, count: int) -> list[Rule]:
    """Rules with seeded ranges, each true for few rows."""
    draw, more = np.random.default_rng(2), {"on": "machine", "emit": "all"}
    texts = []
    for low, least in zip(draw.uniform(-3, 3, count).tolist(), draw.uniform(1, 3, count).tolist(), strict=True):
        if kind == "ranges":
            texts.append(f"a.x > {low:.4f} and a.x < {low + 0.02:.4f}")
        else:
            texts.append(f"a.x > {low:.4f} and a.x < {low + 0.5:.4f} and a.y > {least:.4f}")
    return [Rule(f"r{i}", text, **more) for i, text in enumerate(texts)]


def stream_of(rows: int, step_us: int) -> dict[str, dict[str, Any]]:
    """One stream of two columns; where one is high, so is the other as a rule."""
    draw = np.random.default_rng(1)
    names = np.array([f"k{number}" for number in range(KEYS)], dtype=object)
    x = draw.normal(0, 1, rows)
    y = draw.normal(0, 1, rows) + 1.5 * (x > 1)
    return {"a": {"ts": np.arange(rows) * step_us, "machine": names[draw.integers(0, KEYS, rows)], "x": x, "y": y}}


def planned(kind: str, count: int, rows: int, step_us: int, cpu: Cpu | None) -> tuple[Plan, list[list[Batch]]]:
    """Plan rules over a stream, and cut it into calls; the column that no rule reads stays away."""
    streams, rules = stream_of(rows, step_us), rules_of(kind, count)
    if kind == "ranges":
        del streams["a"]["y"]
    plan = make_plan(rules, {name: list(columns) for name, columns in streams.items()}, quality=Quality(cpu=cpu))
    calls = []
    for begin in range(0, rows, CALL):
        some = {name: {key: column[begin : begin + CALL] for key, column in of.items()} for name, of in streams.items()}
        calls.append(local._batches(0, plan.watches[0], some, "ts", None))
    return plan, calls


class Worked(NamedTuple):
    """The least processor seconds, how many results each row had, and what was told of rule r0 in the end."""

    seconds: float
    results: Counter[int]
    told: tuple[float | None, ...] | None


def worked(plan: Plan, calls: list[list[Batch]], tries: int) -> Worked:
    """Let the logic of a plan take rows."""
    seconds = []
    for _ in range(tries):
        session, found = Session(plan), Counter[int]()
        spent = 0.0
        for batches in calls:
            begun = time.process_time()
            out = session.push(batches)
            spent += time.process_time() - begun
            found.update(row["startsAt"] for row in out.alert_rows())
        seconds.append(spent)
    return Worked(min(seconds), found, tuple(out.metrics.section("cpu").get("r0", {}).values()) or None)


def in_turn(results: list[int], rules: int, units: float, deadline: int, *, newest: bool) -> int:
    """How many results come where all rules are evaluated on one row after the other, within units per row."""
    waits, credit, found = deque[int](), 0.0, 0
    for row in range(len(results)):
        credit += units - ROW
        while waits and waits[0] < row - deadline:
            waits.popleft()
        while waits and credit > 0.0:
            one = waits.pop() if newest else waits.popleft()
            credit -= rules * EVALUATE + results[one] * WRITE
            found += results[one] if one < len(results) - deadline else 0
        credit = min(credit, 0.0) if not waits else credit
        waits.append(row)
    return found


def rows(part: str, *, quick: bool) -> list[Row]:
    """What is used and found by budget, by promise and in turn."""
    return [row for kind in KINDS for row in _rows(part, kind, quick=quick)]


def _rows(part: str, kind: str, *, quick: bool) -> list[Row]:
    count, rows_, tries = (RULES // 10, 4_000, 1) if quick else (RULES, 20_000, 3)
    worked(*planned(kind, count, rows_, 1_000, None), 1)  # To compile.
    exact = worked(*planned(kind, count, rows_, 1_000, None), tries)
    deadline = rows_ // 8
    each = [exact.results[row * 1_000] for row in range(rows_)]
    whole = sum(each[: rows_ - deadline])
    step_us, unit_ns = max(1, round(1e6 * exact.seconds / rows_)), min(unit_nanoseconds() for _ in range(tries))
    out: list[Row] = []
    for percent in PERCENTS:
        plan, calls = planned(kind, count, rows_, step_us, Cpu(percent / 100, deadline * step_us))
        used, found, told = worked(plan.calibrated(unit_ns), calls, tries)
        assert told is not None
        results = sum(count for at, count in found.items() if at < (rows_ - deadline) * step_us)
        units = percent / 100 * step_us * 1_000 / unit_ns
        turns = {way: in_turn(each, count, units, deadline, newest=way == "newest") for way in ("oldest", "newest")}
        out.append({
            "part": part, "kind": kind, "rules": count, "asked_percent": percent, "unit_ns": unit_ns,
            "used_percent": 100 * used / (rows_ * step_us / 1e6), "results": results,
            "results_share": results / whole, "oldest_share": turns["oldest"] / whole,
            "newest_share": turns["newest"] / whole, "rows_share_told": told[0], "results_share_told": told[1],
            "full_seconds": exact.seconds, "full_results": whole,
        })  # fmt: skip
    return out


# Rules and the condition of each: none finds a row, or each is evaluated on every row in vain, or one finds every row.
_COSTED = {
    "rows alone": (1, "a.x > 99 + {i} and a.y > 0"),
    "evaluated": (100, "a.x * a.y > 1000 + {i}"),
    "results": (300, "a.x > {low:.3f} and a.x < {low:.3f} + 0.03 and a.y < 99"),
}


def row_costs(part: str, *, quick: bool) -> list[Row]:
    """Return the cost in units of a row, of a rule on a row, and of a result."""
    count, tries = (4_000, 1) if quick else (20_000, 5)
    unit_ns = min(unit_nanoseconds() for _ in range(tries))
    taken: dict[str, tuple[float, int]] = {}
    streams = stream_of(count, 1_000)
    for name, (rules_, text) in _COSTED.items():
        lows = np.linspace(-3, 3, rules_)
        rules = [
            Rule(f"r{i}", text.format(i=i, low=low), on="machine", emit="all") for i, low in enumerate(lows.tolist())
        ]
        plan = make_plan(
            rules, {name: list(columns) for name, columns in streams.items()}, quality=Quality(cpu=Cpu(1.0))
        )
        (watch,) = plan.watches
        assert watch.anytime is not None
        plan = Plan((replace(watch, anytime=replace(watch.anytime, cores=100_000.0)),))
        parts = [
            {name: {key: column[begin : begin + CALL] for key, column in of.items()} for name, of in streams.items()}
            for begin in range(0, count, CALL)
        ]
        calls = [local._batches(0, watch, some, "ts", None) for some in parts]
        worked(plan, calls, 1)  # To compile.
        found = worked(plan, calls, tries)
        taken[name] = 1e9 * found.seconds, found.results.total()
    alone = taken["rows alone"][0]
    each = {
        "row": alone / count,
        "rule on a row": (taken["evaluated"][0] - alone) / count / _COSTED["evaluated"][0],
        "result": (taken["results"][0] - alone) / max(taken["results"][1], 1),
    }
    return [{"part": part, "what": what, "unit_ns": unit_ns, "units": ns / unit_ns} for what, ns in each.items()]


def bars(runs: list[Row]) -> list[Row]:
    """What is asked: a budget is kept to, and finds more than rows in turn do."""
    found = []
    for row in (row for row in runs if row["part"] == "rows" and row["asked_percent"] in (25, 50, 75)):
        what = f"{row['rules']} rules of one stream, {row['kind']}, {row['asked_percent']} % of the full work"
        used = round(row["used_percent"] / row["asked_percent"], 2)
        # What all of it takes may be less than what is asked.
        found.append({"what": f"{what}: used of what was asked", "value": used, "asked": "<= 1.2", "met": used <= 1.2})
        other = max(row["oldest_share"], row["newest_share"])
        gain = round(row["results_share"] / max(other, 1e-9), 2)
        found.append({"what": f"{what}: results beside rows in turn", "value": gain, "asked": ">= 1", "met": gain >= 1})
    return found
