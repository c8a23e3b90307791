"""Plots of the benchmark of range thresholding: Figures 3 to 8 of Qiao, Gan, Tao, SIGMOD 2016."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.parts import save
from benchmarks.ranges_bars import Row, of

STYLES = {
    "RangeIndex": ("tab:red", "o-"),
    "Tracking": ("tab:blue", "s-"),
    "scan per element": ("0.4", "v--"),
    "scan per batch": ("tab:olive", "^--"),
    "interval tree": ("tab:green", "D--"),
    "seg-intv tree": ("tab:green", "D--"),
    "R-tree": ("tab:purple", "x--"),
}
LABELS = {"Tracking": "Tracking (the paper's)"}
OVER_TIME = {"figure_3": ("static", None), "figure_6": ("stochastic", 0.3), "figure_8": ("fixed", None)}
SWEPT = {
    "figure_4": ("queries", "queries", "m, queries"),
    "figure_5": ("threshold", "threshold", "threshold"),
    "figure_7": ("stochastic", "insert", "probability of a new query per element"),
}


def draw(results: dict[str, Any], folder: Path) -> None:
    """Draw what the results allow into a folder."""
    runs = results["runs"]
    figures = {name: _over_time(runs, name) for name, (part, _) in OVER_TIME.items() if _has(runs, part)}
    figures |= {name: _swept(runs, name) for name, (part, _, _) in SWEPT.items() if _has(runs, part)}
    save(figures, "ranges", folder)


def _has(runs: list[Row], part: str) -> bool:
    return any(row["part"] == part for row in runs)


def _axes(runs: list[Row], part: str) -> Any:
    from matplotlib.figure import Figure

    dims = sorted({row["dims"] for row in runs if row["part"] == part})
    figure = Figure(figsize=(6.2 * len(dims), 4.4))
    return figure, dict(zip(dims, figure.subplots(1, len(dims), squeeze=False)[0], strict=True))


def _sizes(runs: list[Row], part: str, dims: int) -> str:
    """How many queries there are at the beginning, which need not be as many as in the paper."""
    found = sorted({row["setting"]["queries"] for row in of(runs, part, dims=dims)})
    return f"{dims}-D, {found[0]:,}" + (f" to {found[-1]:,}" if len(found) > 1 else "") + " queries"


def _finish(figure: Any, axes: Any, title: str, runs: list[Row], part: str) -> Any:
    for dims, axis in axes.items():
        axis.set_yscale("log")
        axis.grid(alpha=0.3)
        axis.set_title(_sizes(runs, part, dims), fontsize=10)
        axis.set_ylim(top=axis.get_ylim()[1] * 5)  # Room for the legend.
        axis.legend(fontsize=7, ncols=2, loc="upper center")
    figure.suptitle(title, fontsize=11)
    return figure


def _over_time(runs: list[Row], name: str) -> Any:
    part, insert = OVER_TIME[name]
    figure, axes = _axes(runs, part)
    for dims, axis in axes.items():
        rows = {method: of(runs, part, method, dims) for method in STYLES}
        if insert is not None:
            rows = {method: _nearest(some, insert) for method, some in rows.items()}
        operations = _operations(rows["RangeIndex"][0])
        for method, (colour, style) in STYLES.items():
            for row in rows[method]:
                x, y = _cost(row, operations)
                axis.plot(x, y, style[1:] if "trace" in row else style, color=colour, ms=4, label=_label(row))
        axis.set(xlabel="elements, millions", ylabel="us per operation so far")
    titles = {"figure_3": "static queries", "figure_6": "new queries at random", "figure_8": "fixed load"}
    return _finish(figure, axes, f"Figure {name[-1]}: cost over time, {titles[name]}", runs, part)


def _nearest(rows: list[Row], insert: float) -> list[Row]:
    """The run whose probability is the middle one of those swept, as many times smaller as there are fewer queries."""
    return sorted(rows, key=lambda row: abs(row["setting"]["insert"] - insert * row["setting"]["queries"] / 1e6))[:1]


def _operations(row: Row) -> list[tuple[int, int]]:
    return [(elements, operations) for elements, operations, _ in row["trace"]]


def _cost(row: Row, operations: list[tuple[int, int]]) -> tuple[list[float], list[float]]:
    """Elements in millions, and the average cost of the operations up to there."""
    if "trace" in row:
        return [e / 1e6 for e, _, _ in row["trace"]], [s / o * 1e6 for _, o, s in row["trace"]]
    x, y = [], []
    for element, seconds in row["sampled_trace"]:
        done = min(operations, key=lambda point: abs(point[0] - element))[1]
        x.append(element / 1e6)
        y.append(seconds / done * 1e6)
    return x, y


def _label(row: Row) -> str:
    name = LABELS.get(row["method"], row["method"])
    return name + (", sampled" if row.get("estimated") else "" if row["whole"] else ", stopped")


def _swept(runs: list[Row], name: str) -> Any:
    part, swept, label = SWEPT[name]
    figure, axes = _axes(runs, part)
    for dims, axis in axes.items():
        for method, (colour, style) in STYLES.items():
            rows = [row for row in of(runs, part, method, dims) if row.get("whole", True)]
            if rows:
                x = [row["setting"][swept] for row in rows]
                axis.plot(x, [row["cpu_seconds"] for row in rows], style, color=colour, ms=4, label=_label(rows[0]))
        axis.set(xlabel=label, ylabel="s for the whole stream")
        if swept != "insert":
            axis.set_xscale("log")
    title = f"Figure {name[-1]}: whole stream by {label}; runs that were stopped are left out"
    return _finish(figure, axes, title, runs, part)
