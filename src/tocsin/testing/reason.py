"""Say why an alert that was expected is not there: it is pending, it ended, or how close its condition came.

The closest evaluation is found by the engine itself: the rule is run once more with a condition that always holds and
grows with the margin of the real one, so that each evaluation becomes an alert of its own which shows that margin.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from tocsin.errors import TocsinError
from tocsin.expr import Binary, Bool, Call, Compare, Node, parse_condition
from tocsin.logic import Batch
from tocsin.rules.durations import duration_text, microseconds
from tocsin.rules.model import Rule
from tocsin.rules.template import plain
from tocsin.testing.model import Scenario
from tocsin.testing.replay import Alert, Moment, Replay
from tocsin.testing.rows import make_batches
from tocsin.testing.units import Unit, plan_rules

# Far behind all rows of a test and all that they could meet.
_LATER_US = 10**17


def explain(scenario: Scenario, unit: Unit, moment: Moment, name: str, labels: Mapping[str, str], time_us: int) -> str:
    """Say why no alert of a name fires with some labels at a time; nothing if that cannot be said."""
    rule = unit.rules[name]
    lives = [alert for alert in (*moment.ended, *moment.alerts) if alert.name == name and alert.labels == labels]
    if lives:
        return _of_life(lives[-1], rule)
    try:
        closest = _closest(scenario, unit, rule, labels, time_us)
    except TocsinError:
        return ""
    if closest is None:
        return "nothing was evaluated for these labels: no rows met, or the condition is undefined"
    margin = math.copysign(math.expm1(abs(closest.value)), closest.value)
    values = ", ".join(
        f"{stream}{'' if column == 'value' else f'.{column}'} {plain(number)}"
        for stream, columns in closest.witness.items()
        for column, number in columns.items()
    )
    waits = f"; {_waiting(unit, name)}" if margin > 0 else ""
    return f"closest: margin {margin:.6g} at {duration_text(closest.starts_at_us)} ({values}){waits}"


def _waiting(unit: Unit, name: str) -> str:
    """Why a condition that held has not been told yet."""
    lag_us = next(rule.lag_us for rule in unit.watch.rules if rule.alert == name)
    if lag_us:
        return f"a rule of one stream that leaves rows out tells it {duration_text(lag_us)} later"
    return "it is not told before the slower streams have come so far, or count as idle"


def _of_life(alert: Alert, rule: Rule) -> str:
    start = duration_text(alert.starts_at_us)
    wait_us = microseconds(rule.for_, "`for`")
    wait = f"`for` is {duration_text(wait_us)}"
    if alert.state == "pending":
        return f"pending since {start}; {wait}, over at {duration_text(alert.starts_at_us + wait_us)}"
    end = "" if alert.ends_at_us is None else duration_text(alert.ends_at_us)
    if alert.state == "inactive":
        return f"it was pending from {start} to {end}; {wait}"
    return f"it began at {start} and was resolved at {end}" if end else f"it is {alert.state} since {start}"


def _closest(scenario: Scenario, unit: Unit, rule: Rule, labels: Mapping[str, str], time_us: int) -> Alert | None:
    """The evaluation with the largest margin up to a time, for the key that labels have."""
    # A life that ends after a microsecond of silence is one evaluation.
    probe = replace(
        rule,
        expr=_always(rule.expr),
        shapes={},
        domains={},
        labels={},
        annotations={},
        for_=0,
        keep_firing_for=0,
        stale=1,
        emit="witness",
        recovery=None,
    )
    watch = plan_rules(unit.file, [probe]).watches[0]
    batches = [_with_end(batch, scenario.start_us + time_us) for batch in make_batches(scenario, unit.file, watch)]
    replay = Replay(scenario, watch, {probe.alert: probe}, batches)
    replay.go_to(time_us + _LATER_US)
    key = {name: labels.get(name) for name in rule.on}
    found = [alert for alert in replay.moment(time_us + 2 * _LATER_US).ended if alert.labels == key]
    in_time = [alert for alert in found if alert.starts_at_us <= time_us]
    return max(in_time, key=lambda alert: alert.value, default=None)


def _with_end(batch: Batch, until: int) -> Batch:
    """The rows that have arrived by a time, and behind them one per key that ends every life."""
    mine = batch.arrival <= until
    _, last = np.unique(batch.key[::-1], return_index=True)
    at = np.concatenate([np.flatnonzero(mine), len(mine) - 1 - last])
    is_end = np.arange(len(at)) >= mine.sum()
    time = np.where(is_end, until + _LATER_US, batch.time[at])
    arrival = np.where(is_end, until + _LATER_US, batch.arrival[at])
    values = {name: column[at] for name, column in batch.values.items()}
    return replace(batch, key=batch.key[at], time=time, arrival=arrival, values=values)


def _always(expr: str) -> str:
    """A condition that always holds where its margin is defined, and grows with the margin of another.

    The logarithm keeps small and large margins apart: `expm1` gives them back.
    """
    margin = _margin(parse_condition(expr))
    return f"where({margin} >= 0, ln(1 + ({margin})), -ln(1 - ({margin}))) > -1000"


def _margin(node: Node) -> Node:
    if isinstance(node, Bool):
        parts: Sequence[Node] = [_margin(part) for part in node.args]
        return Call("min" if node.op == "and" else "max", tuple(parts))
    assert isinstance(node, Compare)
    greater = node.op in {">", ">="}
    return Binary("-", node.left if greater else node.right, node.right if greater else node.left)
