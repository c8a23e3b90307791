"""Measure queries in SQL: what a budget of a query of one stream uses, and what each form of a summary finds.

`budgets`: a stream is so fast that a selection without a limit takes one core the whole time; then a budget of 50% of a
core is half of the full work. Processor times are those of one thread, with what a unit takes measured just before.
`forms`: joins with the costs that queries have, by budget, preference and form; units alone, so no machine shows.
"""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.parts import run
from tocsin.interim.cpu.stream_query import UNIT_NS, Select
from tocsin.plan import Anytime, selection_unit_nanoseconds
from tocsin.runtime.contract import Batch
from tocsin.runtime.session import Session
from tocsin.stages.promising.anytime_join import AnytimeJoin
from tocsin.stages.promising.books import Pace
from tocsin.stages.promising.histogram import Histogram
from tocsin.stages.promising.layout import Layout
from tocsin.stages.promising.preference import Preference
from tocsin.stages.promising.selection import Query

Row = dict[str, Any]
SHARES = (0.25, 0.5, 0.75)
FORMS = ("SHJ", "T1", "T2", "T3", "T4")
# Of the results of a join by how often their keys come: so many are rare.
RARE = 0.05


def budgets(part: str, *, quick: bool = False) -> list[Row]:
    """The processor time that selections and aggregates use, beside what they may."""
    rows, found = 2_000 if quick else 100_000, []
    for name, query, aggregates in (
        ("few selected", Query(20.5, 25.5), False),
        ("half selected", Query(20.5, 70.5), False),
        ("aggregates", Query(20.5, 70.5), True),
    ):
        free, _, _ = _worked(query, aggregates, rows, 1_000, {})
        # As fast as the full work is: then so many microseconds are all of a core.
        step_us = max(1, round(1e6 * free / rows * 1000))
        core = rows * step_us / 1000 / 1e6
        # Rows are taken in and summarised whatever the budget is.
        least, _, _ = _worked(query, aggregates, rows, step_us, {"cores": 1e-9, "unit_ns": UNIT_NS})
        for share in SHARES:
            spending = {"cores": share, "unit_ns": selection_unit_nanoseconds()}
            used, left, unit_ns = _worked(query, aggregates, rows, step_us, spending)
            found.append({"part": part, "what": name, "asked_percent": 100 * share, "used_percent": 100 * used / core,
                          "least_percent": 100 * least / core,
                          "unit_ns": unit_ns, "fixed_unit_ns": UNIT_NS, "unprocessed_share": left / rows})  # fmt: skip
    return found


def _worked(query: Query, aggregates: bool, rows: int, step_us: int, spending: Row) -> tuple[float, int, float]:
    """The processor seconds of a query of one stream, rows not worked on, and what a unit was taken for.

    Times are in thousandths of a microsecond, as a stream of millions of rows per second needs them: the pace too.
    """
    values = np.random.default_rng(1).random(rows) * 100
    times, texts = np.arange(rows) * step_us, np.array([json.dumps({"c0": i}) for i in range(rows)], object)
    layout = Layout("T4", 2_000 * step_us, window_us=2_000 * step_us, scheme=Histogram(0.0, 100.0, 100))
    if "unit_ns" in spending:
        spending = {**spending, "cores": spending["cores"] / 1000}
    step = Select("s", "x", layout, (query,), aggregates=aggregates, **spending)
    best = (np.inf, 0)
    for _ in range(3):
        session = Session(step)
        begun, left = time.process_time(), 0
        for at in range(0, rows, 20_000):
            cut = slice(at, at + 20_000)
            number = np.arange(len(times[cut]))
            out = session.push([Batch(0, "s", [()], number * 0, times[cut], number, {"x": values[cut]}, texts[cut])])
            for one in out.answers:
                json.dumps(one)
            left += out.counts["s"].get("unprocessed", 0)
        best = min(best, (time.process_time() - begun, left))
    return best[0], best[1], session.pipelines[0].unit_ns


def forms(part: str, *, quick: bool = False) -> list[Row]:
    """What joins find, by form, window, keys, preference and budget."""
    draw, rows, found = np.random.default_rng(1), 600 if quick else 6_000, []
    drawn = {"zipf": draw.zipf(1.5, rows) % 1000, "even": draw.integers(0, 1000, rows)}
    side, times = draw.integers(0, 2, rows), np.arange(rows) * 100_000
    costs = Anytime(0, 0).costs(rules=1, near=1.0, results=1.0)

    def pairs(layout: Layout, order: str, units: float, keys: Any) -> tuple[Any, float]:
        preference = Preference(order, "count(s1.key) * count(s2.key)")
        names = (("s1", ["key"]), ("s2", ["key"]))
        join = AnytimeJoin(layout, preference, Pace(units, 0.0), streams=names, costs=costs)
        return keys[join.take(side, times, keys)[:, 0]], join.spent

    for name, keys in drawn.items():
        often = np.bincount(keys)
        for window in (60, 600, 3_000):
            layout = Layout("T4", window * 100_000, 4, 3, window * 100_000)
            exact, spent = pairs(replace(layout, variant="SHJ"), "desc", 1e12, keys)
            rare = np.sort(often[exact])[int(RARE * len(exact))] if len(exact) else 0
            for share, order, form in ((s, o, f) for s in SHARES for o in ("desc", "asc", "weighted") for f in FORMS):
                mine, _ = pairs(replace(layout, variant=form), order, spent / rows * share, keys)
                found.append({
                    "part": part, "keys": name, "window": window, "budget": share, "order": order, "form": form,
                    "units": spent / rows * share, "results": len(mine) / max(1, len(exact)),
                    "rare": float(np.mean(often[mine] <= rare) * len(mine) / max(1, np.sum(often[exact] <= rare)))
                    if len(mine) else 0.0,
                    "hist_mse": float(np.mean((_shape(mine) - _shape(exact)) ** 2)),
                })  # fmt: skip
    return found


def _shape(keys: Any) -> Any:
    return np.histogram(keys, 100, (0, 1000))[0] / max(1, len(keys))


def bars(runs: list[Row]) -> list[Row]:
    """What is asked: a budget is kept to; the form that is the default costs few results, and serves a preference."""
    found = []
    for row in (row for row in runs if row["part"] == "budgets"):
        used = round(row["used_percent"] / max(row["asked_percent"], row["least_percent"]), 2)
        what = f"{row['what']}, {row['asked_percent']:g} % of the full work: used of that, or of taking rows in"
        found.append({"what": what, "value": used, "asked": "<= 1.2", "met": used <= 1.2})
    mine = {tuple(row[name] for name in ("keys", "window", "budget", "order", "form")): row
            for row in runs if row["part"] == "forms"}  # fmt: skip
    for (keys, window, budget, order, form), row in mine.items():
        if keys == "zipf" and form == "T4":
            plain = mine[keys, window, budget, order, "SHJ"]
            what = f"T4 beside SHJ, {window} tuples, {budget:.0%}, {order}"
            if order == "desc":
                lost = round(plain["results"] - row["results"], 3)
                found.append({"what": f"{what}: results lost", "value": lost, "asked": "<= 0.03", "met": lost <= 0.03})
            name = {"asc": "rare", "weighted": "hist_mse"}.get(order)
            if name:
                better = row[name] >= plain[name] if order == "asc" else row[name] <= plain[name]
                value = f"{row[name]:.3g} and {plain[name]:.3g}"
                found.append({"what": f"{what}: {name}", "value": value, "asked": "no worse", "met": better})
    return found


def main(argv: list[str] | None = None) -> int:
    return run(argv, "queries", __doc__, {"budgets": budgets, "forms": forms}, bars, {})
