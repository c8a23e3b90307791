"""Draw the figures of promising work."""

from __future__ import annotations

from typing import Any

from benchmarks.memory_bars import of
from benchmarks.promising_bars import names

Row = dict[str, Any]
STYLES = {"SHJ": "k--s", "T1": "-v", "T2": "-^", "T3": "-D", "T4": "-o", "desc": "-o", "weighted": "-D", "asc": "-v",
          "asc, bounded": "-^", "desc, fade 0.8": "-^"}  # fmt: skip


def _grid(lines: int, columns: int, title: str) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3.9 * columns, 3.1 * lines), dpi=110)
    axes = figure.subplots(lines, columns, squeeze=False)
    figure.suptitle(title, fontsize=11)
    return figure, axes


def _structures(runs: list[Row], part: str) -> Any:
    datas = names(runs, part, "data")
    figure, axes = _grid(1, 3, "Figure 9: one-minute window, as many units as the hash join needs for all")
    for axis, (column, label) in zip(
        axes[0], (("t_ins", "t_ins, units"), ("t_hit", "t_hit, units"), ("output", "results per tuple")), strict=True
    ):
        for i, data in enumerate(datas):
            rows = of(runs, part, data=data, budget_percent=100)
            places = [k + 0.25 * (i - 1) for k in range(len(rows))]
            axis.bar(places, [row[column] for row in rows], 0.24, label=data)
        axis.set(xticks=range(4), xticklabels=["T1", "T2", "T3", "T4"], ylabel=label)
        axis.set(yscale="linear" if column == "t_ins" else "log")
    axes[0][1].legend(fontsize=7)
    return figure


def _lines(runs: list[Row], part: str, x: str, xlabel: str, title: str) -> Any:
    datas = names(runs, part, "data")
    figure, axes = _grid(1, len(datas), title)
    for axis, data in zip(axes[0], datas, strict=True):
        for variant in names(runs, part, "variant"):
            rows = of(runs, part, data=data, variant=variant)
            axis.plot([row[x] for row in rows], [row["output"] for row in rows], STYLES[variant], ms=4, label=variant)
        axis.set(xlabel=xlabel, ylabel="results per tuple", title=data)
        axis.legend(fontsize=7)
    return figure


def _intervals(runs: list[Row], part: str) -> Any:
    figure = _lines(runs, part, "tau", "units between arrivals", "Figure 10a: few units; below: what the planner chose")
    for axis in figure.axes:
        for row in of(runs, part, data=axis.get_title(), variant="T4"):
            axis.text(row["tau"], axis.get_ylim()[0], row["chosen"], fontsize=6, ha="center", va="bottom")
    return figure


def _windows(runs: list[Row], part: str) -> Any:
    return _lines(runs, part, "window_s", "window, s", "Figure 10b: results by window, 100 units between arrivals")


def _shares(
    runs: list[Row], part: str, window: str, joins: tuple[str, ...], columns: dict[str, str], title: str
) -> Any:
    datas = names(runs, part, "data")
    figure, axes = _grid(len(columns), len(datas), title)
    for line, (column, label) in zip(axes, columns.items(), strict=True):
        for axis, data in zip(line, datas, strict=True):
            for join in joins:
                rows = [row for row in of(runs, part, data=data, window=window, join=join) if row[column] is not None]
                x = [row["budget_percent"] for row in rows]
                axis.plot(x, [row[column] for row in rows], STYLES[join], ms=4, label=join)
            if column == "share":
                rows = of(runs, part, data=data, window=window, join="SHJ")
                axis.plot([row["budget_percent"] for row in rows], [row["by_key"] for row in rows], ":", color="grey",
                          label="index by key")  # fmt: skip
                axis.set(ylim=(0, 1.03))
            if column == "hist_mse":
                axis.set(yscale="log")
            axis.set(xlabel="budget, % of SHJ's full work", ylabel=label, title=data, xticks=(25, 50, 75))
            axis.legend(fontsize=7)
    return figure


def _figure_11(runs: list[Row], part: str) -> Any:
    return _shares(runs, part, "minute", ("SHJ", "desc"), {"share": "share of results"}, "Figure 11: one-minute window")


def _figure_12(runs: list[Row], part: str) -> Any:
    columns = {"share": "share of results", "apart_s": "|ts1 - ts2|, s"}
    return _shares(runs, part, "whole", ("SHJ", "desc", "desc, fade 0.8"), columns, "Figure 12: whole stream")


