"""Rule files, loaded in the same way as by commands."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

from tocsin.delivery import make_sink
from tocsin.plan import plan_rules
from tocsin.rules.load import load_rule_file
from tocsin.rules.rulefile import RuleFile


def load_file(path: str | Path) -> RuleFile:
    """Return a rule file; raise a RuleFileError with all its errors."""
    return load_rule_file(path, partial(plan_rules, bounded=False), os.environ, make_sink)
