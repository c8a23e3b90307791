"""What range thresholding is asked to reach, beside what was measured."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

Row = dict[str, Any]

# What one operation may cost, in microseconds, by part and dimensions.
ASKED_US = {
    ("static", 1): 1.0, ("static", 2): 5.0, ("real", 1): 3.0, ("narrow", 1): 2.0, ("stochastic", 1): 2.0,
    ("fixed", 1): 2.0, ("single", 1): 10.0,
}  # fmt: skip
# How many times faster than the best baseline of a kind, by dimensions.
BY_ELEMENT = ("scan per element", "interval tree", "seg-intv tree", "R-tree")
ASKED_TIMES = {1: 100.0, 2: 50.0}


def bars(runs: list[Row]) -> list[Row]:
    """All bars that the runs can answer: what, value, asked, and whether it was met."""
    return [*_costs(runs), *_ratios(runs), *_growth(runs), *_registration(runs), *_agreement(runs)]


def of(runs: list[Row], part: str, method: str = "RangeIndex", dims: int = 1) -> list[Row]:
    """The runs of one part, method and number of dimensions."""
    return [row for row in runs if (row["part"], row["method"], row.get("dims", 1)) == (part, method, dims)]


def _at_most(what: str, value: float, asked: float) -> Row:
    return {"what": what, "value": round(value, 4), "at_most": asked, "met": value <= asked}


def _costs(runs: list[Row]) -> Iterable[Row]:
    for (part, dims), asked in ASKED_US.items():
        rows = of(runs, part, dims=dims)
        if rows:
            worst = max(row["us_per_operation"] for row in rows)
            yield _at_most(f"{part}, {dims}-D: us per operation", worst, asked)


def _ratios(runs: list[Row]) -> Iterable[Row]:
    for dims, asked in ASKED_TIMES.items():
        mine = of(runs, "static", dims=dims)
        others = [row for name in BY_ELEMENT for row in of(runs, "static", name, dims)]
        whole = [row for name in BY_ELEMENT for row in of(runs, "static", f"{name}, whole", dims)]
        for rows in (others, whole):
            if mine and rows:
                best = min(rows, key=lambda row: float(row["us_per_operation"]))
                times = best["us_per_operation"] / mine[0]["us_per_operation"]
                what = f"static, {dims}-D: times faster than the best per-element baseline ({best['method']})"
                yield {"what": what, "value": round(times, 1), "at_least": asked, "met": times >= asked}
        scan = of(runs, "static", "scan per batch", dims)
        if mine and scan and dims == 1:
            times = scan[0]["us_per_operation"] / mine[0]["us_per_operation"]
            what = "static, 1-D: times faster than the scan per batch"
            yield {"what": what, "value": round(times, 1), "at_least": 3.0, "met": times >= 3}


def _growth(runs: list[Row]) -> Iterable[Row]:
    for part in ("queries", "threshold"):
        for dims in (1, 2):
            rows = of(runs, part, dims=dims)
            if len(rows) > 1:
                cost = [row["us_per_operation"] for row in rows]
                yield _at_most(f"{part}, {dims}-D: largest cost per operation over the first", max(cost) / cost[0], 3.0)


def _registration(runs: list[Row]) -> Iterable[Row]:
    for method, seconds, size in (("RangeIndex", 5.0, 100.0), ("Tracking", 15.0, 600.0)):
        for row in of(runs, "register", method):
            yield _at_most(f"register {row['queries']} in bulk, {method}: s", row["bulk_seconds"], seconds)
            yield _at_most(f"one query more, {method}: us", row["us_one_more"], 20.0)
        for part, when in (("register", "after registration"), ("static", "largest of five points")):
            seen = [each for row in of(runs, part, method) for each in row["bytes_per_alive"]]
            if seen:
                yield _at_most(f"bytes per alive query, 1-D, {when}, {method}", max(seen), size)


def _agreement(runs: list[Row]) -> Iterable[Row]:
    rows = [row for row in runs if "agrees" in row]
    if rows:
        differ = sum(not row["agrees"] for row in rows)
        yield _at_most(f"runs of {len(rows)} that differ from RangeIndex (three: from the scan)", differ, 0)
    days = [row["seconds"] for row in runs if row["part"] == "trades" and row["method"] == "RangeIndex"]
    if days:
        yield _at_most("a day of trades of one symbol, longest: s of wall", max(days), 1.0)
