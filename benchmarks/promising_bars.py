"""What promising work is asked to reach, beside what was measured."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from benchmarks.memory_bars import at_least, at_most, of

Row = dict[str, Any]

SKETCH_SPEED, INSERT_SPEED = 40e6, 4e6
# Percent of the full work.
ASKED = (25, 50, 75)


def bars(runs: list[Row]) -> list[Row]:
    """All bars that the runs can answer: what, value, what is asked, and whether it was met."""
    return [
        *_speed(runs),
        *_structures(runs),
        *_intervals(runs),
        *_budgets(runs, "budgets", ""),
        *_budgets(runs, "clock", ", by the clock"),
        *_selection(runs),
        *_aggregates(runs),
    ]


def names(runs: list[Row], part: str, column: str) -> list[Any]:
    """What stands in a column, each once."""
    return list({row[column]: None for row in of(runs, part)})


def _speed(runs: list[Row]) -> Iterable[Row]:
    for row in of(runs, "speed"):
        if row["does"].startswith("sketch"):
            yield at_least(f"{row['does']}, {row['data']}: updates/s", row["rows_per_second"], SKETCH_SPEED)
        elif row["does"] == "insert into T4":
            yield at_least(f"insert into T4, {row['data']}: tuples/s", row["rows_per_second"], INSERT_SPEED)
        elif row["does"] == "memory":
            yield at_most(f"bytes over {row['rows']:,} tuples, of those declared", row["bytes"] / row["declared"], 1)


def _structures(runs: list[Row]) -> Iterable[Row]:
    for data in names(runs, "structures", "data"):
        t_ins, t_hit, output = (
            [
                of(runs, "structures", data=data, variant=v, budget_percent=100)[0][name]
                for v in ("T1", "T2", "T3", "T4")
            ]
            for name in ("t_ins", "t_hit", "output")
        )
        yield at_least(f"Figure 9, {data}: t_ins of T4 over that of T1", t_ins[3] / t_ins[0], 1)
        yield at_most(f"Figure 9, {data}: t_hit of T4 over that of T1", t_hit[3] / t_hit[0], 1)
        yield at_least(f"Figure 9, {data}: output of T4 over that of T1", output[3] / max(output[0], 1e-9), 1)


def _intervals(runs: list[Row]) -> Iterable[Row]:
    """The form that the planner chooses finds nearly as much as the best."""
    for data in names(runs, "intervals", "data"):
        worst = 1.0
        for tau in names(runs, "intervals", "tau"):
            rows = of(runs, "intervals", data=data, tau=tau)
            found = {row["variant"]: row["output"] for row in rows}
            best = max(found.values())
            worst = min(worst, found[rows[0]["chosen"]] / best if best else 1.0)
        yield at_least(f"Figure 10a, {data}: the chosen form's results, of the best one's, at worst", worst, 0.8)


def _budgets(runs: list[Row], part: str, by: str) -> Iterable[Row]:
    for data in names(runs, part, "data"):
        for window, percent in {(row["window"], row["budget_percent"]): None for row in of(runs, part, data=data)}:
            if percent not in ASKED:
                continue
            rows = {row["join"]: row for row in of(runs, part, data=data, window=window, budget_percent=percent)}
            where, plain = f"{data}, {window}, {percent} %{by}", rows["SHJ"]
            figure = 11 if window == "minute" else 12
            gain = rows["desc"]["share"] / max(plain["share"], 1e-9)
            yield at_least(f"Figure {figure}, {where}: results of desc over SHJ", gain, 1)
            gain = rows["weighted"]["share"] / max(plain["share"], 1e-9)
            yield at_least(f"Figure 13a, {where}: results of weighted over SHJ", gain, 1)
            mse = [rows[name]["hist_mse"] for name in ("weighted", "SHJ")]
            if None not in mse:
                yield at_most(f"Figure 13b, {where}: Hist-MSE of weighted over SHJ", mse[0] / max(mse[1], 1e-12), 1)
            if data == "zipf":
                yield at_least(f"Figure 14, {where}: outliers that asc finds", rows["asc"]["outliers_found"], 0.5)
                bounded = rows.get("asc, bounded", rows["asc"])["outliers_among"]
                yield at_least(f"Figure 14, {where}: outliers among asc's results, bounded", bounded, 0.5)
            ages = [rows[name]["apart_s"] for name in ("desc, fade 0.8", "desc", "SHJ") if name in rows]
            if window == "whole" and len(ages) == 3 and None not in ages:
                yield at_most(f"Figure 12b, {where}: age of pairs, fade 0.8 over none", ages[0] / ages[1], 1)
                yield at_most(f"Figure 12b, {where}: age of pairs, fade 0.8 over SHJ", ages[0] / ages[2], 1)


def _selection(runs: list[Row]) -> Iterable[Row]:
    for data in names(runs, "selection", "data"):
        rows = of(runs, "selection", data=data)
        at = {row["queries"]: row for row in rows}
        yield at_least(f"Figure 15, {data}: naive, 20 queries", at[20]["naive"], 0.999)
        gain = at[100]["promising"] / at[100]["naive"]
        yield at_least(f"Figure 15, {data}: promising over naive, 100 queries", gain, 1.25)
        crossing = min((row["queries"] for row in rows if row["promising"] > row["naive"]), default=1000)
        yield at_most(f"Figure 15, {data}: queries from which promising finds more", crossing, 99)


def _aggregates(runs: list[Row]) -> Iterable[Row]:
    for data in names(runs, "aggregates", "data"):
        for row in of(runs, "aggregates", data=data):
            where = f"{data}, naive processes {100 * row['processed']:.0f} %"
            for goal, beside in (("avg", "avg_naive"), ("sum", "sum_naive"), ("sum", "sum_naive_scaled")):
                ratio = row[f"{goal}_promising"] / row[beside]
                yield at_most(f"Figure 16, {where}: MSE of {goal} over {beside}", ratio, 1)
