"""Plots of memory-limited joins: figures of Srivastava, Widom, VLDB 2004, speed, and purchases."""

from __future__ import annotations

from typing import Any

from benchmarks.memory_bars import Row, least, median_errors, of

STYLES = {
    "AGE": ("tab:red", "-o"), "PROB": ("tab:red", "-o"), "RECENT": ("tab:blue", "-s"),
    "UNTIL-EXPIRY": ("tab:green", "-^"), "RANDOM": ("tab:grey", "-x"),
}  # fmt: skip
WAYS = {"UNIFORM": ("tab:blue", "-s"), "EQ-CLUSTER": ("tab:green", "-^"), "PPS-CLUSTER": ("tab:red", "-o")}


def _axes(columns: int, title: str) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(0.8 + 4.4 * columns, 4.0))
    axes = figure.subplots(1, columns, squeeze=False)[0]
    for axis in axes:
        axis.grid(alpha=0.3)
    figure.suptitle(title, fontsize=11)
    return figure, axes


def _age_curve(runs: list[Row], part: str) -> Any:
    figure, (axis,) = _axes(1, "Figure 5: age curve of the WAN trace")
    row = next(row for row in of(runs, part) if "curve" in row)
    axis.plot([k / 10 for k in range(len(row["curve"]))], row["curve"], lw=1)
    axis.axvline(row["k_opt_s"], color="tab:red", lw=1, label=f"k_opt = {row['k_opt_s']:.1f} s")
    axis.set(xlabel="k, s", ylabel="p(k) / n, per 0.1 s", xlim=(55, 80))
    axis.legend(fontsize=8)
    return figure


def _recall(runs: list[Row], part: str, title: str, theory_of: str, theory: str) -> Any:
    rows = [row for row in of(runs, part) if "policy" in row]
    datas = list({row["data"]: None for row in rows})
    figure, axes = _axes(len(datas), title)
    for axis, data in zip(axes, datas, strict=True):
        for name, (colour, style) in STYLES.items():
            mine = of(rows, part, data=data, policy=name)
            x = [row["memory_percent"] for row in mine]
            if mine:
                axis.plot(x, [row["recall"] for row in mine], style, color=colour, ms=4, lw=1, label=name)
            if mine and name == theory_of:
                axis.plot(x, [row["theory"] for row in mine], "k--", lw=1, label=theory)
        axis.set(xlabel="memory, % of the window", ylabel="recall", ylim=(0, 1.02), title=data)
        axis.legend(fontsize=7)
    return figure


def _wan(runs: list[Row], part: str) -> Any:
    return _recall(runs, part, "Figure 6: recall on the WAN trace", "AGE", "Theoretical-AGE")


def _ages(runs: list[Row], part: str) -> Any:
    return _recall(runs, part, "Figure 7: recall by age curve", "AGE", "Theoretical-AGE")


def _retail(runs: list[Row], part: str) -> Any:
    return _recall(runs, part, "Purchases by product, windows of 7 days", "PROB", "expected of PROB")


def _trades(runs: list[Row], part: str) -> Any:
    return _recall(runs, part, "Trades, windows of 1,000 rows", "PROB", "expected of PROB")


def _auctions(runs: list[Row], part: str) -> Any:
    return _recall(runs, part, "Auctions and bids: an age curve with minima", "AGE", "most of any strategy")


def _divided(runs: list[Row], part: str, swept: str, cases: tuple[str, str], title: str) -> Any:
    figure, (axis,) = _axes(1, title)
    for name, style in (("ALLOC", "-o"), ("PROP", "-s")):
        found = least(runs, part, swept, name)
        axis.plot(list(found), list(found.values()), style, ms=4, label=f"{name}, least recall")
    beside = axis.twinx()
    for case, colour in zip(cases, ("tab:green", "tab:grey"), strict=True):
        rows = of(runs, part, division="ALLOC", data=case)
        y = [row["memory_percent"] / 2 for row in rows]
        beside.plot([row[swept] for row in rows], y, "--", color=colour, label=f"memory of {case}")
    axis.set(xlabel=swept, ylabel="least recall", ylim=(0, 1.02))
    beside.set(ylabel="ALLOC's memory, % of what both need", ylim=(0, 51))
    axis.legend(fontsize=7, loc="upper left")
    beside.legend(fontsize=7, loc="upper right")
    return figure


def _skews(runs: list[Row], part: str) -> Any:
    return _divided(runs, part, "z", ("DC", "IC"), "Figure 10: two joins by frequency, 20 % of the memory")


