"""Say why an alert that was expected is not there: it is pending, it ended, or how close its condition came.

What came closest is found by a trace of the rows that have arrived; `tocsin.trace` has the words.
"""

from __future__ import annotations

from collections.abc import Mapping

from tocsin.errors import TocsinError
from tocsin.logic import Int
from tocsin.plan import Threshold, Watch
from tocsin.plan.steps import Silence
from tocsin.rules.durations import duration_text
from tocsin.testing.model import Scenario
from tocsin.testing.replay import Moment
from tocsin.testing.rows import make_batches
from tocsin.testing.units import Unit
from tocsin.trace import KeyRows, trace
from tocsin.trace.answer import closest, closest_text
from tocsin.trace.words import life_text


def explain(scenario: Scenario, unit: Unit, moment: Moment, name: str, labels: Mapping[str, str], time_us: int) -> str:
    """Say why no alert of a name fires with some labels at a time; nothing if that cannot be said."""
    lives = [alert for alert in (*moment.ended, *moment.alerts) if alert.name == name and alert.labels == labels]
    rule = unit.step(name, labels)
    if lives:
        return life_text(lives[-1].state, lives[-1].starts_at_us, lives[-1].ends_at_us, rule.for_us, duration_text)
    watch = unit.only([name])
    key = tuple(str(labels.get(column)) for column in watch.on)
    rows = _arrived(scenario, unit, watch, key, time_us)
    if isinstance(rule, Silence):
        return _not_silent(rule, rows[rule.stream].time - scenario.start_us, time_us)
    try:
        traced = trace(watch, key, rows)
    except TocsinError:
        return ""
    until = scenario.start_us + time_us
    best = closest(one for one in traced.evaluations_of(rule) if one.time_us <= until)
    text = closest_text(traced, rule, best, lambda time: duration_text(time - scenario.start_us))
    return f"{text}; {_waiting(rule)}" if best is not None and best.margin > 0 else text


def _arrived(scenario: Scenario, unit: Unit, watch: Watch, key: tuple[str, ...], time_us: int) -> dict[str, KeyRows]:
    """The rows of a key, as far as they have arrived by a time."""
    rows = dict[str, KeyRows]()
    for batch in make_batches(scenario, unit.file, watch):
        at = batch.arrival <= scenario.start_us + time_us
        at &= batch.key == (batch.keys.index(key) if key in batch.keys else -1)
        values = {column: value[at] for column, value in batch.values.items()}
        rows[batch.stream] = KeyRows(batch.time[at], batch.arrival[at], values)
    return rows


def _not_silent(silence: Silence, times: Int, time_us: int) -> str:
    """Why a key does not count as silent: it has no row, its time is not over, or nothing has passed its end."""
    if not len(times):
        return f"no row of `{silence.stream}` with these labels: a key is not silent before its first row"
    last = int(times.max())
    due = last + silence.for_us
    wait = f"`for` is {duration_text(silence.for_us)}, over at {duration_text(due)}"
    text = f"the last row of `{silence.stream}` is at {duration_text(last)}; {wait}"
    return f"{text}; no row has passed {duration_text(due)} yet" if time_us > due else text


def _waiting(rule: Threshold) -> str:
    """Why a condition that held has not been told yet."""
    if rule.lag_us:
        return f"a rule of one stream that leaves rows out tells it {duration_text(rule.lag_us)} later"
    return "it is not told before the slower streams have come so far, or count as idle"
