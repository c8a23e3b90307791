"""Failure reason: explain why an expected alert is missing.

No rule has the labels, or the alert is pending, or it has ended, or its condition was false. In the last case, a trace
of the arrived rows finds the evaluation with the largest margin.
"""

from __future__ import annotations

from collections.abc import Mapping

from tocsin.errors import TocsinError
from tocsin.formatting import format_labels
from tocsin.plan import Silence, Threshold, Watch
from tocsin.rules.durations import duration_text
from tocsin.runtime.contract import Int
from tocsin.testing.model import Scenario
from tocsin.testing.replay import KnownAlerts
from tocsin.testing.rule_groups import RuleGroup
from tocsin.testing.series_rows import make_batches
from tocsin.trace import KeyRows, trace
from tocsin.trace.answer import closest, closest_text
from tocsin.trace.words import life_text


def explain_missing_alert(
    scenario: Scenario, group: RuleGroup, known: KnownAlerts, name: str, labels: Mapping[str, str], time_us: int
) -> str:
    """Return why no alert with this name and these labels fires at a time, or an empty text if that is unknown."""
    if not group.raises(name, labels):
        return _explain_labels(group, name, labels)
    past = [alert for alert in (*known.ended, *known.alerts) if alert.name == name and alert.labels == labels]
    rule = group.step(name, labels)
    if past:
        return life_text(past[-1].state, past[-1].starts_at_us, past[-1].ends_at_us, rule.for_us, duration_text)
    watch = group.select([name])
    key = tuple(str(labels.get(column)) for column in watch.on)
    rows = _arrived_rows(scenario, group, watch, key, time_us)
    if isinstance(rule, Silence):
        return _explain_no_data(rule, rows[rule.stream].time - scenario.start_us, time_us)
    try:
        traced = trace(watch, key, rows)
    except TocsinError:
        return ""
    until = scenario.start_us + time_us
    best = closest(one for one in traced.evaluations_of(rule) if one.time_us <= until)
    text = closest_text(traced, rule, best, lambda time: duration_text(time - scenario.start_us))
    return f"{text}; {_explain_delay(rule)}" if best is not None and best.margin > 0 else text


def _explain_labels(group: RuleGroup, name: str, labels: Mapping[str, str]) -> str:
    """Return the labels that alerts of the rule have. A key that is not given is shown as dots."""
    keys = {column: labels.get(column, "...") for column in group.watch.on}
    return f"alerts of this rule have the labels {format_labels({**keys, **dict(group.step(name, labels).labels)})}"


def _arrived_rows(
    scenario: Scenario, group: RuleGroup, watch: Watch, key: tuple[str, ...], time_us: int
) -> dict[str, KeyRows]:
    """Return the rows of a key that have arrived by a time."""
    rows = dict[str, KeyRows]()
    for batch in make_batches(scenario, group.file, watch):
        at = batch.arrival <= scenario.start_us + time_us
        at &= batch.key == (batch.keys.index(key) if key in batch.keys else -1)
        values = {column: value[at] for column, value in batch.values.items()}
        rows[batch.stream] = KeyRows(batch.time[at], batch.arrival[at], values)
    return rows


def _explain_no_data(silence: Silence, times: Int, time_us: int) -> str:
    """Return why a no-data alert does not fire: no row, `for` is not over, or no row has advanced event time."""
    if not len(times):
        return f"no row of `{silence.stream}` with these labels: a no-data alert needs a first row"
    last = int(times.max())
    due = last + silence.for_us
    wait = f"`for` is {duration_text(silence.for_us)}, ends at {duration_text(due)}"
    text = f"the last row of `{silence.stream}` is at {duration_text(last)}; {wait}"
    return f"{text}; no row after {duration_text(due)} has arrived yet" if time_us > due else text


def _explain_delay(rule: Threshold) -> str:
    """Return why an alert whose condition is true has not been emitted yet."""
    if rule.lag_us:
        return f"a rule that omits rows of a single stream emits it {duration_text(rule.lag_us)} later"
    return "it is emitted when the slower streams reach this time or are idle"
