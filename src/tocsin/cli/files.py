"""Read rule files for commands: with the planner and the sinks that will run them, and this process's environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from tocsin.deliver import make_sink
from tocsin.errors import PlanError
from tocsin.plan import make_plan
from tocsin.plan.file import plan_file
from tocsin.rules.load import WHERE, Checked, check_rule_file
from tocsin.rules.mistakes import WARNING, Mistake

# What decides nothing makes no rule wrong; the plan that runs is made when all rules are read.
_planned = partial(make_plan, bounded=False)


def check_file(path: str | Path, environment: Mapping[str, str]) -> Checked:
    """Say all that is wrong with a rule file; rules are planned together where they share a budget."""
    checked = check_rule_file(path, _planned, environment, make_sink)
    file = checked.file
    if file is None or not file.rules or (file.memory is None and file.cpu is None):
        return checked
    try:
        watches = plan_file(file).watches
    except PlanError as error:
        return replace(checked, file=None, mistakes=(_of_file(checked, str(error)),))
    idle = []
    if file.cpu is not None and not any(watch.anytime for watch in watches):
        name = "deadline" if file.cpu.cores is None else "cpu"
        idle.append(f"`{name}` changes nothing: no rule of this file emits all over one or two streams, without a wait")
    if file.memory is not None and not any(watch.budget for watch in watches):
        idle.append("`memory` changes nothing: no rule of this file joins streams without a wait")
    warnings = [replace(_of_file(checked, sentence), kind=WARNING) for sentence in idle]
    return replace(checked, warnings=(*checked.warnings, *warnings))


def _of_file(checked: Checked, sentence: str) -> Mistake:
    return Mistake(checked.path, 1, 1, WHERE, sentence)
