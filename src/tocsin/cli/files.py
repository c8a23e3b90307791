"""Read rule files for commands: with the planner and the sinks that will run them, and this process's environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from tocsin.deliver import make_sink
from tocsin.errors import PlanError
from tocsin.plan import make_plan
from tocsin.plan.file import plan_file
from tocsin.rules.load import WHERE, Checked, check_rule_file, load_rule_file
from tocsin.rules.mistakes import Mistake
from tocsin.rules.rulefile import RuleFile

# What decides nothing makes no rule wrong; the plan that runs is made when all rules are read.
_planned = partial(make_plan, bounded=False)


def check_file(path: str | Path, environment: Mapping[str, str]) -> Checked:
    """Say all that is wrong with a rule file; rules are planned together where they share a memory."""
    checked = check_rule_file(path, _planned, environment, make_sink)
    if checked.file is None or checked.file.memory is None or not checked.file.rules:
        return checked
    try:
        plan_file(checked.file)
    except PlanError as error:
        mistake = Mistake(checked.path, 1, 1, WHERE, str(error))
        return replace(checked, file=None, mistakes=(mistake,))
    return checked


def load_file(path: str | Path) -> RuleFile:
    """Read a rule file for use; mistakes are raised together, as a RuleFileError."""
    return load_rule_file(path, _planned, os.environ, make_sink)
