"""Why an alert was or was not there: what a trace says of one rule around one time, in words.

The first reason decides; those behind it tell of rows near that time which a reader may miss: left out and by what
excused, too late, not usable, outside their domain.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any

import numpy as np

from tocsin.formatting import format_duration, format_event_time, format_number
from tocsin.plan import Threshold
from tocsin.rules.durations import duration_text
from tocsin.runtime.contract import Int
from tocsin.trace import words
from tocsin.trace.model import Evaluation, Life, StoreTrace, Traced
from tocsin.trace.rows import row_reasons
from tocsin.trace.words import When

# One stream has no span; Prometheus's step is a good first guess.
_AROUND_US = 60_000_000
_MOST_NEAR = 1_000


@dataclass(frozen=True)
class Reason:
    """One thing that is so: its kind, a sentence, and the numbers behind it."""

    kind: str
    text: str
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Answer:
    """Whether an alert was there at a time (`firing`, `pending` or `not firing`), and why."""

    verdict: str
    reasons: tuple[Reason, ...]


def default_around(rule: Threshold) -> int:
    """How far around a time rows count as near: the span of the rule, or a minute."""
    return rule.topology.span_us or rule.topology.window_us or _AROUND_US


def why(traced: Traced, rule: Threshold, at_us: int, around_us: int | None = None, *, is_late: bool = False) -> Answer:
    """Say whether an alert was there at a time, and why; of a late one and one in time `is_late` says which."""
    reach = default_around(rule) if around_us is None else around_us
    lives = [life for life in traced.lives(rule) if life.covers(at_us)]
    verdict, first = "not firing", list[Reason]()
    if lives:
        best = max(lives, key=lambda life: (life.has_fired, life.is_late == is_late))
        verdict, reason = _of_life(traced, best, rule, at_us)
        first = [reason]
    if verdict == "not firing":
        unlimited = _without_limits(traced, rule)
        rest = _without_life(traced, rule, at_us, reach)
        # A number that is not there makes a condition undefined: that has been said.
        first = [*first, *unlimited, *(one for one in rest if not unlimited or one.kind != "undefined")]
    notes = [Reason(*note) for note in row_reasons(traced, rule, at_us, reach)]
    supposed = [Reason("budget-assumed", traced.supposed)] if traced.supposed else []
    return Answer(verdict, (*first, *notes, *supposed))


def _of_life(traced: Traced, life: Life, rule: Threshold, at_us: int) -> tuple[str, Reason]:
    life = _known(traced, life, rule)
    facts, fired_us = life_facts(life), life.fires_us
    if fired_us is None or at_us < fired_us:
        text = f"pending since {format_event_time(life.start_us)}, because `for` is {duration_text(rule.for_us)}"
        if fired_us is not None:
            return "pending", Reason("pending", f"{text}; it fired at {format_event_time(fired_us)}", facts)
        ended = (
            "the input ends before"
            if life.end_us is None
            else f"it ended at {format_event_time(life.end_us)} without firing"
        )
        return "pending", Reason("pending", f"{text}; {ended}", facts)
    end = "and is still open at the last row" if life.end_us is None else f"until {format_event_time(life.end_us)}"
    late = "; it is a late alert, raised by an out-of-order row" if life.is_late else ""
    shown = f"largest margin {format_number(life.margin)} with {_shown(life.witness)}"
    fired = "" if fired_us == life.start_us else f" at {format_event_time(fired_us)}"
    text = f"it fired{fired}: alert {life.id} from {format_event_time(life.start_us)} {end}{late}"
    text += f"; value {format_number(life.value)}, {shown}"
    return "firing", Reason("fired", text, facts)


def _known(traced: Traced, life: Life, rule: Threshold) -> Life:
    """A life that is open was last told when it fired: what came since may have a larger margin."""
    since = [one for one in traced.evaluations_of(rule) if one.time_us >= life.start_us]
    best = closest(one for one in since if one.is_late == life.is_late)
    if life.end_us is not None or best is None or best.margin <= life.margin:
        return life
    witness = []
    for store, (stream, row) in zip(traced.stores_of(rule), best.partners, strict=True):
        values = {column: float(store.rows.values[column][row]) for column in store.store.columns}
        witness.append({"stream": stream, "time": int(store.rows.time[row]), "values": values})
    return replace(life, value=best.value, margin=best.margin, witness=tuple(witness))


def life_facts(life: Life) -> dict[str, Any]:
    """Return identity, times, numbers and witness of an alert."""
    return {
        "id": life.id,
        "startsAt": life.start_us,
        "firesAt": life.fires_us,
        "endsAt": life.end_us,
        "late": life.is_late,
        "value": life.value,
        "margin": life.margin,
        "witness": list(life.witness),
    }


def _shown(witness: Iterable[Any]) -> str:
    return ", ".join(
        f"{words.named(part['stream'], column)} {format_number(value)} at {format_event_time(part['time'])}"
        for part in witness
        for column, value in part["values"].items()
    )


def _without_limits(traced: Traced, rule: Threshold) -> list[Reason]:
    text = words.without_limits_text(traced, rule)
    return [Reason("without-limits", text, {"tables": rule.tables_without(traced.key)})] if text else []


def _without_life(traced: Traced, rule: Threshold, at_us: int, reach: int) -> list[Reason]:
    near = [one for one in traced.evaluations_of(rule) if abs(one.time_us - at_us) <= reach]
    if not near:
        return _not_evaluated(traced, rule, at_us, reach)
    best = closest(near)
    if best is None:
        text = f"the condition is undefined in all {len(near)} evaluations within {duration_text(reach)}"
        return [Reason("undefined", f"{text}, for example by x/0 or ln(0)", {"evaluations": len(near)})]
    facts: dict[str, Any] = {"time": best.time_us, "value": best.value, "margin": best.margin, "late": best.is_late}
    facts["witness"] = [{"stream": stream, "row": row} for stream, row in best.partners]
    shown = f"value {format_number(best.value)}, margin {format_number(best.margin)}"
    shown += f" ({words.witness_text(traced, rule, best, format_event_time)})"
    if best.is_true:
        return [
            Reason(
                "true-nearby",
                f"the condition was true at {format_event_time(best.time_us)}, {_of(best, at_us)}: {shown}",
                facts,
            )
        ]
    text = f"below the threshold: the closest of {len(near)} evaluations within {duration_text(reach)}"
    return [Reason("below", f"{text} is at {format_event_time(best.time_us)}: {shown}", facts)]


def _of(evaluation: Evaluation, at_us: int) -> str:
    return words.distance(at_us, evaluation.time_us)


def closest(evaluations: Iterable[Evaluation]) -> Evaluation | None:
    """The evaluation with the largest margin, the first of equal ones; None if the condition was never defined."""
    defined = [one for one in evaluations if one.margin > -math.inf]
    return max(defined, key=lambda one: (one.margin, one.is_true, -one.time_us), default=None)


def closest_text(traced: Traced, rule: Threshold, evaluation: Evaluation | None, when: When) -> str:
    """Return the evaluation that was closest to the threshold as text."""
    if evaluation is None:
        nothing = "no evaluation for these labels: no rows joined, or the condition is undefined"
        return words.without_limits_text(traced, rule) or nothing
    shown = words.witness_text(traced, rule, evaluation)
    return f"closest: margin {evaluation.margin:.6g} at {when(evaluation.time_us)} ({shown})"


def _not_evaluated(traced: Traced, rule: Threshold, at_us: int, reach: int) -> list[Reason]:
    """Nothing was evaluated: a stream has no rows near, or its rows lie outside the band."""
    stores = traced.stores_of(rule)
    if not traced.dead and not any(len(rows.time) for rows in traced.rows.values()):
        key = ", ".join(f"{name}={text}" for name, text in zip(traced.watch.on, traced.key, strict=True))
        return [Reason("missing", f"the sources have no row of this key ({key})", {"streams": list(traced.rows)})]
    missing = [reason for store in stores if (reason := _missing(store, at_us, reach)) is not None]
    if missing:
        return missing
    apart = _apart(stores, rule, at_us, reach)
    if apart is not None:
        return [apart]
    text = f"no row within {duration_text(reach)} was evaluated: the rows were omitted or arrived too late"
    return [Reason("not-evaluated", text)]


def _missing(store: StoreTrace, at_us: int, reach: int) -> Reason | None:
    name = store.store.stream
    times = store.rows.time[store.usable]
    if not len(times):
        return Reason("missing", f"no valid row of `{name}` for this key", {"stream": name})
    nearest = int(times[np.argmin(np.abs(times - at_us))])
    if abs(nearest - at_us) <= reach:
        return None
    text = f"no row of `{name}` within {duration_text(reach)}; the nearest is {words.distance(at_us, nearest)}"
    return Reason("missing", text, {"stream": name, "nearest": nearest})


def _apart(stores: Sequence[StoreTrace], rule: Threshold, at_us: int, reach: int) -> Reason | None:
    """The two streams whose rows near a time fail their bound by most, and by how much their best rows fail it."""
    near = [_nearest(store, at_us, reach) for store in stores]
    worst: tuple[int, int, int, int, int] | None = None
    for i, j in combinations(range(len(near)), 2):
        after = near[j][None, :] - near[i][:, None]
        over = np.maximum(after - rule.topology.implied[i][j], -after - rule.topology.implied[j][i])
        a, b = np.unravel_index(int(np.argmin(over)), over.shape)
        if over[a, b] > 0 and (worst is None or over[a, b] > worst[0]):
            worst = int(over[a, b]), i, j, int(near[i][a]), int(near[j][b])
    if worst is None:
        return _no_window(rule)
    over_us, i, j, first_us, second_us = worst
    names = [store.store.stream for store in stores]
    text = f"outside the time bound: `{names[j]}` at {format_event_time(second_us)} is "
    text += f"{words.distance(first_us, second_us)} "
    text += (
        f"`{names[i]}` at {format_event_time(first_us)}; {_allowed(rule, i, j)}, exceeded by {format_duration(over_us)}"
    )
    return Reason("outside-bounds", text, {"by_us": over_us, "streams": [names[i], names[j]]})


def _nearest(store: StoreTrace, at_us: int, reach: int) -> Int:
    """Times of the usable rows near a time, the nearest first; of very many, some."""
    times = store.rows.time[store.usable & (np.abs(store.rows.time - at_us) <= reach)]
    return times[np.argsort(np.abs(times - at_us), kind="stable")][:_MOST_NEAR]


def _allowed(rule: Threshold, i: int, j: int) -> str:
    """Return the time bound between two streams of a rule as text."""
    latest, earliest = rule.topology.implied[i][j], -rule.topology.implied[j][i]
    if latest == -earliest:
        return f"`within` allows a distance of at most {duration_text(latest)}"
    return f"`within` allows {duration_text(earliest)} to {duration_text(latest)} after"


def _no_window(rule: Threshold) -> Reason | None:
    if not rule.topology.hop_us:
        return None
    text = f"outside the time bound: no window of {duration_text(rule.topology.window_us)}, hopping by "
    return Reason("outside-bounds", f"{text}{duration_text(rule.topology.hop_us)}, contains a row of each stream")
