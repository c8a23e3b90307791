"""Hypothesis strategies: streams with ties, duplicates, gaps and disorder, and rules with their exact meaning.

A `Case` holds one input and one rule twice: as the oracle takes it and as the keywords of `tocsin.Rule`.
Times are small whole microseconds and values small halves, so sums and products are exact in doubles.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tests.durations import us, us_bounds
from tests.naive.alerts import Rule
from tests.naive.join import Join, within_bounds

Table = dict[str, list[Any]]
NAMES = ("a", "b", "c", "d")
CLOSED = ("both", "neither", "left", "right")
LONG = 1_000
KINDS = ("within", "hop", "graph", "graph")
# Steps of time from one row of a stream to the next. Coarse ones put several rows at one time.
FINE, COARSE = (0, 0, 1, 1, 1, 2, 2, 3, 13), (0, 0, 0, 0, 0, 1, 2, 3, 13)
# Texts of a column that no rule reads. Without notes the column is absent.
NO_NOTES = (None,)


@dataclass(frozen=True)
class Condition:
    """A condition as text and as exact arithmetic, with the shapes that it truly has."""

    text: str
    judge: Callable[[Mapping[tuple[str, str], Fraction]], tuple[Any, bool, Any]]
    shapes: Mapping[str, str] = field(default_factory=dict)
    domains: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    @property
    def threshold(self) -> tuple[str, float] | None:
        """Sign and right side of a single comparison."""
        found = re.fullmatch(r".* ([<>]=?) (\S+)", self.text)
        assert found is not None
        return None if re.search(" and | or ", self.text) else (found[1], float(found[2]))


@dataclass(frozen=True)
class Case:
    """One input with one rule; `shapes` are those declared to the product."""

    streams: dict[str, Table]
    rule: Rule
    condition: Condition
    shapes: Mapping[str, str] = field(default_factory=dict)

    def keywords(self) -> dict[str, Any]:
        """Return the keyword arguments of `tocsin.Rule`."""
        join, rule = self.rule.join, self.rule
        given = {
            "alert": rule.alert, "expr": self.condition.text, "on": list(rule.on), "shapes": self._shapes(),
            "within": us_bounds(join.bounds) if join.within is None else us(join.within), "closed": join.closed,
            "emit": rule.emit, "labels": {"team": "tests"},
            "recovery": None if rule.recovery is None else float(rule.recovery[1]),
            "domains": {name: domain for name, domain in self.condition.domains.items() if name in self.shapes},
        }  # fmt: skip
        durations = {
            "for_": rule.for_us, "keep_firing_for": rule.keep_us, "stale": rule.stale_us,
            "idle_timeout": rule.idle_timeout_us, "allowed_lateness": rule.allowed_lateness_us, "hop": join.hop,
        }  # fmt: skip
        given |= {name: us(value) for name, value in durations.items() if value is not None}
        return {name: value for name, value in given.items() if value is not None}

    def _shapes(self) -> dict[str, str | None]:
        """The shapes that are declared; what no shape is declared of is to be kept whole, not to be proved."""
        return dict.fromkeys(re.findall(r"[a-z]\w*\.[a-z]\w*", self.condition.text)) | dict(self.shapes)

    def arrays(self) -> dict[str, dict[str, np.ndarray]]:
        """Give the streams as arrays."""
        return {name: arrays(table) for name, table in self.streams.items()}


def arrays(table: Table) -> dict[str, np.ndarray]:
    """Turn the columns of a stream into arrays of the types that a recording has."""
    kinds = {"ts": np.int64, "arrival": np.int64, "value": np.float64}
    return {column: np.array(cells, dtype=kinds.get(column, object)) for column, cells in table.items()}


def comparison(left: Callable[..., Fraction], sign: str, right: Fraction) -> Callable[..., tuple[Any, bool, Any]]:
    """Give the verdict of `left sign right`: margin, truth, and the left side as value."""

    def judge(values: Mapping[tuple[str, str], Fraction]) -> tuple[Any, bool, Any]:
        value = left(values)
        margin = value - right if sign.startswith(">") else right - value
        return margin, margin >= 0 if sign.endswith("=") else margin > 0, value

    return judge


def _column(stream: str) -> str:
    return f"{stream}.value"


def signed_sum(streams: Sequence[str], signs: Sequence[int], sign: str, right: Fraction) -> Condition:
    """Give `a - b + ... > right`: each stream increasing or decreasing by its sign."""
    text = " ".join(f"{'+' if factor > 0 else '-'} {_column(s)}" for s, factor in zip(streams, signs, strict=True))
    shapes = {_column(s): "increasing" if f > 0 else "decreasing" for s, f in zip(streams, signs, strict=True)}

    def left(values: Mapping[tuple[str, str], Fraction]) -> Fraction:
        return sum((factor * values[s, "value"] for s, factor in zip(streams, signs, strict=True)), Fraction(0))

    return Condition(f"0 {text} {sign} {float(right)}", comparison(left, sign, right), shapes)


def _chained(values: Mapping[tuple[str, str], Fraction], streams: Sequence[str]) -> list[Fraction]:
    return [values[stream, "value"] for stream in streams]


def distance(streams: Sequence[str], sign: str, right: Fraction) -> Condition:
    """Give `abs(a - b - ...) > right`, quasiconvex in each."""

    def left(values: Mapping[tuple[str, str], Fraction]) -> Fraction:
        first, *others = _chained(values, streams)
        return abs(first - sum(others))

    text = f"abs({' - '.join(map(_column, streams))}) {sign} {float(right)}"
    return Condition(text, comparison(left, sign, right), dict.fromkeys(map(_column, streams), "quasiconvex"))


def largest(streams: Sequence[str], sign: str, right: Fraction) -> Condition:
    """Give `max(a, b, ...) > right`; what is increasing may be declared quasiconvex."""
    text = f"max({', '.join(map(_column, streams))}, -9) {sign} {float(right)}"
    judge = comparison(lambda values: max(*_chained(values, streams), Fraction(-9)), sign, right)
    return Condition(text, judge, dict.fromkeys(map(_column, streams), "quasiconvex"))


def product(streams: Sequence[str], sign: str, right: Fraction) -> Condition:
    """Give `a * b * ... > right` of values that are not negative."""

    def left(values: Mapping[tuple[str, str], Fraction]) -> Fraction:
        result = Fraction(1)
        for factor in _chained(values, streams):
            result *= factor
        return result

    columns = list(map(_column, streams))
    text = f"{' * '.join(columns)} {sign} {float(right)}"
    shapes, domains = dict.fromkeys(columns, "increasing"), dict.fromkeys(columns, (0.0, 100.0))
    return Condition(text, comparison(left, sign, right), shapes, domains)


def squares(streams: Sequence[str], sign: str, right: Fraction) -> Condition:
    """Give `a*a + b*b + ... > right`, quasiconvex in each."""
    text = " + ".join(f"{_column(s)} * {_column(s)}" for s in streams)
    judge = comparison(lambda values: sum((x * x for x in _chained(values, streams)), Fraction(0)), sign, right)
    return Condition(f"{text} {sign} {float(right)}", judge, dict.fromkeys(map(_column, streams), "quasiconvex"))


def each_compared(streams: Sequence[str], signs: Sequence[str], word: str, right: Fraction) -> Condition:
    """Give `a > right and b <= right and ...` (or `or`): the least (largest) margin, each with its own strictness."""
    parts = [(stream, sign) for stream, sign in zip(streams, signs, strict=True)]

    def judge(values: Mapping[tuple[str, str], Fraction]) -> tuple[Any, bool, Any]:
        verdicts = [comparison(lambda v, s=s: v[s, "value"], sign, right)(values) for s, sign in parts]
        pick, decide = (min, all) if word == "and" else (max, any)
        margin = pick(verdict[0] for verdict in verdicts)
        return margin, decide(verdict[1] for verdict in verdicts), margin if len(parts) > 1 else verdicts[0][2]

    return Condition(f" {word} ".join(f"{_column(s)} {sign} {float(right)}" for s, sign in parts), judge)


@st.composite
def conditions(draw: st.DrawFn, streams: Sequence[str], *, shaped: bool) -> Condition:
    """Draw a condition over the streams; shaped ones have a known shape in each."""
    sign = draw(st.sampled_from([">", ">="]))
    right = draw(st.integers(-3, 5).map(lambda halves: Fraction(halves, 2)))
    kind = draw(st.sampled_from(["sum", "distance", "max", "product", "squares"] + ["tree"] * (not shaped)))
    if kind == "sum":
        signs = draw(st.lists(st.sampled_from([1, -1]), min_size=len(streams), max_size=len(streams)))
        return signed_sum(streams, signs, sign if shaped else draw(st.sampled_from([sign, "<", "<="])), right)
    if kind == "tree":
        kinds = st.sampled_from([">", ">=", "<", "<="])
        signs = draw(st.lists(kinds, min_size=len(streams), max_size=len(streams)))
        return each_compared(streams, signs, draw(st.sampled_from(["and", "or"])), right)
    return {"distance": distance, "max": largest, "product": product, "squares": squares}[kind](streams, sign, right)


@st.composite
def joins(draw: st.DrawFn, streams: Sequence[str], kinds: Sequence[str] = KINDS) -> Join:
    """Draw a connected graph of bounds that some times meet, or one `within`, sliding or hopping."""
    names, closed = tuple(streams), draw(st.sampled_from(CLOSED))
    kind = draw(st.sampled_from(kinds))
    if len(names) == 1 or kind != "graph":
        within = draw(st.integers(1 if len(names) == 1 else 2, 10))
        hop = draw(st.sampled_from([*range(1, 13), LONG])) if kind == "hop" else None
        return Join(names, within_bounds(names, within), closed, hop, within)
    # Bounds around places that the streams could take together always leave a combination, also with open ends.
    far = draw(st.sampled_from([1, 3, 6]))
    place = {name: draw(st.integers(-far, far)) for name in names}
    pairs = {tuple(draw(st.permutations((draw(st.sampled_from(names[:i])), names[i])))) for i in range(1, len(names))}
    pairs |= set(draw(st.lists(st.sampled_from(list(itertools.combinations(names, 2))), max_size=3)))
    bounds = {}
    for r, s in sorted(pairs):
        if (s, r) not in bounds:
            before, after = draw(st.integers(1, 8)), draw(st.integers(1, 8))
            bounds[r, s] = (place[s] - place[r] - before, place[s] - place[r] + after)
    return Join(names, bounds, closed)


@st.composite
def tables(
    draw: st.DrawFn,
    machines: Sequence[str],
    *,
    negative: bool,
    broken: bool,
    duplicates: bool,
    steps: Sequence[int],
    notes: Sequence[str | None],
    levels: int,
) -> Table:
    """Draw the rows of one stream by time: ties are common, gaps are long, some rows are broken or come twice."""
    least = draw(st.sampled_from([0, 4, 4, 4]))
    gaps = draw(st.lists(st.sampled_from(steps), min_size=least, max_size=9))
    values = st.integers(-levels if negative else 0, levels).map(lambda halves: halves / 2)
    rows = [
        (time, draw(values), draw(st.sampled_from(machines)), draw(st.sampled_from(notes)))
        for time in itertools.accumulate(gaps)
    ]
    if broken and rows:
        unusable = [(2, float("nan"), "m1", None), (3, float("inf"), "m1", None), (4, 1.0, None, None)]
        rows += draw(st.lists(st.sampled_from(unusable), max_size=2))
    again = draw(st.lists(st.sampled_from(rows), max_size=3)) if rows and duplicates else []
    kept = sorted([*(rows if duplicates else dict.fromkeys(rows)), *again], key=lambda row: row[0])
    table = {"ts": [r[0] for r in kept], "value": [r[1] for r in kept], "machine": [r[2] for r in kept]}
    return table | ({"note": [r[3] for r in kept]} if notes != NO_NOTES else {})


@st.composite
def arrivals(draw: st.DrawFn, times: Sequence[int], disorder: str) -> list[int]:
    """Draw when each row arrives; `between` keeps the order inside the stream, which may be far behind the others."""
    if disorder == "between":
        behind = draw(st.sampled_from([0, 0, 3, 25, 60]))
        return list(itertools.accumulate((time + behind + draw(st.integers(0, 3)) for time in times), max))
    furthest = {"none": 0, "bounded": 4, "unbounded": 60}[disorder]
    return [time + draw(st.integers(0, furthest)) for time in times]


@st.composite
def cases(
    draw: st.DrawFn,
    *,
    shaped: bool = False,
    disorder: Sequence[str] = ("none", "between", "bounded", "unbounded"),
    duplicates: bool = True,
    emit: str = "witness",
    streams_of_a_rule: Sequence[int] = (1, 2, 2, 3, 3, 4),
    kinds: Sequence[str] = KINDS,
    steps: Sequence[int] = FINE,
    notes: Sequence[str | None] = NO_NOTES,
    levels: int = 6,
) -> Case:
    """Draw an input and a rule; `shaped` ones declare true shapes of some or all streams."""
    names = NAMES[: draw(st.sampled_from(streams_of_a_rule))]
    condition = draw(conditions(names, shaped=shaped))
    moved = draw(st.sampled_from(disorder))
    machines = ["m1", "m2", "m3"][: draw(st.sampled_from([1, 1, 1, 2, 3]))]
    broken = draw(st.sampled_from([False, False, True]))
    streams = {}
    for name in draw(st.permutations(names)):
        kind = {"negative": not condition.domains, "broken": broken, "duplicates": duplicates}
        table = draw(tables(machines, **kind, steps=steps, notes=notes, levels=levels))
        streams[name] = table | {"arrival": draw(arrivals(table["ts"], moved))}
    declared = [name for name in condition.shapes if shaped and draw(st.sampled_from([True, True, False]))]
    rule = replace(draw(rules(draw(joins(names, kinds)), condition)), emit=emit)
    if emit == "all":
        rule = replace(rule, recovery=None)
    if len(names) == 1 and declared:
        # What one variable decides alone is as its shape says on any domain.
        domain = draw(st.sampled_from([None, None, (-1.5, 1.5)]))
        condition = replace(condition, domains={} if domain is None else {declared[0]: domain})
        rule = replace(rule, shape=condition.shapes[declared[0]], domain=domain)
    return Case(streams, rule, condition, {name: condition.shapes[name] for name in declared})


def reduced(disorder: Sequence[str] = ("none", "bounded", "unbounded"), **options: Any) -> st.SearchStrategy[Case]:
    """Draw an input and a rule of one stream that evaluates only what it must."""
    drawn = cases(shaped=True, disorder=disorder, streams_of_a_rule=(1,), **options)
    at_once = drawn.map(lambda case: replace(case, rule=replace(case.rule, for_us=0)))
    return at_once.filter(lambda case: case.rule.reduction is not None)


@st.composite
def rules(draw: st.DrawFn, join: Join, condition: Condition) -> Rule:
    """Draw how alerts live: each duration absent, short or long."""
    durations = st.sampled_from([0, 0, 1, 3, 7])
    recovery = None
    if condition.threshold is not None and draw(st.sampled_from([True, False])):
        sign, right = condition.threshold
        away = draw(st.sampled_from([Fraction(0), Fraction(1, 2), Fraction(2)]))
        recovery = sign, Fraction(right) - away if sign.startswith(">") else Fraction(right) + away
    return Rule(
        join, condition.judge, tuple((name, "value") for name in join.streams),
        for_us=draw(durations), keep_us=draw(durations), stale_us=draw(st.sampled_from([None, 0, 2, 6, LONG])),
        idle_timeout_us=draw(st.sampled_from([None, 0, 4, LONG])),
        allowed_lateness_us=draw(st.sampled_from([*[LONG] * 3, 20, 5, 0])),
        recovery=recovery,
    )  # fmt: skip
