"""Rule files as commands read them, for tests that need one."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

from tocsin.deliver import make_sink
from tocsin.plan import make_plan
from tocsin.rules.load import load_rule_file
from tocsin.rules.rulefile import RuleFile


def load_file(path: str | Path) -> RuleFile:
    """Read a rule file for use; mistakes are raised together, as a RuleFileError."""
    return load_rule_file(path, partial(make_plan, bounded=False), os.environ, make_sink)
