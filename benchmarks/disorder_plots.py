"""Plots of the disorder benchmark: Figures 6 to 11 of Ji et al., ICDE 2016, and waits over time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.disorder_summary import Row, grouped, median

PLOTS = Path(__file__).resolve().parent / "plots"
COLOURS = {"EqSel": "tab:green", "NonEqSel": "tab:blue", "Measured": "tab:red", "Observed": "tab:purple"}
TITLES = {"x2": "football, 2 streams", "x3": "synthetic, 3 streams", "x4": "synthetic, 4 streams"}
SWEPT = {
    "period": (8, "over_us", 1e6, "P, s"),
    "interval": (9, "every_us", 1e6, "L, s"),
    "grain": (10, "grain_us", 1e3, "g, ms"),
}


def draw(results: dict[str, Any], folder: Path) -> None:
    """Draw what the results allow into a folder."""
    import matplotlib as mpl

    mpl.use("Agg")
    folder.mkdir(parents=True, exist_ok=True)
    parts = grouped(results["runs"], lambda row: row["part"])
    figures = {}
    if "baselines" in parts:
        figures["figure_6"] = _figure_6(parts["baselines"])
    if "recall" in parts:
        figures["figure_7"] = _figure_7(
            parts["recall"], parts.get("baselines", []), results["summary"].get("fixed", [])
        )
        figures["waits"] = _waits(parts["recall"])
    for part in SWEPT:
        if part in parts:
            figures[f"figure_{SWEPT[part][0]}"] = _swept(parts[part], part)
    if "step" in parts:
        figures["figure_11"] = _figure_11(parts["step"])
    for name, figure in figures.items():
        figure.tight_layout()
        figure.savefig(folder / f"disorder_{name}.png", dpi=100)


def _axes(rows: int, columns: int, height: float = 3.4) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.2 * columns, height * rows))
    return figure, figure.subplots(rows, columns, squeeze=False)


def _figure_6(runs: list[Row]) -> Any:
    rows = [row for row in runs if row["way"] == "none" and "series" in row]
    figure, axes = _axes(1, len(rows))
    for axis, row in zip(axes[0], rows, strict=True):
        axis.plot([n / 60 for n in range(len(row["series"]["recall"]))], row["series"]["recall"], lw=1)
        axis.set(ylim=(0, 1.02), xlabel="minutes after the first P", ylabel="recall over P", title=TITLES[row["data"]])
        axis.grid(alpha=0.3)
    figure.suptitle("Figure 6: no wait (No-K-slack), one seed", fontsize=11)
    return figure


def _figure_7(runs: list[Row], base: list[Row], fixed: list[Row]) -> Any:
    by_data = grouped(runs, lambda row: row["data"])
    figure, axes = _axes(3, len(by_data))
    for column, (data, rows) in enumerate(by_data.items()):
        for way, mine in grouped(rows, lambda row: row["way"]).items():
            points = grouped(mine, lambda row: row["wanted"])
            x = [str(wanted) for wanted in points]
            for line, name in enumerate(("mean_k_s", "phi", "phi_99")):
                y = [median(group, name) for group in points.values()]
                axes[line, column].plot(x, y, "o-", color=COLOURS[way], label=way, ms=4)
        most = [row for row in base if row["data"] == data and row["way"] == "max"]
        if most:
            axes[0, column].axhline(median(most, "mean_k_s"), color="0.3", ls="--", lw=1, label="Max-K-slack")
        best = [row for row in fixed if row["data"] == data and row["way"] == "Measured"]
        if best:
            x = [str(row["wanted"]) for row in best]
            axes[0, column].plot(x, [row["fixed_k_s"] for row in best], "k:", label="best fixed K as good as Measured")
        axes[0, column].set(yscale="log", title=TITLES[data], ylabel="average K, s")
        axes[1, column].set(ylim=(-0.03, 1.03), ylabel="share of periods with recall Γ")
        axes[2, column].set(ylim=(0.85, 1.005), ylabel="... with recall .99 Γ", xlabel="Γ")
    for axis in axes.ravel():
        axis.grid(alpha=0.3)
    # There is room below the second line, not in the first.
    axes[1, 0].legend(*axes[0, 0].get_legend_handles_labels(), fontsize=8, loc="lower left")
    figure.suptitle("Figure 7: by recall asked for, medians over seeds", fontsize=11)
    return figure


def _waits(runs: list[Row]) -> Any:
    rows = [row for row in runs if "series" in row]
    by_data = grouped(rows, lambda row: row["data"])
    figure, axes = _axes(2, len(by_data), 2.9)
    for column, (data, mine) in enumerate(by_data.items()):
        for row in mine:
            if row["way"] not in ("NonEqSel", "Measured"):
                continue
            for line, name in enumerate(("k_s", "recall")):
                series = row["series"][name]
                x = [n / 60 for n in range(len(series))]
                axes[line, column].plot(x, series, lw=0.9, color=COLOURS[row["way"]], label=row["way"])
        axes[1, column].axhline(mine[0]["wanted"], color="0.3", ls="--", lw=1)
        axes[0, column].set(title=TITLES[data], ylabel="K, s")
        axes[1, column].set(xlabel="minutes", ylabel="recall over P")
    for axis in axes.ravel():
        axis.grid(alpha=0.3)
    axes[0, 0].legend(fontsize=7)
    figure.suptitle(f"K and recall over time, Γ = {rows[0]['wanted']}, one seed", fontsize=11)
    return figure


def _swept(runs: list[Row], part: str) -> Any:
    number, setting, unit, label = SWEPT[part]
    groups = grouped(runs, lambda row: (row["data"], row["wanted"]))
    figure, axes = _axes(2, len(groups), 2.9)
    for column, ((data, wanted), rows) in enumerate(groups.items()):
        for way, mine in grouped(rows, lambda row: row["way"]).items():
            x = [f"{row[setting] / unit:g}" for row in mine]
            axes[0, column].plot(x, [row["mean_k_s"] for row in mine], "o-", ms=4, color=COLOURS[way], label=way)
            axes[1, column].plot(x, [row["phi"] for row in mine], "o:", ms=4, color=COLOURS[way], label=f"{way}, Γ")
            axes[1, column].plot(
                x, [row["phi_99"] for row in mine], "s-", ms=4, color=COLOURS[way], label=f"{way}, .99 Γ"
            )
        axes[0, column].set(title=f"{TITLES[data]}, Γ = {wanted}", ylabel="average K, s", ylim=(0, None))
        axes[1, column].set(ylim=(-0.03, 1.03), ylabel="share of periods", xlabel=label)
    for axis in axes.ravel():
        axis.grid(alpha=0.3)
    axes[0, 0].legend(fontsize=7)
    axes[1, 0].legend(fontsize=6)
    figure.suptitle(f"Figure {number}: by {label.split(',')[0]}, one seed", fontsize=11)
    return figure


def _figure_11(runs: list[Row]) -> Any:
    by_data = grouped(runs, lambda row: row["data"])
    figure, axes = _axes(1, len(by_data))
    for axis, (data, rows) in zip(axes[0], by_data.items(), strict=True):
        for wanted, mine in grouped(rows, lambda row: row["wanted"]).items():
            axis.plot(
                [row["grain_us"] / 1e3 for row in mine],
                [row["adapt_ms"] for row in mine],
                "o-",
                ms=4,
                label=f"Γ = {wanted}",
            )
        axis.set(xscale="log", ylim=(0, None), xlabel="g, ms", ylabel="mean CPU time of a step, ms", title=TITLES[data])
        axis.grid(alpha=0.3)
    axes[0, 0].legend(fontsize=8)
    figure.suptitle("Figure 11: time of an adaptation step, NonEqSel", fontsize=11)
    return figure