def _figure_13(runs: list[Row], part: str) -> Any:
    columns = {"share": "share of results", "hist_mse": "Hist-MSE"}
    return _shares(runs, part, "minute", ("SHJ", "weighted"), columns, "Figure 13: a faithful sample, one minute")


def _figure_14(runs: list[Row], part: str) -> Any:
    columns = {"results": "results", "outliers_found": "outliers found", "outliers_among": "outliers among results"}
    return _shares(runs, part, "minute", ("SHJ", "asc", "asc, bounded"), columns, "Figure 14: outliers, one minute")


def _clock(runs: list[Row], part: str) -> Any:
    datas = names(runs, part, "data")
    figure, axes = _grid(2, len(datas), "By the clock: share of results, by processor time; one minute, whole stream")
    for line, window in zip(axes, ("minute", "whole"), strict=True):
        for axis, data in zip(line, datas, strict=True):
            for join in ("SHJ", "desc", "weighted"):
                rows = of(runs, part, data=data, window=window, join=join)
                x = [row["budget_percent"] for row in rows]
                axis.plot(x, [row["share"] for row in rows], STYLES[join], ms=4, label=join)
            axis.set(xlabel="time, % of SHJ's for all", ylabel="share of results", title=f"{data}, {window}")
            axis.set(ylim=(0, 1.03), xticks=(25, 50, 75))
            axis.legend(fontsize=7)
    return figure


def _buckets(runs: list[Row], part: str) -> Any:
    figure, axes = _grid(1, 3, "Zipf, one minute: the more buckets, the less there is to gain")
    for axis, percent in zip(axes[0], (25, 50, 75), strict=True):
        for variant in ("SHJ", "T4"):
            rows = of(runs, part, budget_percent=percent, variant=variant)
            axis.plot([r["buckets"] for r in rows], [r["share"] for r in rows], STYLES[variant], ms=4, label=variant)
        axis.set(xscale="log", xlabel="buckets", ylabel="share of results", title=f"{percent} %", ylim=(0, 1.03))
        axis.legend(fontsize=7)
    return figure


def _selection(runs: list[Row], part: str) -> Any:
    datas = names(runs, part, "data")
    figure, axes = _grid(1, len(datas), "Figure 15: standing selections, units for 20 queries one by one")
    for axis, data in zip(axes[0], datas, strict=True):
        rows = of(runs, part, data=data)
        for way, style in (("naive", "k--s"), ("promising", "-o")):
            axis.plot([row["queries"] for row in rows], [row[way] for row in rows], style, ms=4, label=way)
        axis.set(xlabel="queries", ylabel="share of results", title=data, ylim=(0, 1.05))
        axis.legend(fontsize=7)
    return figure


def _aggregates(runs: list[Row], part: str) -> Any:
    datas = names(runs, part, "data")
    figure, axes = _grid(2, len(datas), "Figure 16: mean square error of aggregates, relative")
    ways = {"avg": ("avg_naive", "avg_promising"), "sum": ("sum_naive", "sum_naive_scaled", "sum_promising")}
    for line, (goal, columns) in zip(axes, ways.items(), strict=True):
        for axis, data in zip(line, datas, strict=True):
            rows = of(runs, part, data=data)
            for column in columns:
                style = "-o" if column.endswith("promising") else "--s"
                axis.plot([100 * row["processed"] for row in rows], [row[column] for row in rows], style, ms=4,
                          label=column.removeprefix(f"{goal}_").replace("_", ", "))  # fmt: skip
            axis.set(xlabel="naive processes, %", ylabel=f"MSE of {goal.upper()}", title=data)
            # What is exact, but for rounding, is at the bottom.
            axis.set_yscale("symlog", linthresh=1e-8)
            axis.set(ylim=(0, 2))
            axis.legend(fontsize=7)
    return figure


# File name, and the part that it is drawn from.
FIGURES = {
    "figure_9": ("structures", _structures),
    "figure_10a": ("intervals", _intervals),
    "figure_10b": ("windows", _windows),
    "figure_11": ("budgets", _figure_11),
    "figure_12": ("budgets", _figure_12),
    "figure_13": ("budgets", _figure_13),
    "figure_14": ("budgets", _figure_14),
    "clock": ("clock", _clock),
    "figure_15": ("selection", _selection),
    "figure_16": ("aggregates", _aggregates),
    "buckets": ("buckets", _buckets),
}
