"""What memory-limited joins are asked to reach, beside what was measured."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

Row = dict[str, Any]

# Recall by percent of memory, of purchases by product.
RETAIL = {10: 0.65, 20: 0.80, 50: 0.94}
# Rows per second on one core.
AGE_SPEED, ZIPF_SPEED = 3e6, 5e5
# Part, data, and the policy that fits.
RECORDED = (("retail", "retail", "PROB"), ("trades", "trades by symbol", "PROB"), ("auctions", "auctions", "AGE"))
# Two measured recalls are equal within this: half a point.
EQUAL = 0.005


def bars(runs: list[Row]) -> list[Row]:
    """All bars that the runs can answer: what, value, what is asked, and whether it was met."""
    found = (_wan, _ages, _sampled, _divided, _split, _retail, _recorded, _automatic, _models, _ways, _rules, _speed)
    return [bar for bars_of in found for bar in bars_of(runs)]


def of(runs: list[Row], part: str, **facts: Any) -> list[Row]:
    """The runs of a part with some facts."""
    return [row for row in runs if row["part"] == part and all(row.get(name) == f for name, f in facts.items())]


def recalls(runs: list[Row], part: str, data: str, policy: str) -> dict[int, float]:
    """Recall by percent of memory."""
    return {row["memory_percent"]: row["recall"] for row in of(runs, part, data=data, policy=policy)}


def at_most(what: str, value: float, asked: float) -> Row:
    """A bar from above."""
    return {"what": what, "value": round(value, 4), "asked": f"at most {asked:g}", "met": bool(value <= asked)}


def at_least(what: str, value: float, asked: float) -> Row:
    """A bar from below."""
    return {"what": what, "value": round(value, 4), "asked": f"at least {asked:g}", "met": bool(value >= asked)}


def _apart(first: dict[int, float], second: dict[int, float], *percents: int) -> float:
    """The largest distance of two recalls."""
    return max((abs(first[p] - second[p]) for p in percents or first), default=0.0)


def _ahead(first: dict[int, float], second: dict[int, float], *percents: int) -> float:
    """By how much the first is ahead of the second at least."""
    return min((first[p] - second[p] for p in percents), default=0.0)


def _wan(runs: list[Row]) -> Iterable[Row]:
    rows = of(runs, "wan", policy="AGE")
    if rows:
        facts = next(row for row in of(runs, "wan") if "curve" in row)
        age, recent = recalls(runs, "wan", "WAN", "AGE"), recalls(runs, "wan", "WAN", "RECENT")
        late = [p for p in age if p * 1.2 >= facts["k_opt_s"]]  # 1 % of the window is 1.2 s.
        yield at_most("Figure 5: seconds between the peak and 63 s", abs(facts["peak_s"] - 63), 1)
        worst = max(abs(row["recall"] - row["theory"]) for row in rows)
        yield at_most("Figure 6: AGE and Eq. 3 apart, points", 100 * worst, 2)
        yield at_most("Figure 6: AGE and RECENT apart from r1 k_opt on", _apart(age, recent, *late), EQUAL)


def _ages(runs: list[Row]) -> Iterable[Row]:
    for shape in {row["data"]: None for row in of(runs, "ages")}:
        rows = of(runs, "ages", data=shape, policy="AGE")
        worst = max(abs(row["recall"] / row["theory"] - 1) for row in rows)
        yield at_most(f"Figure 7, {shape}: AGE and Eq. 3 apart, of the latter", worst, 0.02)
        age, recent, kept = (recalls(runs, "ages", shape, name) for name in ("AGE", "RECENT", "UNTIL-EXPIRY"))
        inside = [p for p in age if p < 100]
        if shape == "INC":
            yield at_most("Figure 7, INC: AGE and UNTIL-EXPIRY apart", _apart(age, kept), EQUAL)
            yield at_least("Figure 7, INC: AGE above RECENT", _ahead(age, recent, *inside), EQUAL)
        elif shape == "DEC":
            yield at_most("Figure 7, DEC: AGE and RECENT apart", _apart(age, recent), EQUAL)
            yield at_least("Figure 7, DEC: AGE above UNTIL-EXPIRY", _ahead(age, kept, *inside), EQUAL)
        else:
            early, late = ([p for p in age if (p < 65) == below] for below in (True, False))
            yield at_most("Figure 7, BELL: k_opt and 325 apart", abs(rows[0]["k_opt"] - 325), 0)
            ahead = min(_ahead(age, recent, *early), _ahead(age, kept, *early))
            yield at_least("Figure 7, BELL: AGE above both below r1 k_opt", ahead, EQUAL)
            yield at_most("Figure 7, BELL: AGE and RECENT apart behind", _apart(age, recent, *late), EQUAL)


def median_errors(runs: list[Row], part: str, swept: str, **facts: Any) -> dict[float, float]:
    """The median over seeds of the error of averages, by what was swept."""
    errors: dict[float, list[float]] = {}
    for row in of(runs, part, **facts):
        errors.setdefault(row[swept], []).append(row["error"])
    return {x: statistics.median(found) for x, found in errors.items()}


def _sampled(runs: list[Row]) -> Iterable[Row]:
    """Errors by those of another way to sample: the largest ratio of medians. With memory for all there are none."""
    for part, swept, figure in (("samples", "memory_percent", "Figure 8"), ("spreads", "spread", "Figure 9")):
        rows = [row for row in of(runs, part) if row["memory_percent"] < 100]
        for budget in {row["budget"]: None for row in rows}:
            for attribute, one, other in (
                ("S1", "PPS-CLUSTER", "EQ-CLUSTER"), ("S2", "PPS-CLUSTER", "EQ-CLUSTER"),
                ("S2", "PPS-CLUSTER", "UNIFORM"), ("S2", "EQ-CLUSTER", "UNIFORM"),
            ):  # fmt: skip
                facts = {"budget": budget, "attribute": attribute}
                mine, its = (median_errors(rows, part, swept, way=way, **facts) for way in (one, other))
                what = f"{figure}, {budget} budget, attribute of {attribute}: error of {one} by that of {other}"
                yield at_most(what, max(mine[x] / its[x] for x in mine), 1)


def least(runs: list[Row], part: str, swept: str, division: str) -> dict[float, float]:
    """The recall of the worse of two joins, by what was swept."""
    out: dict[float, float] = {}
    for row in of(runs, part, division=division):
        out[row[swept]] = min(out.get(row[swept], 1.0), row["recall"])
    return out


def _divided(runs: list[Row]) -> Iterable[Row]:
    by_alloc, by_prop = (least(runs, "skews", "z", name) for name in ("ALLOC", "PROP"))
    if by_alloc:
        yield at_least("Figure 10: ALLOC above PROP", min(by_alloc[z] - by_prop[z] for z in by_alloc), -EQUAL)
        high = [z for z in by_alloc if z >= 1]
        spread = max(by_alloc[z] for z in high) - min(by_alloc[z] for z in high)
        yield at_most("Figure 10: ALLOC's range for Z from 1 to 2", spread, 0.05)
        yield at_least("Figure 10: PROP's fall from Z = 1 to 2", by_prop[min(high)] - by_prop[max(high)], 0.05)
    by_alloc, by_prop = (least(runs, "powers", "power", name) for name in ("ALLOC", "PROP"))
    if by_alloc:
        risen = list(by_alloc.values())
        steps = [after - before for before, after in pairwise(risen)]
        yield at_least("Figure 11: ALLOC's least rise from one p to the next", min(steps), 0)
        yield at_most("Figure 11: PROP's range", max(by_prop.values()) - min(by_prop.values()), 0.02)


def _split(runs: list[Row]) -> Iterable[Row]:
    for case in {row["data"]: None for row in of(runs, "split")}:
        best = max(row["recall"] for row in of(runs, "split", data=case, way="step"))
        chosen = of(runs, "split", data=case, way="chosen")[0]["recall"]
        yield at_most(f"split of M, {case}: behind the best of 21", best - chosen, EQUAL)


def _retail(runs: list[Row]) -> Iterable[Row]:
    prob, recent = (recalls(runs, "retail", "retail", name) for name in ("PROB", "RECENT"))
    for percent in sorted(set(RETAIL) & set(prob)):
        what = f"retail: PROB's recall with {percent} % (RECENT: {recent[percent]:.3f})"
        yield at_least(what, prob[percent], RETAIL[percent])


def _recorded(runs: list[Row]) -> Iterable[Row]:
    """Of each recording the model that fits it, which is never much worse than none."""
    for part, data, fits in RECORDED:
        best, recent = recalls(runs, part, data, fits), recalls(runs, part, data, "RECENT")
        if best:
            yield at_least(f"{data}: {fits} above RECENT, points", 100 * _ahead(best, recent, *best), -2)
    prob, recent = (recalls(runs, "trades", "trades by symbol, price", name) for name in ("PROB", "RECENT"))
    if prob:
        what = "trades by symbol, price: RECENT above PROB with 10 %, points"
        yield at_least(what, 100 * _ahead(recent, prob, 10), 0)


def _automatic(runs: list[Row]) -> Iterable[Row]:
    """The choice is never much worse than none, and it is the right one."""
    for name in {row["data"]: None for row in of(runs, "automatic")}:
        rows = of(runs, "automatic", data=name)
        ahead = min(row["recall"] - row["recent"] for row in rows)
        yield at_least(f"{name}: automatic choice above RECENT, points", 100 * ahead, -2)
    for row in of(runs, "automatic", data="retail"):
        if row["memory_percent"] in RETAIL:
            what = f"retail: automatic choice with {row['memory_percent']} % (PROB: {row['prob']:.3f})"
            yield at_least(what, row["recall"], RETAIL[row["memory_percent"]])
    for name, wanted in (("symbol", "PROB"), ("symbol, price", "RECENT")):
        rows = [row for row in of(runs, "automatic", data=f"trades by {name}") if row["memory_percent"] <= 30]
        if rows:
            least_often = min(row["chosen"].get(wanted, 0.0) for row in rows)
            yield at_least(f"trades by {name}: share of {wanted} among choices, up to 30 %", least_often, 0.9)


def _models(runs: list[Row]) -> Iterable[Row]:
    """The automatic model against the best fixed model, and predicted against reached recall."""
    rows = of(runs, "models")
    for row in rows:
        what = f"{row['data']}, {row['memory_percent']} %: automatic model by the best fixed model"
        yield at_least(what, row["ratio"], 0.95)
    known = [abs(row["predicted"] - row["auto"]) <= 0.05 for row in rows if row["predicted"] is not None]
    if known:
        yield at_least("models: share of cells with a prediction within 0.05", sum(known) / len(known), 0.9)


def _ways(runs: list[Row]) -> Iterable[Row]:
    for data in {row["data"]: None for row in of(runs, "ways")}:
        known = [row["ratio"] for row in of(runs, "ways", data=data, bytes_uniform=48) if row["ratio"] is not None]
        if known:
            yield at_least(f"rules, {data}: UNIFORM's error by the best of clusters, smallest", min(known), 1.0)


def _rules(runs: list[Row]) -> Iterable[Row]:
    for row in of(runs, "rules", percent=1000):
        yield at_most("rules: time with memory for everything, by that without a limit", row["ratio"], 2.0)
    for data in sorted({row["data"] for row in of(runs, "recorded")}):
        ahead = [row["recall"] - row["recent"] for row in of(runs, "recorded", data=data)]
        yield at_least(f"rules, {data}: recall above that of the newest rows, smallest", min(ahead), -0.02)


def _speed(runs: list[Row]) -> Iterable[Row]:
    for row in of(runs, "speed"):
        asked = AGE_SPEED if row["data"] in {"INC", "DEC", "BELL"} else ZIPF_SPEED
        what = f"rows/s, {row['data']}, {row['does']}, {row['windows']} window{'s' * (row['windows'] > 1)}"
        yield at_least(what, row["rows_per_second"], asked)