def _powers(runs: list[Row], part: str) -> Any:
    return _divided(runs, part, "power", ("INC", "DEC"), "Figure 11: two joins by age, 50 % of the memory")


def _errors(runs: list[Row], part: str, swept: str, label: str, title: str) -> Any:
    panels = [(attribute, budget) for budget in ("expected", "hard") for attribute in ("S1", "S2")]
    figure, axes = _axes(len(panels), title)
    for axis, (attribute, budget) in zip(axes, panels, strict=True):
        for way, (colour, style) in WAYS.items():
            found = median_errors(runs, part, swept, way=way, attribute=attribute, budget=budget)
            axis.plot(list(found), list(found.values()), style, color=colour, ms=4, lw=1, label=way)
        axis.set(xlabel=label, ylabel="error of the average, median of seeds", ylim=(0, None))
        axis.set_title(f"attribute of {attribute}, {budget} budget", fontsize=10)
        axis.legend(fontsize=7)
    return figure


def _samples(runs: list[Row], part: str) -> Any:
    return _errors(runs, part, "memory_percent", "memory, % of the window", "Figure 8: IC, Z = 2, mu = sigma")


def _spreads(runs: list[Row], part: str) -> Any:
    return _errors(runs, part, "spread", "sigma / mu", "Figure 9: UC, Z = 2, 10 % of the memory")


def _automatic(runs: list[Row], part: str) -> Any:
    datas = list({row["data"]: None for row in of(runs, part)})
    figure, axes = _axes(len(datas), "The automatic choice on recordings")
    for axis, data in zip(axes, datas, strict=True):
        rows = of(runs, part, data=data)
        for name, label, style in (("recall", "automatic", "-o"), ("recent", "RECENT", "-s"), ("prob", "PROB", "--x")):
            axis.plot(
                [row["memory_percent"] for row in rows], [row[name] for row in rows], style, ms=4, lw=1, label=label
            )
        axis.set(xlabel="memory, % of the windows", ylabel="recall", ylim=(0, 1.02), title=data)
        axis.legend(fontsize=7)
    return figure


def _split(runs: list[Row], part: str) -> Any:
    datas = list({row["data"]: None for row in of(runs, part)})
    figure, axes = _axes(len(datas), "20 % of the memory split between S1 and S2, Z = 1")
    for axis, data in zip(axes, datas, strict=True):
        rows, chosen = of(runs, part, data=data, way="step"), of(runs, part, data=data, way="chosen")[0]
        x = [row["s1_percent"] for row in rows]
        axis.plot(x, [row["recall"] for row in rows], "-o", ms=3, label="PROB")
        axis.plot(x, [row["theory"] for row in rows], "k--", lw=1, label="expected")
        axis.plot(chosen["s1_percent"], chosen["recall"], "r*", ms=11, label="chosen")
        axis.set(xlabel="memory of S1, % of M", ylabel="recall", title=data)
        axis.legend(fontsize=7)
    return figure


def _ways(runs: list[Row], part: str) -> Any:
    datas = list({row["data"]: None for row in of(runs, part)})
    figure, axes = _axes(2, "UNIFORM in rules: its error by the better of the two clusters'")
    for axis, each in zip(axes, (48, 40), strict=True):
        for number, data in enumerate(datas):
            rows = [row for row in of(runs, part, data=data, bytes_uniform=each) if row["ratio"] is not None]
            x = [row["memory_percent"] for row in rows]
            axis.plot(x, [row["ratio"] for row in rows], "-o" if number < 10 else "--s", ms=3, label=data)
        axis.axhline(1, color="k", lw=1)
        axis.set(xlabel="memory, %", ylabel="UNIFORM / clusters", yscale="log", title=f"{each} bytes a row, not 32")
        axis.set(ylim=(0.7, 1500))
        axis.legend(fontsize=6, ncol=3, loc="upper left")
    return figure


# File name, and the part that it is drawn from.
FIGURES = {
    "figure_5": ("wan", _age_curve),
    "figure_6": ("wan", _wan),
    "figure_7": ("ages", _ages),
    "figure_8": ("samples", _samples),
    "figure_9": ("spreads", _spreads),
    "figure_10": ("skews", _skews),
    "figure_11": ("powers", _powers),
    "split": ("split", _split),
    "retail": ("retail", _retail),
    "trades": ("trades", _trades),
    "auctions": ("auctions", _auctions),
    "automatic": ("automatic", _automatic),
    "ways": ("ways", _ways),
}
