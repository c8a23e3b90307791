"""Renamed keys: an old key of a rule file, and an old parameter of a rule, is an error that names the new key."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from rules.files import GOOD, marked, said
from rules.test_ranges import GOOD as WITH_RANGES
from tocsin import RangeRule, Rule, RuleError
from tocsin.rules.suggestions import RENAMED

AIR, FIRST = 'stream "air": ', 'group "cold-store": rule "Condensation": '

# Old name -> text of the good file, its replacement with `»` at the expected position, and the error.
FILES: dict[str, tuple[str, str, str]] = {
    "ahead": ("idle_timeout: 1m", "»ahead: 1m", AIR + "`ahead` is not a key of a stream; use `max_ahead`"),
    "idle": ("idle_timeout: 1m", "»idle: 1m", AIR + "`idle` is not a key of a stream; use `idle_timeout`"),
    "outage": (
        "stale: 1m", "»outage: 1h", FIRST + "`outage` is not a key of a rule; use `allowed_lateness`"),
    "show_past": (
        "  - console:", '  - alertmanager: {url: "http://host:9093", »show_past: 1d}',
        "sink 1: alertmanager: `show_past` is not a key of sink `alertmanager`; use `max_age`"),
    "spread": (
        "        shards: 4", "        »spread: 4",
        'group "desk": rule "SharesSold": `spread` is not a key of a rule with `ranges`; use `shards`'),
    "starting": (
        "topic: surface,", "topic: surface, »starting: earliest,",
        'stream "surface": kafka: `starting` is not a key of source `kafka`; use `starting_offsets`'),
    "whole": (
        "shapes: {air: increasing}", "shapes: {air: »whole}",
        FIRST + "`shapes['air']` must be one of increasing, decreasing, quasiconvex, unreduced; got 'whole'; "
        "use `unreduced`"),
}  # fmt: skip

FILES |= {
    name: ("stale: 1m", f"»{name}: 5", f"{FIRST}`{name}` is not a key of a rule; use `quality.{name}`")
    for name in ("wait", "memory", "cpu", "deadline", "prefer", "model", "weight")
}
FILES |= {
    old: (
        "stale: 1m",
        f"quality: {{recall: 0.9, »{old}: 1s}}",
        f"{FIRST}`{old}` is not a key of `quality`; use `{new}`",
    )
    for old, new in {"over": "period", "every": "adapt_every", "grain": "step"}.items()
}

# Old name -> class, parameters and error.
PARAMETERS: dict[str, tuple[type[Rule | RangeRule], dict[str, Any], str]] = {
    "every": (
        Rule, {"quality": {"recall": 0.9, "every": "1s"}}, "`every` is not a key of `quality`; use `adapt_every`"),
    "idle": (Rule, {"idle": "1m"}, "`idle` is not a parameter of Rule; use `idle_timeout`"),
    "memory": (Rule, {"memory": "5MB"}, "`memory` is not a parameter of Rule; use `quality.memory`"),
    "outage": (Rule, {"outage": "1h"}, "`outage` is not a parameter of Rule; use `allowed_lateness`"),
    "spread": (RangeRule, {"spread": 2}, "`spread` is not a parameter of RangeRule; use `shards`"),
    "whole": (
        Rule, {"shapes": {"a": "whole"}},
        "`shapes['a']` must be one of increasing, decreasing, quasiconvex, unreduced; got 'whole'; use `unreduced`"),
}  # fmt: skip
REQUIRED: dict[type[Rule | RangeRule], dict[str, str]] = {
    Rule: {"alert": "Hot", "expr": "a > 1"},
    RangeRule: {"alert": "Hot", "values": "a.value", "requests": "b"},
}


@pytest.mark.parametrize("name", FILES)
def test_rule_file_error_names_the_new_key_when_an_old_key_is_used(name: str, tmp_path: Path) -> None:
    good, replacement, error = FILES[name]
    file = WITH_RANGES if name == "spread" else GOOD
    assert good in file
    text, position = marked(file.replace(good, replacement, 1))
    assert said(tmp_path, text) == [f"{position}: {error}"]


def test_rule_file_cases_cover_every_renamed_key() -> None:
    assert set(FILES) == set(RENAMED)


@pytest.mark.parametrize("name", PARAMETERS)
def test_rule_error_names_the_new_parameter_when_an_old_parameter_is_used(name: str) -> None:
    rule, given, error = PARAMETERS[name]
    with pytest.raises(RuleError, match="^" + re.escape(f'rule "Hot": {error}') + "$"):
        rule(**REQUIRED[rule], **given)


def test_rule_raises_a_type_error_when_a_parameter_is_unknown() -> None:
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'colour'"):
        Rule("Hot", "a > 1", colour="red")  # type: ignore[call-arg]
