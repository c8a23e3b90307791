"""Read rule files for commands: with the planner and the sinks that will run them, and this process's environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from tocsin.deliver import make_sink
from tocsin.plan import make_plan
from tocsin.rules.load import Checked, check_rule_file, load_rule_file
from tocsin.rules.rulefile import RuleFile

# What decides nothing makes no rule wrong; the plan that runs is made when all rules are read.
_planned = partial(make_plan, bounded=False)


def check_file(path: str | Path, environment: Mapping[str, str]) -> Checked:
    """Say all that is wrong with a rule file."""
    return check_rule_file(path, _planned, environment, make_sink)


def load_file(path: str | Path) -> RuleFile:
    """Read a rule file for use; mistakes are raised together, as a RuleFileError."""
    return load_rule_file(path, _planned, os.environ, make_sink)
