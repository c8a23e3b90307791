"""Plots of the threshold benchmark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tocsin.operators.retention.threshold_sorter import retained

PLOTS = Path(__file__).resolve().parent / "plots"

# Table 1 of the paper, seconds for 10^6 tuples of s-unif on its own machine: linked list, skip list, red-black tree.
PAPER = {
    "linked list": (0.727, 0.754, 0.768, 0.793, 1.031, 5.103, 84.341),
    "skip list": (1.184, 1.243, 1.232, 1.277, 1.373, 1.645, 2.594),
    "red-black tree": (4.565, 4.620, 4.821, 4.634, 4.801, 4.910, 6.036),
}


def draw(results: dict[str, Any], folder: Path) -> None:
    """Draw all plots into a folder."""
    import matplotlib as mpl

    mpl.use("Agg")
    folder.mkdir(parents=True, exist_ok=True)
    for name, plot in (("table_1", _table_1), ("figure_9", _figure_9), ("figure_10", _figure_10), ("stays", _stays)):
        figure = plot(results)
        figure.tight_layout()
        figure.savefig(folder / f"threshold_{name}.png", dpi=110)


def _axes(columns: int = 1) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5 if columns == 1 else 12, 4.5))
    return figure, figure.subplots(1, columns, squeeze=False)[0]


def _table_1(results: dict[str, Any]) -> Any:
    figure, (axis,) = _axes()
    rows = [row for row in results["table_1"] if row["stream"] == "s-unif"]
    sigmas = [str(row["sigma"]) for row in rows]
    axis.plot(sigmas, [_per_tuple(row["push"], results["tuples"]) for row in rows], "o-", label="ThresholdSorter.push")
    literal = [_per_tuple(row["algorithm_1"], row["algorithm_1_tuples"]) for row in rows]
    axis.plot(sigmas, literal, "s-", label="Algorithm 1 to the letter, sorted array")
    for name, seconds in PAPER.items():
        axis.plot(sigmas, [second * 1000 for second in seconds], ":", label=f"paper, its machine: {name}")
    axis.set(yscale="log", xlabel="sigma of the delay (interval 100, a tuple every 10)", ylabel="CPU ns per tuple")
    axis.set_title("Table 1: s-unif, in and out of order")
    axis.legend(fontsize=8)
    return figure


def _per_tuple(taken: dict[str, float], tuples: int) -> float:
    return taken["cpu_seconds"] / tuples * 1e9


def _figure_9(_: dict[str, Any]) -> Any:
    figure, (axis,) = _axes()
    rng = np.random.default_rng(11)
    t = np.concatenate((rng.uniform(0, 30, 24), rng.uniform(75, 100, 20)))
    t.sort()
    v = np.cumsum(rng.normal(0, 1, t.size))
    kept = retained(t, v, 12.0)
    axis.plot(t, v, "-", color="0.85", zorder=0)
    axis.plot(t[~kept], v[~kept], "o", color="0.6", label=f"left out ({(~kept).sum()})")
    axis.plot(t[kept], v[kept], "o", color="tab:red", label=f"kept ({kept.sum()})")
    axis.plot([40, 52], [v.min(), v.min()], "k|-", label="one interval")
    axis.set(xlabel="time", ylabel="value", title="Figure 9: beside a gap more tuples stay")
    axis.legend(fontsize=8)
    return figure


def _figure_10(results: dict[str, Any]) -> Any:
    figure, axes = _axes(2)
    for name, points in results["figure_10"].items():
        x = [point["tuples_per_interval"] for point in points]
        axes[0].plot(x, [point["fraction"] for point in points], ".-", label=name)
        axes[1].plot(x, [point["per_interval"] for point in points], ".-", label=name)
    for axis, title in zip(axes, ("share of all tuples that stays", "tuples that stay per interval"), strict=True):
        axis.set(xscale="log", xlabel="tuples per interval", title=f"Figure 10: {title}")
        axis.grid(alpha=0.3)
    axes[1].set_yscale("log")
    axes[0].legend(fontsize=8)
    return figure


def _stays(results: dict[str, Any]) -> Any:
    figure, (axis,) = _axes()
    for name, points in results["how_much_stays"].items():
        x = np.array([point["tuples_per_interval"] for point in points])
        axis.loglog(x, [point["per_interval"] for point in points], "o-", label=name)
    axis.loglog(x, 2.2 * np.sqrt(x), "k:", label="2.2 sqrt(n)")
    axis.loglog(x, np.full(x.size, 4.0), "k--", label="4")
    axis.set(xlabel="n, tuples per interval", ylabel="tuples that stay per interval", title="How much stays")
    axis.legend(fontsize=8)
    return figure
