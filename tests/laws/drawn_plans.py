"""Drawn plans: a Hypothesis strategy for accepted plans, their rows, and the batch boundaries of a run.

Each family takes rows through one path of the engine: directly, through a wait, through a memory budget or through a
CPU budget. Inside a family, the strategy draws the join, the condition, the alert durations, the rules beside the main
rule, and the rows. It draws only plans that the planner accepts: a planner error is a failure of the test.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tests.driver import plan_of
from tests.durations import us
from tests.naive.join import span
from tests.strategies import COARSE, FINE, LONG, Case, cases, signed_sum
from tocsin import NoData, RangeRule, Rule
from tocsin.plan import Plan
from tocsin.rules.limits import Limits
from tocsin.rules.quality import parse_quality

# Streams of the main rule, and the units of its times in microseconds: adaptive waits need seconds of event time.
_STREAMS = {
    "direct": (1, 2, 2, 3, 4),
    "fixed wait": (1, 2, 2, 3),
    "largest delay": (1, 2, 2, 3),
    "recall": (2,),
    "memory": (2, 2, 2, 3),
    "sample": (2,),
    "cpu": (2,),
    "cpu of one stream": (1,),
}
_UNITS = {"largest delay": (50_000,), "recall": (50_000,), "memory": (1, 1_000), "sample": (1_000,), "cpu": (1, 1_000)}
FAMILIES = tuple(_STREAMS)
DISORDER = ("none", "between", "bounded", "unbounded")
# A wait for a recall moves only if rows are out of order inside a stream.
_OUT_OF_ORDER = ("bounded", "bounded", "unbounded", "between")
# Families that lose results if a budget is too small.
LIMITED = ("memory", "sample", "cpu", "cpu of one stream")
# Families that need many rows: a budget must be too small for them, or a wait must follow them.
_LONG = (*LIMITED, "recall")
# Rows of each stream. The oracle tries every combination, so more streams have fewer rows.
_MANY = {1: (40, 150), 2: (40, 120), 3: (12, 25), 4: (8, 12)}
_BESIDE = ("single", "second", "anywhere", "silence", "ranges")


@dataclass(frozen=True)
class Drawn:
    """A plan with its input and the boundaries of a run.

    Attributes:
        family: path of the rows through the engine.
        case: main rule in the form of the oracles, with its rows.
        conditions: conditions of single keys if the threshold comes from a limits table.
        plan: planned rules.
        streams: columns of all streams, requests included.
        wait: fixed wait in microseconds, or None.
        control: control rows that arrive before the first call.
        cuts: numbers of rows after which a call ends.
        stored: for each call, whether the state is written and read after it.
        pauses: processing time between calls in microseconds.
        labels: options that were drawn, for the statistics of Hypothesis.
        has_exact_answer: whether the oracle states every alert of the main rule.
    """

    family: str
    case: Case
    conditions: Mapping[str, Any]
    plan: Plan = field(repr=False)
    streams: dict[str, dict[str, np.ndarray]]
    wait: int | None
    control: list[dict[str, Any]]
    cuts: list[int]
    stored: list[bool]
    pauses: list[int]
    has_exact_answer: bool
    labels: tuple[str, ...]


@st.composite
def drawn_plans(draw: st.DrawFn, family: str) -> Drawn:
    """Draw a plan of a family."""
    emit = draw(st.sampled_from(["witness", "all"])) if family not in ("sample", "cpu", "cpu of one stream") else "all"
    shaped, disorder = draw(st.booleans()), draw(st.sampled_from(_OUT_OF_ORDER if family == "recall" else DISORDER))
    notes = draw(st.sampled_from([(None,), (None, "n", "a longer note")]))
    case = draw(
        cases(shaped=shaped, disorder=(disorder,), emit=emit, streams_of_a_rule=_STREAMS[family], notes=notes,
              steps=draw(st.sampled_from([FINE, COARSE])))
    )  # fmt: skip
    has_many = family in _LONG or draw(st.sampled_from([True, True, True, False]))
    has_outside = False
    if has_many:
        has_outside = bool(case.condition.domains) and draw(st.booleans())
        counts = (150,) if family == "recall" else _MANY[len(case.streams)]
        case = replace(case, streams=draw(_many_rows(case, disorder, notes, counts, has_outside=has_outside)))
    case = _scaled(case, draw(st.sampled_from(_UNITS.get(family, (1,)))))
    idle = span(case.rule.join) if case.rule.idle_timeout_us is None else case.rule.idle_timeout_us
    case = replace(case, rule=replace(case.rule, idle_timeout_us=idle))
    case, conditions, limits = draw(_limits(case))
    # Without declared shapes the planner proves them. A rule of one stream needs its shape for the oracle.
    is_proved = len(case.streams) > 1 and not limits and draw(st.booleans())
    if is_proved:
        case = replace(case, shapes=dict.fromkeys(case.condition.domains, "increasing") or {"a.value": "proved"})
    wait, own, options = draw(_resources(family, case))
    keywords = case.keywords() | ({"shapes": {}} if is_proved else {}) | limits | own
    streams, rules = dict(case.arrays()), [Rule(**keywords)]
    for kind in draw(st.lists(st.sampled_from(_BESIDE), max_size=2, unique=True)):
        rules.append(draw(_beside(kind, case, keywords, streams)))
    plan = plan_of(streams, rules, arrival="arrival", **options)
    if plan.is_limited_in_work:
        plan = plan.calibrated(draw(st.sampled_from([1.0, 100.0, 10_000.0])))
    control = list[dict[str, Any]]()
    if family == "recall" and draw(st.booleans()):
        plan = plan.sharing()
        control = draw(_control_rows(plan))
    rows = sum(len(table["ts"]) for table in streams.values())
    in_order = not case.shapes or (disorder in ("none", "between") and wait is None)
    labels = [f"emit {emit}", disorder, f"{len(rules)} rules", *own.get("quality", {})]
    labels += [f"{name} of the run" for name in options]
    flags = {
        "shaped": case.shapes,
        "proved": is_proved,
        "many rows": has_many,
        "limits": limits,
        "hop": case.rule.join.hop,
    }
    labels += [name for name, flag in flags.items() if flag]
    return Drawn(
        family, case, conditions, plan, streams, wait, control,
        cuts=sorted(draw(st.lists(st.integers(0, rows), max_size=6))),
        stored=draw(st.lists(st.booleans(), min_size=1, max_size=5)),
        pauses=draw(st.lists(st.sampled_from([0, 1, 7, 1_000, 40_000, 10**7]), max_size=6)),
        has_exact_answer=in_order and not has_outside and family not in ("recall", "sample"),
        labels=tuple(labels),
    )  # fmt: skip


@st.composite
def _many_rows(
    draw: st.DrawFn,
    case: Case,
    disorder: str,
    notes: Sequence[str | None],
    counts: Sequence[int],
    *,
    has_outside: bool,
) -> dict[str, dict[str, list[Any]]]:
    """Draw rows of all streams from one seed: ties, repeated rows, invalid rows and rows that arrive late."""
    random = np.random.default_rng(draw(st.integers(0, 10**6)))
    count = draw(st.sampled_from(counts))
    machines = [f"m{number}" for number in range(1, 1 + draw(st.sampled_from([1, 3, 30])))]
    chance = 1 / np.arange(1, len(machines) + 1)
    invalid, repeated = draw(st.sampled_from([0.0, 0.05])), draw(st.sampled_from([0.0, 0.2]))
    streams = {}
    for name in case.streams:
        time = random.choice(draw(st.sampled_from([FINE, COARSE])), count).cumsum()
        value = random.integers(0 if case.condition.domains else -6, 7, count) / 2
        if has_outside:
            value[random.random(count) < 0.1] = -1.5
        machine = random.choice(np.array(machines, dtype=object), count, p=chance / chance.sum())
        note = random.choice(np.array(notes, dtype=object), count)
        value[random.random(count) < invalid] = random.choice([np.nan, np.inf, -np.inf])
        machine[random.random(count) < invalid] = None
        again = np.flatnonzero(random.random(count) < repeated)
        order = np.concatenate([np.arange(count), again])
        arrival = time[order] + _delays(random, len(order), disorder)
        arrival[count:] += random.integers(0, 30, len(again))
        if disorder == "between":
            place = np.argsort(time[order], kind="stable")
            order, arrival = order[place], np.maximum.accumulate(arrival[place])
        columns = {"ts": time[order], "value": value[order], "machine": machine[order], "arrival": arrival}
        streams[name] = {column: cells.tolist() for column, cells in columns.items()}
        if len(notes) > 1:
            streams[name]["note"] = note[order].tolist()
    return streams


def _delays(random: np.random.Generator, count: int, disorder: str) -> np.ndarray:
    """Return the delay of each row. With `between`, whole streams are late, and their rows keep their order."""
    if disorder == "between":
        return random.integers(0, 4, count) + random.choice([0, 3, 25, 60])
    furthest = {"none": 0, "bounded": 4, "unbounded": 60}[disorder]
    return random.integers(0, furthest + 1, count)


def _scaled(case: Case, unit: int) -> Case:
    """Return the case with all times and durations multiplied by `unit`."""
    if unit == 1:
        return case
    rule, join = case.rule, case.rule.join
    bounds = {pair: (low * unit, high * unit) for pair, (low, high) in join.bounds.items()}
    single = {name: None if (us_ := getattr(join, name)) is None else us_ * unit for name in ("hop", "within")}
    names = ("for_us", "keep_us", "stale_us", "idle_timeout_us", "allowed_lateness_us")
    durations = {name: None if (us_ := getattr(rule, name)) is None else us_ * unit for name in names}
    rule = replace(rule, join=replace(join, bounds=bounds, **single), **durations)
    streams = {
        name: table | {column: [time * unit for time in table[column]] for column in ("ts", "arrival")}
        for name, table in case.streams.items()
    }
    return replace(case, rule=rule, streams=streams)


@st.composite
def _limits(draw: st.DrawFn, case: Case) -> tuple[Case, dict[str, Any], dict[str, Any]]:
    """Draw whether the threshold comes from a table. A key that the table does not contain has no results."""
    if case.shapes or case.rule.shape is not None or draw(st.integers(0, 3)):
        return case, {}, {}
    names = case.rule.join.streams
    signs = draw(st.lists(st.sampled_from([1, -1]), min_size=len(names), max_size=len(names)))
    most = draw(st.fixed_dictionaries({"m1": st.integers(-4, 3)}, optional={"m2": st.integers(-4, 3)}))
    conditions = {key: signed_sum(names, signs, ">", Fraction(halves, 2)) for key, halves in most.items()}
    rows = {(key,): (halves / 2,) for key, halves in most.items()}
    expr = conditions["m1"].text.rpartition(" ")[0] + " by.most"
    limits = {"expr": expr, "limits": {"by": Limits("limits.csv", ("machine",), ("most",), rows)}, "domains": {}}
    limits["shapes"] = {f"{name}.value": None for name in names}
    case = replace(case, condition=conditions["m1"], rule=replace(case.rule, recovery=None))
    return case, conditions, limits


@st.composite
def _resources(draw: st.DrawFn, family: str, case: Case) -> tuple[int | None, dict[str, Any], dict[str, Any]]:
    """Draw the wait or the budget: the fixed wait, the keywords of the rule, and the options of the plan."""
    if family == "fixed wait":
        wait = draw(st.sampled_from([0, 1, 2, 3, 5, 8, 30, 100]))
        return wait, {"quality": {"wait": us(wait)}}, {}
    if family == "largest delay":
        return None, {"quality": {"wait": "max"}}, {}
    if family == "recall":
        quality = {
            "recall": draw(st.sampled_from([0.9, 0.99])),
            "period": "4s",
            "adapt_every": "500ms",
            "in_order": True,
        }
        return None, {"quality": quality | {"strategy": draw(st.sampled_from(["observed", "eqsel", "noneqsel"]))}}, {}
    if family in ("memory", "sample"):
        return None, *draw(_memory(family, case))
    if family in ("cpu", "cpu of one stream"):
        cores, deadline = draw(
            st.sampled_from([("1%", None), ("100%", None), (None, 3), ("1%", 20), ("1000 cores", None)])
        )
        quality = {"cpu": cores, "deadline": None if deadline is None else us(deadline)}
        if draw(st.booleans()) and cores is not None:
            return None, {}, {"quality": parse_quality(quality)}
        return None, {"quality": quality}, {}
    return None, {}, {}


@st.composite
def _control_rows(draw: st.DrawFn, plan: Plan) -> list[dict[str, Any]]:
    """Draw waits that all buckets agreed on, each with the event time from which it is in force."""
    shared = [watch.name for watch in plan.watches if watch.order is not None and watch.order.shared]
    waits, starts = st.sampled_from([0, 50_000, 2_000_000]), st.sampled_from([0, 1_000_000, 5_000_000])
    agreed = draw(st.lists(st.tuples(waits, starts), max_size=2, unique_by=lambda one: one[1])) if shared else []
    return [
        {"watch": name, "wait_us": wait_us, "from_us": from_us}
        for name in shared
        for wait_us, from_us in sorted(agreed, key=lambda one: one[1])
    ]


@st.composite
def _memory(draw: st.DrawFn, family: str, case: Case) -> tuple[dict[str, Any], dict[str, Any]]:
    """Draw a memory budget of the rule or of the run."""
    own: dict[str, Any] = {"prefer": "sample"} if family == "sample" else {}
    if len(case.rule.join.streams) == 2:
        own["model"] = {"by": draw(st.sampled_from(["auto", "auto", "key", "age", "none"]))}
    own["weight"] = draw(st.sampled_from([1.0, 2.0]))
    if draw(st.booleans()):
        own["memory"] = draw(st.sampled_from(["16 rows", "40 rows", "33KB", "40KB", "10MB"]))
        return {"quality": own}, {}
    # Up to three joins share the budget of the run.
    run = parse_quality({"memory": draw(st.sampled_from(["50 rows", "90 rows", "100KB", "10MB"]))})
    return {"quality": own}, {"quality": run}


@st.composite
def _beside(
    draw: st.DrawFn, kind: str, case: Case, keywords: Mapping[str, Any], streams: dict[str, dict[str, np.ndarray]]
) -> Rule | NoData | RangeRule:
    """Draw a rule beside the main rule. It shares state with the main rule if their key columns are equal."""
    unit = case.rule.allowed_lateness_us // LONG or 1
    if kind == "silence":
        return NoData(draw(st.sampled_from(sorted(case.streams))), us(4 * unit), "machine")
    if kind == "ranges":
        streams["requests"] = draw(_requests())
        within = draw(st.sampled_from([{}, {"within": us(7 * unit)}, {"rearm": us(5 * unit)}]))
        return RangeRule("Sold", "a.value", "requests", on="machine", **within)
    if kind == "single":
        return Rule(
            "single", "a.value > 0", within=us(3), on="machine", allowed_lateness=us(case.rule.allowed_lateness_us)
        )
    if kind == "anywhere":
        unkeyed = {name: value for name, value in keywords.items() if name != "limits"}
        return Rule(**unkeyed | {"alert": "anywhere", "on": (), "expr": case.condition.text})
    if case.rule.emit == "witness":
        return Rule(**keywords | {"alert": "second", "for_": us(2 * unit), "keep_firing_for": us(2 * unit)})
    return Rule(**keywords | {"alert": "second"})


@st.composite
def _requests(draw: st.DrawFn) -> dict[str, np.ndarray]:
    """Draw requests over the values of the first stream."""
    count = draw(st.integers(0, 6))
    random = np.random.default_rng(draw(st.integers(0, 10**6)))
    low = random.integers(-6, 6, count) / 2
    when = np.sort(random.integers(0, 40, count))
    return {
        "ts": when, "arrival": when, "id": random.integers(0, 4, count), "low": low,
        "high": low + random.integers(0, 6, count) / 2, "threshold": random.integers(1, 4, count),
        "machine": random.choice(np.array(["m1", "m2"], dtype=object), count),
        "action": random.choice(np.array(["register", "register", "terminate"], dtype=object), count),
    }  # fmt: skip
