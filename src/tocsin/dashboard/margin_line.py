"""The margin of one key over time, out of the rows that its run archived; runs in the process of `tracer.py`.

A run writes no margin between alerts, for where a rule cannot be true the engine does not evaluate it. Here the rows of
the key go through the run's own plan once more, and every evaluation is told.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tocsin.dashboard.series import Series
from tocsin.dashboard.tracer import CannotTraceError, rows_of, rule_file, trace_rows
from tocsin.plan import Threshold, Watch, plan_file
from tocsin.rules.rulefile import RuleFile

# Rules of one name, each with a margin of its own.
_MOST_RULES = 3


def margin_lines(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Give, per rule of a name, the smallest and the largest margin of each pixel of a span of event time."""
    file = rule_file(asked)
    rules = [(watch, rule) for watch in plan_file(file).watches for rule in watch.rules]
    mine = [(watch, rule) for watch, rule in rules if (rule.alert, list(watch.on)) == (asked["alert"], asked["on"])]
    if not mine:
        columns = ", ".join(asked["on"]) or "no columns"
        message = f"the rule file has no rule {asked['alert']!r} on {columns} with a condition"
        raise CannotTraceError(message)
    return {"lines": [_line(asked, file, watch, rule) for watch, rule in mine[:_MOST_RULES]]}


def _line(asked: Mapping[str, Any], file: RuleFile, watch: Watch, rule: Threshold) -> dict[str, Any]:
    begin, stop = asked["span"]
    # Since when rows matter: what is older is forgotten when the line begins.
    since = begin - watch.horizon_us - 2 * rule.lag_us
    found = trace_rows(watch, asked["key"], rows_of(asked, file, watch, asked["key"], (since, stop)))
    inside = (one for one in found.evaluations_of(rule) if begin <= one.time_us <= stop and math.isfinite(one.margin))
    series, number = Series(), 0
    for one in sorted(inside, key=lambda one: one.time_us):
        series.add(one.time_us, one.margin)
        number += 1
    return {
        "description": str(rule).partition("\n")[0],
        "evaluations": number,
        "stretches": series.stretches(begin, stop, asked["pixels"]),
    }
