"""Measure rules with a budget of processor time: what they use beside what they may, and what that finds.

Each workload is one stretch of two streams, made so long that the ordinary work on all its pairs would take one core
the whole time. Then a budget of 50% of a core is half of the full work. Processor times are those of one thread, in one
process, with what a unit takes measured just before; shares of results do not depend on the machine but for that.
Rows are handed over some at a time, as micro-batches do. Rules of one stream stand in `cpu_rows.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any, NamedTuple

import numpy as np

from benchmarks import cpu_rows
from benchmarks.parts import run
from tocsin import Rule, local
from tocsin.interim.cpu.join_pipeline import PromisingPipeline
from tocsin.interim.cpu.row_counts import count_partners
from tocsin.interim.cpu.row_log import RowLog
from tocsin.plan import Plan, make_plan, unit_nanoseconds
from tocsin.rules.quality import Cpu, Quality
from tocsin.runtime.contract import Batch, Int
from tocsin.runtime.session import Session
from tocsin.stages.promising.layout import Layout

Row = dict[str, Any]
PERCENTS = (5, 10, 25, 50, 75, 100)
# Rows of both streams in a window, of half as many keys; the first is that of all other parts.
WINDOWS = (600, 6_000)
WINDOW = WINDOWS[0]
# Rows of both streams that are handed over at once.
CALL = 2_000


def rules_of(count: int, window_us: int, threshold: float) -> list[Rule]:
    """Rules over the same pair of streams, each true for a part of the pairs."""
    more: dict[str, Any] = {
        "within": timedelta(microseconds=window_us),
        "on": "machine",
        "emit": "all",
        "allowed_lateness": 0,
    }
    return [Rule(f"r{i}", f"a + b > {threshold + i / count}", **more) for i in range(count)]


def streams_of(rows: int, step_us: int, keys: int) -> dict[str, dict[str, Any]]:
    """Two streams whose keys are Zipf; the values of every fifth key are higher: its pairs give most results."""
    draw = np.random.default_rng(1)
    chance = 1 / np.arange(1, keys + 1)
    key, side = draw.choice(keys, rows, p=chance / chance.sum()), draw.integers(0, 2, rows)
    value, at = draw.normal(0, 1, rows) + 1.5 * (key % 5 == 2), np.arange(rows) * step_us
    names = np.array([f"k{number}" for number in range(keys)], dtype=object)
    return {
        name: {"ts": at[side == i], "machine": names[key[side == i]], "value": value[side == i]}
        for i, name in enumerate("ab")
    }


class Worked(NamedTuple):
    """The least processor seconds, how many results there were, and what was told of rule r0 in the end."""

    seconds: float
    results: int
    told: tuple[float | None, ...] | None


def worked(plan: Plan, calls: list[list[Batch]], tries: int) -> Worked:
    """Let the logic of a plan take rows. Results are let go, as an engine does with each micro-batch."""
    seconds = []
    for _ in range(tries):
        session, results = Session(plan), 0
        begun = time.process_time()
        for batches in calls:
            out = session.push(batches)
            results += sum(map(len, out.alerts))
        seconds.append(time.process_time() - begun)
    return Worked(min(seconds), results, tuple(out.metrics.section("cpu").get("r0", {}).values()) or None)


def planned(
    count: int, rows: int, step_us: int, cpu: Cpu | None, threshold: float = 4.0, window: int = WINDOW
) -> tuple[Plan, list[list[Batch]]]:
    """Plan rules over streams of so many rows that come so often, and cut these into calls."""
    streams = streams_of(rows, step_us, window // 2)
    plan = make_plan(
        rules_of(count, window * step_us, threshold),
        {name: list(columns) for name, columns in streams.items()},
        quality=Quality(cpu=cpu),
    )
    calls = []
    for begin in range(0, rows * step_us, CALL * step_us):
        inside = {name: (of["ts"] >= begin) & (of["ts"] < begin + CALL * step_us) for name, of in streams.items()}
        some = {name: {key: column[inside[name]] for key, column in of.items()} for name, of in streams.items()}
        calls.append(local._batches(0, plan.watches[0], some, "ts", None))
    return plan, calls


def newest_first(plan: Plan) -> Plan:
    """The same budget without summaries: the pairs of the newest rows come first."""
    watches = [
        watch if watch.anytime is None else replace(watch, anytime=replace(watch.anytime, summary=_PLAIN))
        for watch in plan.watches
    ]
    return replace(plan, watches=tuple(watches))


_PLAIN = Layout("SHJ", buckets=256)


def shares(part: str, *, quick: bool) -> list[Row]:
    """What is used and found by budget, by promise and by order of arrival."""
    cases = [(window, rules) for window in WINDOWS for rules in (1, 20)]
    return [row for case in cases[: 2 if quick else None] for row in _shares(part, *case, quick=quick)]


def _shares(part: str, window: int, count: int, *, quick: bool) -> list[Row]:
    out: list[Row] = []
    rows, tries = (2_000, 1) if quick else (20_000, 3)
    given = {"threshold": 4.0 if window == WINDOW else 5.0, "window": window}
    worked(*planned(count, rows, 1_000, None, **given), 1)  # To compile.
    exact = worked(*planned(count, rows, 1_000, None, **given), tries)
    step_us, unit_ns = max(1, round(1e6 * exact.seconds / rows)), min(unit_nanoseconds() for _ in range(tries))
    for percent in PERCENTS:
        plan, calls = planned(count, rows, step_us, Cpu(percent / 100), **given)
        plan = plan.calibrated(unit_ns)
        for way, chosen in (("by promise", plan), ("newest first", newest_first(plan))):
            used, results, told = worked(chosen, calls, tries)
            assert told is not None
            out.append({
                "part": part, "window": window, "rules": count, "asked_percent": percent, "way": way,
                "unit_ns": unit_ns, "used_percent": 100 * used / (rows * step_us / 1e6), "results": results,
                "results_share": results / exact.results, "rows_share_told": told[0],
                "results_share_told": told[1], "full_seconds": exact.seconds,
            })  # fmt: skip
    return out


def costs(part: str, *, quick: bool) -> list[Row]:
    """What a row, a pair, a rule on a pair, and a result take in units: `plan/anytime.py` has them, rounded.

    To let old rows go takes some time, and some for each row that is there: both, and pairs, by windows of two sizes.
    """
    rows, tries = (2_000, 1) if quick else (50_000, 5)
    unit_ns = min(unit_nanoseconds() for _ in range(tries))
    alone, alone_wide, one, one_wide, many, found = (_costed(*case, rows, tries) for case in _COSTED)
    near, near_wide = (pairs_of(planned(1, rows, 1_000, None, window=window)[1], 1_000 * window) for window in WINDOWS)
    rule = (many.ns - one.ns) / (MANY - 1) / near
    wider = (one_wide.ns - one_wide.renewing_ns) - (one.ns - one.renewing_ns) - rule * (near_wide - near)
    each = {
        "row": (alone.ns - alone.renewing_ns) / rows,
        "pair": wider / (one_wide.pairs - one.pairs),
        "rule": rule,
        "result": (found.ns - many.ns) / max(found.results, 1),
    }
    if alone.renewals and alone_wide.renewals:
        (few, short), (more, long) = (
            (case.renewed / case.renewals, case.renewing_ns / case.renewals) for case in (alone, alone_wide)
        )
        each["letting go, each"] = (long - short) / (more - few)
        each["letting go"] = short - each["letting go, each"] * few
    return [{"part": part, "what": what, "unit_ns": unit_ns, "units": ns / unit_ns} for what, ns in each.items()]


class Costed(NamedTuple):
    """The least processor time of some work, its results and pairs; how often old rows went, of how many, in what."""

    ns: float
    results: int
    pairs: int
    renewals: int
    renewed: int
    renewing_ns: int


MANY = 20
# Rules, the threshold of the first, and the share of a core; without one there is no limit. Then the window.
_COSTED: tuple[tuple[int, float, float | None, int], ...] = (
    (1, 1e9, 1e-6, WINDOWS[0]),
    (1, 1e9, 1e-6, WINDOWS[1]),
    (1, 1e9, None, WINDOWS[0]),
    (1, 1e9, None, WINDOWS[1]),
    (MANY, 1e9, None, WINDOWS[0]),
    (MANY, 4.0, None, WINDOWS[0]),
)


def _costed(count: int, threshold: float, cores: float | None, window: int, rows: int, tries: int) -> Costed:
    """Measure what some rules take, and what of it to let old rows go."""
    plan, calls = planned(count, rows, 1_000, Cpu(1.0), threshold, window)
    (watch,) = plan.watches
    assert watch.anytime is not None
    plan = Plan((replace(watch, anytime=replace(watch.anytime, cores=cores)),))
    worked(plan, calls, 1)  # To compile.
    used, results, _ = worked(plan, calls, tries)
    found = []
    for _ in range(tries):
        session, renewed, pairs = Session(plan), list[tuple[int, int]](), list[int]()
        _, mine = session.pipelines
        assert isinstance(mine, PromisingPipeline)
        mine._renew = _timed(mine._renew, mine.log, renewed)  # type: ignore[method-assign]
        mine.rules.judge = _counted(mine.rules.judge, pairs)  # type: ignore[method-assign]
        for batches in calls:
            session.push(batches)
        there, took = (sum(column) for column in zip(*renewed, strict=True)) if renewed else (0, 0)
        found.append(Costed(1e9 * used, results, sum(pairs), len(renewed), there, took))
    return min(found, key=lambda one: one.renewing_ns)


def _timed(work: Callable[[int], None], log: RowLog, times: list[tuple[int, int]]) -> Callable[[int], None]:
    def timed(now_us: int) -> None:
        rows, begun = len(log), time.process_time_ns()
        work(now_us)
        times.append((rows, time.process_time_ns() - begun))

    return timed


def _counted(judge: Callable[..., None], pairs: list[int]) -> Callable[..., None]:
    def counted(log: RowLog, some: Int, quality: str) -> None:
        pairs.append(len(some))
        judge(log, some, quality)

    return counted


def pairs_of(calls: list[list[Batch]], window_us: int) -> int:
    """How many pairs of equal keys two streams have within a window."""
    batches = [batch for call in calls for batch in call]
    names = {key: number for number, key in enumerate({key for batch in batches for key in batch.keys})}
    key = np.concatenate([np.array([names[key] for key in batch.keys])[batch.key] for batch in batches])
    time_us = np.concatenate([batch.time for batch in batches])
    side, order = np.concatenate([batch.key * 0 + "ab".index(batch.stream) for batch in batches]), np.argsort(time_us)
    rows, there = (side[order], key[order], time_us[order]), np.zeros((2, len(names)), np.int64)
    return int(count_partners(rows, np.zeros(2, np.int64), (0, 0), there, (window_us, len(order))).sum())


def bars(runs: list[Row]) -> list[Row]:
    """What is asked: a budget is kept to, and finds more than by order of arrival."""
    found = []
    mine = [row for row in runs if row["part"] == "shares"]
    for row in (row for row in mine if row["way"] == "by promise" and row["asked_percent"] in (25, 50, 75)):
        what = f"window of {row['window']}, {row['rules']} rules, {row['asked_percent']} % of the full work"
        other = next(one for one in mine if {**one, **_same(row)} == one and one["way"] == "newest first")
        used = round(row["used_percent"] / row["asked_percent"], 2)
        found.append({"what": f"{what}: used of what was asked", "value": used, "asked": "0.8 to 1.2",
                      "met": 0.8 <= used <= 1.2})  # fmt: skip
        gain = round(row["results_share"] / max(other["results_share"], 1e-9), 2)
        found.append({"what": f"{what}: results beside newest first", "value": gain, "asked": ">= 1", "met": gain >= 1})
    return found + cpu_rows.bars(runs)


def _same(row: Row) -> Row:
    return {name: row[name] for name in ("part", "window", "rules", "asked_percent")}


def _figure(runs: list[Row], part: str) -> Any:
    from matplotlib.figure import Figure

    mine = [row for row in runs if row["part"] == part]
    windows = sorted({row["window"] for row in mine})
    figure = Figure(figsize=(7.8, 3.2 * len(windows)), dpi=110)
    for (used, found), window in zip(figure.subplots(len(windows), 2, squeeze=False), windows, strict=True):
        for count, line in ((1, "-"), (20, "--")):
            for way, mark in (("by promise", "o"), ("newest first", "s")):
                same = {"window": window, "rules": count, "way": way}
                drawn = [row for row in mine if row | same == row]
                asked, style = [row["asked_percent"] for row in drawn], {"ls": line, "marker": mark, "ms": 4}
                used.plot(asked, [row["used_percent"] for row in drawn], label=f"{way}, {count} rules", **style)
                found.plot(asked, [100 * row["results_share"] for row in drawn], label=f"{way}, {count} rules", **style)
                if way == "by promise":
                    told = [100 * (row["results_share_told"] or 0) for row in drawn]
                    found.plot(asked, told, "k:", marker="x", ms=4, label=f"as told, {count} rules")
        used.plot(PERCENTS, PERCENTS, "k", lw=0.5)
        used.set(xlabel="asked, % of a core", ylabel="used, % of a core", title=f"used; {window} rows in a window")
        found.set(xlabel="asked, % of the full work", ylabel="results found, %", title="found")
        for axis in (used, found):
            axis.legend(fontsize=6)
    return figure


def main(argv: list[str] | None = None) -> int:
    parts = {"shares": shares, "costs": costs, "rows": cpu_rows.rows, "row-costs": cpu_rows.row_costs}
    return run(argv, "cpu", __doc__, parts, bars, {"1": ("shares", _figure)})
