"""What the runs of the Spark benchmark tell: medians, ratios beside what is asked, and a plot."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

# Rows per second of Flink 2.3's SQL interval join with heap state on these 2 x 10^6 rows, by seconds of `within`. Not
# measured by this script: taken on the same kind of machine (2 cores) when the design was written.
FLINK = {10: 110_000, 60: 45_000}
# How many times as fast as Flink a catch-up of 10^6 rows per micro-batch is asked to be.
CATCH_UP = {10: 3, 60: 6}


def summarize(runs: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Give the median over the repeats of each query."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for run in runs:
        groups.setdefault(f"{run['part']}: {run['name']}", []).append(run)
    return {name: _summary(group) for name, group in groups.items()}


def _summary(group: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    facts = {key: group[0][key] for key in ("part", "query", "within_s", "keys", "store", "against")}
    found = {key: group[0][key] for key in ("alerts", "pairs") if key in group[0]}
    seconds = statistics.median(run["seconds"] for run in group)
    result = facts | found | {"runs": len(group), "seconds": round(seconds, 3)}
    if all(len(run["batches"]) > 1 for run in group):
        times = [_times(run["batches"]) for run in group]
        result |= {key: round(statistics.median(t[key] for t in times), 3) for key in times[0]}
        result["batches_done"] = min(len(run["batches"]) for run in group)
        result["whole"] = all(run["whole"] for run in group)
    return result


def _times(batches: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Time of the first batch; median and throughput of those after it, and what Spark says they spent it on."""
    ms, later = [batch["ms"]["triggerExecution"] for batch in batches], batches[1:]
    phases = {f"{name}_ms": statistics.median(b["ms"].get(name, 0) for b in later) for name in sorted(later[0]["ms"])}
    rows = sum(batch["rows"] for batch in later)
    return {
        "first_ms": ms[0],
        "later_ms": statistics.median(ms[1:]),
        "later_rows_per_s": 1000 * rows / sum(ms[1:]),
        "first_cpu_s": batches[0]["cpu_s"],
        "later_cpu_s": statistics.median(batch["cpu_s"] for batch in later),
        **{name: value for name, value in phases.items() if name != "triggerExecution_ms"},
    }


def ratios(summary: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Set the numbers beside what is asked; what was not measured is left out."""
    found: dict[str, dict[str, Any]] = {}
    for within in (10, 60):
        chosen = {_place(row): row for row in summary.values() if row["within_s"] == within}
        for name, value, sign, bound in _asked(chosen, within):
            met = None if bound is None else (value <= bound if sign == "<=" else value >= bound)
            asked = f"{sign} {bound}" if sign else None
            found[f"{name}, {within}s"] = {"value": round(value, 3), "asked": asked, "met": met}
    return found


def _place(row: Mapping[str, Any]) -> tuple[Any, ...]:
    keys = [row["keys"]] if row["part"] == "keys" else []
    return (row["part"], row["query"], *keys, *["memory"] * (row["store"] == "memory"), *["old"] * bool(row["against"]))


def _asked(rows: Mapping[tuple[Any, ...], Mapping[str, Any]], within: int) -> Iterable[tuple[str, float, str, Any]]:
    """Give (name, value, sign, bound) of what the rows tell."""
    tocsin, nothing = rows.get(("tocsin", "tocsin")), rows.get(("nothing", "nothing"))
    if tocsin and nothing:
        yield "tocsin / nothing, later batches", tocsin["later_ms"] / nothing["later_ms"], "<=", 1.3
        yield "tocsin - nothing, first batch, s", (tocsin["first_ms"] - nothing["first_ms"]) / 1000, "<=", 3
    if tocsin and (old := rows.get(("tocsin", "tocsin", "old"))):
        for name, bound in (("first_ms", 1.0), ("first_cpu_s", 1.0), ("later_ms", None), ("later_cpu_s", 1.05)):
            yield f"new / old, {name}", tocsin[name] / old[name], "<=" if bound else "", bound
    if tocsin:
        yield "tocsin, rows/s (Flink's)", tocsin["later_rows_per_s"], ">=", FLINK[within]
        for place, bound in ((("spark_join", "join"), 10), (("spark_join", "join", "memory"), None)):
            if "later_rows_per_s" in rows.get(place, {}):  # One stopped in its first batch says nothing of later ones.
                name, sign = f"throughput, tocsin / {' '.join(place[1:])}", ">=" if bound else ""
                yield name, tocsin["later_rows_per_s"] / rows[place]["later_rows_per_s"], sign, bound
    yield from _asked_more(rows, within)


def _asked_more(
    rows: Mapping[tuple[Any, ...], Mapping[str, Any]], within: int
) -> Iterable[tuple[str, float, str, Any]]:
    caught, floor = rows.get(("catch_up", "tocsin")), rows.get(("catch_up", "nothing"))
    if caught and floor:
        yield "catch-up, rows/s", caught["later_rows_per_s"], ">=", CATCH_UP[within] * FLINK[within]
        yield "catch-up, tocsin / nothing, later batches", caught["later_ms"] / floor["later_ms"], "", None
    keys = sorted((place for place in rows if place[0] == "keys"), key=lambda place: place[2])
    if len(keys) == 2:
        few, many = (rows[place]["later_rows_per_s"] for place in keys)
        yield "time per row, 100 times the keys", few / many, "<=", 2
    mine = rows.get(("local", "local"))
    for other in ("duckdb 1 thread", "duckdb all threads"):
        if mine and ("local", other) in rows:
            bound = 2 if within == 10 else None
            yield f"local / {other}", mine["seconds"] / rows["local", other]["seconds"], "<=" if bound else "", bound


def draw(results: Mapping[str, Any], file: Path) -> None:
    """Draw the time of each micro-batch: small batches above, catch-up below, a column per `within`."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib.figure import Figure

    withins = sorted({run["within_s"] for run in results["runs"] if run["batches"]})
    figure = Figure(figsize=(6 * len(withins), 8))
    axes = figure.subplots(2, len(withins), squeeze=False)
    for column, within in enumerate(withins):
        runs = [run for run in results["runs"] if run["within_s"] == within and run["batches"]]
        _lines(axes[0][column], [run for run in runs if run["part"] != "catch_up"], f"within {within} s")
        _lines(axes[1][column], [run for run in runs if run["part"] == "catch_up"], f"within {within} s, catch-up")
    figure.tight_layout()
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=110)


def _lines(axis: Any, runs: Sequence[Mapping[str, Any]], title: str) -> None:
    """One colour per query, one line per repeat."""
    names = list(dict.fromkeys(run["name"] for run in runs))
    for run in runs:
        label = run["name"] if run is next(r for r in runs if r["name"] == run["name"]) else None
        seconds = [batch["ms"]["triggerExecution"] / 1000 for batch in run["batches"]]
        axis.plot(seconds, ".-", color=f"C{names.index(run['name'])}", label=label, linewidth=1)
    axis.set(title=title, xlabel="micro-batch", ylabel="seconds", yscale="log")
    if names:
        axis.legend(fontsize=7)
